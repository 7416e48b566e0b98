package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const testSession = 0x01020304

// walked is all that a walk gives.
type walked struct {
	frame []byte
	parts []WalkedPartition
	head  FetchHead
	done  bool
	err   error
}

// walkFrame walks a copy of the frame, cut into pieces by next (0 or less: the rest).
func walkFrame(t testing.TB, version int16, frame []byte, next func(at int) int) walked {
	t.Helper()
	w, err := NewFetchWalker(version)
	if err != nil {
		t.Fatal(err)
	}
	out := walked{frame: bytes.Clone(frame)}
	w.Session, w.SetSession, w.HideNodes = testSession, true, true
	w.OnPartition = func(p *WalkedPartition) error {
		out.parts = append(out.parts, *p)
		return nil
	}
	for at := 0; at < len(frame) && out.err == nil; {
		n := next(at)
		if n <= 0 || n > len(frame)-at {
			n = len(frame) - at
		}
		out.err = w.Walk(out.frame[at : at+n])
		at += n
	}
	out.head, out.done = FetchHead{w.ThrottleMillis(), w.ErrorCode(), w.UpstreamSession()}, w.Done()
	return out
}

func whole(int) int { return 0 }

// decode is kmsg's view of a frame.
func decode(version int16, frame []byte) (*kmsg.FetchResponse, error) {
	_, body, err := ResponseBody(frame[4:], 1, version)
	if err != nil {
		return nil, err
	}
	r := kmsg.NewPtrFetchResponse()
	r.Version = version
	return r, r.ReadFrom(body)
}

// expected are the partitions as kmsg sees them.
func expected(r *kmsg.FetchResponse) []WalkedPartition {
	var out []WalkedPartition
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			w := WalkedPartition{Topic: t.Topic, TopicID: remotestorage.UUID(t.TopicID), Partition: p.Partition, ErrorCode: p.ErrorCode, HighWatermark: p.HighWatermark,
				LastStableOffset: p.LastStableOffset, LogStartOffset: p.LogStartOffset, PreferredReadReplica: p.PreferredReadReplica, RecordBytes: len(p.RecordBatches)}
			out = append(out, w)
		}
	}
	return out
}

// checkWalk compares one walk with kmsg's decoder, before and after.
func checkWalk(t testing.TB, version int16, frame []byte, got walked) {
	t.Helper()
	want, err := decode(version, frame)
	if err != nil {
		t.Fatal("not a response to begin with: ", err)
	}
	if got.err != nil || !got.done {
		t.Fatalf("version %d: %v, done %v", version, got.err, got.done)
	}
	if exp := expected(want); !reflect.DeepEqual(got.parts, exp) {
		t.Fatalf("version %d: partitions\n%+v, want\n%+v", version, got.parts, exp)
	}
	if h := (FetchHead{want.ThrottleMillis, want.ErrorCode, want.SessionID}); got.head != h {
		t.Fatalf("head %+v, want %+v", got.head, h)
	}
	after, err := decode(version, got.frame)
	if err != nil {
		t.Fatal("after the walk: ", err)
	}
	if len(after.Brokers) != 0 {
		t.Fatal("node endpoints are still there")
	}
	if version >= 7 && after.SessionID != testSession {
		t.Fatalf("session %d", after.SessionID)
	}
	// But for these two, nothing has changed.
	want.Brokers, want.SessionID = nil, after.SessionID
	want.UnknownTags, after.UnknownTags = kmsg.Tags{}, kmsg.Tags{}
	if !reflect.DeepEqual(want, after) {
		t.Fatalf("version %d: changed to\n%+v\nfrom\n%+v", version, after, want)
	}
}

func walkable(version int16) []byte { return join(testResponse().Buffers(version, 99, nil)) }

// Every version, cut at every place, in two, and into single bytes.
func TestFetchWalkerEveryCut(t *testing.T) {
	for version := int16(MinWalkedFetch); version <= MaxWalkedFetch; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			frame := walkable(version)
			checkWalk(t, version, frame, walkFrame(t, version, frame, func(int) int { return 1 }))
			for cut := range len(frame) {
				checkWalk(t, version, frame, walkFrame(t, version, frame, func(at int) int {
					if at == 0 {
						return cut
					}
					return 0
				}))
			}
			if hidden := bytes.Count(frame, []byte("h\x00\x00#")) != 0; version >= 16 && !hidden {
				t.Error("no node endpoints to hide: the test tests nothing")
			}
		})
	}
}

// What kmsg itself encodes, with tags of its own everywhere.
func TestFetchWalkerOnUnknownTags(t *testing.T) {
	for version := int16(12); version <= MaxWalkedFetch; version++ {
		r := kmsg.NewPtrFetchResponse()
		r.Version, r.SessionID = version, 5
		r.UnknownTags.Set(300, []byte("top"))
		r.Brokers = []kmsg.FetchResponseBroker{{NodeID: 1, Host: "internal", Port: 9092}}
		topic := kmsg.FetchResponseTopic{Topic: "t", TopicID: [16]byte{9}}
		topic.UnknownTags.Set(5, make([]byte, 200))
		part := kmsg.NewFetchResponseTopicPartition()
		part.UnknownTags.Set(7, []byte{0})
		part.CurrentLeader.LeaderID = 3
		part.RecordBatches = []byte("records")
		aborted := kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: 1, FirstOffset: 2}
		aborted.UnknownTags.Set(0, []byte("x"))
		part.AbortedTransactions = append(part.AbortedTransactions, aborted, aborted)
		topic.Partitions = append(topic.Partitions, part, part)
		r.Topics = append(r.Topics, topic)
		frame := AppendResponse(nil, r, 3)
		if version < 16 {
			r.Brokers = nil // kmsg writes them from v16 on
		}
		for _, n := range []int{0, 1, 3, 7} {
			checkWalk(t, version, frame, walkFrame(t, version, frame, func(int) int { return n }))
		}
	}
}

func TestFetchWalkerLeavesAloneWhatIsNotAsked(t *testing.T) {
	frame := walkable(17)
	w, err := NewFetchWalker(17)
	if err != nil {
		t.Fatal(err)
	}
	got := bytes.Clone(frame)
	if err := w.Walk(got); err != nil || !w.Done() || !bytes.Equal(got, frame) {
		t.Error(err, w.Done())
	}
	if w.UpstreamSession() != 42 || w.ThrottleMillis() != 7 {
		t.Error(w.UpstreamSession(), w.ThrottleMillis())
	}
}

// Skipping whatever may be skipped tells the same.
func TestFetchWalkerSkip(t *testing.T) {
	for version := int16(MinWalkedFetch); version <= MaxWalkedFetch; version++ {
		frame := walkable(version)
		w, err := NewFetchWalker(version)
		if err != nil {
			t.Fatal(err)
		}
		got := walked{frame: bytes.Clone(frame)}
		w.Session, w.SetSession, w.HideNodes = testSession, true, true
		w.OnPartition = func(p *WalkedPartition) error {
			got.parts = append(got.parts, *p)
			return nil
		}
		skipped := 0
		for at := 0; at < len(frame); {
			if n := w.Skip(100); n > 0 {
				skipped += n
				at += n
				continue
			}
			if err := w.Walk(got.frame[at : at+1]); err != nil {
				t.Fatal(err)
			}
			at++
		}
		got.head, got.done = FetchHead{w.ThrottleMillis(), w.ErrorCode(), w.UpstreamSession()}, w.Done()
		checkWalk(t, version, frame, got)
		if skipped != 307 {
			t.Errorf("%d record bytes skipped, want 307", skipped)
		}
	}
}

func TestFetchWalkerRefuses(t *testing.T) {
	for _, version := range []int16{3, 19, -1} {
		if _, err := NewFetchWalker(version); !errors.Is(err, ErrMalformed) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	good := walkable(17)
	size := func(n int, b []byte) []byte {
		b = bytes.Clone(b)
		binary.BigEndian.PutUint32(b, uint32(n))
		return b
	}
	tests := map[string][]byte{
		"a frame shorter than its message": size(len(good)-4-1, good),
		"a frame that ends in a head":      size(10, good[:14]),
		"a negative size":                  size(-1, good),
		"bytes behind the frame":           append(bytes.Clone(good), 0),
		"records beyond the frame":         size(len(good)-4-250, good),
	}
	for name, frame := range tests {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 5} {
				if got := walkFrame(t, 17, frame, func(int) int { return n }); !errors.Is(got.err, ErrMalformed) {
					t.Errorf("cut by %d: %v", n, got.err)
				}
			}
		})
	}
	if got := walkFrame(t, 17, good[:len(good)-1], whole); got.err != nil || got.done {
		t.Error("done before the end", got.err)
	}
	mine := errors.New("mine")
	w, err := NewFetchWalker(17)
	if err != nil {
		t.Fatal(err)
	}
	w.OnPartition = func(*WalkedPartition) error { return mine }
	if err := w.Walk(bytes.Clone(good)); !errors.Is(err, mine) {
		t.Error(err)
	}
}

func TestParseFetchHead(t *testing.T) {
	for version := int16(MinWalkedFetch); version <= MaxWalkedFetch; version++ {
		r := testResponse()
		r.ErrorCode = 71
		frame := join(r.Buffers(version, 1, nil))
		want := FetchHead{7, 71, 42}
		if version < 7 {
			want = FetchHead{ThrottleMillis: 7}
		}
		if got, err := ParseFetchHead(frame[:FetchHeadBytes], version); err != nil || got != want {
			t.Errorf("version %d: %+v %v", version, got, err)
		}
		if _, err := ParseFetchHead(frame[:10], version); !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	}
}

// However many batches there are, a walk allocates only a topic's name.
func TestFetchWalkerAllocations(t *testing.T) {
	for _, version := range []int16{12, 17} {
		frame := join((&FetchResponse{Topics: []FetchTopic{{Topic: "name", Partitions: []FetchPartition{
			{Records: Records{Bufs: [][]byte{make([]byte, 8<<20)}}}, {Partition: 1, Records: Records{Bufs: [][]byte{make([]byte, 8<<20)}}}}}}}).Buffers(version, 1, nil))
		n := testing.AllocsPerRun(10, func() {
			w, err := NewFetchWalker(version)
			if err != nil {
				t.Fatal(err)
			}
			for c := range slices.Chunk(frame, 64<<10) {
				if err := w.Walk(c); err != nil {
					t.Fatal(err)
				}
			}
			if !w.Done() {
				t.Fatal("not done")
			}
		})
		if n > 3 {
			t.Errorf("version %d: %v allocations for 256 chunks", version, n)
		}
	}
}

func FuzzFetchWalker(f *testing.F) {
	for version := int16(MinWalkedFetch); version <= MaxWalkedFetch; version++ {
		f.Add(version, walkable(version)[4:], uint16(3))
	}
	f.Fuzz(func(t *testing.T, version int16, message []byte, seed uint16) {
		if version < MinWalkedFetch || version > MaxWalkedFetch || len(message) > 1<<16 {
			return
		}
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
		one := walkFrame(t, version, frame, whole)
		random := uint32(seed)
		for _, next := range []func(int) int{
			func(int) int { return 1 },
			func(int) int { random = random*1664525 + 1013904223; return int(random>>16)%17 + 1 },
			func(at int) int {
				if at == 0 && len(frame) > 0 {
					return int(seed) % len(frame)
				}
				return 0
			},
		} {
			other := walkFrame(t, version, frame, next)
			if (one.err == nil) != (other.err == nil) || one.done != other.done || !reflect.DeepEqual(one.parts, other.parts) {
				t.Fatalf("the cut matters: %+v and %+v", one, other)
			}
			if one.err == nil && !bytes.Equal(one.frame, other.frame) {
				t.Fatal("the cut changes what is written")
			}
		}
		resp, err := decode(version, frame)
		if err != nil {
			return // the walker need not know: it does not look into what it steps over
		}
		if !one.done {
			// Two things that kmsg bears and the walker does not: they cannot be told apart in a stream, or only make memory grow.
			if version >= 12 || slices.ContainsFunc(resp.Topics, func(t kmsg.FetchResponseTopic) bool { return len(t.Topic) > maxTopicName }) {
				if one.err != nil && (bytes.Contains([]byte(one.err.Error()), []byte("unusual length")) || bytes.Contains([]byte(one.err.Error()), []byte("topic name"))) {
					return
				}
			}
			t.Fatalf("kmsg reads what the walker does not: %v", one.err)
		}
		if one.done {
			checkWalk(t, version, frame, one)
		}
	})
}

func BenchmarkFetchWalker(b *testing.B) {
	frame := join((&FetchResponse{Topics: []FetchTopic{{Partitions: []FetchPartition{{Records: Records{Bufs: [][]byte{make([]byte, 1<<20)}}}}}}}).Buffers(17, 1, nil))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		w, err := NewFetchWalker(17)
		if err != nil {
			b.Fatal(err)
		}
		for c := range slices.Chunk(frame, 64<<10) {
			if err := w.Walk(c); err != nil {
				b.Fatal(err)
			}
		}
	}
}
