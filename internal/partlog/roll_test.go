package partlog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestOnRoll: each closed segment is told once, when it can be copied already, to somebody who may call the log.
func TestOnRoll(t *testing.T) {
	o := testOptions(vfs.NewMem())
	now := epoch0
	o.Clock = func() time.Time { return now }
	o.Config.RetentionMs, o.Config.RemoteStorage = 1000, true
	var l *Log
	var tierable []int
	o.OnRoll = func() { tierable = append(tierable, len(l.Tierable())) }
	l = mustOpen(t, o)
	for len(tierable) < 3 && l.Offsets().LogEnd < 1000 {
		before, told := l.Stats().Segments, len(tierable)
		fill(t, l, 1, 500)
		if closed := l.Stats().Segments - before; len(tierable)-told != closed {
			t.Fatalf("%d segments were closed, %d told", closed, len(tierable)-told)
		}
	}
	now = now.Add(time.Hour) // the active segment is past retention.ms
	if _, err := l.ApplyRetention(now); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ApplyRetention(now); err != nil {
		t.Fatal(err)
	}
	if len(tierable) != 4 {
		t.Fatalf("told %d times, want 4", len(tierable))
	}
	for i, n := range tierable {
		if n != i+1 {
			t.Errorf("when told of segment %d, %d could be copied", i, n)
		}
	}
}

// TestTornTailIsLogged: the line names the partition once, and a cause.
func TestTornTailIsLogged(t *testing.T) {
	var out bytes.Buffer
	o := testOptions(vfs.Default)
	o.Dir, o.Logger = filepath.Join(t.TempDir(), "t-0"), slog.New(slog.NewTextHandler(&out, nil))
	l := mustOpen(t, o)
	fill(t, l, 2, 100)
	segment := filepath.Join(o.Dir, "00000000000000000000.log")
	mustClose(t, l)
	st, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(segment, st.Size()-1); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, o)
	line := out.String()
	if strings.Count(line, "cutting off a torn tail") != 1 || strings.Count(line, "partition=t-0") != 1 || !strings.Contains(line, `cause="the last batch is not there as a whole"`) {
		t.Errorf("logged: %s", line)
	}
}
