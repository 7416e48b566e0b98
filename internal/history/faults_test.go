package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// heard counts what a Metrics hears.
type heard struct {
	NoHooks
	mu        sync.Mutex
	ended     map[Reason]int
	locations map[LocationCause]int
}

func newHeard() *heard {
	return &heard{ended: make(map[Reason]int), locations: make(map[LocationCause]int)}
}

func (h *heard) Ended(r Reason, fellBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended[r]++
}

func (h *heard) Asked(c LocationCause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.locations[c]++
}

func (h *heard) reasons() map[Reason]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[Reason]int)
	for k, v := range h.ended {
		out[k] = v
	}
	return out
}

func (h *heard) causes(c LocationCause) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.locations[c]
}

// fault is one way of a store to misbehave, from the third GET on.
type fault struct {
	name   string
	http   func(w http.ResponseWriter, r *http.Request, object []byte) bool
	reason Reason // why it falls back; "" if it must not
}

func status(code int) func(w http.ResponseWriter, r *http.Request, object []byte) bool {
	return func(w http.ResponseWriter, r *http.Request, object []byte) bool {
		w.WriteHeader(code)
		return true
	}
}

// once lets a fault happen a single time.
func once(f func(w http.ResponseWriter, r *http.Request, object []byte) bool) func(w http.ResponseWriter, r *http.Request, object []byte) bool {
	var o sync.Once
	return func(w http.ResponseWriter, r *http.Request, object []byte) (done bool) {
		o.Do(func() { done = f(w, r, object) })
		return done
	}
}

func flipped(at int) func(w http.ResponseWriter, r *http.Request, object []byte) bool {
	return func(w http.ResponseWriter, r *http.Request, object []byte) bool {
		bad := bytes.Clone(object)
		bad[at] ^= 0x40
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bad))
		return true
	}
}

func stall(w http.ResponseWriter, r *http.Request, object []byte) bool {
	<-r.Context().Done()
	return true
}

// cutShort promises the whole range and closes after a part.
func cutShort(w http.ResponseWriter, r *http.Request, object []byte) bool {
	hj, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return false
	}
	defer hj.Close()
	_, _ = io.WriteString(hj, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99999/100000\r\nContent-Length: 100000\r\n\r\nabc")
	return true
}

// Whatever the store does, each offset comes once, in order, from there or from the broker.
func TestStoreMisbehaves(t *testing.T) {
	tests := []fault{
		{"403", status(403), ReasonDenied},
		{"404", status(404), ReasonNotFound},
		{"500", status(500), ReasonUnavailable},
		{"429", status(429), ReasonUnavailable},
		{"stall", stall, ReasonUnavailable},
		{"wrong bytes", flipped(70_000), ReasonDamaged},
		{"cut", cutShort, ReasonUnavailable},
		{"one 500", once(status(500)), ""},
		{"one stall", once(stall), ""},
		{"one cut", once(cutShort), ""},
		{"one wrong byte", once(flipped(70_000)), ""},
		{"one 403", once(status(403)), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newFakeBroker(t)
			p := b.topic("history", 1).parts[0]
			end := b.history(p, 3, 20, 10, 1000)
			b.store.setFault(func(w http.ResponseWriter, r *http.Request, object []byte) bool {
				second := strings.Contains(r.URL.Path, p.object(p.segs[1])) // the first and the third segment are well
				return second && tt.http(w, r, object)
			})
			h := newHeard()
			d := newDialer(t, dialOptions{Metrics: h, ChunkBytes: 64 << 10, RemoteFetchMaxWait: time.Second, RangeTimeout: 100 * time.Millisecond, Fallback: 50 * time.Millisecond})
			client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000))
			newConsumed(t, 1000).until(client, map[int32]int64{0: end})
			reasons := h.reasons()
			delete(reasons, ReasonLocal) // the end of history
			if tt.reason == "" && len(reasons) > 0 || tt.reason != "" && (reasons[tt.reason] == 0 || len(reasons) != 1) {
				t.Errorf("ended for %v, want %q", reasons, tt.reason)
			}
			if s := d.Stats(); s.DirectBytes == 0 {
				t.Errorf("nothing was read directly: %+v", s)
			}
		})
	}
}

// A signed URL that expires in the middle of a segment: the reader gets a new one, whatever the store says of the old one.
func TestCase26_ExpiredInTheMiddle(t *testing.T) {
	for _, code := range []int{403, 400} {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		end := b.history(p, 2, 100, 10, 1000)
		gets := make(map[string]int) // by URL: each signature is good for three ranges
		var mu sync.Mutex
		b.store.setFault(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			gets[r.URL.String()]++
			if gets[r.URL.String()] > 3 {
				w.WriteHeader(code)
				return true
			}
			return false
		})
		// Each location is another URL, as each signature is.
		n := 0
		b.change = func(_ *fakePart, l *remotestorage.Location) {
			n++
			l.SignedRemoteLogSegmentLocation += "&n=" + string(rune('a'+n%26)) + strings.Repeat("x", n)
		}
		h := newHeard()
		d := newDialer(t, dialOptions{Metrics: h, ChunkBytes: 64 << 10, Parallelism: 1})
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		newConsumed(t, 1000).until(client, map[int32]int64{0: end})
		if h.causes(LocationRefused) == 0 {
			t.Error("no new location was asked for")
		}
		if r := h.reasons(); r[ReasonDenied] > 0 {
			t.Errorf("status %d: fell back: %v", code, r)
		}
	}
}

// Before the end of a signature it is renewed, without a refusal.
func TestCase26_RenewedBeforeExpiry(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 20, 10, 1000)
	now := time.Now()
	s := &locatedSource{q: &locator{p: &partition{}}}
	l := b.locate(p, p.segs[0], 0)
	l.SignedLocationExpiryMs = now.Add(10 * time.Minute).UnixMilli()
	s.set(l)
	if s.due(now.Add(time.Minute)) != nil {
		t.Error("renewed with nine of ten minutes left")
	}
	if s.due(now.Add(9*time.Minute+10*time.Second)) == nil {
		t.Error("not renewed with 50 seconds left")
	}
}

// An expiry that is always near must not make renewals spin.
func TestCase27_FloorUnderRenewal(t *testing.T) {
	b := newFakeBroker(t)
	b.life = time.Millisecond // over before it is used; the store does not care
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 1, 200, 10, 1000)
	h := newHeard()
	d := newDialer(t, dialOptions{Metrics: h, ChunkBytes: 64 << 10})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	if b.store.requests() < 20 {
		t.Fatalf("%d ranges only: the test shows nothing", b.store.requests())
	}
	if n := h.causes(LocationRenewed); n > 2 {
		t.Errorf("%d renewals", n)
	}
	now := time.Now()
	s := &locatedSource{}
	l := b.locate(p, p.segs[0], 0)
	s.set(l)
	if s.due(now.Add(renewalFloor/2)) != nil {
		t.Error("renewed below the floor")
	}
	if s.due(now.Add(renewalFloor+time.Second)) == nil || s.due(now.Add(renewalFloor+2*time.Second)) != nil {
		t.Error("above the floor it is renewed, once")
	}
}

// A fetcher of the user's is preferred to the signed URL, and its errors are those of any store.
func TestOwnFetcher(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 3, 20, 10, 1000)
	failed := false
	f := &faultyFetcher{b: b, fault: func(l *remotestorage.Location, start, end int64) (io.ReadCloser, error, bool) {
		if l.BaseOffset == p.segs[1].base && !failed {
			failed = true
			return nil, errors.New("a hiccup"), true
		}
		return nil, nil, false
	}}
	d := newDialer(t, dialOptions{Fetchers: []Fetcher{{Prefix: "fake://store/", Fetcher: f}}, Parallelism: 1})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	if s := d.Stats(); b.store.requests() > 0 || s.Fallbacks > 0 || s.DirectBytes == 0 || !failed {
		t.Errorf("%d requests over HTTP, %+v", b.store.requests(), s)
	}
}

// Locations that must not be opened are not, and the partition comes through the broker.
func TestLocationsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(p *fakePart, l *remotestorage.Location)
		reason Reason
	}{
		"another host": {func(_ *fakePart, l *remotestorage.Location) {
			l.SignedRemoteLogSegmentLocation = strings.Replace(l.SignedRemoteLogSegmentLocation, "127.0.0.1", "127.0.0.2", 1)
		}, ReasonUntrusted},
		"metadata address": {func(_ *fakePart, l *remotestorage.Location) {
			l.SignedRemoteLogSegmentLocation = "http://169.254.169.254/latest/meta-data?signature=secret"
		}, ReasonUntrusted},
		"a file": {func(_ *fakePart, l *remotestorage.Location) {
			l.SignedRemoteLogSegmentLocation, l.RemoteLogSegmentLocation = "", "file:///etc/passwd"
		}, ReasonUntrusted},
		"nothing": {func(_ *fakePart, l *remotestorage.Location) {
			l.SignedRemoteLogSegmentLocation, l.RemoteLogSegmentLocation = "", ""
		}, ReasonUntrusted},
		"unknown format": {func(_ *fakePart, l *remotestorage.Location) { l.StorageFormatVersion = "Parquet" }, ReasonFormat},
		"contradiction":  {func(_ *fakePart, l *remotestorage.Location) { l.EndPosition = l.SegmentSizeInBytes + 1 }, ReasonMalformed},
		"before the offset": {func(_ *fakePart, l *remotestorage.Location) {
			l.BaseOffset, l.LastOffset, l.EndOffset = 0, 0, 0
		}, ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t)
			p := b.topic("history", 1).parts[0]
			end := b.history(p, 2, 5, 10, 1000)
			b.set(func() { b.change = tt.change })
			h := newHeard()
			d := newDialer(t, dialOptions{Metrics: h})
			client := newClient(t, b, d, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"history": {0: kgo.NewOffset().At(3)}}))
			c := newConsumed(t, 1000)
			c.next[0] = 3
			c.until(client, map[int32]int64{0: end})
			if r := h.reasons(); r[tt.reason] != 1 || d.Stats().DirectBytes > 0 || b.store.requests() > 0 {
				t.Errorf("ended for %v, %d requests to the store", r, b.store.requests())
			}
		})
	}
}

// Through the broker a partition in trouble is asked for without a tag, and once an episode is over with it again.
func TestFallbackIsBounded(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 30, 5, 10, 1000)
	b.store.setFault(status(404))
	h := newHeard()
	d := newDialer(t, dialOptions{Metrics: h, Fallback: 100 * time.Millisecond})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(20_000))
	c := newConsumed(t, 1000)
	c.until(client, map[int32]int64{0: 50})
	b.store.setFault(nil)
	for deadline := time.Now().Add(10 * time.Second); d.h.episodes.active(partKey{id: p.topic.id}); {
		if time.Now().After(deadline) {
			t.Fatal("the episode does not end")
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.until(client, map[int32]int64{0: end})
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks != 1 || s.UpstreamBytes == 0 {
		t.Errorf("%+v", s)
	}
}

func TestEpisodes(t *testing.T) {
	e := newEpisodes(time.Hour)
	k := partKey{topic: "t"}
	length, first := e.begin(k)
	if !first || length < 48*time.Minute || length > 72*time.Minute || !e.active(k) {
		t.Error(length, first)
	}
	if _, again := e.begin(k); again {
		t.Error("one episode began twice")
	}
	if e.end(k); !e.active(k) {
		t.Error("what somebody else read of the partition ends an episode")
	}
	e.over(k)
	fail := func(times int) {
		e.base = time.Nanosecond
		for range times {
			e.begin(k)
			time.Sleep(time.Microsecond)
		}
		e.base = time.Hour
	}
	fail(3)
	if length, _ := e.begin(k); length < 6*time.Hour || length > 10*time.Hour {
		t.Errorf("the fourth failure in a row lasts %v", length)
	}
	e.over(k)
	fail(3)
	e.end(k)
	if length, _ := e.begin(k); length > 2*time.Hour {
		t.Errorf("the first failure after the partition was read lasts %v", length)
	}
}

// Bytes on the way are checked; control batches are passed on, and the client skips them.
func TestCase28_CheckedAndPassedOn(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	committed, aborted := int64(7), int64(8)
	b.addSegment(p,
		makeBatch(0, 0, 5, 100, batch.Transactional, committed), makeBatch(0, 5, 5, 100, batch.Transactional, aborted),
		marker(10, committed, false), marker(11, aborted, true), makeBatch(0, 12, 5, 100, batch.Transactional, aborted), marker(17, aborted, false))
	b.set(func() { p.aborted = []abortedTxn{{aborted, 5, 11}} })
	b.append(p, batchOf(0, 18, 2, 100))
	b.store.setFault(once(flipped(300)))
	d := newDialer(t, dialOptions{})
	for _, tt := range []struct {
		level kgo.IsolationLevel
		want  []int64
	}{
		{kgo.ReadUncommitted(), []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 19}},
		{kgo.ReadCommitted(), []int64{0, 1, 2, 3, 4, 12, 13, 14, 15, 16, 18, 19}},
	} {
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(tt.level))
		expectOffsets(t, client, tt.want)
	}
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
		t.Errorf("%+v", s)
	}
}

// A fetcher that puts the signed URL into its errors does not get it into the log: newDialer's logger looks.
func TestSignedURLsStayOutOfErrors(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 1, 20, 10, 1000)
	f := &faultyFetcher{b: b, fault: func(l *remotestorage.Location, _, _ int64) (io.ReadCloser, error, bool) {
		return nil, fmt.Errorf("opening %s: %w", l.SignedRemoteLogSegmentLocation, remotestorage.ErrNotFound), true
	}}
	h := newHeard()
	d := newDialer(t, dialOptions{Metrics: h, Fetchers: []Fetcher{{Prefix: "fake://", Fetcher: f}}})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	if h.reasons()[ReasonNotFound] != 1 {
		t.Errorf("ended for %v", h.reasons())
	}
}
