package gateway

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/remote"
)

// metrics are the gateway's own. Labels are few words of ours, broker ids and API names, never anything that a client sends.
type metrics struct {
	givenBytes, givenFetches atomic.Int64 // beside fetches, which cannot be read back
	locationsCame            atomic.Bool

	connections  *prometheus.GaugeVec
	refused      *prometheus.CounterVec
	limits       *prometheus.CounterVec
	listenFailed prometheus.Counter
	dialFailed   prometheus.Counter
	rewritten    *prometheus.CounterVec
	unknown      prometheus.Counter

	fetches      *prometheus.CounterVec
	fetchedBytes *prometheus.CounterVec
	reading      prometheus.Gauge
	located      prometheus.Counter
	locatedBytes prometheus.Counter
	asked        *prometheus.CounterVec
	fallbacks    *prometheus.CounterVec
	ended        *prometheus.CounterVec
	shadowed     *prometheus.CounterVec
	reads        readMetrics
}

func newMetrics(r prometheus.Registerer, g *Gateway) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "gateway", Name: name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "gateway", Name: name, Help: help})
	}
	m := &metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "gateway", Name: "connections",
			Help: "Open client connections, by the broker that they are for."}, []string{"broker"}),
		refused:      counter("connections_ended_total", "Client connections that ended otherwise than by hanging up, by reason.", "reason"),
		limits:       counter("limits_met_total", "Times that a limit was met.", "limit"),
		listenFailed: single("listen_failures_total", "Times that the port of a broker could not be opened."),
		dialFailed:   single("dial_failures_total", "Connections to brokers that could not be made."),
		rewritten:    counter("responses_rewritten_total", "Responses in which addresses of brokers were replaced.", "api"),
		unknown:      single("unknown_requests_total", "Requests of a key or version that this gateway does not know, passed on as they are."),
		fetches: counter("fetches_total", "Fetch answers with records by where those came from: read from the store here, out of the cache of what was read, from "+
			"the brokers through a fetch of the gateway's, or passed through as they came. An answer from two places counts for both.", "path"),
		fetchedBytes: counter("fetched_bytes_total", "Bytes of records in fetch answers, by where they came from; what passes through is counted as whole frames.", "path"),
		reading: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "gateway", Name: "reads_in_flight",
			Help: "Partitions that are being read from the store, one for each connection that reads one."}),
		located:      single("locations_total", "Partitions answered with a location (KIP-1248)."),
		locatedBytes: single("located_bytes_total", "Bytes of objects that locations have granted to clients, which read them by themselves."),
		asked:        counter("locations_asked_total", "Locations that upstream was asked for and gave, by cause.", "cause"),
		fallbacks:    counter("fallbacks_total", "Times that a partition was left to the brokers for a while because it could not be read from the store, by reason.", "reason"),
		ended:        counter("reads_ended_total", "Times that reading from the store ended in order, by reason.", "reason"),
		shadowed:     counter("shadow_comparisons_total", "Answers out of the store that were compared with the broker's own, by result.", "result"),
	}
	for _, l := range []string{"accept", "connections", "descriptors", "frame", "held-requests", "held-responses", "partitions", "principal-bytes", "principal-grant", "principal-connections", "principal-reads"} {
		m.limits.WithLabelValues(l) // 0, not absent
	}
	m.reads = readMetrics{
		ranges: counter("store_reads_total", "Ranges read from the store, by result.", "result"),
		bytes:  single("store_read_bytes_total", "Bytes that came from the store."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "rewind", Subsystem: "gateway", Name: "store_read_seconds",
			Help: "How long ranges took, to their last byte.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		events: counter("store_events_total", "What happened on the way of reads from the store.", "event"),
	}
	if r != nil {
		r.MustRegister(m.connections, m.refused, m.limits, m.listenFailed, m.dialFailed, m.rewritten, m.unknown, portCollector{g})
		r.MustRegister(m.fetches, m.fetchedBytes, m.reading, m.located, m.locatedBytes, m.asked, m.fallbacks, m.ended, m.shadowed, m.reads.ranges, m.reads.bytes, m.reads.seconds, m.reads.events)
	}
	if h := g.opts.History; r != nil && h != nil {
		gauge := func(name, help string, value func() float64) {
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "gateway", Name: name, Help: help}, value))
		}
		gauge("remote_read_enabled", "1 while history is read from the store, 0 while the kill switch (remote.read.enable) leaves it to the brokers.", func() float64 {
			if g.ReadsOff() {
				return 0
			}
			return 1
		})
		if b := h.Read.Budget; b != nil {
			gauge("memory_in_use_bytes", "Memory of remote.read.memory.bytes that is in use.", func() float64 { return float64(b.InUse()) })
		}
		if h.Locations != nil {
			gauge("upstream_locations", "1 while the upstream answers with locations, or may; 0 if it does not say so and none has come: history is read through it.", func() float64 {
				if g.Locations() == nil {
					return 1
				}
				return 0
			})
		}
		if h.Status != nil {
			gauge("remote_segments", "Remote segments that are known, in any state.", func() float64 { return float64(h.Status().Segments) })
			gauge("metadata_lag_records", "Records of the metadata topic that have not been read yet.", func() float64 { return float64(h.Status().Lag) })
			gauge("metadata_ready", "1 when the metadata topic was read to the end that it had at the start.", func() float64 {
				if h.Status().Ready {
					return 1
				}
				return 0
			})
		}
	}
	return m
}

// Given is how many bytes of records have left for clients, and in how many answers.
func (g *Gateway) Given() (bytes, fetches int64) {
	return g.metrics.givenBytes.Load(), g.metrics.givenFetches.Load()
}

// given counts an answer.
func (m *metrics) given(bytes int) {
	m.givenBytes.Add(int64(bytes))
	m.givenFetches.Add(1)
}

// fetched counts an answer's records by where they came from.
func (m *metrics) fetched(path string, bytes int) {
	m.fetches.WithLabelValues(path).Inc()
	m.fetchedBytes.WithLabelValues(path).Add(float64(bytes))
}

// readMetrics is what readers tell.
type readMetrics struct {
	ranges  *prometheus.CounterVec
	bytes   prometheus.Counter
	seconds prometheus.Histogram
	events  *prometheus.CounterVec
}

func (m *readMetrics) RangeRead(bytes int64, took time.Duration, err error) {
	m.bytes.Add(float64(bytes))
	m.seconds.Observe(took.Seconds())
	result := "whole"
	if err != nil {
		result = "failed"
	}
	m.ranges.WithLabelValues(result).Inc()
}

func (m *readMetrics) Count(e remote.Event) { m.events.WithLabelValues(string(e)).Inc() }

// StoreMetrics are about requests to the store, made before a Gateway is: see Timed.
type StoreMetrics struct {
	firstByte prometheus.Histogram
	failed    prometheus.Counter
	requests  *prometheus.CounterVec
}

// NewStoreMetrics registers them.
func NewStoreMetrics(r prometheus.Registerer) *StoreMetrics {
	m := &StoreMetrics{
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "rewind", Subsystem: "gateway", Name: "store_first_byte_seconds",
			Help: "From asking for a range of a segment to its first byte.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "gateway", Name: "store_refusals_total",
			Help: "Ranges of segments that the store refused."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "gateway", Name: "store_requests_total",
			Help: "Requests to the store: ranges of segments, and whole indexes."}, []string{"kind"}),
	}
	if r != nil {
		r.MustRegister(m.firstByte, m.failed, m.requests)
	}
	return m
}

func (m *metrics) limit(name string) { m.limits.WithLabelValues(name).Inc() }

// brokerLabel is brokerLabel of brokers that there are. A client may give any id in its handshake.
func (g *Gateway) brokerLabel(id int32) string {
	if _, known := g.nodes.find(id); !known {
		id = bootstrapID
	}
	return brokerLabel(id)
}

func brokerLabel(id int32) string {
	if id == bootstrapID {
		return "any"
	}
	return strconv.Itoa(int(id))
}

// portCollector shows the port map, so that gateways behind one name that do not agree are seen.
type portCollector struct{ g *Gateway }

var portDesc = prometheus.NewDesc("rewind_gateway_broker_port", "The port of each broker; the same on all gateways behind one name.", []string{"broker"}, nil)

func (portCollector) Describe(ch chan<- *prometheus.Desc) { ch <- portDesc }

func (c portCollector) Collect(ch chan<- prometheus.Metric) {
	for id, port := range c.g.ports.known() {
		ch <- prometheus.MustNewConstMetric(portDesc, prometheus.GaugeValue, float64(port), strconv.Itoa(int(id)))
	}
}
