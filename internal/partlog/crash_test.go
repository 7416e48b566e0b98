package partlog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// crashRig runs a log on a file system that can lose power, and takes a copy "as if it failed now" before every write.
type crashRig struct {
	t       *testing.T
	mem     *vfs.MemFS
	options Options
	log     *Log
	rng     *rand.Rand
	seq     int32
	txnSeq  map[int64]int32
	// What a power failure now must respect:
	sent          [][]byte // every batch that was handed to Append, as it was given its offset
	acked         int      // how many of them were confirmed as synced
	recoveryPoint int64    // as in the node's checkpoint
	logStart      int64
	crashes       []crash
	every         int
	ops           int
}

// crash is the disk after a power failure, and what must be true of it.
type crash struct {
	fs            *vfs.MemFS
	where         string
	sent, acked   int
	recoveryPoint int64
	logStart      int64
	clean         bool
}

func newCrashRig(t *testing.T, seed uint64, every int) *crashRig {
	r := &crashRig{t: t, mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(seed, 1)), every: every, txnSeq: map[int64]int32{}}
	if err := r.mem.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.SyncDir(r.mem, "/"); err != nil {
		t.Fatal(err)
	}
	r.options = testOptions(errorfs.Wrap(r.mem, errorfs.InjectorFunc(r.beforeOp)))
	r.options.Config.SegmentBytes = 2000
	r.options.Config.RetentionBytes = 6000
	return r
}

func (r *crashRig) beforeOp(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		r.ops++
		if r.ops%r.every == 0 {
			r.crash(fmt.Sprintf("before op %d (%d on %s)", r.ops, op.Kind, op.Path), false)
		}
	}
	return nil
}

// crash takes three copies: all that was not synced is lost, half of it, nothing.
func (r *crashRig) crash(where string, clean bool) {
	for _, percent := range []int{0, 50, 100} {
		r.crashes = append(r.crashes, crash{
			fs: r.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: r.rng}), where: fmt.Sprintf("%s, %d%% of the unsynced kept", where, percent),
			sent: len(r.sent), acked: r.acked, recoveryPoint: r.recoveryPoint, logStart: r.logStart, clean: clean,
		})
	}
}

func (r *crashRig) open(clean bool) {
	o := r.options
	o.Clean, o.RecoveryPoint, o.LogStartOffset = clean, r.recoveryPoint, r.logStart
	var err error
	if r.log, err = Open(o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *crashRig) append() {
	n := 1 + r.rng.IntN(3)
	s := plain(n, epoch0.UnixMilli(), r.rng.IntN(300)).producer(7, 0, r.seq)
	s.codec = int8(r.rng.IntN(5))
	b := s.build(r.t)
	r.seq += int32(n)
	// It is on its way from here on: a crash may keep it or not.
	batch.SetBaseOffset(b, r.log.Offsets().LogEnd)
	batch.SetLeaderEpoch(b, r.log.LeaderEpoch())
	r.sent = append(r.sent, bytes.Clone(b))
	if _, err := r.log.Append(b, Client); err != nil {
		r.t.Fatal(err)
	}
}

// transact appends a transactional batch of another producer, or ends its transaction.
func (r *crashRig) transact() {
	pid := int64(20 + r.rng.IntN(2))
	b := marker(pid, 0, r.rng.IntN(3) == 0, 0, epoch0.UnixMilli())
	if r.rng.IntN(3) > 0 {
		s := plain(2, epoch0.UnixMilli(), 40).producer(pid, 0, r.txnSeq[pid])
		s.transactional = true
		r.txnSeq[pid] += 2
		b = s.build(r.t)
	}
	batch.SetBaseOffset(b, r.log.Offsets().LogEnd)
	batch.SetLeaderEpoch(b, r.log.LeaderEpoch())
	r.sent = append(r.sent, bytes.Clone(b))
	if _, err := r.log.Append(b, Internal); err != nil {
		r.t.Fatal(err)
	}
}

// checkTransactions works the aborted transactions and the last stable offset out from the batches, and compares them with the log's.
func checkTransactions(t *testing.T, l *Log, where string) {
	t.Helper()
	o := l.Offsets()
	if l.segments()[0].base > 0 {
		return // what began in a deleted segment cannot be seen
	}
	open := map[int64]int64{}
	var want []segment.AbortedTxn
	for _, raw := range allBatches(t, l) {
		h, err := batch.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !h.IsTransactional() {
			continue
		}
		first, begun := open[h.ProducerID]
		if !h.IsControl() {
			if !begun {
				open[h.ProducerID] = h.BaseOffset
			}
			continue
		}
		c := checked{Header: h}
		if err := c.parseMarker(raw); err != nil {
			t.Fatal(err)
		}
		delete(open, h.ProducerID)
		if begun && c.abort {
			stable := h.BaseOffset + 1
			for _, other := range open {
				stable = min(stable, other)
			}
			want = append(want, segment.AbortedTxn{ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.BaseOffset, LastStableOffset: stable})
		}
	}
	stable := o.LogEnd
	for _, first := range open {
		stable = min(stable, first)
	}
	stable = max(stable, o.LogStart)
	var got []segment.AbortedTxn
	for _, s := range l.segments() {
		entries, err := l.txnEntries(s)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, entries...)
	}
	if o.LastStable != stable || !slices.Equal(got, want) {
		t.Errorf("crash %s: last stable %d, aborted %v; want %d, %v", where, o.LastStable, got, stable, want)
	}
}

// allBatches reads every local batch, those below the log start too.
func allBatches(t *testing.T, l *Log) (all [][]byte) {
	t.Helper()
	for _, s := range l.segments() {
		if err := l.eachBatch(context.Background(), s, func(_ batch.Header, raw []byte) error {
			all = append(all, bytes.Clone(raw))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (r *crashRig) sync() {
	n := len(r.sent)
	if err := r.log.Sync(context.Background(), r.log.Offsets().LogEnd); err != nil {
		r.t.Fatal(err)
	}
	r.acked = n
}

func (r *crashRig) checkpoint() {
	o := r.log.Offsets()
	r.recoveryPoint, r.logStart = o.Recovery, o.LogStart
}

func (r *crashRig) step() {
	switch k := r.rng.IntN(20); {
	case k < 7:
		r.append()
	case k < 10:
		r.transact()
	case k < 14:
		r.append()
		r.sync()
	case k == 14:
		if err := r.log.Flush(context.Background()); err != nil {
			r.t.Fatal(err)
		}
		r.acked = len(r.sent)
		r.checkpoint()
	case k == 15:
		if err := r.log.Roll(); err != nil {
			r.t.Fatal(err)
		}
	case k == 16:
		if _, err := r.log.ApplyRetention(epoch0.Add(time.Duration(r.ops) * time.Second)); err != nil {
			r.t.Fatal(err)
		}
	case k == 17:
		if err := r.log.ReleaseIdle(); err != nil {
			r.t.Fatal(err)
		}
	case k == 18:
		o := r.log.Offsets()
		if _, err := r.log.DeleteRecords(o.LogStart + (o.LogEnd-o.LogStart)/8); err != nil {
			r.t.Fatal(err)
		}
	default:
		if err := r.log.Close(); err != nil {
			r.t.Fatal(err)
		}
		r.acked = len(r.sent)
		r.checkpoint()
		r.crash("after a clean stop", true)
		r.open(true)
	}
}

// verify opens what is left after a crash, and checks that what was confirmed is there, nothing is invented, and a producer's retries find their
// places.
func (r *crashRig) verify(c crash) {
	t := r.t
	o := testOptions(c.fs)
	o.Config = r.options.Config
	o.Clean, o.RecoveryPoint, o.LogStartOffset, o.LeaderEpoch = c.clean, c.recoveryPoint, c.logStart, 1
	l, err := Open(o)
	if err != nil {
		t.Fatalf("crash %s: %v", c.where, err)
	}
	defer l.Close()
	defer func() {
		if t.Failed() {
			t.Logf("crash %s, recovery point %d, log start %d\n%s", c.where, c.recoveryPoint, c.logStart, c.fs)
		}
	}()
	found := r.matches(l, c)
	if found < 0 {
		return
	}
	checkTransactions(t, l, c.where)
	retries := r.sent[max(0, found-5):c.sent]
	for i, b := range retries {
		at := max(0, found-5) + i
		h, err := batch.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset < l.Offsets().LogStart {
			continue
		}
		if h.ProducerID != 7 {
			if at >= found { // the coordinator writes it again
				if _, err := l.Append(bytes.Clone(b), Internal); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		info, err := l.Append(bytes.Clone(b), Client)
		if err != nil {
			t.Errorf("crash %s: retry of batch %d (%d of %d were there): %v", c.where, at, found, c.sent, err)
			return
		}
		if info.Duplicate != (at < found) || info.BaseOffset != h.BaseOffset {
			t.Errorf("crash %s: retry of batch %d (%d were there) at %d: %+v", c.where, at, found, h.BaseOffset, info)
			return
		}
	}
	end := l.Offsets().LogEnd
	want := readAll(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.Clean, o.RecoveryPoint, o.LogStartOffset = true, l.Offsets().Recovery, l.Offsets().LogStart
	again, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Offsets().LogEnd != end {
		t.Errorf("crash %s: end %d after a clean stop, was %d", c.where, again.Offsets().LogEnd, end)
	}
	sameBatches(t, readAll(t, again), want)
	checkTransactions(t, again, c.where)
}

// matches compares the log with what was sent, and gives how many batches from the beginning are accounted for; -1 after complaining.
func (r *crashRig) matches(l *Log, c crash) int {
	t := r.t
	got := readAll(t, l)
	start := l.Offsets().LocalLogStart
	i := 0
	for ; i < c.sent; i++ {
		if h, _ := batch.ParseHeader(r.sent[i]); h.LastOffset() >= start {
			break
		}
	}
	if i+len(got) > c.sent {
		t.Errorf("crash %s: %d batches from the %dth on, only %d were sent", c.where, len(got), i, c.sent)
		return -1
	}
	for k, b := range got {
		if !bytes.Equal(b, r.sent[i+k]) {
			t.Errorf("crash %s: batch %d is not what was sent", c.where, i+k)
			return -1
		}
	}
	if i+len(got) < c.acked {
		t.Errorf("crash %s: %d batches are there, %d were confirmed", c.where, i+len(got), c.acked)
		return -1
	}
	return i + len(got)
}

func TestCrashAnywhere(t *testing.T) {
	const seeds, every, steps = 6, 2, 80
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newCrashRig(t, seed, every)
			r.open(true)
			for range steps {
				r.step()
			}
			if err := r.log.Close(); err != nil {
				t.Fatal(err)
			}
			if len(r.crashes) < 100 {
				t.Fatalf("only %d crashes", len(r.crashes))
			}
			for _, c := range r.crashes {
				r.verify(c)
				if t.Failed() {
					return
				}
			}
		})
	}
}
