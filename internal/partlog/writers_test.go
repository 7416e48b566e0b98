package partlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// manyLogs opens logs that share files, each with a record in a file that is open.
func manyLogs(t *testing.T, n int, files *Files, fs vfs.FS, logger *slog.Logger) []*Log {
	t.Helper()
	dir := t.TempDir()
	logs := make([]*Log, n)
	for i := range logs {
		o := testOptions(fs)
		o.Dir, o.Files = fmt.Sprintf("%s/t-%d", dir, i), files
		if logger != nil {
			o.Logger = logger
		}
		logs[i] = mustOpen(t, o)
		mustAppend(t, logs[i], plain(1, epoch0.UnixMilli(), 10).build(t))
	}
	return logs
}

// TestFailedLogsGiveTheirFilesBack: on a disk that has gone bad, the files of logs that have failed go as those of others do, and no healthy log has to give way in
// their place.
func TestFailedLogsGiveTheirFilesBack(t *testing.T) {
	const bad = 12
	for name, fail := range map[string]func(l *Log) error{
		"syncing":    func(l *Log) error { return l.Sync(t.Context(), l.Offsets().LogEnd) },
		"giving way": func(l *Log) error { l.giveWay(); return l.Err() },
		"idle":       func(l *Log) error { return errors.Join(l.ReleaseIdle(), l.ReleaseIdle()) },
	} {
		for next, after := range map[string]func(t *testing.T, files *Files, logs []*Log){
			"others come": func(t *testing.T, files *Files, logs []*Log) {
				healthy := manyLogs(t, files.maxWriters(), files, vfs.Default, nil)
				for _, l := range healthy {
					if l.writing == nil {
						t.Errorf("%s has given way", l.dir)
					}
				}
				if writers, _ := files.Open(); writers != len(healthy) {
					t.Errorf("%d writers, %d are healthy", writers, len(healthy))
				}
			},
			"quiet": func(t *testing.T, files *Files, logs []*Log) {
				for _, l := range logs {
					if err := l.ReleaseIdle(); !errors.Is(err, ErrStorage) {
						t.Errorf("releasing a log that has failed: %v", err)
					}
				}
			},
		} {
			t.Run(name+", "+next, func(t *testing.T) {
				before := openFiles()
				files := NewFiles(4 * bad)
				var gone atomic.Bool
				logs := manyLogs(t, bad, files, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if gone.Load() && anySync(op.Kind) {
						return errDisk
					}
					return nil
				})), nil)
				gone.Store(true)
				for _, l := range logs {
					if err := fail(l); !errors.Is(err, errDisk) {
						t.Fatalf("the disk has gone bad: %v", err)
					}
				}
				after(t, files, logs)
				writers, _ := files.Open()
				for _, l := range logs {
					if l.writing != nil {
						t.Errorf("%s has its file still", l.dir)
					}
					if l.confirmedUpTo() > 0 || !errors.Is(l.Sync(t.Context(), 1), errDisk) {
						t.Errorf("%s confirms what was not synced", l.dir)
					}
					if len(readAll(t, l)) != 1 {
						t.Errorf("%s cannot be read any more", l.dir)
					}
				}
				if err := files.Close(); err != nil { // the readers'
					t.Error(err)
				}
				if now := openFiles(); before > 0 && now > before+writers {
					t.Errorf("%d files are open, %d of them for appends", now-before, writers)
				}
			})
		}
	}
}

// TestShortageIsLoggedOnce: logs that cannot write their indexes as they give way say so once, not each of them.
func TestShortageIsLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	var short atomic.Bool
	files := NewFiles(64)
	logs := manyLogs(t, 20, files, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if short.Load() {
			return (&starved{from: 1, openings: 1}).MaybeError(op)
		}
		return nil
	})), slog.New(slog.NewTextHandler(&lines, nil)))
	short.Store(true)
	if n := files.cool(len(logs)); n != len(logs) {
		t.Errorf("%d gave way", n)
	}
	short.Store(false)
	if n := strings.Count(lines.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, lines.String())
	}
	for _, l := range logs {
		mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
		mustClose(t, l)
	}
}
