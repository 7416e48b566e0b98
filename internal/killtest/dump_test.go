package killtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// complaint is what Apache Kafka's DumpLogSegments prints when a file is not as it should be. "Non-consecutive offsets: -1 is followed by" it says of every
// segment that does not begin at 0; in a compacted log offsets are missing.
var complaint = regexp.MustCompile(`(?i)mismatch|[0-9]+ is followed by|not found|out of order|isvalid: false|exception|corrupt|invalid bytes|error|could not|failed`)

// dumpLogs has Apache Kafka's DumpLogSegments read every log file of the data directory, of the broker's own topics too.
func dumpLogs(t *testing.T, dataDir string) {
	t.Helper()
	home := os.Getenv("REWIND_KAFKA_PEER")
	if home == "" {
		if os.Getenv("CI") == "true" {
			t.Error("REWIND_KAFKA_PEER is not set: there is no DumpLogSegments to be the judge (make peers installs one)")
		}
		t.Log("REWIND_KAFKA_PEER is not set: DumpLogSegments does not judge the files (make peers)")
		return
	}
	libs, err := filepath.Glob(filepath.Join(home, "dist", "*", "lib"))
	if err != nil || len(libs) == 0 {
		t.Fatalf("no jars under %s/dist: %v", home, err)
	}
	var dense, gaps []string
	for _, suffix := range []string{"log", "index", "timeindex", "txnindex", "snapshot"} {
		found, err := filepath.Glob(filepath.Join(dataDir, "*", "*."+suffix))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if folder := filepath.Base(filepath.Dir(f)); strings.HasPrefix(folder, compacted) || strings.HasPrefix(folder, "__consumer_offsets") || strings.HasPrefix(folder, "__transaction_state") {
				gaps = append(gaps, f)
			} else {
				dense = append(dense, f)
			}
		}
	}
	if len(dense) == 0 || len(gaps) == 0 {
		t.Fatalf("files to judge: %d and %d", len(dense), len(gaps))
	}
	for _, set := range []struct {
		files []string
		gaps  bool
	}{{dense, false}, {gaps, true}} {
		for files := range slices.Chunk(set.files, 400) { // an argument has at most 128 KiB
			args := []string{"-Xmx256m", "-XX:+UseSerialGC", "-cp", libs[len(libs)-1] + "/*", "org.apache.kafka.tools.DumpLogSegments", "--files", strings.Join(files, ",")}
			out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput()
			if err != nil {
				t.Errorf("DumpLogSegments: %v\n%s", err, tail(string(out), 2000))
			}
			judgeDump(t, string(out), set.gaps)
		}
	}
}

func judgeDump(t *testing.T, out string, gaps bool) {
	t.Helper()
	file, said := "", 0
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "Dumping "); ok {
			file = strings.TrimSpace(name)
			continue
		}
		if gaps && strings.Contains(line, "is followed by") || !complaint.MatchString(line) || strings.Contains(line, " -1 is followed by") {
			continue
		}
		if said++; said <= 20 {
			t.Error(fmt.Sprintf("DumpLogSegments says of %s: %s", file, line))
		}
	}
	if file == "" {
		t.Errorf("DumpLogSegments dumped nothing: %s", tail(out, 1000))
	}
}

// dumpWith has one of DumpLogSegments' decoders read the logs of a topic's partitions.
func dumpWith(t *testing.T, dataDir, folders, decoder string) string {
	t.Helper()
	libs, err := filepath.Glob(filepath.Join(os.Getenv("REWIND_KAFKA_PEER"), "dist", "*", "lib"))
	if err != nil || len(libs) == 0 {
		t.Fatalf("no jars: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dataDir, folders, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no logs in %s: %v", folders, err)
	}
	args := []string{"-Xmx256m", "-XX:+UseSerialGC", "-cp", libs[len(libs)-1] + "/*", "org.apache.kafka.tools.DumpLogSegments", decoder, "--files", strings.Join(files, ",")}
	out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput()
	if err != nil {
		t.Errorf("DumpLogSegments %s: %v", decoder, err)
	}
	return string(out)
}
