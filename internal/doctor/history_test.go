package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fakeHistory answers what a test sets.
type fakeHistory struct {
	segments  []remotelog.Found
	rng       remote.Range
	location  *remotestorage.Location
	err       error // of Resolve
	committed error // of Resolve for a committed reader
	noHistory error
	noOffer   error
}

func (f *fakeHistory) Status() metadatatopic.Status { return metadatatopic.Status{} }

func (f *fakeHistory) Resolve(_ context.Context, q resolve.Question) (remote.Range, error) {
	if q.Committed {
		return f.rng, f.committed
	}
	return f.rng, f.err
}

func (f *fakeHistory) Location(context.Context, resolve.Question, *remote.Range) (*remotestorage.Location, error) {
	return f.location, f.noOffer
}

func (f *fakeHistory) History(context.Context, remotestorage.TopicIDPartition) ([]remotelog.Found, error) {
	return f.segments, f.noHistory
}

// object is the bytes of a segment, or the store's refusal.
type object struct {
	b   []byte
	err error
}

func (o object) ReadRange(_ context.Context, start, end int64) (io.ReadCloser, error) {
	if o.err != nil {
		return nil, o.err
	}
	return io.NopCloser(bytes.NewReader(o.b[start:min(end, int64(len(o.b)))])), nil
}

func segment(start, end int64, size int32) remotelog.Found {
	return remotelog.Found{RemoteLogSegmentMetadata: remotestorage.RemoteLogSegmentMetadata{StartOffset: start, EndOffset: end, SegmentSizeInBytes: size}, First: start, Last: end}
}

// TestPartition: from where a partition is read, how much of it, and what is said when its segment cannot be opened.
func TestPartition(t *testing.T) {
	good := batch.AppendSimple(nil, 1, []byte("k"), []byte("v"))
	rng := func(b []byte, err error) remote.Range {
		return remote.Range{Segment: remote.Segment{BaseOffset: 0, EndOffset: 99, Size: int64(len(b)), Object: "object", Source: object{b, err}}, EndPosition: int64(len(b))}
	}
	damaged := bytes.Clone(good)
	damaged[len(damaged)-1] ^= 1
	segments := []remotelog.Found{segment(0, 99, 1000), segment(100, 199, 2000), segment(200, 299, 500)}
	signed := &remotestorage.Location{SignedRemoteLogSegmentLocation: "https://..."}
	place := Place{Partition: 3, LogStart: 0, LocalStart: 250, LastTiered: 299, HighWatermark: 400, Committed: -1}
	at := func(p Place, committed int64) Place { p.Committed = committed; return p }
	for name, c := range map[string]struct {
		place                   Place
		untiered, without, none bool // not tiered; no store; no metadata
		closed                  bool // a store that cannot be opened
		h                       fakeHistory
		from                    string
		offsets, bytes          int64
		want                    []finding
	}{
		"from the log start": {place: place, h: fakeHistory{rng: rng(good, nil), location: signed}, from: "store", offsets: 250, bytes: 3250,
			want: []finding{{OK, "1 of 1"}, {OK, "opened in each of 1"}}},
		"from a committed offset": {place: at(place, 150), h: fakeHistory{rng: rng(good, nil), location: &remotestorage.Location{}}, from: "store", offsets: 100, bytes: 1250,
			want: []finding{{OK, ""}, {OK, ""}}},
		"not offered":              {place: place, h: fakeHistory{rng: rng(good, nil), noOffer: resolve.ErrNotOffered}, from: "store", offsets: 250, bytes: 3250, want: []finding{{OK, ""}, {OK, ""}}},
		"on the brokers":           {place: at(place, 250), from: "broker", want: []finding{{OK, "1 of 1"}}},
		"at the end":               {place: at(place, 400), from: "broker", want: []finding{{OK, ""}}},
		"beyond the end":           {place: at(place, 401), from: "none", want: []finding{{OK, ""}}},
		"below the log start":      {place: Place{LogStart: 10, LocalStart: 250, HighWatermark: 400, Committed: 9}, from: "none", want: []finding{{OK, ""}}},
		"not known":                {place: Place{LogStart: -1, LocalStart: -1, HighWatermark: -1, Committed: -1}, from: "none", want: []finding{{Warning, "nothing is read from the store yet"}}},
		"all on the brokers":       {place: Place{LogStart: 5, LocalStart: 5, HighWatermark: 400, Committed: -1}, from: "broker", want: []finding{{Warning, "log.retention.check.interval.ms"}}},
		"not tiered":               {place: Place{LogStart: 0, LocalStart: 0, HighWatermark: 400, Committed: -1}, untiered: true, from: "broker"},
		"no store given":           {place: place, without: true, from: "store", offsets: 250, bytes: 3250, want: []finding{{OK, "1 of 1"}}},
		"store not opened":         {place: place, without: true, closed: true, from: "broker", want: []finding{{OK, "1 of 1"}}},
		"metadata topic not read":  {place: place, none: true, from: "broker", want: []finding{{OK, "1 of 1"}}},
		"the brokers' after all":   {place: place, h: fakeHistory{err: fmt.Errorf("hole: %w", remote.ErrLocal)}, from: "broker", want: []finding{{OK, ""}, {Warning, "left to the brokers: hole"}}},
		"object missing":           {place: place, h: fakeHistory{err: fmt.Errorf("index: %w", remotestorage.ErrNotFound)}, from: "broker", want: []finding{{OK, ""}, {Problem, "--store names the bucket"}}},
		"no right to the object":   {place: place, h: fakeHistory{rng: rng(good, remotestorage.ErrDenied)}, from: "broker", want: []finding{{OK, ""}, {Problem, "credentials need the right"}}},
		"no key":                   {place: place, h: fakeHistory{rng: rng(good, aiven.ErrKey)}, from: "broker", want: []finding{{OK, ""}, {Problem, "--key ID=FILE"}}},
		"no bucket":                {place: place, h: fakeHistory{rng: rng(good, remotestorage.ErrNoBucket)}, from: "broker", want: []finding{{OK, ""}, {Problem, "check the bucket"}}},
		"format":                   {place: place, h: fakeHistory{rng: rng(good, remotestorage.ErrUnsupported)}, from: "broker", want: []finding{{OK, ""}, {Problem, "left to the brokers"}}},
		"silent store":             {place: place, h: fakeHistory{rng: rng(good, context.DeadlineExceeded)}, from: "broker", want: []finding{{OK, ""}, {Problem, "in time"}}},
		"strange store":            {place: place, h: fakeHistory{rng: rng(good, errors.New("500"))}, from: "broker", want: []finding{{OK, ""}, {Problem, "endpoint"}}},
		"wrong CRC":                {place: place, h: fakeHistory{rng: rng(damaged, nil)}, from: "broker", want: []finding{{OK, ""}, {Problem, "--layout"}}},
		"not a segment":            {place: place, h: fakeHistory{rng: rng(bytes.Repeat([]byte{0xff}, 100), nil)}, from: "broker", want: []finding{{OK, ""}, {Problem, "--layout"}}},
		"cut":                      {place: place, h: fakeHistory{rng: rng(good[:65], nil)}, from: "broker", want: []finding{{OK, ""}, {Problem, ""}}},
		"location fails":           {place: place, h: fakeHistory{rng: rng(good, nil), noOffer: errors.New("no such role")}, from: "broker", want: []finding{{OK, ""}, {Problem, "making a location"}}},
		"history cannot be listed": {place: at(place, 250), h: fakeHistory{noHistory: errors.New("no leader")}, from: "broker", want: []finding{{OK, ""}, {Problem, "no leader"}}},
		"transactions not decided": {place: place, h: fakeHistory{rng: rng(good, nil), location: signed, committed: remote.ErrLocal}, from: "store", offsets: 250, bytes: 3250, want: []finding{{OK, ""}, {OK, ""}, {Warning, "t-3 at 0"}}},
		"transaction index gone": {place: place, h: fakeHistory{rng: rng(good, nil), location: signed, committed: fmt.Errorf("index: %w", remotestorage.ErrNotFound)}, from: "store", offsets: 250, bytes: 3250,
			want: []finding{{OK, ""}, {OK, ""}, {Problem, "for read_committed consumers: index"}}},
		"segment of other offsets": {place: place, h: fakeHistory{rng: func() remote.Range { r := rng(good, nil); r.BaseOffset = 7; return r }()}, from: "broker", want: []finding{{OK, ""}, {Problem, "are not the segment's"}}},
		"an impossible batch":      {place: place, h: fakeHistory{rng: rng(append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 80)...), nil)}, from: "broker", want: []finding{{OK, ""}, {Problem, "--layout"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{o: Options{Patience: defaultPatience}}
			if !c.without {
				d.o.Storage = noStorage{}
			}
			if c.closed {
				d.o.StorageErr = errors.New("no region")
			}
			c.h.segments = segments
			var h history = &c.h
			if c.none {
				h = nil
			}
			var sum survey
			p := c.place
			from := settle(&p, !c.untiered)
			d.partition(t.Context(), h, &topic{name: "t", tiered: !c.untiered}, &p, from, true, &sum)
			if p.From != c.from || p.StoreOffsets != c.offsets || p.StoreBytes != c.bytes || p.From == "broker" && p.Why == "" {
				t.Errorf("%+v", p)
			}
			if !c.untiered {
				compare(t, d.judgeSurvey("t", &sum), c.want...)
			}
			if signed := c.h.location != nil && c.h.location.SignedRemoteLogSegmentLocation != ""; sum.opened > 0 && !slices.Equal(d.signs, []signing{{"t", signed}}) {
				t.Errorf("signing: %+v", d.signs)
			}
		})
	}
	var sum survey
	for range maxShown + 2 {
		sum.failed = append(sum.failed, failure{"t-0", errors.New("x")})
	}
	compare(t, (&doctor{}).judgeSurvey("t", &sum)[maxShown+1:], finding{Problem, "2 more partitions fail"})
}

// TestSigning: what the store does when it is opened here does not contradict what the upstream does.
func TestSigning(t *testing.T) {
	topics := []signing{{"a", true}, {"b", false}}
	compare(t, judgeSigning(topics, false), finding{OK, "a: locations are signed"}, finding{OK, "b: the store signs no locations"})
	compare(t, judgeSigning(topics, true), finding{OK, "a: locations are signed"}, finding{OK, "b: the upstream signs locations"})
	compare(t, judgeSigning(nil, true))
}

func TestFetch(t *testing.T) {
	compare(t, judgeFetch(nil, nil), finding{OK, "as Apache Kafka does"})
	compare(t, judgeFetch(&remotestorage.Location{}, nil), finding{OK, "not signed"})
	compare(t, judgeFetch(&remotestorage.Location{SignedRemoteLogSegmentLocation: "https://secret"}, nil), finding{OK, "signed locations"})
	compare(t, judgeFetch(nil, kerr.UnknownServerError), finding{Warning, "RemoteLogManager"})
	compare(t, judgeFetch(nil, kerr.TopicAuthorizationFailed))
}

// TestFollow: a location is opened as a consumer would open it, and nothing signed is told of it.
func TestFollow(t *testing.T) {
	good := batch.AppendSimple(nil, 1, []byte("k"), []byte("v"))
	object := bytes.Clone(good)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/there":
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object))
		case "/denied":
			w.WriteHeader(http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct {
		url, broker string
		allowed     []string
		damage      bool
		want        finding
	}{
		"there":           {url: server.URL + "/there?sig=s3cret", allowed: []string{"127.0.0.1"}, want: finding{OK, "was opened"}},
		"at the broker's": {url: server.URL + "/there?sig=s3cret", broker: "127.0.0.1", want: finding{OK, "was opened"}},
		"not allowed":     {url: server.URL + "/there?sig=s3cret", broker: "kafka", want: finding{Problem, "AllowedHosts"}},
		"metadata":        {url: "http://169.254.169.254/there?sig=s3cret", broker: "169.254.169.254", want: finding{Problem, "does not open by itself"}},
		"denied":          {url: server.URL + "/denied?sig=s3cret", allowed: []string{"127.0.0.1"}, want: finding{Problem, "clocks"}},
		"missing":         {url: server.URL + "/missing?sig=s3cret", allowed: []string{"127.0.0.1"}, want: finding{Problem, "no object"}},
		"no way":          {url: closed.URL + "/there?sig=s3cret", allowed: []string{"127.0.0.1"}, want: finding{Problem, "firewalls"}},
		"damaged":         {url: server.URL + "/there?sig=s3cret", allowed: []string{"127.0.0.1"}, damage: true, want: finding{Problem, "cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			object = bytes.Clone(good)
			if c.damage {
				object[len(object)-1] ^= 1
			}
			d := &doctor{o: Options{Patience: defaultPatience, AllowedHosts: c.allowed}}
			l := &remotestorage.Location{SignedRemoteLogSegmentLocation: c.url, EndOffset: 9, EndPosition: int64(len(good)), SegmentSizeInBytes: int64(len(good))}
			size, err := d.follow(t.Context(), l, c.broker)
			got := judgeFollow(l, size, err)
			compare(t, []Finding{got}, c.want)
			if strings.Contains(got.What+got.Do, "s3cret") {
				t.Errorf("the location is told: %+v", got)
			}
		})
	}
}
