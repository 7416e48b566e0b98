package group

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func txnTestConfig() Config { return Config{MaxMetadata: 100, OffsetsRetention: time.Hour} }

var txnEpoch = time.UnixMilli(1_750_000_000_000)

func offsetAt(partition int32, offset int64) OffsetOf {
	return OffsetOf{TopicPartition{"t", partition}, Offset{Offset: offset, LeaderEpoch: -1, Committed: txnEpoch}}
}

// TestTxnCommitOfMembers: who names a member must be one of the generation, who names none is taken at its word.
func TestTxnCommitOfMembers(t *testing.T) {
	g := New("g", txnTestConfig, txnEpoch)
	g.classic().add(&member{id: "m", session: time.Minute, instance: "i"})
	g.classic().state, g.classic().generation = Stable, 3
	for _, tc := range []struct {
		member, instance string
		generation       int32
		want             error
	}{
		{"", "", -1, nil},
		{"m", "", 3, nil},
		{"m", "i", 3, nil},
		{"m", "", 2, ErrIllegalGeneration},
		{"m", "", -1, ErrIllegalGeneration},
		{"x", "", 3, ErrUnknownMember},
		{"x", "i", 3, ErrFenced},
		{"x", "other", 3, ErrUnknownMember},
	} {
		o := g.Step(txnEpoch, &TxnCommit{Commit: Commit{Token: 1, MemberID: tc.member, InstanceID: tc.instance, Generation: tc.generation, Offsets: []OffsetOf{offsetAt(0, 1)}}, Producer: Producer{1, 0}})
		if err := o.Replies[0].Result.(CommitResult).Err; !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%+v: %v", tc, err)
		}
		if (o.Producer != nil) != (tc.want == nil) || (len(o.Records) > 0) != (tc.want == nil) {
			t.Errorf("%+v: records %v of %v", tc, o.Records, o.Producer)
		}
	}
	g.classic().state = CompletingRebalance // a rebalance does not stand in the way of a transaction
	o := g.Step(txnEpoch, &TxnCommit{Commit: Commit{Token: 1, MemberID: "m", Generation: 3, Offsets: []OffsetOf{offsetAt(0, 1)}}, Producer: Producer{1, 0}})
	if err := o.Replies[0].Result.(CommitResult).Err; err != nil {
		t.Error(err)
	}
}

// TestPendingOffsetsKeepTheGroup: a group is not forgotten while a transaction may yet commit offsets of it.
func TestPendingOffsetsKeepTheGroup(t *testing.T) {
	g := New("g", txnTestConfig, txnEpoch)
	g.Step(txnEpoch, &TxnCommit{Commit: Commit{Token: 1, Generation: -1, Offsets: []OffsetOf{offsetAt(0, 1)}}, Producer: Producer{1, 0}})
	o := g.Step(txnEpoch.Add(48*time.Hour), Expire{})
	if len(o.Records) > 0 || g.Disposable() || !g.Unstable(TopicPartition{"t", 0}) {
		t.Errorf("records %v, disposable %v", o.Records, g.Disposable())
	}
	g.Step(txnEpoch, EndTransaction{1, false})
	if !g.Disposable() || g.Unstable(TopicPartition{"t", 0}) {
		t.Error("it is there for good")
	}
}

// TestTransactionalHistories: what a group says after any history of commits inside and outside of transactions, deletions and appends that fail, is what the
// log says: of each partition the last that stands in it, transactions that were aborted or are open left out. And so it is after a replay.
func TestTransactionalHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := New("g", txnTestConfig, txnEpoch)
		type line struct {
			producer int64 // -1: no transaction
			e        *Entry
			commit   *bool // a marker
		}
		var log []line
		write := func(o Output, producer int64) {
			if len(o.Records) == 0 {
				return
			}
			if rapid.IntRange(0, 5).Draw(rt, "fails") == 0 {
				g.Failed(txnEpoch, o, ErrNotAvailable)
				return
			}
			for _, r := range o.Records {
				e, err := ParseRecord(r.Key, r.Value)
				if err != nil {
					rt.Fatal(err)
				}
				log = append(log, line{producer: producer, e: &e})
			}
		}
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			p, offset := int32(rapid.IntRange(0, 2).Draw(rt, "partition")), int64(n+1)
			producer := int64(rapid.IntRange(1, 3).Draw(rt, "producer"))
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				write(g.Step(txnEpoch, &Commit{Token: 1, Generation: -1, Offsets: []OffsetOf{offsetAt(p, offset)}}), -1)
			case 1, 2:
				write(g.Step(txnEpoch, &TxnCommit{Commit: Commit{Token: 1, Generation: -1, Offsets: []OffsetOf{offsetAt(p, offset)}}, Producer: Producer{producer, 0}}), producer)
			case 3:
				write(g.Step(txnEpoch, &DeleteOffsets{Token: 1, Partitions: []TopicPartition{{"t", p}}}), -1)
			default:
				commit := rapid.Bool().Draw(rt, "commit")
				log = append(log, line{producer: producer, commit: &commit})
				g.Step(txnEpoch, EndTransaction{producer, commit})
			}
		}
		want, again := map[int32]int64{}, New("g", txnTestConfig, txnEpoch)
		for i, l := range log {
			switch {
			case l.commit != nil:
				again.ReplayEnd(l.producer, *l.commit)
				continue
			case l.producer >= 0:
				again.ReplayTransactional(l.producer, *l.e, t0)
			default:
				again.Replay(*l.e, t0)
			}
			counts := l.producer < 0
			for _, later := range log[i:] {
				if later.commit != nil && later.producer == l.producer {
					counts = *later.commit
					break
				}
			}
			switch p := l.e.Partition.Partition; {
			case counts && l.e.Offset != nil:
				want[p] = l.e.Offset.Offset
			case counts:
				delete(want, p)
			}
		}
		for name, g := range map[string]*Group{"live": g, "replayed": again} {
			got := map[int32]int64{}
			for _, tp := range g.Offsets() {
				o, _ := g.Offset(tp)
				got[tp.Partition] = o.Offset
			}
			if !maps.Equal(got, want) {
				rt.Fatalf("%s: offsets %v, the log says %v", name, got, want)
			}
		}
		for p := range int32(3) {
			if tp := (TopicPartition{"t", p}); g.Unstable(tp) != again.Unstable(tp) {
				rt.Fatalf("%s is unstable: %v, after a replay %v", fmt.Sprint(tp), g.Unstable(tp), again.Unstable(tp))
			}
		}
	})
}
