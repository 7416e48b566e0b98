package broker

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreDocumented: docs/metrics.md has every metric of the broker's, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`rewind_broker_\w+\w`).FindAllString(string(page), -1)
	var all names
	newMetrics(&all, &Broker{})
	for _, name := range all {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(all, name) {
			t.Errorf("docs/metrics.md speaks of %s, which is not there", name)
		}
	}
	if len(all) < 15 {
		t.Errorf("%d metrics", len(all))
	}
}

// names is a registry that only takes names down.
type names []string

func (n *names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 10)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		*n = append(*n, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	return nil
}

func (n *names) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := n.Register(c); err != nil {
			panic(err)
		}
	}
}

func (n *names) Unregister(prometheus.Collector) bool { return false }
