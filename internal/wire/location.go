package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// maxURL bounds a location's URLs. The longest presigned ones (S3 with a session token) stay under 3 KiB.
const maxURL = 16 << 10

// AppendLocation appends the RemoteLogSegment struct, the payload of tag 124802, in KIP-482's flexible encoding with a tag section of its own:
//
//	RemoteLogSegmentId uuid, StorageFormatVersion compact string, BaseOffset int64, EndOffset int64, LastOffset int64,
//	SegmentSizeInBytes int64, StartPosition int64, EndPosition int64, RemoteLogSegmentLocation compact nullable string,
//	SignedRemoteLogSegmentLocation compact nullable string, SignedLocationExpiryMs int64, CustomMetadata compact nullable bytes, tags
func AppendLocation(dst []byte, l *remotestorage.Location) []byte {
	dst = append(dst, l.RemoteLogSegmentID[:]...)
	dst = kbin.AppendCompactString(dst, l.StorageFormatVersion)
	for _, n := range [...]int64{l.BaseOffset, l.EndOffset, l.LastOffset, l.SegmentSizeInBytes, l.StartPosition, l.EndPosition} {
		dst = kbin.AppendInt64(dst, n)
	}
	dst = kbin.AppendCompactNullableString(dst, orNull(l.RemoteLogSegmentLocation))
	dst = kbin.AppendCompactNullableString(dst, orNull(l.SignedRemoteLogSegmentLocation))
	dst = kbin.AppendInt64(dst, l.SignedLocationExpiryMs)
	dst = kbin.AppendCompactNullableBytes(dst, l.CustomMetadata)
	return append(dst, 0)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ParseLocation reads what AppendLocation writes. It copies out of b. Positions and offsets that contradict each other are malformed, so that
// readers need not ask again; whether the address may be opened is for the fetcher to say. No error text holds a URL.
func ParseLocation(raw []byte) (*remotestorage.Location, error) {
	b := kbin.Reader{Src: raw}
	l := &remotestorage.Location{RemoteLogSegmentID: b.Uuid(), StorageFormatVersion: b.CompactString()}
	for _, n := range [...]*int64{&l.BaseOffset, &l.EndOffset, &l.LastOffset, &l.SegmentSizeInBytes, &l.StartPosition, &l.EndPosition} {
		*n = b.Int64()
	}
	if s := b.CompactNullableString(); s != nil {
		l.RemoteLogSegmentLocation = *s
	}
	if s := b.CompactNullableString(); s != nil {
		l.SignedRemoteLogSegmentLocation = *s
	}
	l.SignedLocationExpiryMs = b.Int64()
	if m := b.CompactNullableBytes(); m != nil {
		l.CustomMetadata = append([]byte{}, m...)
	}
	skipTags(&b)
	if err := b.Complete(); err != nil {
		return nil, fmt.Errorf("%w: RemoteLogSegment: %w", ErrMalformed, err)
	}
	if len(b.Src) > 0 {
		return nil, fmt.Errorf("%w: RemoteLogSegment has %d bytes too many", ErrMalformed, len(b.Src))
	}
	return l, checkLocation(l)
}

func checkLocation(l *remotestorage.Location) error {
	switch {
	case l.BaseOffset < 0 || l.LastOffset < l.BaseOffset || l.EndOffset < l.LastOffset:
		return fmt.Errorf("%w: RemoteLogSegment: offsets %d to %d, good to %d", ErrMalformed, l.BaseOffset, l.EndOffset, l.LastOffset)
	case l.StartPosition < 0 || l.EndPosition < l.StartPosition || l.SegmentSizeInBytes < l.EndPosition:
		return fmt.Errorf("%w: RemoteLogSegment: positions %d to %d of %d", ErrMalformed, l.StartPosition, l.EndPosition, l.SegmentSizeInBytes)
	case len(l.RemoteLogSegmentLocation) > maxURL || len(l.SignedRemoteLogSegmentLocation) > maxURL:
		return fmt.Errorf("%w: RemoteLogSegment: a location above %d bytes", ErrMalformed, maxURL)
	}
	return nil
}

// PartitionLocation returns the location that a Fetch answer carries for the partition; nil if none.
func PartitionLocation(p *kmsg.FetchResponseTopicPartition) (*remotestorage.Location, error) {
	raw, ok := findTag(&p.UnknownTags, TagRemoteLogSegment)
	if !ok {
		return nil, nil
	}
	return ParseLocation(raw)
}
