package broker

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestReadOptions(t *testing.T) {
	cfg := config.NewBroker()
	if o := readOptions(cfg); o.ChunkSize != 4<<20 || o.Parallelism != 16 || !o.ReadAhead || o.Cache == nil || o.Budget.Limit() != 64<<20 {
		t.Errorf("defaults: %+v", o)
	}
	cfg.RemoteReadParallelism, cfg.RemoteReadCache, cfg.RemoteReadMemory, cfg.RemoteReadAhead = 0, 0, 0, false
	if o := readOptions(cfg); o.ChunkSize != 4<<20 || o.Parallelism != 1 || o.ReadAhead || o.Cache != nil || o.Budget.Limit() < 1<<60 {
		t.Errorf("switched off: %+v", o)
	}
	cfg = config.NewBroker()
	cfg.RemoteReadChunk = 0
	if o := readOptions(cfg); o.ChunkSize < 1<<30 || o.ReadAhead || o.Cache != nil {
		t.Errorf("without chunks: %+v", o)
	}
}

// countingStore knows how many ranges were open at once, and the longest that was asked for.
type countingStore struct {
	remotestorage.RemoteStorageManager

	mu                  sync.Mutex
	open, most, longest int64
}

func (s *countingStore) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	s.opened(1)
	s.mu.Lock()
	s.longest = max(s.longest, end-start)
	s.mu.Unlock()
	rc, err := s.RemoteStorageManager.FetchLogSegment(ctx, md, start, end)
	if err != nil {
		s.opened(-1)
		return nil, err
	}
	return &countedRange{ReadCloser: rc, s: s}, nil
}

func (s *countingStore) opened(delta int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += delta
	s.most = max(s.most, s.open)
}

type countedRange struct {
	io.ReadCloser
	s *countingStore
}

func (r *countedRange) Close() error {
	r.s.opened(-1)
	return r.ReadCloser.Close()
}

// TestReadingSwitchedOff: with every key of remote reading at 0 the history is read all the same, one range after the other.
func TestReadingSwitchedOff(t *testing.T) {
	rsm, _ := directoryStore(t)
	store := &countingStore{RemoteStorageManager: rsm}
	b := startBroker(t, t.TempDir(), withRSM(store), tieredKeys(), withKeys("remote.read.ahead.enable", "false", "remote.read.cache.bytes", "0",
		"remote.read.chunk.bytes", "0", "remote.read.memory.bytes", "0", "remote.read.parallelism", "0"))
	b.tieredTopic(t, "history", 1)
	b.produceTiered(t, "history", 1, 400)
	cl := b.client(t, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(5000))
	checkSequence(t, consume(t, cl, 400), 1, 400)
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.most != 1 || store.longest > 64<<10 { // the least that a GET asks for
		t.Errorf("%d ranges at once, the longest of %d bytes", store.most, store.longest)
	}
}
