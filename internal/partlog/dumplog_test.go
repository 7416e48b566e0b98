package partlog

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/codec"
)

// complaint is what Apache Kafka's DumpLogSegments prints when a file is not as it should be. It also prints "Non-consecutive offsets", then "-1 is followed by
// 58", for the first batch of every segment that does not begin at 0, its own ones too: only an offset that follows a real one is a complaint.
var complaint = regexp.MustCompile(`(?i)mismatch|[0-9]+ is followed by|not found|out of order|isvalid: false|exception|corrupt|invalid bytes|error|could not|failed`)

// dumpLog runs Apache Kafka's DumpLogSegments over files; gaps says that offsets may be missing (a compacted log). Its jars are where REWIND_KAFKA_PEER says.
func dumpLog(t *testing.T, files []string, gaps bool, options ...string) string {
	t.Helper()
	home := os.Getenv("REWIND_KAFKA_PEER")
	if home == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("REWIND_KAFKA_PEER is not set: there is no DumpLogSegments to be the judge (make peers installs one)")
		}
		t.Skip("REWIND_KAFKA_PEER is not set (make peers)")
	}
	libs, err := filepath.Glob(filepath.Join(home, "dist", "*", "lib"))
	if err != nil || len(libs) == 0 {
		t.Fatalf("no jars under %s/dist: %v", home, err)
	}
	args := []string{"-Xmx256m", "-XX:+UseSerialGC", "-cp", libs[len(libs)-1] + "/*", "org.apache.kafka.tools.DumpLogSegments", "--files", strings.Join(files, ",")}
	out, err := exec.CommandContext(t.Context(), "java", append(args, options...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("DumpLogSegments: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if gaps && strings.Contains(line, "is followed by") {
			continue
		}
		if complaint.MatchString(line) && !strings.Contains(line, " -1 is followed by") {
			t.Errorf("DumpLogSegments says: %s", line)
		}
	}
	return string(out)
}

// dumpable are the files of a log that DumpLogSegments reads.
func dumpable(t *testing.T, dir string) (files []string) {
	t.Helper()
	for _, suffix := range []string{"log", "index", "timeindex", "txnindex", "snapshot"} {
		found, err := filepath.Glob(filepath.Join(dir, "*."+suffix))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no files to look at")
	}
	return files
}

// writeEverything appends what a log can hold: every codec, several batches a segment, producers, transactions.
func writeEverything(t *testing.T, l *Log) {
	t.Helper()
	ts := epoch0.UnixMilli()
	for i := range 120 {
		s := plain(1+i%3, ts+int64(i*10), 60+i)
		s.codec = int8(i % (codec.Zstd + 1))
		if i%7 == 0 {
			s.records[0].ts = ts // a timestamp from before
		}
		mustAppend(t, l, s.build(t))
		if i%4 == 0 {
			pid := int64(100 + i%3)
			s := plain(2, ts+int64(i*10), 20).producer(pid, 0, int32(i/12*2))
			s.transactional = true
			mustAppend(t, l, s.build(t))
		}
		if i%20 == 19 {
			for pid := int64(100); pid < 103; pid++ {
				if _, err := l.Append(marker(pid, 0, (i/20+int(pid))%2 == 0, 1, ts+int64(i*10)), Internal); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := l.Sync(context.Background(), l.Offsets().LogEnd); err != nil {
		t.Fatal(err)
	}
}

func TestDumpLogSegmentsReadsOurFiles(t *testing.T) {
	o := testOptions(vfs.Default)
	o.Dir = t.TempDir() + "/t-0"
	l := mustOpen(t, o)
	writeEverything(t, l)
	mustClose(t, l)
	files := dumpable(t, o.Dir)
	out := dumpLog(t, files, false, "--deep-iteration", "--print-data-log")
	if n := strings.Count(out, "endTxnMarker"); n != 18 {
		t.Errorf("DumpLogSegments saw %d markers, want 18", n)
	}
	dumpLog(t, files, false, "--index-sanity-check")

	// After a crash everything beside the log is made anew, from the start.
	for _, f := range files {
		if !strings.HasSuffix(f, ".log") {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, mustOpen(t, o))
	dumpLog(t, dumpable(t, o.Dir), false, "--deep-iteration")
}

func TestDumpLogSegmentsReadsCompactedFiles(t *testing.T) {
	o := compactOptions(vfs.Default, &clock{now: epoch0})
	o.Dir = t.TempDir() + "/t-0"
	l := mustOpen(t, o)
	seq := map[int64]int32{}
	fillKeys(t, l, rand.New(rand.NewPCG(1, 1)), 100, seq)
	segments := l.Stats().Segments
	for range 2 { // the first makes segments small, the second puts them together
		if err := l.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		fillKeys(t, l, rand.New(rand.NewPCG(1, 1)), 20, seq)
	}
	if l.Stats().Segments >= segments {
		t.Errorf("%d segments, %d before", l.Stats().Segments, segments)
	}
	mustClose(t, l)
	dumpLog(t, dumpable(t, o.Dir), true, "--deep-iteration")
}
