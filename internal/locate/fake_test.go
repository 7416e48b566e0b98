package locate_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var fakeTP = remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{7}, Topic: "t", Partition: 0}

// fakeStore holds segments in memory and counts what is fetched. Reading only.
type fakeStore struct {
	golden.Store // for the methods that refuse

	mu      sync.Mutex
	objects map[string][]byte // by segment id and suffix
	fetched map[string]int
	// onFetch, if set, may change the answer.
	onFetch func(object string, b []byte) ([]byte, error)
	signed  bool
}

func newFakeStore() *fakeStore {
	return &fakeStore{objects: make(map[string][]byte), fetched: make(map[string]int)}
}

func (s *fakeStore) get(id remotestorage.UUID, suffix string) ([]byte, error) {
	name := id.String() + suffix
	s.mu.Lock()
	b, ok := s.objects[name]
	s.fetched[suffix]++
	hook := s.onFetch
	s.mu.Unlock()
	if hook != nil {
		return hook(name, b)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", remotestorage.ErrNotFound, name)
	}
	return b, nil
}

func (s *fakeStore) count(suffix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetched[suffix]
}

func (s *fakeStore) FetchLogSegment(_ context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	b, err := s.get(m.ID, segment.LogSuffix)
	if err != nil {
		return nil, err
	}
	if start >= int64(len(b)) {
		return nil, remotestorage.ErrRange
	}
	return io.NopCloser(bytes.NewReader(b[start:min(end, int64(len(b)))])), nil
}

func (s *fakeStore) FetchIndex(_ context.Context, m remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	b, err := s.get(m.ID, golden.IndexSuffix(t))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *fakeStore) GetSignedRemoteLogSegmentLocation(_ context.Context, id remotestorage.RemoteLogSegmentID, _ []byte) (remotestorage.SignedLocation, error) {
	if !s.signed {
		return remotestorage.SignedLocation{}, remotestorage.ErrNotSigned
	}
	return remotestorage.SignedLocation{URL: "https://store/" + id.ID.String() + "?sig=x", ExpiryMs: 99}, nil
}

// fakeBatch is one batch of a made-up segment.
type fakeBatch struct {
	base, last int64
	timestamp  int64
	producer   int64 // 0: none
	control    bool
	size       int // of the record; 0: 100
}

func (f fakeBatch) append(dst []byte, leaderEpoch int32) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = batch.AppendSimple(dst, f.timestamp, nil, bytes.Repeat([]byte{'v'}, cmp.Or(f.size, 100)))
	b := dst[start:]
	batch.SetBaseOffset(b, f.base)
	batch.SetLeaderEpoch(b, leaderEpoch)
	be.PutUint32(b[23:], uint32(f.last-f.base))
	if f.producer != 0 {
		attributes := uint16(batch.Transactional)
		if f.control {
			attributes |= batch.Control
		}
		be.PutUint16(b[21:], attributes)
		be.PutUint64(b[43:], uint64(f.producer))
	}
	batch.FixCRC(b)
	return dst
}

// fakeSegment is a made-up segment. Its transaction index and snapshot hold what is given.
type fakeSegment struct {
	n          int
	start, end int64
	epochs     []remotestorage.EpochStart // nil: epoch 0
	batches    []fakeBatch                // nil: one batch for each ten offsets
	aborted    []segment.AbortedTxn
	open       []producerstate.OpenTxn
	state      remotestorage.SegmentState
}

func (f *fakeSegment) id() remotestorage.UUID { return remotestorage.UUID{15: byte(f.n + 1)} }

type fakeLog struct {
	store *fakeStore
	index *remotelog.Index
}

func newFakeLog(t testing.TB, segments ...fakeSegment) *fakeLog {
	t.Helper()
	l := &fakeLog{store: newFakeStore(), index: remotelog.NewIndex()}
	for i := range segments {
		segments[i].n = i
		l.add(t, &segments[i])
	}
	return l
}

func (l *fakeLog) add(t testing.TB, f *fakeSegment) {
	t.Helper()
	if f.epochs == nil {
		f.epochs = []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: f.start}}
	}
	if f.batches == nil {
		for o := f.start; o <= f.end; o += 10 {
			f.batches = append(f.batches, fakeBatch{base: o, last: min(o+9, f.end), timestamp: 1000 + o})
		}
	}
	var log, index, timeIndex, txn []byte
	top := int64(-1)
	epochs := epoch.New(f.epochs)
	for _, b := range f.batches {
		if len(log) > 0 { // Kafka never indexes a segment's first batch
			index = segment.AppendOffsetEntry(index, f.start, b.last, int32(len(log)))
		}
		e, _ := epochs.EpochFor(b.base)
		log = b.append(log, e)
		if b.timestamp > top {
			top = b.timestamp
			timeIndex = segment.AppendTimeEntry(timeIndex, f.start, b.timestamp, b.last)
		}
	}
	for _, a := range f.aborted {
		txn = segment.AppendTxnEntry(txn, a)
	}
	var producers []producerstate.SnapshotEntry
	for _, o := range f.open {
		producers = append(producers, producerstate.SnapshotEntry{ProducerID: o.ProducerID, LastSequence: -1, LastOffset: -1, CoordinatorEpoch: -1, TxnFirstOffset: o.FirstOffset})
	}
	put := func(suffix string, b []byte) { l.store.objects[f.id().String()+suffix] = b }
	put(segment.LogSuffix, log)
	put(segment.IndexSuffix, index)
	put(segment.TimeIndexSuffix, timeIndex)
	put(segment.SnapshotSuffix, producerstate.AppendSnapshot(nil, producers))
	if f.aborted != nil {
		put(segment.TxnIndexSuffix, txn)
	}
	r := &remotelog.SegmentRecord{RemoteLogSegmentMetadata: remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: fakeTP, ID: f.id()},
		StartOffset:        f.start, EndOffset: f.end, MaxTimestampMs: top, SegmentLeaderEpochs: f.epochs,
		SegmentSizeInBytes: int32(len(log)), TxnIndexEmpty: f.aborted == nil,
	}}
	if err := l.index.Apply(r); err != nil {
		t.Fatal(err)
	}
	state := remotestorage.CopySegmentFinished
	if f.state != 0 {
		state = f.state
	}
	l.mark(t, f.n, state)
}

func (l *fakeLog) mark(t testing.TB, n int, s remotestorage.SegmentState) {
	t.Helper()
	f := fakeSegment{n: n}
	u := &remotelog.UpdateRecord{RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: fakeTP, ID: f.id()}, State: s}
	if err := l.index.Apply(u); err != nil {
		t.Fatal(err)
	}
}

func history(pairs ...int64) *epoch.Cache {
	c := epoch.New(nil)
	for i := 0; i < len(pairs); i += 2 {
		c.Assign(int32(pairs[i]), pairs[i+1])
	}
	return c
}
