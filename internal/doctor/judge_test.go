package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/upstream"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// finding is the level and a text of what a finding says or advises.
type finding struct {
	level Level
	text  string
}

func compare(t *testing.T, got []Finding, want ...finding) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("findings %+v, want %+v", got, want)
	}
	for i, f := range got {
		if f.Level != want[i].level || !strings.Contains(f.What+" -> "+f.Do, want[i].text) {
			t.Errorf("%s: %s -> %s; want %s with %q", f.Level, f.What, f.Do, want[i].level, want[i].text)
		}
		if f.Level != OK && f.Do == "" {
			t.Errorf("a finding without advice: %s", f.What)
		}
		if strings.Contains(f.What+f.Do, "\n") || strings.Contains(f.What+f.Do, "%!") {
			t.Errorf("not one line: %q -> %q", f.What, f.Do)
		}
	}
}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		newest map[int16]int16
		want   finding
	}{
		"new":       {map[int16]int16{1: 18, 2: 11, 23: 4}, finding{OK, "up to version 18"}},
		"no tags":   {map[int16]int16{1: 11, 2: 9, 23: 4}, finding{Problem, "too old"}},
		"no tiers":  {map[int16]int16{1: 13, 2: 7, 23: 4}, finding{Problem, "where local logs begin"}},
		"no epochs": {map[int16]int16{1: 13, 2: 9, 23: 1}, finding{Problem, "too old"}},
		"nothing":   {nil, finding{Problem, "too old"}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeVersions(c.newest), c.want) })
	}
}

func TestUnreachable(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	plain := &doctor{}
	secure, err := upstream.Parse([]byte("security.protocol=SSL"))
	if err != nil {
		t.Fatal(err)
	}
	overTLS := &doctor{o: Options{Client: secure}}
	for _, c := range []struct {
		d        *doctor
		err      error
		what, do string
	}{
		{plain, dial(syscall.ECONNREFUSED), "nobody listens", "port"},
		{plain, dial(&net.DNSError{Name: "kafka", Err: "no such host"}), "no such host", "name"},
		{plain, context.DeadlineExceeded, "no answer in time", "firewalls"},
		{plain, io.EOF, "closes the connection", "--command-config"},
		{plain, errors.New("... is this a plaintext connection speaking to a tls endpoint?"), "speaks TLS", "SASL_SSL"},
		{overTLS, io.EOF, "does not speak TLS", "PLAINTEXT"},
		{overTLS, tls.RecordHeaderError{}, "does not speak TLS", "PLAINTEXT"},
		{overTLS, tls.RecordHeaderError{RecordHeader: [5]byte{'H', 'T', 'T', 'P', '/'}}, "speaks HTTP", "another service's"},
		{overTLS, x509.UnknownAuthorityError{}, "signed by nobody", "ssl.truststore.location"},
		{overTLS, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "kafka"}, "kafka", "ssl.endpoint.identification.algorithm"},
		{overTLS, x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, "expired", "renew"},
		{overTLS, errors.New("remote error: tls: certificate required"), "demands", "SASL"},
		{plain, kerr.SaslAuthenticationFailed, "authentication failed", "password"},
		{plain, kerr.UnsupportedSaslMechanism, "mechanism", "sasl.mechanism"},
		{plain, kerr.IllegalSaslState, "does not authenticate", "PLAINTEXT"},
		{plain, errors.New("strange"), "strange", "host"},
	} {
		if what, do := c.d.unreachable(fmt.Errorf("asking: %w", c.err)); !strings.Contains(what, c.what) || !strings.Contains(do, c.do) {
			t.Errorf("%v: %q, %q", c.err, what, do)
		}
	}
}

func TestBrokers(t *testing.T) {
	on := func(class string) map[string]string {
		return map[string]string{keySystem: "true", keyStorageClass: class, keyMetadataClass: topicBased}
	}
	elsewhere := on("a.B")
	elsewhere[keyMetadataClass] = "org.example.Database"
	for name, c := range map[string]struct {
		brokers map[int32]map[string]string
		plugin  string
		want    []finding
	}{
		"on":           {map[int32]map[string]string{1: on("a.B"), 7: on("a.B")}, "a.B", []finding{{OK, "all 2 brokers"}}},
		"off at one":   {map[int32]map[string]string{1: on("a.B"), 7: {keySystem: "false"}}, "a.B", []finding{{Problem, "off on brokers 7"}}},
		"two plug-ins": {map[int32]map[string]string{1: on("a.B"), 7: on("a.C")}, "", []finding{{Warning, "a.B, a.C"}}},
		"elsewhere":    {map[int32]map[string]string{1: elsewhere}, "a.B", []finding{{Problem, "org.example.Database"}}},
		"no word":      {map[int32]map[string]string{1: {"store": "x"}}, "", []finding{{OK, "do not have"}}},
		"nobody":       {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, plugin := judgeBrokers(c.brokers, len(c.brokers))
			compare(t, got, c.want...)
			if plugin != c.plugin {
				t.Errorf("plug-in %q", plugin)
			}
		})
	}
	got, _ := judgeBrokers(map[int32]map[string]string{1: on("a.B")}, 3)
	compare(t, got, finding{OK, "1 of 3 brokers"})
}

func TestListeners(t *testing.T) {
	for name, c := range map[string]struct {
		config map[string]string
		want   []finding
	}{
		"kerberos by default, no SASL": {map[string]string{"sasl.enabled.mechanisms": "GSSAPI", "listeners": "PLAINTEXT://:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"}, nil},
		"kerberos":                     {map[string]string{"sasl.enabled.mechanisms": "SCRAM-SHA-512,GSSAPI", "listeners": "SASL_SSL://:9092"}, []finding{{Warning, "Kerberos"}}},
		"kerberos on one listener": {map[string]string{"listener.name.inner.sasl.enabled.mechanisms": "GSSAPI", "listeners": "INNER://:9092", "listener.security.protocol.map": "INNER:SASL_PLAINTEXT"},
			[]finding{{Warning, "listener.name.inner"}}},
		"scram":   {map[string]string{"sasl.enabled.mechanisms": "SCRAM-SHA-512", "listeners": "SASL_SSL://:9092"}, nil},
		"mutual":  {map[string]string{"listener.name.mtls.ssl.client.auth": "required"}, []finding{{Warning, "shows no certificate"}}},
		"request": {map[string]string{"ssl.client.auth": "requested"}, nil},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeListeners(map[int32]map[string]string{1: c.config}), c.want...) })
	}
}

func TestTopics(t *testing.T) {
	base := func(change ...string) map[string]string {
		c := map[string]string{keyTopicTiered: "true", "retention.ms": "604800000", "retention.bytes": "-1", "local.retention.ms": "86400000", "local.retention.bytes": "-2", "remote.log.copy.disable": "false"}
		for i := 0; i < len(change); i += 2 {
			c[change[i]] = change[i+1]
		}
		return c
	}
	for name, c := range map[string]struct {
		config map[string]string
		tiered bool
		want   []finding
	}{
		"tiered":                {base(), true, []finding{{OK, "local.retention.ms=86400000, local.retention.bytes=-1 of"}}},
		"by size":               {base("local.retention.ms", "-2", "local.retention.bytes", "1000"), true, []finding{{OK, "local.retention.bytes=1000"}}},
		"not tiered":            {base(keyTopicTiered, "false"), false, []finding{{Problem, "kafka-configs.sh --alter --entity-type topics --entity-name t "}}},
		"no word":               {nil, false, []finding{{Problem, "remote.storage.enable=true"}}},
		"everything stays":      {base("local.retention.ms", "-2"), true, []finding{{Warning, "remote.read.policy=tiered"}}},
		"everything stays, too": {base("local.retention.ms", "604800000"), true, []finding{{Warning, "own disks"}}},
		"nothing new":           {base("remote.log.copy.disable", "true"), true, []finding{{OK, ""}, {Warning, "nothing new is copied"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, tiered := judgeTopic("t", c.config)
			compare(t, got, c.want...)
			if tiered != c.tiered {
				t.Errorf("tiered is %v", tiered)
			}
		})
	}
	many := strings.Fields(strings.Repeat("x ", maxUnasked+2))
	compare(t, judgeTiered(many, 20, 0), finding{OK, "12 of 20 topics are tiered: x, x, x, x, x, x, x, x, x, x, ..."})
	compare(t, judgeTiered(nil, 20, 3), finding{Warning, "--topic"})
	compare(t, judgeTiered(nil, 20, 0), finding{Problem, "none of 20"})
}

func TestMetadata(t *testing.T) {
	d := &doctor{}
	for _, c := range []struct {
		err  error
		want string
	}{
		{metadatatopic.ErrNoTopic, "switch tiered storage on"}, {metadatatopic.ErrNotAllowed, "User:PRINCIPAL --operation Read --operation Describe --topic __remote_log_metadata"},
		{syscall.ECONNREFUSED, "nobody listens"},
	} {
		compare(t, []Finding{d.judgeMetadataError(fmt.Errorf("metadatatopic: %w", c.err))}, finding{Problem, c.want})
	}
	for name, c := range map[string]struct {
		status metadatatopic.Status
		want   []finding
	}{
		"well":      {metadatatopic.Status{Partitions: 50, Applied: 20, Segments: 10}, []finding{{OK, "50 partitions read to their end: 20 records, 10 segments"}}},
		"empty":     {metadatatopic.Status{Partitions: 50}, []finding{{Warning, "nothing has been tiered"}}},
		"not read":  {metadatatopic.Status{Partitions: 50, Unread: 3, Err: errors.New("no leader")}, []finding{{Problem, "3 of 50 partitions cannot be read: no leader"}}},
		"stalled":   {metadatatopic.Status{Partitions: 50, Unread: 3}, []finding{{Problem, "nothing more comes"}}},
		"beginning": {metadatatopic.Status{Partitions: 50, Segments: 1, Torn: []int32{4, 9}}, []finding{{OK, ""}, {Warning, "partitions [4 9]"}}},
		"skipped":   {metadatatopic.Status{Partitions: 50, Segments: 1, Skipped: 2}, []finding{{OK, ""}, {Warning, "newer Rewind"}}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeMetadata(c.status), c.want...) })
	}
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}))
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "1000", "retention.bytes": "-1"}), finding{Warning, "retention.ms=-1"})
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "-1", "retention.bytes": "7"}), finding{Warning, "retention.bytes=7"})
}

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

func TestPlugin(t *testing.T) {
	const tiered, ivan = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage", "io.aiven.kafka.tieredstorage.RemoteStorageManager"
	for name, c := range map[string]struct {
		plugin, layout string
		read           bool
		want           []finding
	}{
		"kafka": {tiered, "kafka", false, []finding{{OK, "writes layout kafka"}}}, "aiven": {ivan, "aiven", true, []finding{{OK, "writes layout aiven"}}},
		"the other layout": {ivan, "kafka", false, []finding{{Problem, "--layout aiven"}}}, "not known": {"a.B", "kafka", false, []finding{{Warning, "a.B"}}},
		"not known but read": {"a.B", "kafka", true, []finding{{OK, "but writes layout kafka"}}}, "not told": {"", "kafka", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{plugin: c.plugin, read: c.read, o: Options{Layout: c.layout, Storage: noStorage{}}}
			d.judgePlugin()
			compare(t, d.rep.Findings, c.want...)
		})
	}
}

func TestTrust(t *testing.T) {
	d := &doctor{}
	acl := func(kind kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, name, principal, host string, op kmsg.ACLOperation, allow kmsg.ACLPermissionType) kmsg.DescribeACLsResponseResource {
		return kmsg.DescribeACLsResponseResource{ResourceType: kind, ResourceName: name, ResourcePatternType: pattern,
			ACLs: []kmsg.DescribeACLsResponseResourceACL{{Principal: principal, Host: host, Operation: op, PermissionType: allow}}}
	}
	const literal, prefixed, allow, deny = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeDeny
	const topicType, groupType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	read := kmsg.ACLOperationRead
	for name, c := range map[string]struct {
		acls []kmsg.DescribeACLsResponseResource
		err  error
		want []finding
	}{
		"no authorizer":        {err: kerr.SecurityDisabled, want: []finding{{OK, "no authorizer"}}},
		"not to be seen":       {err: kerr.ClusterAuthorizationFailed, want: []finding{{Warning, "--operation Describe --cluster"}}},
		"none":                 {want: []finding{{OK, "no ACL is by host"}}},
		"by host":              {acls: []kmsg.DescribeACLsResponseResource{acl(groupType, literal, "g", "User:a", "10.0.0.1", read, allow)}, want: []finding{{Warning, "User:a from 10.0.0.1"}}},
		"refused by host":      {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "t", "User:a", "10.0.0.1", read, deny)}, want: []finding{{Warning, "User:a from 10.0.0.1"}}},
		"other topics":         {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "t", "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
		"all topics":           {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "*", "User:a", "*", read, allow)}, want: []finding{{Warning, "User:a may read __remote_log_metadata"}}},
		"by prefix":            {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, prefixed, "__", "User:a", "*", kmsg.ACLOperationAll, allow)}, want: []finding{{Warning, "User:a may read"}}},
		"another prefix":       {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, prefixed, "orders", "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
		"refused":              {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "*", "User:a", "*", read, deny)}, want: []finding{{OK, ""}}},
		"ourselves":            {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, metadatatopic.DefaultTopic, "User:PRINCIPAL", "*", read, allow)}, want: []finding{{OK, ""}}},
		"a group of that name": {acls: []kmsg.DescribeACLsResponseResource{acl(groupType, literal, metadatatopic.DefaultTopic, "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, d.judgeACLs(c.acls, c.err), c.want...) })
	}
	entry := func(kind, key string) kmsg.DescribeClientQuotasResponseEntry {
		return kmsg.DescribeClientQuotasResponseEntry{Entity: []kmsg.DescribeClientQuotasResponseEntryEntity{{Type: kind}}, Values: []kmsg.DescribeClientQuotasResponseEntryValue{{Key: key}}}
	}
	compare(t, judgeQuotas(nil))
	compare(t, judgeQuotas([]kmsg.DescribeClientQuotasResponseEntry{entry("ip", "connection_creation_rate"), entry("user", "consumer_byte_rate"), entry("user", "producer_byte_rate")}),
		finding{Warning, "1 quotas by IP"}, finding{Warning, "remote.read.principal.bytes.per.second"})
}

func TestReport(t *testing.T) {
	var r Report
	var out strings.Builder
	if err := r.WriteJSON(&out); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("%v: %s", err, &out)
	}
	r.add(OK, "a", "", "fine")
	r.add(Warning, "b", "do %s", "so %d", 1) // advice is not a format: commands hold percent signs
	r.Partitions = []Place{{Topic: "t", Partition: 1, LogStart: 0, LocalStart: 9, LastTiered: -1, HighWatermark: 10, Committed: -1, From: "store", StoreBytes: 1 << 20}}
	if r.Worst() != Warning {
		t.Errorf("worst is %s", r.Worst())
	}
	out.Reset()
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Worst      string
		Findings   []struct{ Level, Check, What, Do string }
		Partitions []map[string]any
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Worst != "warning" || len(got.Findings) != 2 || got.Findings[1].Do != "do %s" || got.Findings[1].What != "so 1" || got.Partitions[0]["reads_from"] != "store" {
		t.Errorf("%+v", got)
	}
	out.Reset()
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok       a", "-> do %s", "t-1", "1.0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
