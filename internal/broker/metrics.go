package broker

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// metrics are the broker's own. Labels are API names and events, never anything that a client sends.
type metrics struct {
	sentTotal atomic.Int64 // beside sentBytes, which cannot be read back

	connections  prometheus.Gauge
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	sentBytes    prometheus.Counter
	producedBy   prometheus.Counter
	fetchedBy    prometheus.Counter
	locations    prometheus.Counter
	logins       *prometheus.CounterVec
	denied       *prometheus.CounterVec
	throttles    *prometheus.CounterVec
	throttleTime *prometheus.CounterVec
	letters      prometheus.Counter
	lettersLost  prometheus.Counter
	remoteFails  prometheus.Counter
	remoteBytes  prometheus.Counter
	remoteRanges *prometheus.CounterVec
	remoteEvents *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, b *Broker) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: name, Help: help})
	}
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "broker", Name: "connections", Help: "Open client connections."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "requests_total",
			Help: "Requests handled, by API."}, []string{"api"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "rewind", Subsystem: "broker", Name: "request_seconds",
			Help: "Time in the handler, by API; waits for data are in it, those for the disk are not.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10)}, []string{"api"}),
		sentBytes:  counter("sent_bytes_total", "Bytes of responses written to clients."),
		producedBy: counter("produced_bytes_total", "Bytes of record batches appended for producers."),
		fetchedBy:  counter("fetched_bytes_total", "Bytes of records given to consumers, from either tier."),
		locations:  counter("locations_total", "Partitions answered with a location (KIP-1248)."),
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "authentications_total",
			Help: "Clients that authenticated, by mechanism of SASL or TLS for certificates, and result; again on the same connection counts too."}, []string{"mechanism", "result"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "denials_total",
			Help: "What ACLs did not allow, by operation and kind of resource; what is left out of a list counts too."}, []string{"operation", "resource"}),
		throttles: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "throttles_total",
			Help: "Requests and connections whose client was made to wait, by quota."}, []string{"quota"}),
		throttleTime: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "throttle_seconds_total",
			Help: "How long clients were made to wait, by quota."}, []string{"quota"}),
		letters:     counter("dead_letters_total", "Records written to dead letter queues of share groups."),
		lettersLost: counter("dead_letters_lost_total", "Records that were archived because they could not be written to the dead letter queue of their share group."),
		remoteFails: counter("remote_read_failures_total", "Remote reads that ended with an error."),
		remoteBytes: counter("remote_read_bytes_total", "Bytes read from the object store for fetches."),
		remoteRanges: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "remote_ranges_total",
			Help: "Ranged reads from the object store, by result."}, []string{"result"}),
		remoteEvents: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "broker", Name: "remote_events_total",
			Help: "What happened on the way of remote reads."}, []string{"event"}),
	}
	if r != nil {
		r.MustRegister(m.connections, m.requests, m.seconds, m.sentBytes, m.producedBy, m.fetchedBy, m.locations, m.logins, m.denied, m.throttles, m.throttleTime, m.letters, m.lettersLost, m.remoteFails, m.remoteBytes,
			m.remoteRanges, m.remoteEvents)
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "broker", Name: "fetch_sessions",
			Help: "Fetch sessions held."}, func() float64 {
			if b.sessions == nil {
				return 0
			}
			return float64(b.sessions.Len())
		}))
		for use, n := range map[string]func() int{
			"append": func() int { writers, _ := b.files.Open(); return writers },
			"read":   func() int { _, readers := b.files.Open(); return readers },
		} {
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "broker", Name: "log_files_open",
				Help: "Files that logs have open, by what for; process_open_fds has all descriptors.", ConstLabels: prometheus.Labels{"use": use}},
				func() float64 { return float64(n()) }))
		}
	}
	return m
}

func (m *metrics) serverStats() serverStats {
	return serverStats{
		connected: func(delta int) { m.connections.Add(float64(delta)) },
		handled: func(key int16, took time.Duration) {
			name := kmsg.NameForKey(key)
			m.requests.WithLabelValues(name).Inc()
			m.seconds.WithLabelValues(name).Observe(took.Seconds())
		},
		authenticated: func(mechanism string, ok bool) {
			result := "in"
			if !ok {
				result = "refused"
			}
			m.logins.WithLabelValues(mechanism, result).Inc()
		},
		throttled: func(quota string, wait time.Duration) {
			m.throttles.WithLabelValues(quota).Inc()
			m.throttleTime.WithLabelValues(quota).Add(wait.Seconds())
		},
		sent: func(bytes int64) {
			m.sentTotal.Add(bytes)
			m.sentBytes.Add(float64(bytes))
		},
	}
}

func (m *metrics) produced(bytes int) { m.producedBy.Add(float64(bytes)) }
func (m *metrics) located()           { m.locations.Inc() }
func (m *metrics) remoteFailed()      { m.remoteFails.Inc() }

// fetched counts the record bytes of an answer, and gives them.
func (m *metrics) fetched(resp *wire.FetchResponse) int {
	n := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			n += resp.Topics[i].Partitions[j].Records.Len()
		}
	}
	m.fetchedBy.Add(float64(n))
	return n
}

func (m *metrics) remoteReads() remote.Metrics { return remoteMetrics{m} }

type remoteMetrics struct{ m *metrics }

func (r remoteMetrics) RangeRead(bytes int64, _ time.Duration, err error) {
	r.m.remoteBytes.Add(float64(bytes))
	result := "whole"
	if err != nil {
		result = "failed"
	}
	r.m.remoteRanges.WithLabelValues(result).Inc()
}

func (r remoteMetrics) Count(e remote.Event) { r.m.remoteEvents.WithLabelValues(string(e)).Inc() }
