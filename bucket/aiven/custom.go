package aiven

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Tags of the custom metadata, each there only if the plug-in's custom.metadata.fields.include names it.
const (
	tagRemoteSize   = 0
	tagObjectPrefix = 1
	tagObjectKey    = 2
)

// customMetadata is what the plug-in may have recorded with a segment in the metadata topic.
type customMetadata struct {
	remoteSize           int64 // of all objects together; -1: not recorded
	prefix, key          string
	hasPrefix, hasObject bool
}

var errCustom = errors.New("custom metadata is not the plug-in's")

// parseCustomMetadata reads tagged fields: a count, then for each tag, size and payload, in order of tags. Unknown tags are passed over.
func parseCustomMetadata(b []byte) (customMetadata, error) {
	c := customMetadata{remoteSize: -1}
	if len(b) == 0 {
		return c, nil
	}
	count, b, ok := uvarint(b)
	if !ok {
		return c, fmt.Errorf("%w: no count", errCustom)
	}
	last := int64(-1)
	for ; count > 0; count-- { // each field takes two bytes at least, so that bytes end before a wild count does
		var tag, size uint64
		if tag, b, ok = uvarint(b); !ok || int64(tag) <= last || tag > 1<<31-1 {
			return c, fmt.Errorf("%w: tag", errCustom)
		}
		if size, b, ok = uvarint(b); !ok || size > uint64(len(b)) {
			return c, fmt.Errorf("%w: size of tag %d", errCustom, tag)
		}
		if !c.take(tag, b[:size]) {
			return c, fmt.Errorf("%w: payload of tag %d", errCustom, tag)
		}
		last, b = int64(tag), b[size:]
	}
	if len(b) != 0 {
		return c, fmt.Errorf("%w: %d bytes too many", errCustom, len(b))
	}
	return c, nil
}

func (c *customMetadata) take(tag uint64, payload []byte) (ok bool) {
	switch tag {
	case tagRemoteSize:
		size, n := binary.Varint(payload)
		c.remoteSize = size
		return n == len(payload) && n > 0
	case tagObjectPrefix:
		c.prefix, c.hasPrefix = compactString(payload)
		return c.hasPrefix
	case tagObjectKey:
		c.key, c.hasObject = compactString(payload)
		return c.hasObject
	}
	return true
}

// base reads the base offset out of the object's name, if that is recorded.
func (c *customMetadata) base(id remotestorage.RemoteLogSegmentID) (int64, bool) {
	file, ok := strings.CutPrefix(c.key, partitionDir(id.TopicIDPartition))
	if !ok {
		return 0, false
	}
	return baseOf(file, id.ID)
}

// baseOf reads the base offset out of a file's name that begins as segmentName does.
func baseOf(file string, id remotestorage.UUID) (int64, bool) {
	if len(file) < offsetDigits+1+idLength || file[offsetDigits:offsetDigits+1+idLength] != "-"+id.String() {
		return 0, false
	}
	base, err := strconv.ParseUint(file[:offsetDigits], 10, 63)
	return int64(base), err == nil
}

func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, b, false
	}
	return v, b[n:], true
}

// compactString is Kafka's: the length plus one as uvarint, then the bytes.
func compactString(b []byte) (string, bool) {
	n, b, ok := uvarint(b)
	if !ok || n == 0 || n-1 != uint64(len(b)) {
		return "", false
	}
	return string(b), true
}
