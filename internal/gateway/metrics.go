package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's own. Labels are few words of ours, broker ids and API names, never anything that a client sends.
type metrics struct {
	connections  *prometheus.GaugeVec
	refused      *prometheus.CounterVec
	limits       *prometheus.CounterVec
	listenFailed prometheus.Counter
	dialFailed   prometheus.Counter
	rewritten    *prometheus.CounterVec
	unknown      prometheus.Counter
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
	}
	if r != nil {
		r.MustRegister(m.connections, m.refused, m.limits, m.listenFailed, m.dialFailed, m.rewritten, m.unknown, portCollector{g})
	}
	return m
}

func (m *metrics) limit(name string) { m.limits.WithLabelValues(name).Inc() }

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
