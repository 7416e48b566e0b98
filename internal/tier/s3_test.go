package tier

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/storetest"
)

// objectsOf lists a bucket of a real S3 server by the SDK, not by our own code.
func objectsOf(t *testing.T, addr, name string) map[string]int64 {
	t.Helper()
	objects := map[string]int64{}
	pages := awss3.NewListObjectsV2Paginator(storetest.S3Client(addr), &awss3.ListObjectsV2Input{Bucket: aws.String(name)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Contents {
			objects[*o.Key] = *o.Size
		}
	}
	return objects
}

func TestKilledWhileTieringToS3(t *testing.T) {
	server := storetest.S3(t)
	url := server.URL(t, "killed")
	killAtRandomPoints(t, url, rounds(t, 5), func() map[string]int64 { return objectsOf(t, server.Addr, "killed") })
}

// A real S3 server behind a line that stalls, resets, cuts and crawls: turns fail, nothing is lost, nothing is left over when it is well again.
func TestTieringToS3OverABadLine(t *testing.T) {
	server := storetest.S3(t)
	server.URL(t, "badline")
	line := storetest.NewFaults(t, server.Addr)
	store, err := bucket.NewManager(bucket.Options{Store: server.OpenURL(t, server.URLVia(line.Addr, "badline")), UploadTimeout: 700 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNode(vfs.Default, filepath.Join(t.TempDir(), "data"), store)
	if err != nil {
		t.Fatal(err)
	}
	n.tier.o.StallTimeout = 2 * time.Second
	m := &model{}
	rng := rand.New(rand.NewPCG(7, 7))
	faults := []struct {
		kind, stream string
		attributes   map[string]any
		fails        bool
	}{
		{"latency", "downstream", map[string]any{"latency": 20, "jitter": 10}, false},
		{"reset_peer", "upstream", map[string]any{"timeout": 5}, true},
		{"limit_data", "upstream", map[string]any{"bytes": 900}, true},
		{"limit_data", "downstream", map[string]any{"bytes": 300}, true},
		{"timeout", "downstream", map[string]any{"timeout": 0}, true},
		{"slicer", "upstream", map[string]any{"average_size": 50, "size_variation": 20, "delay": 100}, false},
	}
	for _, f := range faults {
		for range 2 {
			if err := m.append(n.log); err != nil {
				t.Fatal(err)
			}
			if err := n.log.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		line.Add(t, "fault", f.kind, f.stream, f.attributes)
		err := n.settle()
		if f.fails && err == nil {
			t.Errorf("%s on %s: every operation succeeded", f.kind, f.stream)
		}
		if !f.fails && err != nil {
			t.Errorf("%s on %s: %v", f.kind, f.stream, err)
		}
		line.Remove(t, "fault")
		if err := n.settle(); err != nil {
			t.Fatalf("after %s: %v", f.kind, err)
		}
		requireExactly(t, objectsOf(t, server.Addr, "badline"), n.tier.segments(tpOf(0)))
		if _, err := n.log.ApplyRetention(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := n.check(store, *m); err != nil {
			t.Fatalf("after %s: %v", f.kind, err)
		}
	}
	if err := script(n, m, 6, rng); err != nil {
		t.Fatal(err)
	}
	if err := n.check(store, *m); err != nil {
		t.Fatal(err)
	}
	n.tier.doom(tpOf(0))
	for {
		w, ok := n.tier.next()
		if !ok {
			t.Fatal("closed")
		}
		if err := n.tier.takeTurn(w); err != nil {
			t.Fatal(err)
		}
		if n.meta.Index().Partition(tpOf(0)) == nil {
			break
		}
	}
	requireExactly(t, objectsOf(t, server.Addr, "badline"), nil)
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
}
