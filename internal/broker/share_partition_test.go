package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/sharepart"
)

// writeTime is what a write to a slowLog takes.
const writeTime = 5 * time.Millisecond

// slowLog takes its time. Writes are counted when they begin.
type slowLog struct {
	stateLog
	writes atomic.Int64
}

func (l *slowLog) Append(b []byte, o partlog.Origin) (partlog.AppendInfo, error) {
	l.writes.Add(1)
	time.Sleep(writeTime)
	return l.stateLog.Append(b, o)
}

// busyPartition is a share-partition whose states are kept slowly.
func busyPartition(t *testing.T, b *testBroker) (*sharePartition, *slowLog) {
	t.Helper()
	b.createTopic(t, "t", 1)
	p := b.partition("t", 0)
	k := shareKey{"g", p.tp.TopicID, 0}
	if err := b.shares.states.initialize(t.Context(), k.state(), 1, 0); err != nil {
		t.Fatal(err)
	}
	c, err := b.shares.states.of(k.state().String())
	if err != nil {
		t.Fatal(err)
	}
	log := &slowLog{}
	if err := c.wait(t.Context(), func() { log.stateLog, c.log = c.log, log }); err != nil {
		t.Fatal(err)
	}
	sp, err := b.shares.get(t.Context(), k, p)
	if err != nil {
		t.Fatal(err)
	}
	log.writes.Store(0)
	return sp, log
}

func (sp *sharePartition) step(ctx context.Context) error {
	return sp.change(ctx, func(m *sharepart.Partition) error { m.MoveStart(m.Start() + 1); return nil })
}

// TestNobodyWritesForOthersWithoutEnd: however many change a share-partition all the time, everybody is answered once what they have changed is kept.
func TestNobodyWritesForOthersWithoutEnd(t *testing.T) {
	const members, rounds, least = 3, 200, 20
	b := startBroker(t, t.TempDir(), shareKeys())
	sp, log := busyPartition(t, b)
	var counts [members]atomic.Int64
	var all sync.WaitGroup
	var first sync.Once
	for i := range counts {
		all.Go(func() {
			for log.writes.Load() < int64(i) { // so that there is always one whose change comes during the write of another's
				time.Sleep(writeTime / 50)
			}
			for range rounds {
				if err := sp.step(t.Context()); err != nil {
					t.Error(err)
					return
				}
				counts[i].Add(1)
			}
			first.Do(func() {
				for j := range counts {
					if n := counts[j].Load(); n < least {
						t.Errorf("one was answered %d times, another %d times", rounds, n)
					}
				}
			})
		})
	}
	all.Wait()
}

// TestChangesEndWithTheService: who waits for a change to be kept while the node goes down is told.
func TestChangesEndWithTheService(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	sp, _ := busyPartition(t, b)
	var all sync.WaitGroup
	began := make(chan struct{}, 8)
	for range cap(began) {
		all.Go(func() {
			for {
				err := sp.step(context.Background())
				select {
				case began <- struct{}{}:
				default:
				}
				if err != nil {
					if errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	<-began
	if err := b.Close(context.Background()); err != nil {
		t.Error(err)
	}
	all.Wait()
}
