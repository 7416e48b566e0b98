package session

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func partOf(topic string, n int32, offset int64) Part {
	p := Part{Topic: topic, FetchRequestTopicPartition: kmsg.NewFetchRequestTopicPartition()}
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, offset, 1<<20
	return p
}

func requestOf(c *Client, want ...Part) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	r := c.Build(want)
	r.Set(req)
	return req
}

// exchange sends one request through the cache and gives what the server was asked and what it answers.
func exchange(t *testing.T, cache *Cache, c *Client, answer func(p *Part) wire.FetchPartition, want ...Part) (*Fetch, []wire.FetchTopic) {
	t.Helper()
	f, code := cache.Apply(requestOf(c, want...))
	if code != 0 {
		t.Fatalf("error %d", code)
	}
	results := make([]wire.FetchPartition, len(f.Parts))
	for i := range f.Parts {
		results[i] = answer(&f.Parts[i])
	}
	topics := f.Filter(results)
	if !c.Answer(&kmsg.FetchResponse{SessionID: f.SessionID}) {
		t.Fatal("the client did not take the answer")
	}
	return f, topics
}

func quiet(p *Part) wire.FetchPartition {
	return wire.FetchPartition{Partition: p.Partition, HighWatermark: 10, LastStableOffset: 10, PreferredReadReplica: -1}
}

func count(topics []wire.FetchTopic) int {
	n := 0
	for _, t := range topics {
		n += len(t.Partitions)
	}
	return n
}

func TestIncremental(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	a, b := partOf("a", 0, 0), partOf("b", 1, 0)
	f, topics := exchange(t, cache, c, quiet, a, b)
	if f.SessionID == 0 || f.Incremental || count(topics) != 2 {
		t.Fatalf("the first fetch: session %d, incremental %v, %d partitions", f.SessionID, f.Incremental, count(topics))
	}
	if f, topics = exchange(t, cache, c, quiet, a, b); !f.Incremental || len(f.Parts) != 2 || count(topics) != 0 {
		t.Fatalf("nothing new: incremental %v, %d read, %d answered", f.Incremental, len(f.Parts), count(topics))
	}
	// Each kind of news brings its partition, and only it, into the answer.
	for name, news := range map[string]func(*wire.FetchPartition){
		"records":      func(p *wire.FetchPartition) { p.Records.Bufs = [][]byte{{1}} },
		"location":     func(p *wire.FetchPartition) { p.Location = &remotestorage.Location{} },
		"error":        func(p *wire.FetchPartition) { p.ErrorCode = 1 },
		"HW":           func(p *wire.FetchPartition) { p.HighWatermark++ },
		"LSO":          func(p *wire.FetchPartition) { p.LastStableOffset++ },
		"log start":    func(p *wire.FetchPartition) { p.LogStartOffset++ },
		"diverging":    func(p *wire.FetchPartition) { p.Diverging = &wire.EpochEnd{} },
		"read replica": func(p *wire.FetchPartition) { p.PreferredReadReplica = 3 },
	} {
		_, topics := exchange(t, cache, c, func(p *Part) wire.FetchPartition {
			out := quiet(p)
			if p.Topic == "b" {
				news(&out)
			}
			return out
		}, a, b)
		if count(topics) != 1 || topics[0].Topic != "b" {
			t.Errorf("%s: answered %v", name, topics)
		}
		exchange(t, cache, c, quiet, a, b) // back to what it was, which is news too where an offset changed
	}
	// That nothing is known is no news of a partition of which something was told, which then holds.
	unknown := func(p *Part) wire.FetchPartition {
		out := quiet(p)
		out.HighWatermark, out.LastStableOffset, out.LogStartOffset = -1, -1, -1
		return out
	}
	for _, results := range []func(*Part) wire.FetchPartition{unknown, quiet} {
		if _, topics := exchange(t, cache, c, results, a, b); count(topics) != 0 {
			t.Errorf("nothing known, and nothing new behind it: %d partitions were answered", count(topics))
		}
	}
	// The end of an error is news even if nothing else changed.
	failed := func(p *Part) wire.FetchPartition { out := quiet(p); out.ErrorCode = 6; return out }
	exchange(t, cache, c, failed, a, b)
	if _, topics := exchange(t, cache, c, quiet, a, b); count(topics) != 2 {
		t.Errorf("after an error %d partitions were answered, want 2", count(topics))
	}
}

// TestNoted: what another answer told counts as told.
func TestNoted(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	a, b := partOf("a", 0, 0), partOf("b", 1, 0)
	f, _ := exchange(t, cache, c, quiet, a, b)
	for _, tt := range []struct {
		name string
		told Told
		want int
	}{
		{"the same", Told{HighWatermark: 10, LastStableOffset: 10}, 0},
		{"a high watermark that is not true any more", Told{HighWatermark: 20, LastStableOffset: 10}, 1},
		{"an error", Told{HighWatermark: 10, LastStableOffset: 10, Failed: true}, 1},
	} {
		tt.told.Topic, tt.told.Partition = "b", 1
		f.Note(tt.told)
		var topics []wire.FetchTopic
		if f, topics = exchange(t, cache, c, quiet, a, b); count(topics) != tt.want {
			t.Errorf("%s: %d partitions answered, want %d", tt.name, count(topics), tt.want)
		}
	}
	f.Note(Told{Topic: "a", Records: true, HighWatermark: 10, LastStableOffset: 10})
	if f, _ = exchange(t, cache, c, quiet, a, b); f.Parts[1].Topic != "a" {
		t.Error("a partition that gave records is not read last")
	}
	f.Note(Told{Topic: "unknown"}) // nothing to take note of
	(&Fetch{}).Note(Told{})
}

func TestForgottenAndChanged(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	exchange(t, cache, c, quiet, partOf("a", 0, 0), partOf("a", 1, 0), partOf("b", 0, 0))
	f, _ := exchange(t, cache, c, quiet, partOf("a", 1, 77), partOf("c", 0, 5))
	want := map[string]int64{"a1": 77, "c0": 5}
	for _, p := range f.Parts {
		k := p.Topic + string('0'+rune(p.Partition))
		if off, ok := want[k]; !ok || off != p.FetchOffset {
			t.Errorf("%s is read from %d", k, p.FetchOffset)
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("not read: %v", want)
	}
}

// TestTagsHold: a partition's tags hold until it is sent again, and a changed tag sends it again.
func TestTagsHold(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	p := partOf("a", 0, 0)
	wire.SetLocationRequested(&p.FetchRequestTopicPartition, true)
	exchange(t, cache, c, quiet, p)
	f, _ := exchange(t, cache, c, quiet, p)
	if asked, err := wire.LocationRequested(&f.Parts[0].FetchRequestTopicPartition); err != nil || !asked {
		t.Errorf("the tag was lost: %v, %v", asked, err)
	}
	f, _ = exchange(t, cache, c, quiet, partOf("a", 0, 0))
	if asked, _ := wire.LocationRequested(&f.Parts[0].FetchRequestTopicPartition); asked {
		t.Error("the tag was taken back, and still holds")
	}
}

func TestSessionErrors(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	exchange(t, cache, c, quiet, partOf("a", 0, 0))
	good := requestOf(c, partOf("a", 0, 0))
	for _, tc := range []struct {
		name   string
		change func(*kmsg.FetchRequest)
		want   int16
	}{
		{"unknown session", func(r *kmsg.FetchRequest) { r.SessionID++ }, ErrSessionIDNotFound},
		{"wrong epoch", func(r *kmsg.FetchRequest) { r.SessionEpoch += 5 }, ErrInvalidSessionEpoch},
		{"names became ids", func(r *kmsg.FetchRequest) { r.Version = 13 }, ErrTopicIDs},
	} {
		req := *good
		tc.change(&req)
		if _, code := cache.Apply(&req); code != tc.want {
			t.Errorf("%s: error %d, want %d", tc.name, code, tc.want)
		}
	}
	if _, code := cache.Apply(good); code != 0 {
		t.Errorf("the right request after wrong ones: error %d", code)
	}
	// The client starts anew after such an error.
	if c.Answer(&kmsg.FetchResponse{ErrorCode: ErrSessionIDNotFound}) {
		t.Error("an error was taken for an answer")
	}
	if f, _ := exchange(t, cache, c, quiet, partOf("a", 0, 3)); f.Incremental || f.SessionID == 0 {
		t.Errorf("after an error: incremental %v, session %d", f.Incremental, f.SessionID)
	}
	// A final fetch ends the session.
	last := *good
	last.SessionID, last.SessionEpoch = c.id, epochFinal
	if f, code := cache.Apply(&last); code != 0 || f.SessionID != 0 {
		t.Errorf("final fetch: error %d", code)
	}
	if _, code := cache.Apply(requestOf(c, partOf("a", 0, 4))); code != ErrSessionIDNotFound {
		t.Errorf("after the final fetch: error %d, want 70", code)
	}
}

// TestFairness: a partition that gave records is read last the next time.
func TestFairness(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	want := []Part{partOf("a", 0, 0), partOf("a", 1, 0), partOf("a", 2, 0)}
	exchange(t, cache, c, quiet, want...)
	full := func(p *Part) wire.FetchPartition {
		out := quiet(p)
		if p.Partition == 0 {
			out.Records.Bufs = [][]byte{{1}}
		}
		return out
	}
	exchange(t, cache, c, full, want...)
	f, _ := exchange(t, cache, c, quiet, want...)
	if got := f.Parts[2].Partition; got != 0 {
		t.Errorf("partition %d is read last, want 0", got)
	}
}

// TestSlots: a full cache gives no session to newcomers while all others are in use, and the place of one that is not used any more.
func TestSlots(t *testing.T) {
	cache := NewCache(2)
	clients := []*Client{{}, {}, {}}
	a := partOf("a", 0, 0)
	exchange(t, cache, clients[0], quiet, a)
	exchange(t, cache, clients[1], quiet, a)
	if f, _ := exchange(t, cache, clients[2], quiet, a); f.SessionID != 0 {
		t.Fatal("a third session in two slots")
	}
	for range 20 {
		exchange(t, cache, clients[1], quiet, a)
	}
	if f, _ := exchange(t, cache, clients[2], quiet, a); f.SessionID == 0 {
		t.Error("the slot of the forgotten session was not given on")
	}
	if cache.Len() != 2 {
		t.Errorf("%d sessions", cache.Len())
	}
	none := NewCache(0)
	if f, _ := exchange(t, none, &Client{}, quiet, a); f.SessionID != 0 {
		t.Error("a session in a cache without slots")
	}
}

// TestRandomSessions: whatever a client does, the server reads exactly what it wants, with the offsets that it asked last.
func TestRandomSessions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	cache, c := NewCache(3), &Client{}
	for round := range 2000 {
		want := make(map[int32]int64)
		var parts []Part
		for n := range int32(8) {
			if rnd.IntN(3) > 0 {
				want[n] = rnd.Int64N(4)
				parts = append(parts, partOf("t", n, want[n]))
			}
		}
		if rnd.IntN(50) == 0 {
			c.Reset()
		}
		f, _ := exchange(t, cache, c, quiet, parts...)
		if len(f.Parts) != len(want) {
			t.Fatalf("round %d: %d partitions are read, want %d", round, len(f.Parts), len(want))
		}
		for _, p := range f.Parts {
			if off, ok := want[p.Partition]; !ok || off != p.FetchOffset {
				t.Fatalf("round %d: partition %d is read from %d, want %d", round, p.Partition, p.FetchOffset, off)
			}
		}
	}
}

// TestReleaseOfDropped: records of a partition that is left out are given back; there are none in practice, but somebody waits for them if there are.
func TestReleaseOfDropped(t *testing.T) {
	cache, c := NewCache(10), &Client{}
	released := 0
	empty := func(p *Part) wire.FetchPartition {
		out := quiet(p)
		out.Records.Release = func() { released++ }
		return out
	}
	exchange(t, cache, c, empty, partOf("a", 0, 0))
	exchange(t, cache, c, empty, partOf("a", 0, 0))
	if released != 1 {
		t.Errorf("released %d times, want 1", released)
	}
}
