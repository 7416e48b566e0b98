package sharepart

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
)

var base = time.UnixMilli(1_800_000_000_000)

// TestHistories lets members read, acknowledge, release and fail in any order, locks end, the log lose its beginning and its gaps, and the node crash, and looks
// at what became of each record.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(10, 120).Draw(rt, "steps") {
			w.any()
			w.judge()
		}
		w.settle()
	})
}

// world is a log, a share-partition, and what its members know.
type world struct {
	*rapid.T
	config  Config
	now     time.Time
	log     []logBatch
	start   int64 // of the log
	end     int64
	p       *Partition
	store   *sharestate.Coordinator
	members map[string]map[int64]int16 // what each was given and has not answered yet, with delivery counts
	locks   map[int64]time.Time

	done      map[int64]string // records that were acknowledged or rejected, and the answer was sent
	delivered map[int64]int    // since the last crash
	ever      map[int64]int
	mail      []Letter         // that are to go to the dead letter queue
	dead      map[int64]Letter // that went there
}

type logBatch struct {
	Span
	aborted bool
}

var key = sharestate.Key{Group: "g"}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: base, members: map[string]map[int64]int16{}, done: map[int64]string{}, delivered: map[int64]int{}, ever: map[int64]int{}, locks: map[int64]time.Time{}, dead: map[int64]Letter{},
		config: Config{MaxRecords: rapid.IntRange(5, 40).Draw(t, "in flight"), DeliveryLimit: rapid.IntRange(2, 6).Draw(t, "limit"), Lock: 30 * time.Second, DeadLetters: rapid.Bool().Draw(t, "dead letters")},
		store:  sharestate.New(rapid.IntRange(1, 5).Draw(t, "updates per snapshot"))}
	for _, m := range []string{"a", "b", "c"} {
		w.members[m] = map[int64]int16{}
	}
	w.grow()
	r, err := w.store.Initialize(w.now, key, 1, 0)
	w.write(r, err)
	w.open()
	return w
}

func (w *world) write(r sharestate.Record, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	e, err := sharestate.ParseRecord(r.Key, r.Value)
	if err != nil {
		w.Fatal(err)
	}
	w.store.Apply(e, 0)
}

// open takes up what was kept.
func (w *world) open() {
	s, _ := w.store.Look(key)
	var kept []StateBatch
	for _, b := range s.Batches {
		kept = append(kept, StateBatch{b.First, b.Last, State(b.State), b.Count})
	}
	p, err := New(func() Config { return w.config }, s.Start, kept)
	if err != nil {
		w.Fatal(err)
	}
	w.p, w.mail = p, p.TakeLetters()
}

func (w *world) keep() {
	for _, u := range w.p.TakeUpdates() {
		var batches []sharestate.Batch
		for _, b := range u.Batches {
			batches = append(batches, sharestate.Batch{First: b.First, Last: b.Last, State: int8(b.State), Count: b.Count})
		}
		r, err := w.store.Write(w.now, key, sharestate.Update{Epoch: 1, Start: u.Start, Complete: u.Complete, Batches: batches})
		w.write(r, err)
	}
	w.mail = append(w.mail, w.p.TakeLetters()...)
}

// post writes some letters to the dead letter queue.
func (w *world) post(n int) {
	w.mail = rapid.Permutation(w.mail).Draw(w.T, "letters")
	var ranges []Span
	for _, l := range w.mail[:n] {
		ranges = append(ranges, Span{l.First, l.Last})
		for o := l.First; o <= l.Last; o++ {
			w.dead[o] = l
		}
	}
	w.mail = w.mail[n:]
	w.p.Archive(ranges)
	w.keep()
}

func (w *world) grow() {
	for range rapid.IntRange(1, 4).Draw(w.T, "batches") {
		n := int64(rapid.IntRange(1, 12).Draw(w.T, "records"))
		w.end += int64(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(w.T, "gap"))
		b := logBatch{Span: Span{w.end, w.end + n - 1}, aborted: rapid.IntRange(0, 9).Draw(w.T, "aborted") == 0}
		w.log = append(w.log, b)
		w.end += n
	}
}

func (w *world) any() {
	member := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "member")
	switch rapid.IntRange(0, 19).Draw(w.T, "what") {
	case 0, 1:
		w.grow()
	case 2:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(w.T, "seconds")) * time.Second)
		w.expire()
	case 3:
		w.p.Release(member)
		w.members[member] = map[int64]int16{}
		w.keep()
	case 4:
		w.moveStart()
	case 5:
		w.crash()
	case 6:
		w.compact()
	case 7:
		w.wrong(member)
	case 8, 9, 10, 11, 12:
		w.fetch(member)
	case 13:
		w.post(rapid.IntRange(0, len(w.mail)).Draw(w.T, "posted"))
	default:
		w.answer(member)
	}
}

func (w *world) expire() {
	w.p.Expire(w.now)
	w.keep()
	for _, held := range w.members {
		for o := range held {
			if !w.locks[o].After(w.now) {
				delete(held, o)
			}
		}
	}
}

func (w *world) moveStart() {
	if w.start >= w.end {
		return
	}
	w.start += int64(rapid.IntRange(0, int(min(w.end-w.start, 10))).Draw(w.T, "deleted"))
	w.p.MoveStart(w.start)
	w.keep()
	for _, held := range w.members {
		for o := range held {
			if o < w.start {
				delete(held, o)
			}
		}
	}
}

func (w *world) crash() {
	w.open()
	for m := range w.members {
		w.members[m] = map[int64]int16{}
	}
	w.delivered = map[int64]int{}
}

// compact takes a whole batch out of the log.
func (w *world) compact() {
	if n := len(w.log); n > 2 {
		i := rapid.IntRange(0, n-2).Draw(w.T, "compacted away")
		w.log = slices.Delete(w.log, i, i+1)
	}
}

// fetch reads as the broker does.
func (w *world) fetch(member string) {
	if !w.p.CanAcquire() {
		return
	}
	f := Fetched{Member: member, Offset: w.p.Next(), MaxRecords: rapid.IntRange(1, 30).Draw(w.T, "max"), BatchSize: rapid.IntRange(1, 10).Draw(w.T, "batch size"),
		Limited: rapid.Bool().Draw(w.T, "limited")}
	if f.Offset < w.start {
		w.p.MoveStart(w.start)
		w.keep()
		return
	}
	for i, n := 0, rapid.IntRange(1, 4).Draw(w.T, "read"); i < len(w.log) && n > 0; i++ {
		if b := w.log[i]; b.Last >= f.Offset {
			f.Batches = append(f.Batches, b.Span)
			if n--; b.aborted {
				f.Aborted = append(f.Aborted, b.Span)
			}
		}
	}
	got := w.p.Acquire(w.now, f)
	w.keep()
	total, last := 0, int64(-1)
	for _, d := range got {
		if d.First > d.Last || d.First <= last {
			w.Fatalf("deliveries %v", got)
		}
		last = d.Last
		for o := d.First; o <= d.Last; o++ {
			total++
			w.given(member, o, d.Count)
		}
	}
	if f.Limited && total > f.MaxRecords {
		w.Fatalf("%d records for a member that wanted %d", total, f.MaxRecords)
	}
}

func (w *world) given(member string, o int64, count int16) {
	if fate, done := w.done[o]; done {
		w.Fatalf("record %d was %s and is delivered again", o, fate)
	}
	if o < w.start {
		w.Fatalf("record %d is deleted, and delivered", o)
	}
	if i := slices.IndexFunc(w.log, func(b logBatch) bool { return b.First <= o && o <= b.Last }); i >= 0 && w.log[i].aborted {
		w.Fatalf("aborted record %d is delivered", o)
	}
	for m, held := range w.members {
		if _, has := held[o]; has {
			w.Fatalf("record %d is with %s, and given to %s", o, m, member)
		}
	}
	w.delivered[o]++
	w.ever[o]++
	if int(count) > w.config.DeliveryLimit || w.delivered[o] > w.config.DeliveryLimit {
		w.Fatalf("record %d is delivered the %d. time", o, count)
	}
	w.members[member][o], w.locks[o] = count, w.now.Add(w.config.Lock)
}

// answer acknowledges some of what a member has.
func (w *world) answer(member string) {
	held := w.members[member]
	var offsets []int64
	for o := range held {
		offsets = append(offsets, o)
	}
	if len(offsets) == 0 {
		return
	}
	slices.Sort(offsets)
	from := rapid.IntRange(0, len(offsets)-1).Draw(w.T, "from")
	to := rapid.IntRange(from, len(offsets)-1).Draw(w.T, "to")
	var acks []Ack
	single := rapid.Bool().Draw(w.T, "single")
	for i := from; i <= to; i++ {
		t := AckType(rapid.SampledFrom([]int8{Accept, Accept, Accept, Giveup, Reject, Renew}).Draw(w.T, "type"))
		if n := len(acks); n > 0 && acks[n-1].Last+1 == offsets[i] {
			acks[n-1].Last++
			if !single {
				acks[n-1].Types = append(acks[n-1].Types, t)
			}
			continue
		}
		acks = append(acks, Ack{offsets[i], offsets[i], []AckType{t}})
	}
	if err := Valid(acks); err != nil {
		w.Fatal(err)
	}
	if err := w.p.Acknowledge(w.now, member, acks); err != nil {
		w.Fatalf("%v of %s: %v", acks, member, err)
	}
	w.keep()
	for _, a := range acks {
		for o := a.First; o <= a.Last; o++ {
			t := a.Types[0]
			if len(a.Types) > 1 {
				t = a.Types[o-a.First]
			}
			switch t {
			case Accept:
				w.done[o] = "accepted"
			case Reject:
				w.done[o] = "rejected"
			case Renew:
				w.locks[o] = w.now.Add(w.config.Lock)
				continue
			}
			delete(held, o)
		}
	}
}

// wrong acknowledges what the member has not got, which must change nothing.
func (w *world) wrong(member string) {
	first := int64(rapid.IntRange(int(w.p.Start()), int(w.end)+3).Draw(w.T, "first"))
	a := Ack{first, first + int64(rapid.IntRange(0, 5).Draw(w.T, "more")), []AckType{Accept}}
	owns := true
	for o := a.First; o <= a.Last; o++ {
		if _, has := w.members[member][o]; !has {
			owns = false
		}
	}
	if owns {
		return
	}
	before := fmt.Sprintf("%+v", w.p.describe())
	err := w.p.Acknowledge(w.now, member, []Ack{a})
	if err == nil {
		// Between batches there may be nothing.
		for o := a.First; o <= a.Last; o++ {
			if _, has := w.members[member][o]; has {
				w.done[o] = "accepted"
				delete(w.members[member], o)
			} else if _, _, _, inFlight := w.p.Held(o); inFlight {
				if s, _, _, _ := w.p.Held(o); s != Acknowledged {
					w.Fatalf("record %d of others is acknowledged", o)
				}
			}
		}
		w.keep()
		return
	}
	if !errors.Is(err, ErrInvalidRecordState) && !errors.Is(err, ErrInvalidRequest) {
		w.Fatal(err)
	}
	if after := fmt.Sprintf("%+v", w.p.describe()); after != before {
		w.Fatalf("a refused acknowledgement %v changed\n%s to\n%s", a, before, after)
	}
}

func (p *Partition) describe() (out []StateBatch) {
	for _, b := range p.batches {
		for i := range b.runs {
			k := b.runs[i].kept()
			if n := len(out); n > 0 && out[n-1].Last+1 == k.First && out[n-1].State == k.State && out[n-1].Count == k.Count {
				out[n-1].Last = k.Last
				continue
			}
			out = append(out, k)
		}
	}
	return out
}

// judge looks at the invariants.
func (w *world) judge() {
	p, last := w.p, w.p.start-1
	for _, b := range p.batches {
		if b.first <= last || len(b.runs) == 0 || b.runs[0].first != b.first || b.runs[len(b.runs)-1].last != b.last {
			w.Fatalf("batch %+v after %d, start %d", b, last, p.start)
		}
		next := b.first
		for _, r := range b.runs {
			if r.first != next || r.last < r.first || (r.member != "") != (r.state == Acquired) || int(r.count) > w.config.DeliveryLimit {
				w.Fatalf("run %+v in %+v", r, b)
			}
			next = r.last + 1
		}
		last = b.last
	}
	if len(p.batches) > 0 && (p.end != last || p.batches[0].runs[0].state.terminal()) || len(p.batches) == 0 && p.end != p.start {
		w.Fatalf("start %d, end %d, batches %+v", p.start, p.end, p.describe())
	}
	for m, held := range w.members {
		for o, count := range held {
			if s, c, owner, ok := p.Held(o); !ok || s != Acquired || c != count || owner != m {
				w.Fatalf("record %d of %s, delivered %d times, is in state %d of %q, count %d", o, m, count, s, owner, c)
			}
		}
	}
	for o := range w.done {
		if s, _, _, ok := p.Held(o); o >= p.start && (!ok || !s.terminal() && s != Archiving) {
			w.Fatalf("record %d is done, and in state %d", o, s)
		}
	}
	for o := p.start; o <= p.end; o++ {
		s, count, _, ok := p.Held(o)
		i := slices.IndexFunc(w.mail, func(l Letter) bool { return l.First <= o && o <= l.Last })
		if waits := ok && s == Archiving; waits && (i < 0 || w.mail[i].Count != count || !w.config.DeadLetters) || !waits && i >= 0 {
			w.Fatalf("record %d is in state %d, letters %+v", o, s, w.mail)
		}
	}
	for o := w.start; o < p.start; o++ {
		if w.lost(o) {
			w.Fatalf("record %d is below the start %d and was neither answered for nor delivered often enough", o, p.start)
		}
	}
}

// lost tells of a record that nobody has answered for, and that was not delivered as often as it may be either.
func (w *world) lost(o int64) bool {
	i := slices.IndexFunc(w.log, func(b logBatch) bool { return b.First <= o && o <= b.Last })
	return i >= 0 && !w.log[i].aborted && w.done[o] == "" && w.ever[o] < w.config.DeliveryLimit
}

// settle lets one member read all that is left: everything must come.
func (w *world) settle() {
	for m := range w.members {
		w.p.Release(m)
		w.members[m] = map[int64]int16{}
	}
	w.keep()
	for range 10_000 {
		if w.p.Start() >= w.end {
			break
		}
		w.post(len(w.mail))
		at := w.p.Next()
		if at > w.log[len(w.log)-1].Last {
			break
		}
		w.fetch("a")
		var acks []Ack
		for o := range w.members["a"] {
			acks = append(acks, Ack{o, o, []AckType{Accept}})
		}
		slices.SortFunc(acks, func(a, b Ack) int { return int(a.First - b.First) })
		if err := w.p.Acknowledge(w.now, "a", acks); err != nil {
			w.Fatal(err)
		}
		w.keep()
		for o := range w.members["a"] {
			w.done[o] = "accepted"
		}
		w.members["a"] = map[int64]int16{}
		w.judge()
	}
	w.post(len(w.mail))
	w.judge()
	for o, fate := range w.done {
		if l, dead := w.dead[o]; w.config.DeadLetters && o >= w.start && (dead && l.Rejected && fate != "rejected" || !dead && fate == "rejected") {
			w.Fatalf("record %d was %s, in the dead letter queue: %v", o, fate, dead)
		}
	}
	for _, b := range w.log {
		for o := max(b.First, w.start); o <= b.Last; o++ {
			if w.lost(o) {
				w.Fatalf("record %d never came; start %d, in flight %+v", o, w.p.Start(), w.p.describe())
			}
		}
	}
}
