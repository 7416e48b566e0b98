package rewind_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Whoever imports this package gets no object store's SDK, no gRPC and no Kafka client with it: drivers and fetchers are brought by those who need them.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("%d dependencies only: the list is not what it should be", len(deps))
	}
	for _, dep := range deps {
		for _, unwanted := range []string{
			"gocloud.dev", "github.com/aws/", "github.com/Azure/", "cloud.google.com/", "google.golang.org/", "github.com/twmb/franz-go/pkg/kgo", "github.com/IBM/sarama",
			"github.com/segmentio/", "github.com/prometheus/", "github.com/cockroachdb/", "github.com/rewind-kafka/rewind/bucket", "github.com/rewind-kafka/rewind/internal/broker",
		} {
			if strings.HasPrefix(dep, unwanted) {
				t.Errorf("the package depends on %s", dep)
			}
		}
	}
}
