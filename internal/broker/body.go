package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// kmsg allocates an array as long as the sender says, as long as one byte for each element is left in the frame: an element takes up to a hundred
// bytes and more, so a frame could make it allocate a hundred times its own size, in several places. Therefore each body is walked first, without
// allocating: the elements must really be there, and all arrays together are bounded.

const (
	// maxElements bounds the elements of all arrays of one request.
	maxElements = 200_000
	// maxBody bounds all requests but Produce.
	maxBody = 8 << 20
)

func bodyLimit(key int16) int {
	if key == keyProduce {
		return 1 << 30 // socket.request.max.bytes is the limit
	}
	return maxBody
}

// field is one field of a request's body: how many bytes it takes, or how its length is written.
type field struct {
	kind     kind
	size     int     // of fixed
	elements []field // of array or optional; none: each element is of size bytes, or a string where size is 0
	from, to int16   // versions that have it
	null     int16   // one more than the first version in which an array or bytes may be null; 0: none
	tag      uint32  // of tagged
}

type kind int8

const (
	fixed kind = iota
	text       // string or nullable string
	blob       // bytes or nullable bytes
	array
	optional // a structure that may be null
	nested   // one that may not
	tagged   // what its tag section may hold; in versions that do not have it the tag must not be there
)

const newest = 1<<15 - 1

func fix(n int) field               { return field{kind: fixed, size: n, to: newest} }
func str() field                    { return field{kind: text, to: newest} }
func raw() field                    { return field{kind: blob, to: newest} }
func list(elements ...field) field  { return field{kind: array, elements: elements, to: newest} }
func listOf(size int) field         { return field{kind: array, size: size, to: newest} }
func strs() field                   { return field{kind: array, to: newest} }
func maybe(fields ...field) field   { return field{kind: optional, elements: fields, to: newest} }
func part(fields ...field) field    { return field{kind: nested, elements: fields, to: newest} }
func tag(n uint32) field            { return field{kind: tagged, tag: n, to: newest} }
func (f field) since(v int16) field { f.from = v; return f }
func (f field) until(v int16) field { f.to = v; return f }

// orNull: the array, or the bytes, may be null from a version on.
func (f field) orNull(from int16) field { f.null = from + 1; return f }

// topicInfos are the topics of a part of a Kafka Streams application.
var topicInfos = list(str(), fix(6), list(str(), str()))

// topologyNode is a step of a Kafka Streams application, as it is described.
var topologyNode = []field{str(), fix(1), strs(), str(), strs(), strs()}

// shapes are the bodies of the served requests, in the order of their fields. A test fills every request of kmsg at random and walks
// it, so the table cannot drift from what is decoded.
var shapes = map[int16][]field{
	keyProduce: {str().since(3), fix(2), fix(4), list(str().until(12), fix(16).since(13), list(fix(4), raw().orNull(0)))},
	keyFetch: {
		fix(4).until(14), fix(8), fix(4).since(3), fix(1).since(4), fix(8).since(7),
		list(str().until(12), fix(16).since(13), list(fix(4), fix(4).since(9), fix(8), fix(4).since(12), fix(8).since(5), fix(4), tag(0).since(17), tag(1).since(18))),
		list(str().until(12), fix(16).since(13), listOf(4)).since(7), str().since(11), tag(0).since(12), tag(1).since(15),
	},
	keyListOffsets: {
		fix(4), fix(1).since(2),
		list(str(), list(fix(4), fix(4).since(4), fix(8), fix(4).until(0))), fix(4).since(10),
	},
	keyMetadata: {list(fix(16).since(10), str()).orNull(1), fix(1).since(4), fix(1).since(8).until(10), fix(1).since(8)},
	keyOffsetCommit: {
		str(), fix(4).since(1), str().since(1), str().since(7), fix(8).since(2).until(4),
		list(str().until(9), fix(16).since(10), list(fix(4), fix(8), fix(8).since(1).until(1), fix(4).since(6), str())),
	},
	keyOffsetFetch: {
		str().until(7), list(str(), listOf(4)).until(7).orNull(2),
		list(str(), str().since(9), fix(4).since(9), list(str().until(9), fix(16).since(10), listOf(4)).orNull(8)).since(8), fix(1).since(7),
	},
	keyFindCoordinator: {str().until(3), fix(1).since(1), strs().since(4)},
	keyJoinGroup:       {str(), fix(4), fix(4).since(1), str(), str().since(5), str(), list(str(), raw()), str().since(8)},
	keySyncGroup:       {str(), fix(4), str(), str().since(3), str().since(5), str().since(5), list(str(), raw())},
	keyLeaveGroup:      {str(), str().until(2), list(str(), str(), str().since(5)).since(3)},
	keyDescribeGroups:  {strs(), fix(1).since(3)},
	keyListGroups:      {strs().since(4), strs().since(5)},
	keyCreateTopics: {
		list(str(), fix(6), list(fix(4), listOf(4)), list(str(), str())), fix(4), fix(1).since(1),
	},
	keyDeleteTopics:         {strs().until(5), list(str(), fix(16)).since(6), fix(4)},
	keyDeleteRecords:        {list(str(), list(fix(12))), fix(4)},
	keyOffsetForLeaderEpoch: {fix(4).since(3), list(str(), list(fix(4), fix(4).since(2), fix(4)))},
	keyCreateAcls:           {list(fix(1), str(), fix(1).since(1), str(), str(), fix(2))},
	keyDeleteAcls:           {list(fix(1), str(), fix(1).since(1), str(), str(), fix(2))},
	keyDescribeScram:        {list(str()).orNull(0)},
	keyAlterScram:           {list(str(), fix(1)), list(str(), fix(5), raw(), raw())},
	keyAddPartitionsToTxn: {
		list(str(), fix(8), fix(2), fix(1), list(str(), listOf(4))).since(4),
		str().until(3), fix(8).until(3), fix(2).until(3), list(str(), listOf(4)).until(3),
	},
	keyWriteTxnMarkers: {list(fix(8), fix(2), fix(1), list(str(), listOf(4)), fix(4), fix(1).since(2))},
	keyTxnOffsetCommit: {
		str(), str(), fix(8), fix(2), fix(4).since(3), str().since(3), str().since(3),
		list(str().until(5), fix(16).since(6), list(fix(4), fix(8), fix(4).since(2), str())),
	},
	keyDescribeProducers:       {list(str(), listOf(4))},
	keyDescribeTransactions:    {strs()},
	keyListTransactions:        {strs(), listOf(8), fix(8).since(1), str().since(2)},
	keyDescribeConfigs:         {list(fix(1), str(), strs().orNull(0)), fix(1).since(1), fix(1).since(3)},
	keyAlterConfigs:            {list(fix(1), str(), list(str(), str())), fix(1)},
	keyDescribeLogDirs:         {list(str(), listOf(4)).orNull(0)},
	keyCreatePartitions:        {list(str(), fix(4), list(listOf(4)).orNull(0)), fix(4), fix(1)},
	keyDeleteGroups:            {strs()},
	keyIncrementalAlterConfigs: {list(fix(1), str(), list(str(), fix(1), str())), fix(1)},
	keyOffsetDelete:            {str(), list(str(), list(fix(4)))},
	keyDescribeClientQuotas:    {list(str(), fix(1), str()), fix(1)},
	keyAlterClientQuotas:       {list(list(str(), str()), list(str(), fix(9))), fix(1)},
	keyAlterReplicaLogDirs:     {list(str(), list(str(), listOf(4)))},
	keyCreateDelegationToken:   {str().since(3), str().since(3), list(str(), str()), fix(8)},
	keyDescribeDelegationToken: {list(str(), str()).orNull(0)},
	keyElectLeaders:            {fix(1).since(1), list(str(), listOf(4)).orNull(0), fix(4)},
	keyAlterReassignments:      {fix(4), fix(1).since(1), list(str(), list(fix(4), listOf(4).orNull(0)))},
	keyListReassignments:       {fix(4), list(str(), listOf(4)).orNull(0)},
	keyUpdateFeatures:          {fix(4), list(str(), fix(2), fix(1)), fix(1).since(1)},
	keyPushTelemetry:           {fix(16), fix(4), fix(1), fix(1), raw()},
	keyAddRaftVoter:            {str(), fix(4), fix(4), fix(16), list(str(), str(), fix(2)), fix(1).since(1)},
	keyListConfigResources:     {listOf(1).since(1)},
	keyDescribeTopicPartitions: {list(str()), fix(4), maybe(str(), fix(4))},
	keyConsumerGroupHeartbeat:  {str(), str(), fix(4), str(), str(), fix(4), strs().orNull(0), str().since(1), str(), list(fix(16), listOf(4)).orNull(0)},
	keyConsumerGroupDescribe:   {strs(), fix(1)},
	keyShareGroupHeartbeat:     {str(), str(), fix(4), str(), strs().orNull(0)},
	keyShareGroupDescribe:      {strs(), fix(1)},
	keyShareFetch: {
		str(), str(), fix(16), fix(8).since(1), fix(2).since(2), // v0's partition limit is not served
		list(fix(16), list(fix(4), list(fix(16), listOf(1)))), list(fix(16), listOf(4)),
	},
	keyStreamsGroupHeartbeat: {
		str(), str(), fix(4), fix(4), str(), str(), fix(4),
		maybe(fix(4), list(str(), strs(), strs(), topicInfos, strs(), topicInfos, list(listOf(2), listOf(2), listOf(2)))),
		list(str(), listOf(4)).orNull(0), list(str(), listOf(4)).orNull(0), list(str(), listOf(4)).orNull(0), str(), maybe(str(), fix(2)),
		list(str(), str()).orNull(0), list(str(), fix(12)).orNull(0), list(str(), fix(12)).orNull(0), fix(1),
	},
	keyStreamsGroupDescribe: {strs(), fix(1), fix(1).since(1)},
	keyStreamsDescription: {
		str(), str(), fix(4),
		part(list(str(), list(topologyNode...)), list(part(topologyNode...), part(topologyNode...))),
	},
	keyShareAcknowledge:     {str(), str(), fix(4), fix(1).since(2), list(fix(16), list(fix(4), list(fix(16), listOf(1))))},
	keyDescribeShareOffsets: {list(str(), list(str(), listOf(4)).orNull(0))},
	keyAlterShareOffsets:    {str(), list(str(), list(fix(12)))},
	keyDeleteShareOffsets:   {str(), list(str())},
	keyHeartbeat:            {str(), fix(4), str(), str().since(3)},
	keySaslHandshake:        {str()},
	keySaslAuthenticate:     {raw()},
	keyApiVersions:          {str().since(3), str().since(3), str().since(5), fix(4).since(5)},
	keyInitProducerID:       {str(), fix(4), fix(8).since(3), fix(2).since(3), fix(2).since(6)},
	keyAddOffsetsToTxn:      {str(), fix(8), fix(2), str()},
	keyEndTxn:               {str(), fix(8), fix(2), fix(1)},
	keyDescribeAcls:         {fix(1), str(), fix(1).since(1), str(), str(), fix(2)},
	keyRenewDelegationToken: {raw(), fix(8)},
	keyExpireToken:          {raw(), fix(8)},
	keyDescribeCluster:      {fix(1), fix(1).since(1), fix(1).since(2)},
	keyUnregisterBroker:     {fix(4)},
	keyUnregisterController: {fix(4)},
	keyGetTelemetry:         {fix(16)},
	keyDescribeQuorum:       {list(str(), list(fix(4)))},
	keyRemoveRaftVoter:      {str(), fix(4), fix(16)},
}

// checkBody walks a request's body as far as its arrays go.
func checkBody(key, version int16, body []byte) error {
	shape, ok := shapes[key]
	if !ok {
		return nil
	}
	w := newWalker(key, version, body)
	w.fields(shape)
	w.tags(shape)
	if w.left < 0 {
		return fmt.Errorf("%w: arrays of more than %d elements", wire.ErrMalformed, maxElements)
	}
	if err := w.r.Complete(); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return nil
}

type walker struct {
	r        kbin.Reader
	version  int16
	flexible bool
	left     int
}

func newWalker(key, version int16, body []byte) walker {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	return walker{r: kbin.Reader{Src: body}, version: version, flexible: req.IsFlexible(), left: maxElements}
}

func (w *walker) fields(fields []field) {
	for i := range fields {
		f := &fields[i]
		if w.version < f.from || w.version > f.to {
			continue
		}
		if !w.r.Ok() || w.left < 0 {
			return
		}
		w.field(f)
	}
}

func (w *walker) field(f *field) {
	switch f.kind {
	case fixed:
		w.r.Span(f.size)
	case text:
		if w.flexible {
			w.span(int64(w.r.Uvarint()) - 1)
		} else {
			w.span(int64(w.r.Int16()))
		}
	case blob:
		n := w.length()
		w.nulls(f, n)
		w.span(n)
	case array:
		w.array(f)
	case optional:
		if w.r.Int8() >= 0 {
			w.fields(f.elements)
			w.tags(f.elements)
		}
	case nested:
		w.fields(f.elements)
		w.tags(f.elements)
	case tagged: // see tags
	}
}

func (w *walker) length() int64 {
	if w.flexible {
		return int64(w.r.Uvarint()) - 1
	}
	return int64(w.r.Int32())
}

// nulls refuses a null where there may be none. A text that is null kmsg refuses itself.
func (w *walker) nulls(f *field, n int64) {
	if n < 0 && (f.null == 0 || w.version < f.null-1) {
		w.bad()
	}
}

func (w *walker) bad() { w.r.Span(len(w.r.Src) + 1) }

func (w *walker) span(n int64) {
	if n > 0 {
		w.r.Span(int(n))
	}
}

func (w *walker) array(f *field) {
	n := w.length()
	w.nulls(f, n)
	if n <= 0 {
		return
	}
	// What is not there is not walked: the count alone decides nothing.
	if n > int64(len(w.r.Src)) || n > int64(w.left) {
		w.left = min(w.left, int(maxElements-n))
		w.bad()
		return
	}
	w.left -= int(n)
	for ; n > 0 && w.r.Ok() && w.left >= 0; n-- {
		switch {
		case f.elements != nil:
			w.fields(f.elements)
			w.tags(f.elements)
		case f.size > 0:
			w.r.Span(f.size)
		default:
			w.field(&field{kind: text})
		}
	}
}

// tags steps over a tag section; each tag counts as an element, for kmsg keeps the unknown ones.
func (w *walker) tags(fields []field) {
	if !w.flexible {
		return
	}
	for n := w.r.Uvarint(); n > 0 && w.r.Ok() && w.left >= 0; n-- {
		w.left--
		tag := w.r.Uvarint()
		if slices.ContainsFunc(fields, func(f field) bool { return f.kind == tagged && f.tag == tag && w.version < f.from }) {
			w.bad()
			return
		}
		w.r.Span(int(w.r.Uvarint()))
	}
}
