package history

import (
	"context"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/versionshim"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// shim opens a versionshim, which must have understood everything by the end of the test.
func shim(t *testing.T, to string, c versionshim.Change) (addr string) {
	t.Helper()
	s, err := versionshim.Listen(to, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

func formats(v ...string) versionshim.Change {
	return versionshim.Change{Request: func(r *kmsg.FetchRequest) { wire.SetSupportedStorageFormatVersions(r, v) }}
}

func rawTag(tag uint32, value ...byte) versionshim.Change {
	return versionshim.Change{Request: versionshim.Requested(func(p *kmsg.FetchRequestTopicPartition) { p.UnknownTags.Set(tag, value) })}
}

func located(f func(*remotestorage.Location)) versionshim.Change {
	return versionshim.Change{Response: versionshim.Located(f)}
}

// reads says by whom the store is to be read.
type reads int

const (
	byLibrary reads = iota
	byServer        // gateway or broker
	byBoth          // by the library first
)

// otherVersions are peers that are not of today, and what then becomes of reading.
var otherVersions = map[string]struct {
	change versionshim.Change
	reads  reads
	reason Reason // for which the library falls back; "": it does not
}{
	"today": {versionshim.Change{}, byLibrary, ""},
	// Older.
	"no question for locations": {versionshim.Without(wire.TagRemoteLogSegmentLocationRequested), byServer, ""},
	"no list of formats":        {versionshim.Without(wire.TagSupportedStorageFormatVersions), byServer, ""},
	"no locations":              {versionshim.Without(wire.TagRemoteLogSegment), byServer, ReasonUnanswered},
	"no limit for history":      {versionshim.Without(wire.TagRemotePartitionMaxBytes), byLibrary, ""},
	"nothing of it": {versionshim.Change{
		Request: func(r *kmsg.FetchRequest) {
			r.UnknownTags = kmsg.Tags{}
			versionshim.Requested(func(p *kmsg.FetchRequestTopicPartition) { p.UnknownTags = kmsg.Tags{} })(r)
		},
		Response: versionshim.Answered(func(p *kmsg.FetchResponseTopicPartition) { p.UnknownTags = kmsg.Tags{} }),
	}, byServer, ""},
	// Newer.
	"more fields everywhere":            {versionshim.Newer(), byLibrary, ""},
	"another format first":              {formats("ApacheKafkaV2", remotestorage.StorageFormatApacheKafkaV1, ""), byLibrary, ""},
	"another format only":               {formats("ApacheKafkaV2"), byServer, ""},
	"a format that was not asked for":   {located(func(l *remotestorage.Location) { l.StorageFormatVersion = "ApacheKafkaV2" }), byServer, ReasonFormat},
	"a nameless format":                 {located(func(l *remotestorage.Location) { l.StorageFormatVersion = "" }), byServer, ReasonFormat},
	"a wish that is neither yes nor no": {rawTag(wire.TagRemoteLogSegmentLocationRequested, 7), byLibrary, ""},
	// Extremes.
	"a wish of two bytes":    {rawTag(wire.TagRemoteLogSegmentLocationRequested, 1, 1), byServer, ""},
	"a wish of none":         {rawTag(wire.TagRemoteLogSegmentLocationRequested), byServer, ""},
	"a limit of three bytes": {rawTag(wire.TagRemotePartitionMaxBytes, 1, 1, 1), byLibrary, ""},
	"the largest limit":      {rawTag(wire.TagRemotePartitionMaxBytes, 0x7f, 0xff, 0xff, 0xff), byLibrary, ""},
	"the least limit":        {rawTag(wire.TagRemotePartitionMaxBytes, 0x80, 0, 0, 0), byLibrary, ""},
	"a limit of nothing":     {rawTag(wire.TagRemotePartitionMaxBytes, 0, 0, 0, 0), byLibrary, ""},
	"a thousand formats":     {formats(append(slices.Repeat([]string{"Other"}, 1000), remotestorage.StorageFormatApacheKafkaV1)...), byServer, ""},
	"a list of formats cut": {versionshim.Change{Request: func(r *kmsg.FetchRequest) {
		r.UnknownTags.Set(wire.TagSupportedStorageFormatVersions, []byte{9, 20, 'A'})
	}}, byServer, ""},
	"a list without end": {versionshim.Change{Request: func(r *kmsg.FetchRequest) {
		r.UnknownTags.Set(wire.TagSupportedStorageFormatVersions, []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	}}, byServer, ""},
	"a location of nothing":    {versionshim.Change{Response: versionshim.Answered(func(p *kmsg.FetchResponseTopicPartition) { retag(p, nil) })}, byServer, ReasonMalformed},
	"a location cut":           {versionshim.Change{Response: versionshim.Answered(func(p *kmsg.FetchResponseTopicPartition) { retag(p, make([]byte, 30)) })}, byServer, ReasonMalformed},
	"positions without end":    {located(func(l *remotestorage.Location) { l.SegmentSizeInBytes, l.EndPosition = math.MaxInt64, math.MaxInt64 }), byBoth, ""},
	"offsets without end":      {located(func(l *remotestorage.Location) { l.EndOffset, l.LastOffset = math.MaxInt64, math.MaxInt64 }), byBoth, ""},
	"a start behind the end":   {located(func(l *remotestorage.Location) { l.StartPosition = math.MaxInt64 }), byServer, ReasonMalformed},
	"negative positions":       {located(func(l *remotestorage.Location) { l.StartPosition = math.MinInt64 }), byServer, ReasonMalformed},
	"negative offsets":         {located(func(l *remotestorage.Location) { l.BaseOffset = -1 }), byServer, ReasonMalformed},
	"a signature long over":    {located(func(l *remotestorage.Location) { l.SignedLocationExpiryMs = math.MinInt64 + 1 }), byBoth, ""},
	"a signature for ever":     {located(func(l *remotestorage.Location) { l.SignedLocationExpiryMs = math.MaxInt64 }), byLibrary, ""},
	"no address":               {located(func(l *remotestorage.Location) { l.SignedRemoteLogSegmentLocation, l.RemoteLogSegmentLocation = "", "" }), byServer, ReasonUntrusted},
	"an address without end":   {located(func(l *remotestorage.Location) { l.SignedRemoteLogSegmentLocation += strings.Repeat("x", 1<<20) }), byServer, ReasonMalformed},
	"a megabyte of metadata":   {located(func(l *remotestorage.Location) { l.CustomMetadata = make([]byte, 1<<20) }), byLibrary, ""},
	"a segment without a name": {located(func(l *remotestorage.Location) { l.RemoteLogSegmentID = remotestorage.UUID{} }), byLibrary, ""},
}

// retag puts other bytes in a location's place.
func retag(p *kmsg.FetchResponseTopicPartition, raw []byte) {
	if l, err := wire.PartitionLocation(p); err == nil && l != nil {
		p.UnknownTags.Set(wire.TagRemoteLogSegment, raw)
	}
}

// Peers of other versions: library and server of today, with something between them that makes each look to the other like an older or a newer one, or like one that is
// out of its mind. Every offset comes once and in order, with what transactions hide hidden.
func TestOtherVersions(t *testing.T) {
	for name, tt := range otherVersions {
		for _, server := range []string{"gateway", "broker"} {
			t.Run(name+" "+server, func(t *testing.T) {
				t.Parallel()
				b := newFakeBroker(t)
				p := b.topic("history", 1).parts[0]
				b.lenient = true
				end := b.history(p, 3, 10, 10, 1000)
				to := b.addr()
				var gateway *testDialer
				if server == "gateway" {
					gateway, _ = resolving(t, b, dialOptions{Change: offering})
					to = front(t, gateway, b)
				}
				addr := shim(t, to, tt.change)
				h := newHeard()
				library := newDialer(t, dialOptions{Metrics: h, Fallback: 50 * time.Millisecond, RemoteFetchMaxWait: 2 * time.Second, RangeTimeout: time.Second, RemoteMaxPartitionFetchBytes: 20_000})
				toShim := func(ctx context.Context, network, _ string) (net.Conn, error) {
					return library.DialContext(ctx, network, addr)
				}
				client := newClient(t, b, nil, kgo.Dialer(toShim), kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
				newConsumed(t, 1000).until(client, map[int32]int64{0: end})
				client.Close()
				direct := library.Stats().DirectBytes
				switch total := int64(remoteBytes(p)); {
				case tt.reads == byLibrary && (direct != total || library.Stats().Fallbacks > 0), tt.reads == byServer && direct > 0, tt.reads == byBoth && direct == 0:
					t.Errorf("the library has read %d of %d bytes; %+v; %v", direct, total, library.Stats(), h.reasons())
				}
				if r := h.reasons(); tt.reason != "" && r[tt.reason] == 0 {
					t.Errorf("ended for %v", r)
				}
				if gateway != nil && tt.reads == byServer && gateway.Stats().DirectBytes == 0 {
					t.Errorf("the gateway has read nothing: %+v", gateway.Stats())
				}
			})
		}
	}
}

// Transactions through newer peers: what is hidden is told beside the location.
func TestOtherVersionsOfTransactions(t *testing.T) {
	for name, change := range map[string]versionshim.Change{"newer": versionshim.Newer(), "older": versionshim.Without(wire.TagRemoteLogSegment)} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t)
			p := b.topic("history", 1).parts[0]
			const bad, good = 8, 9
			b.addSegment(p, makeBatch(0, 0, 5, 1000, batch.Transactional, bad), makeBatch(0, 5, 5, 1000, batch.Transactional, good), marker(10, good, false), marker(11, bad, true))
			b.set(func() { p.aborted = []abortedTxn{{bad, 0, 11}} })
			b.append(p, batchOf(0, 12, 1, 1000))
			gateway, _ := resolving(t, b, dialOptions{Change: offering})
			addr := shim(t, front(t, gateway, b), change)
			library := newDialer(t, dialOptions{})
			toShim := func(ctx context.Context, network, _ string) (net.Conn, error) {
				return library.DialContext(ctx, network, addr)
			}
			client := newClient(t, b, nil, kgo.Dialer(toShim), kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			expectOffsets(t, client, []int64{5, 6, 7, 8, 9, 12})
			client.Close()
		})
	}
}
