package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
	"github.com/rewind-kafka/rewind/internal/coord/share"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// unreadableLog is a memoryLog of which only what comes before an offset can be read.
type unreadableLog struct {
	memoryLog
	from    atomic.Int64
	deleted atomic.Int64
}

func (l *unreadableLog) Read(offset int64, _ int, upTo int64, whole bool) (partlog.Data, error) {
	if offset >= l.from.Load() {
		return partlog.Data{}, errors.New("input/output error")
	}
	return l.memoryLog.Read(offset, 1, upTo, whole)
}

func (l *unreadableLog) DeleteRecords(offset int64) (int64, error) {
	l.deleted.Store(offset)
	return offset, nil
}

// unreadable is what a log holds, of which all but the first batches can be read no more.
func unreadable(of *memoryLog, from int64) *unreadableLog {
	l := &unreadableLog{memoryLog: memoryLog{bytes: bytes.Clone(of.bytes), end: of.end}}
	l.from.Store(from)
	return l
}

// TestHalfAStateIsLeftAlone: where the log of a coordinator can be read only in part, what was read says what was true once. However long the node runs on, nothing is
// expired by it, and nothing deleted from the log: it would be gone when all can be read, which is tried again until it can.
func TestHalfAStateIsLeftAlone(t *testing.T) {
	const long = 30 * 24 * time.Hour
	topicID := [16]byte{1}
	for _, c := range []struct {
		what string
		fill func(t *testing.T, log *memoryLog)
		run  func(t *testing.T, log *unreadableLog, mend func())
	}{
		{"offsets", func(t *testing.T, log *memoryLog) {
			s := serviceOn(t, log)
			for offset := range int64(2) {
				synctest.Wait()
				if err := s.commitOne("g", offset); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
			}
			s.close()
		}, func(t *testing.T, log *unreadableLog, mend func()) {
			s := serviceOn(t, log)
			time.Sleep(long)
			synctest.Wait()
			s.topicDeleted("t")
			mend()
			if got := s.offsetOf(t, "g"); got != 1 {
				t.Errorf("read again, the offset is %d, want 1", got)
			}
			s.close()
		}},
		{"transactions", func(t *testing.T, log *memoryLog) {
			s := txnServiceOn(t, &marks{failed: map[txn.TopicPartition]error{}}, log)
			s.begin(t, "id", s.init(t, "id"), tp("t", 0))
			s.close()
		}, func(t *testing.T, log *unreadableLog, mend func()) {
			m := &marks{failed: map[txn.TopicPartition]error{}}
			s := txnServiceOn(t, m, log)
			time.Sleep(long)
			mend()
			if got := m.take(); s.stateOf(t, "id") != txn.CompleteAbort || len(got) != 1 {
				t.Errorf("read again, it is %s, with markers %v", s.stateOf(t, "id"), got)
			}
			s.close()
		}},
		{"states of share groups", func(t *testing.T, log *memoryLog) {
			s := shareStatesOn(log)
			for i := range int32(2) {
				if err := s.initialize(context.Background(), sharestate.Key{Group: "g", TopicID: topicID, Partition: i}, 1, 5); err != nil {
					t.Fatal(err)
				}
			}
			s.close()
		}, func(t *testing.T, log *unreadableLog, mend func()) {
			s := shareStatesOn(log)
			time.Sleep(long)
			synctest.Wait()
			s.topicDeleted(topicID)
			mend()
			for i := range int32(2) {
				if st, ok, err := s.look(context.Background(), sharestate.Key{Group: "g", TopicID: topicID, Partition: i}); st.Start != 5 || !ok || err != nil {
					t.Errorf("read again, state %d is %+v, %v, %v", i, st, ok, err)
				}
			}
			s.close()
		}},
	} {
		for from := range int64(2) {
			t.Run(c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					whole := &memoryLog{}
					c.fill(t, whole)
					log := unreadable(whole, from)
					c.run(t, log, func() {
						synctest.Wait()
						if !bytes.Equal(log.bytes, whole.bytes) {
							t.Errorf("something was written: %d bytes, then %d", len(whole.bytes), len(log.bytes))
						}
						if n := log.deleted.Load(); n != 0 {
							t.Errorf("the log was deleted up to %d", n)
						}
						log.from.Store(whole.end)
						time.Sleep(lastReadPause + time.Second)
						synctest.Wait()
					})
				})
			})
		}
	}
}

func shareStatesOn(log stateLog) *shareStates {
	cfg := config.NewBroker()
	s := newShareStates(func() *config.Broker { return cfg }, time.Now, slog.New(slog.DiscardHandler))
	s.make = func() ([]stateLog, error) { return []stateLog{log}, nil }
	s.start([]stateLog{log})
	return s
}

// allTopics are topics of two partitions, whatever is asked for.
type allTopics struct{}

func (allTopics) ByName(string) (members.Topic, bool) { return members.Topic{}, false }
func (allTopics) ByID(id [16]byte) (members.Topic, bool) {
	return members.Topic{Name: fmt.Sprint(id), ID: id, Partitions: 2}, true
}

// TestHalfAShareGroupForgetsNothing: a topic is deleted while only a part of the log of groups can be read, and so a part of what a share group has states of.
func TestHalfAShareGroupForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Broker{}
		b.shares = &shareService{b: b, states: shareStatesOn(&memoryLog{}), parts: map[shareKey]*sharePartition{}}
		whole, gone := &memoryLog{}, [16]byte{1}
		g := group.New("g", func() group.Config { return group.Config{} }, time.Now())
		for _, id := range [][16]byte{gone, {2}} {
			o := g.Step(time.Now(), &share.AlterOffsets{States: []share.StateOf{{TopicID: id}}, New: func() *share.Group {
				return share.New("g", func(string) share.Config { return share.Config{} }, allTopics{})
			}})
			if _, err := whole.Append(encodeBatch(o.Records, 0), partlog.Internal); err != nil {
				t.Fatal(err)
			}
		}
		log := unreadable(whole, 1)
		b.groups = newGroupService(config.NewBroker, time.Now, slog.New(slog.DiscardHandler), b.shareFormat())
		b.groups.start([]stateLog{log})
		synctest.Wait()
		b.shares.topicDeleted(gone)
		synctest.Wait()
		b.groups.close()
		b.shares.states.close()
		if !bytes.Equal(log.bytes, whole.bytes) {
			t.Error("something was written")
		}
	})
}
