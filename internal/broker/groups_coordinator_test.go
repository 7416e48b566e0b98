package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// memoryLog is a partition of __consumer_offsets that can fail.
type memoryLog struct {
	mu     sync.Mutex
	bytes  []byte
	end    int64
	synced int64
	hold   chan struct{} // Read waits for it

	failAppend, failSync error
}

func (l *memoryLog) Append(b []byte, _ partlog.Origin) (partlog.AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failAppend != nil {
		return partlog.AppendInfo{}, l.failAppend
	}
	h, err := batch.Parse(b)
	if err != nil {
		return partlog.AppendInfo{}, err
	}
	batch.SetBaseOffset(b, l.end)
	l.bytes = append(l.bytes, b...)
	l.end += int64(h.LastOffsetDelta) + 1
	return partlog.AppendInfo{BaseOffset: l.end - int64(h.LastOffsetDelta) - 1, LastOffset: l.end - 1}, nil
}

func (l *memoryLog) AppendVerified(b []byte, origin partlog.Origin, _ partlog.Guard) (partlog.AppendInfo, error) {
	return l.Append(b, origin)
}

func (l *memoryLog) Guard(int64, int16) (partlog.Guard, bool) { return 0, false }

func (l *memoryLog) Sync(_ context.Context, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failSync == nil {
		l.synced = max(l.synced, offset)
	}
	return l.failSync
}

// Read gives the batches from an offset on, cut at the limit as partlog does, the first one whole.
func (l *memoryLog) Read(offset int64, limit int, _ int64, _ bool) (partlog.Data, error) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	_, err := batch.Each(l.bytes, func(h batch.Header, raw []byte) error {
		if h.LastOffset() >= offset && (len(out) == 0 || len(out) < limit) {
			out = append(out, raw...)
			if len(out) > limit && len(out) > len(raw) {
				out = out[:limit]
			}
		}
		return nil
	})
	return partlog.Data{Records: wire.Records{Bufs: [][]byte{out}}}, err
}

func (l *memoryLog) Offsets() partlog.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return partlog.Offsets{LogEnd: l.end, HighWatermark: l.end, LastStable: l.end}
}

func serviceOn(t *testing.T, logs ...stateLog) *groupService {
	cfg := config.NewBroker()
	cfg.GroupInitialRebalanceDelay = 0
	s := newGroupService(func() *config.Broker { return cfg }, time.Now, slog.New(slog.DiscardHandler))
	s.make = func() ([]stateLog, error) { return logs, nil }
	t.Cleanup(s.close)
	s.start(logs)
	return s
}

func (s *groupService) commitOne(id string, offset int64) error {
	r, err := s.ask(context.Background(), id, true, nil, func(k *call) group.Command {
		return &group.Commit{Token: k, Generation: -1, Offsets: []group.OffsetOf{{TopicPartition: group.TopicPartition{Topic: "t"},
			Offset: group.Offset{Offset: offset, LeaderEpoch: -1, Committed: time.Now()}}}}
	})
	if err != nil {
		return err
	}
	return r.(group.CommitResult).Err
}

func (s *groupService) offsetOf(t *testing.T, id string) int64 {
	t.Helper()
	at := int64(-1)
	if err := s.look(context.Background(), id, func(g *group.Group) {
		if g != nil {
			if o, ok := g.Offset(group.TopicPartition{Topic: "t"}); ok {
				at = o.Offset
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestCoordinatorIsLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{hold: make(chan struct{})}
		if _, err := log.Append(encodeBatch([]group.Record{{Key: []byte("\x00\x02\x00\x01g")}}, 0), partlog.Internal); err != nil {
			t.Fatal(err)
		}
		s := serviceOn(t, log)
		synctest.Wait()
		if err := s.commitOne("g", 1); !errors.Is(err, errLoading) || groupCode(err) != errCoordinatorLoading {
			t.Errorf("while loading: %v", err)
		}
		close(log.hold)
		synctest.Wait()
		if err := s.commitOne("g", 1); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		s.close()
	})
}

func TestCommitIsSyncedBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{}
		s := serviceOn(t, log)
		synctest.Wait()
		for i := range int64(3) {
			if err := s.commitOne("g", i); err != nil {
				t.Fatal(err)
			}
			if log.synced != i+1 {
				t.Errorf("answered with %d of %d records synced", log.synced, i+1)
			}
		}
		log.failSync = errors.New("disk on fire")
		if err := s.commitOne("g", 9); !errors.Is(err, errNotAvailable) {
			t.Errorf("a failed sync: %v", err)
		}
		log.failAppend, log.failSync = errors.New("disk full"), nil
		if err := s.commitOne("g", 10); !errors.Is(err, errNotAvailable) {
			t.Errorf("a failed append: %v", err)
		}
		if at := s.offsetOf(t, "g"); at != 9 {
			t.Errorf("offset %d after a failed append", at)
		}
		s.close()
	})
}

func TestGroupsAreReadFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{}
		s := serviceOn(t, log)
		synctest.Wait()
		const n = 3000 // more than one read's worth
		for i := range int64(n) {
			if err := s.commitOne("g", i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			big := group.Record{Key: []byte{0, 9, byte(i)}, Value: make([]byte, 300<<10)} // of a kind that is not known
			if _, err := log.Append(encodeBatch([]group.Record{big}, 0), partlog.Internal); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.commitOne("h", 5); err != nil {
			t.Fatal(err)
		}
		s.close()
		again := serviceOn(t, log)
		synctest.Wait()
		if g, h := again.offsetOf(t, "g"), again.offsetOf(t, "h"); g != n-1 || h != 5 {
			t.Errorf("read %d and %d", g, h)
		}
		again.close()
	})
}

// Offsets of Apache Kafka's transactions count once their transaction is committed; its batches may be compressed.
func TestReplayOfTransactionsAndCodecs(t *testing.T) {
	s := newGroupService(func() *config.Broker { return config.NewBroker() }, time.Now, slog.New(slog.DiscardHandler))
	defer s.close()
	r := s.newCoordinator(newCoordinator(s.ctx, s.topic, 0, &memoryLog{}, s.config, s.now, s.log))
	value := func(offset int64) group.Record {
		// Offset records are built by a group alone: let one build it.
		g := group.New("g", func() group.Config { return group.Config{MaxMetadata: 10} }, time.Now())
		o := g.Step(time.Now(), &group.Commit{Generation: -1, Offsets: []group.OffsetOf{{TopicPartition: group.TopicPartition{Topic: "t"},
			Offset: group.Offset{Offset: offset, Committed: time.Now()}}}})
		return o.Records[0]
	}
	next := int64(0)
	add := func(raw []byte, attributes uint16, producer int64) {
		t.Helper()
		batch.SetBaseOffset(raw, next)
		binary.BigEndian.PutUint16(raw[21:], attributes)
		binary.BigEndian.PutUint64(raw[43:], uint64(producer))
		batch.FixCRC(raw)
		h, err := batch.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.replay(&h, raw); err != nil {
			t.Fatal(err)
		}
		next = h.LastOffset() + 1
	}
	now := func() int64 {
		g := r.groups["g"]
		if g == nil {
			return -1
		}
		o, ok := g.Offset(group.TopicPartition{Topic: "t"})
		if !ok {
			return -1
		}
		return o.Offset
	}
	marker := func(kind byte) []byte { return encodeBatch([]group.Record{{Key: []byte{0, 0, 0, kind}}}, 0) }
	add(encodeBatch([]group.Record{value(5)}, 0), batch.Transactional, 7)
	if now() != -1 {
		t.Error("an open transaction took effect")
	}
	add(encodeBatch([]group.Record{value(6)}, 0), batch.Transactional, 8)
	add(marker(1), batch.Transactional|batch.Control, 7)
	if now() != 5 {
		t.Errorf("after the commit: %d", now())
	}
	add(marker(0), batch.Transactional|batch.Control, 8)
	if now() != 5 {
		t.Errorf("an aborted transaction took effect: %d", now())
	}
	plain := encodeBatch([]group.Record{value(9)}, 0)
	c, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	packed, codec := c.Compress(&buf, plain[batch.HeaderSize:])
	raw := append(plain[:batch.HeaderSize:batch.HeaderSize], packed...)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-batch.LogOverhead))
	add(raw, uint16(codec), -1)
	if now() != 9 {
		t.Errorf("after a compressed batch: %d", now())
	}
}

func FuzzEachRecord(f *testing.F) {
	f.Add(encodeBatch([]group.Record{{Key: []byte("k"), Value: []byte("v")}, {Key: []byte("k")}}, 0)[batch.HeaderSize:])
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})
	f.Fuzz(func(t *testing.T, body []byte) {
		n := 0
		if err := eachRecord(body, func(key, value []byte) error { n += 1 + len(key) + len(value); return nil }); err == nil && n > len(body) {
			t.Errorf("%d bytes out of %d", n, len(body))
		}
	})
}

func TestEncodeBatchIsWhatKafkaWrites(t *testing.T) {
	records := []group.Record{{Key: []byte("key"), Value: []byte("value")}, {Key: []byte("key")}}
	raw := encodeBatch(records, 123)
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if h.LastOffsetDelta != 1 || h.ProducerID != -1 || h.BaseSequence != -1 || h.Attributes != 0 || h.MaxTimestamp != 123 {
		t.Errorf("header %+v", h)
	}
	if simple := batch.AppendSimple(nil, 123, []byte("key"), []byte("value")); string(simple) != string(encodeBatch(records[:1], 123)) {
		t.Errorf("of one record:\n%x\n%x", encodeBatch(records[:1], 123), simple)
	}
	i := 0
	if err := eachRecord(raw[batch.HeaderSize:], func(key, value []byte) error {
		if string(key) != string(records[i].Key) || string(value) != string(records[i].Value) || (value == nil) != (records[i].Value == nil) {
			t.Errorf("record %d: %q %q", i, key, value)
		}
		i++
		return nil
	}); err != nil || i != 2 {
		t.Errorf("%d records, %v", i, err)
	}
}
