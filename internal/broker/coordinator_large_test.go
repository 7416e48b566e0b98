package broker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// smallBatchLog is a memoryLog that takes no batch above a size, as a topic's max.message.bytes says; several batches at once it takes.
type smallBatchLog struct {
	memoryLog
	most    int
	deleted atomic.Int64
}

func (l *smallBatchLog) Append(b []byte, o partlog.Origin) (info partlog.AppendInfo, err error) {
	for pass := range 2 { // all or nothing
		_, err = batch.Each(b, func(_ batch.Header, raw []byte) error {
			if len(raw) > l.most {
				return fmt.Errorf("%w: %d bytes", partlog.ErrMessageTooLarge, len(raw))
			}
			if pass == 0 {
				return nil
			}
			var err error
			info, err = l.memoryLog.Append(raw, o)
			return err
		})
		if err != nil {
			return info, err
		}
	}
	return info, nil
}

func (l *smallBatchLog) DeleteRecords(offset int64) (int64, error) {
	l.deleted.Store(offset)
	return offset, nil
}

// TestManyTombstones: a group of whose offsets there are too many for one batch of tombstones is forgotten all the same, and stays so.
func TestManyTombstones(t *testing.T) {
	const offsets, most = 1000, 2000
	for _, c := range []struct {
		what   string
		forget func(t *testing.T, s *groupService)
	}{
		{"expired", func(t *testing.T, _ *groupService) {
			time.Sleep(8 * 24 * time.Hour)
			synctest.Wait()
		}},
		{"deleted", func(t *testing.T, s *groupService) {
			r, err := s.ask(context.Background(), "g", false, nil, func(k *call) group.Command { return &group.Delete{Token: k} })
			if err != nil || r.(group.DeleteResult).Err != nil {
				t.Error(r, err)
			}
		}},
		{"topic deleted", func(t *testing.T, s *groupService) {
			s.topicDeleted("t")
			synctest.Wait()
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &smallBatchLog{most: most}
				s := serviceOn(t, log)
				synctest.Wait()
				for n := range int32(offsets) {
					r, err := s.ask(context.Background(), "g", true, nil, func(k *call) group.Command {
						return &group.Commit{Token: k, Generation: -1, Offsets: []group.OffsetOf{{TopicPartition: group.TopicPartition{Topic: "t", Partition: n}, Offset: group.Offset{Committed: time.Now()}}}}
					})
					if err != nil || r.(group.CommitResult).Err != nil {
						t.Fatal(r, err)
					}
				}
				c.forget(t, s)
				for _, when := range []string{"now", "after a restart"} {
					if err := s.look(context.Background(), "g", func(g *group.Group) {
						if g != nil {
							t.Errorf("%s there is the group with %d offsets", when, len(g.Offsets()))
						}
					}); err != nil {
						t.Error(err)
					}
					s.close()
					s = serviceOn(t, log)
					synctest.Wait()
				}
				s.close()
			})
		})
	}
}

// TestManyColdStates: states of share groups that have not changed for long are written anew, however many they are, and the log before them is deleted.
func TestManyColdStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &smallBatchLog{most: 1000}
		s := shareStatesOn(log)
		for n := range int32(100) {
			k := sharestate.Key{Group: "g", TopicID: [16]byte{1}, Partition: n}
			if err := s.initialize(context.Background(), k, 1, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.update(context.Background(), k, []sharestate.Update{{Epoch: 1, Start: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := log.deleted.Load(); n < 200 {
			t.Errorf("deleted up to %d of %d", n, log.Offsets().LogEnd)
		}
		s.close()
	})
}
