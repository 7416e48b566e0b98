package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rewind-kafka/rewind"

// layers, from the bottom. A package imports packages of lower layers only. A new package goes into the lowest layer that its imports allow.
var layers = [][]string{
	// What the rest of the bottom stands on.
	{"internal/foldersync"},
	// Nouns and formats that know nothing else.
	{"remotestorage", "internal/acl", "internal/sasl", "internal/keyfiles", "internal/principal", "internal/batch", "internal/codec", "internal/usage", "internal/bytesize", "internal/atomicfile", "internal/oncefile", "internal/loadcache", "internal/freeport", "internal/peers", "internal/coord/group", "internal/coord/assignor", "internal/coord/txn", "internal/coord/sharestate", "internal/sharepart", "internal/sharesession", "internal/quota", "internal/arrows"},
	// Formats, and state machines without I/O.
	{"internal/wire", "internal/epoch", "internal/segment", "internal/layout", "internal/remotelog", "internal/producerstate", "internal/coord/members", "internal/config"},
	// Kinds of groups.
	{"internal/coord/share", "internal/coord/consumer", "internal/coord/streams", "internal/coord/grouptest"},
	// What the driver of directories and the front of one share.
	{"internal/storedir"},
	// Small things that do I/O, each for one purpose.
	{"internal/logdir", "internal/topics", "internal/control", "internal/fileserver", "internal/distance", "httpfetcher", "bucket",
		"internal/session", "internal/fetch", "internal/clientconn", "internal/golden", "internal/upstream", "internal/versionshim"},
	// The log, the store's drivers, reading segments.
	{"internal/partlog", "internal/remote", "bucket/s3", "bucket/gcs", "bucket/azure", "bucket/file", "bucket/aiven",
		"internal/aivenwrite"},
	// The log's other tier.
	{"internal/locate", "internal/tier", "internal/resolve"},
	// A client's fetches answered out of the store; resolving on somebody else's cluster.
	{"internal/history", "metadatatopic"},
	// What a program is made of: the broker, and the library.
	{"internal/broker", "internal/gateway", ""},
	{"internal/backfill", "internal/storetest", "internal/clustertest", "internal/doctor"},
	{"internal/demo", "internal/bench", "internal/clientdrivers", "internal/rewindbin"},
	{"internal/clienttest", "internal/killtest", "internal/gatewaytest", "internal/difftest", "internal/checkers", "internal/tooltest", "internal/streamstest"},
	{"cmd/rewind"},
}

// onlyIn: imports from outside that must stay in few places.
var onlyIn = map[string][]string{
	"gocloud.dev":                      {"bucket", "bucket/s3", "bucket/gcs", "bucket/azure", "bucket/file", "internal/storetest"},
	"github.com/aws":                   {"bucket/s3", "internal/storetest"},
	"github.com/Azure":                 {"bucket/azure", "internal/storetest"},
	"cloud.google.com":                 {"bucket/gcs", "internal/storetest"},
	"google.golang.org/api":            {"bucket/gcs", "internal/storetest"},
	"github.com/Shopify/toxiproxy":     {"internal/storetest"},
	module + "/internal/storetest":     {"internal/clienttest"},
	module + "/internal/golden":        {},
	module + "/internal/aivenwrite":    {"internal/bench", "internal/gatewaytest"},
	"testing":                          {"internal/storetest", "internal/golden", "internal/clienttest", "internal/peers", "internal/clustertest", "internal/clientdrivers", "internal/rewindbin"},
	module + "/bucket/s3":              {"cmd/rewind", "internal/storetest"},
	module + "/bucket/gcs":             {"cmd/rewind", "internal/storetest"},
	module + "/bucket/azure":           {"cmd/rewind", "internal/storetest"},
	module + "/bucket/file":            {"cmd/rewind", "internal/storetest", "internal/backfill", "internal/bench"},
	"github.com/twmb/franz-go/pkg/kgo": {"internal/upstream", "internal/doctor", "metadatatopic", "internal/clustertest", "internal/broker", "cmd/rewind", "internal/backfill", "internal/demo", "internal/bench", "internal/clienttest", "internal/clientdrivers"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &stderr)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func layerOf(name string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
}

func TestArrows(t *testing.T) {
	packages := list(t, module+"/...")
	if len(packages) < 20 {
		t.Fatalf("only %d packages listed", len(packages))
	}
	for _, p := range packages {
		from := short(p.ImportPath)
		layer := layerOf(from)
		if layer < 0 {
			t.Errorf("%s is in no layer: put it into the table", from)
			continue
		}
		for _, imp := range p.Imports {
			if within(imp, module) {
				if to := layerOf(short(imp)); to >= layer {
					t.Errorf("%s (layer %d) imports %s (layer %d)", from, layer, short(imp), to)
				}
			}
			for tree, allowed := range onlyIn {
				if within(imp, tree) && !slices.Contains(allowed, from) && !(tree == module+"/bucket" && within(from, "bucket")) {
					t.Errorf("%s imports %s: only %v may", from, imp, allowed)
				}
			}
		}
	}
}

// heavy is what a user of the public library must not get.
var heavy = []string{
	"gocloud.dev", "github.com/aws", "github.com/Azure", "cloud.google.com", "google.golang.org",
	"go.opentelemetry.io", "github.com/prometheus", "github.com/cockroachdb", "github.com/twmb/franz-go/pkg/kgo", "github.com/IBM/sarama",
	"github.com/segmentio", "github.com/Shopify", module + "/bucket", module + "/internal/broker",
}

func TestLibraryIsLight(t *testing.T) {
	roots := []string{module, module + "/httpfetcher", module + "/remotestorage"}
	seen := make(map[string]bool)
	for _, p := range list(t, append([]string{"-deps"}, roots...)...) {
		seen[p.ImportPath] = true
		for _, tree := range heavy {
			if within(p.ImportPath, tree) {
				t.Errorf("the library depends on %s", p.ImportPath)
			}
		}
	}
	for _, r := range roots {
		if !seen[r] {
			t.Errorf("%s was not listed", r)
		}
	}
}

// TestNounsAreLight: a program that brings its own store takes nothing else with it.
func TestNounsAreLight(t *testing.T) {
	for _, root := range []string{module + "/remotestorage", module + "/httpfetcher"} {
		for _, p := range list(t, "-deps", root) {
			first, _, _ := strings.Cut(p.ImportPath, "/")
			if strings.Contains(first, ".") && p.ImportPath != root && p.ImportPath != module+"/remotestorage" {
				t.Errorf("%s depends on %s", root, p.ImportPath)
			}
		}
	}
}

// sdks are those of the stores, by who may bring one along.
var sdks = map[string]string{
	"github.com/aws": "bucket/s3", "github.com/Azure/azure-sdk-for-go": "bucket/azure", "github.com/AzureAD": "bucket/azure", "cloud.google.com/go/storage": "bucket/gcs",
}

// TestDriversAreApart: who takes the driver of one store gets no other store's SDK, and a program that reads a bare cluster's history gets those of the drivers that it names.
func TestDriversAreApart(t *testing.T) {
	for _, root := range []string{"", "metadatatopic", "httpfetcher", "bucket", "bucket/aiven", "bucket/file", "bucket/s3", "bucket/gcs", "bucket/azure"} {
		own := false
		for _, p := range list(t, "-deps", strings.TrimSuffix(module+"/"+root, "/")) {
			for tree, driver := range sdks {
				switch {
				case !within(p.ImportPath, tree):
				case driver == root:
					own = true
				default:
					t.Errorf("%s depends on %s", root, p.ImportPath)
				}
			}
		}
		if cloud := root == "bucket/s3" || root == "bucket/gcs" || root == "bucket/azure"; cloud != own {
			t.Errorf("%s has an SDK of its own: %v", root, own)
		}
	}
}
