package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// fullLog is a memoryLog on a disk that is full or out of descriptors for a while. Attempts are counted while it is.
type fullLog struct {
	memoryLog
	full, unsynced atomic.Bool
	attempts       atomic.Int64
}

var errNoSpace = errors.New("no space left on device")

func (l *fullLog) Append(b []byte, o partlog.Origin) (partlog.AppendInfo, error) {
	if l.full.Load() {
		if l.attempts.Add(1) > 100_000 {
			l.full.Store(false) // whoever tries all the time does not let time go on
		}
		return partlog.AppendInfo{}, errNoSpace
	}
	return l.memoryLog.Append(b, o)
}

func (l *fullLog) AppendVerified(b []byte, o partlog.Origin, _ partlog.Guard) (partlog.AppendInfo, error) {
	return l.Append(b, o)
}

func (l *fullLog) Sync(ctx context.Context, offset int64) error {
	if l.unsynced.Load() {
		l.attempts.Add(1)
		return errNoSpace
	}
	return l.memoryLog.Sync(ctx, offset)
}

// TestTransactionsOutliveAFullDisk: whatever of a transaction cannot be written while the disk is full is written once it is not, with nobody to ask for it. It is tried
// now and then, and not all the time.
func TestTransactionsOutliveAFullDisk(t *testing.T) {
	for _, c := range []struct {
		what          string
		state         txn.State
		marker        string
		breaks, mends func(l *fullLog)
		end           bool // the producer ends its transaction; else it times out
	}{
		{"a time-out", txn.CompleteAbort, "t-0 commit false epoch 1", func(l *fullLog) { l.full.Store(true) }, func(l *fullLog) { l.full.Store(false) }, false},
		{"a time-out, unsynced", txn.CompleteAbort, "t-0 commit false epoch 1", func(l *fullLog) { l.unsynced.Store(true) }, func(l *fullLog) { l.unsynced.Store(false) }, false},
		{"an end, unsynced", txn.CompleteCommit, "t-0 commit true epoch 1", func(l *fullLog) { l.unsynced.Store(true) }, func(l *fullLog) { l.unsynced.Store(false) }, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, m := &fullLog{}, &marks{failed: map[txn.TopicPartition]error{}}
				s := txnServiceOn(t, m, log)
				p := s.init(t, "id")
				s.begin(t, "id", p, tp("t", 0))
				c.breaks(log)
				if c.end {
					if r, err := s.finishTxn("id", p, true); err == nil && r.Err == nil {
						t.Error("confirmed")
					}
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := m.take(); len(got) != 0 {
					t.Errorf("markers of what is not on stable storage: %v", got)
				}
				if n := log.attempts.Load(); n < 2 || n > 10_000 {
					t.Errorf("tried %d times in ten minutes", n)
				}
				c.mends(log)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if got := m.take(); !slices.Equal(got, []string{c.marker}) {
					t.Errorf("markers %v, want %s", got, c.marker)
				}
				if state := s.stateOf(t, "id"); state != c.state {
					t.Errorf("state %s, want %s", state, c.state)
				}
				s.close()
			})
		})
	}
}

// TestCompletionOutlivesAFullDisk: the disk is full between the markers and the record that says that they are written.
func TestCompletionOutlivesAFullDisk(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, m := &fullLog{}, &marks{failed: map[txn.TopicPartition]error{}}
			s := txnServiceOn(t, m, log)
			p := s.init(t, "id")
			s.begin(t, "id", p, tp("t", 0))
			m.fail(tp("t", 0), errNoSpace)
			r, err := s.finishTxn("id", p, commit)
			if err != nil || r.Err != nil {
				t.Fatal(r, err)
			}
			log.full.Store(true)
			m.fail(tp("t", 0), nil)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if got := m.take(); !slices.Equal(got, []string{fmt.Sprintf("t-0 commit %v epoch 1", commit)}) {
				t.Errorf("markers %v", got)
			}
			if n := log.attempts.Load(); n < 2 || n > 10_000 {
				t.Errorf("tried %d times in ten minutes", n)
			}
			log.full.Store(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if state := s.stateOf(t, "id"); state != txn.CompleteCommit && state != txn.CompleteAbort {
				t.Errorf("state %s", state)
			}
			s.begin(t, "id", r.Producer, tp("t", 0))
			s.close()
		})
	}
}

// TestMembersOutliveAFullDisk: a member of whatever kind of group whose session has ended is taken out once that can be written. It is tried now and then, and not all the
// time.
func TestMembersOutliveAFullDisk(t *testing.T) {
	registry, err := topics.Open(vfs.NewMem(), "/topics")
	if err != nil {
		t.Fatal(err)
	}
	ok := func(t *testing.T, r group.Result, err error) {
		t.Helper()
		if e := reflect.ValueOf(r).FieldByName("Err"); err != nil || !e.IsNil() {
			t.Fatal(r, err)
		}
	}
	timed := func(d time.Duration) func() consumer.Config {
		return func() consumer.Config {
			return consumer.Config{Session: d, Heartbeat: d, MaxSize: 10, Assignors: []string{"uniform"}}
		}
	}
	for _, c := range []struct {
		kind string
		join func(t *testing.T, s *groupService)
	}{
		{"classic", func(t *testing.T, s *groupService) {
			join := &group.Join{ProtocolType: "consumer", Session: 10 * time.Second, Rebalance: 10 * time.Second, NewMemberID: "m", Protocols: []group.Protocol{{Name: "range"}}}
			r, err := s.ask(context.Background(), "g", true, nil, func(k *call) group.Command { join.Token = k; return join })
			ok(t, r, err)
			r, err = s.ask(context.Background(), "g", false, nil, func(k *call) group.Command {
				return &group.Sync{Token: k, MemberID: "m", Generation: 1, Assignments: map[string][]byte{"m": []byte("mine")}}
			})
			ok(t, r, err)
		}},
		{"consumer", func(t *testing.T, s *groupService) {
			h := &consumer.Heartbeat{MemberID: "m", Rebalance: 10_000, Topics: []string{"t"}, Owned: consumer.Owned{}}
			h.New = func() *consumer.Group { return consumer.New("g", timed(10*time.Second), groupTopics{registry}) }
			r, err := s.ask(context.Background(), "g", true, nil, func(k *call) group.Command { h.Token = k; return h })
			ok(t, r, err)
		}},
		{"share", func(t *testing.T, s *groupService) {
			h := &share.Heartbeat{Member: "m", Topics: []string{"t"}}
			h.New = func() *share.Group {
				return share.New("g", func(string) share.Config { return share.Config{MaxSize: 10, Session: 10 * time.Second} }, groupTopics{registry})
			}
			r, err := s.ask(context.Background(), "g", true, nil, func(k *call) group.Command { h.Token = k; return h })
			ok(t, r, err)
		}},
		{"streams", func(t *testing.T, s *groupService) {
			process := "p"
			h := &streams.Heartbeat{MemberID: "m", Rebalance: 10_000, Topology: &streams.Topology{}, Owned: &streams.Owned{}, ProcessID: &process}
			h.New = func() *streams.Group {
				return streams.New("g", func() streams.Config { return streams.Config{MaxSize: 10, Session: 10 * time.Second} }, groupTopics{registry})
			}
			r, err := s.ask(context.Background(), "g", true, nil, func(k *call) group.Command { h.Token = k; return h })
			ok(t, r, err)
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &fullLog{}
				s := serviceOn(t, log)
				synctest.Wait()
				c.join(t, s)
				log.full.Store(true)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := log.attempts.Load(); n < 2 && c.kind != "classic" || n > 10_000 { // the classic kind keeps nothing of who is a member
					t.Errorf("tried %d times in ten minutes", n)
				}
				log.full.Store(false)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if err := s.look(context.Background(), "g", func(g *group.Group) {
					if g != nil && !g.Kind().Empty() {
						t.Errorf("the group is %s", g.Kind().State())
					}
				}); err != nil {
					t.Error(err)
				}
				s.close()
			})
		})
	}
}
