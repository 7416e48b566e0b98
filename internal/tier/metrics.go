package tier

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are Prometheus counters, exported if a registerer was given.
type metrics struct {
	copiedBytes, copiedSegments, deletedSegments prometheus.Counter
	errors                                       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, t *Tier) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "tier", Name: name, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rewind", Subsystem: "tier", Name: name, Help: help}, value)
	}
	m := &metrics{
		copiedBytes:     counter("copied_bytes_total", "Bytes of log segments copied to the store."),
		copiedSegments:  counter("copied_segments_total", "Log segments copied to the store."),
		deletedSegments: counter("deleted_segments_total", "Remote log segments deleted from the store."),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewind", Subsystem: "tier", Name: "errors_total",
			Help: "Failed turns of a partition, by operation and reason."}, []string{"operation", "reason"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.copiedBytes, m.copiedSegments, m.deletedSegments, m.errors,
		gauge("copy_lag_bytes", "Bytes of closed segments that are not in the store yet, as of each partition's last turn.", func() float64 { b, _ := t.lag(); return float64(b) }),
		gauge("copy_lag_segments", "Closed segments that are not in the store yet, as of each partition's last turn.", func() float64 { _, n := t.lag(); return float64(n) }),
		gauge("failing_partitions", "Partitions whose tiering fails at present.", func() float64 { return float64(t.episode.size()) }),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) failed(err error) {
	op := "local"
	var store *StoreError
	if errors.As(err, &store) {
		op = store.Op
	}
	m.errors.WithLabelValues(op, reasonOf(err)).Inc()
}

func (t *Tier) lag() (bytes int64, segments int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.tasks {
		bytes += k.lagBytes
		segments += k.lagSegments
	}
	return bytes, segments
}

func (e *episode) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.failing)
}
