package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/control"
)

// smaps is a mapping as /proc/self/smaps has it.
func smaps(head, anonymous, swap string) string {
	return head + "\nSize:                 12 kB\nRss:                  12 kB\nAnonymous:          " + anonymous + " kB\nAnonHugePages:         0 kB\nSwap:                 " + swap +
		" kB\nSwapPss:               0 kB\nVmFlags: rd mr mw me \n"
}

func TestDroppable(t *testing.T) {
	text := smaps("00400000-01b19000 r-xp 00000000 fe:00 11110451                           /usr/bin/rewind", "0", "0") +
		smaps("01b19000-0340c000 r--p 01719000 fe:00 11110451                           /usr/bin/rewind", "0", "0") +
		smaps("0340c000-0350c000 rw-p 0300c000 fe:00 11110451                           /usr/bin/rewind", "0", "0") + // data
		smaps("0350c000-0360c000 r--p 0300c000 fe:00 11110451                           /usr/bin/rewind", "4", "0") + // relocated
		smaps("0360c000-0370c000 r-xp 0300c000 fe:00 11110451                           /usr/bin/rewind", "0", "8") + // relocated, and swapped out
		smaps("0370c000-0380c000 r-xs 0300c000 fe:00 11110451                           /usr/bin/rewind", "0", "0") +
		smaps("0380c000-0390c000 r-xp 0300c000 fe:00 11110451                           /usr/bin/rewind (deleted)", "0", "0") + // another one, then
		smaps("7f0000000000-7f0000001000 r-xp 00000000 fe:00 247741                     /usr/lib/libc.so.6", "0", "0") +
		smaps("7f0000001000-7f0000002000 r-xp 00000000 00:00 0", "0", "0") +
		smaps("7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]", "0", "0") +
		smaps("9f0000000000-8f0000001000 r-xp 00000000 fe:00 11110451                   /usr/bin/rewind", "0", "0")
	want := []mapping{{0x400000, 0x1b19000}, {0x1b19000, 0x340c000}}
	if got := droppable(text, "/usr/bin/rewind"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if got := droppable(strings.ReplaceAll(text, "/usr/bin/rewind", "/home/a user/re wind"), "/home/a user/re wind"); !slices.Equal(got, want) {
		t.Errorf("with spaces: %x, want %x", got, want)
	}
	for _, broken := range []string{"", "\n", "x", "00400000-01b19000 r-xp", strings.ReplaceAll(text, "Swap:", "Sweep:"), strings.ReplaceAll(text, "-", "")} {
		if got := droppable(broken, "/usr/bin/rewind"); got != nil {
			t.Errorf("%x of %q", got, broken)
		}
	}
}

// TestBrokerSettles: soon after its start a broker has little of its own file resident, and goes on.
func TestBrokerSettles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	const enough = 16 << 10 // KiB; it is more than twice as much without
	b, err := control.Start(t.Context(), os.Stderr, "broker", "--control", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--log-level", "error")
	if err != nil {
		t.Fatal(err)
	}
	resident := func() (kib int) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := bytes.Cut(status, []byte("RssFile:"))
		if _, err := fmt.Sscan(string(after), &kib); err != nil {
			t.Fatalf("%v: %s", err, status)
		}
		return kib
	}
	for until := time.Now().Add(time.Minute); resident() > enough; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("%d KiB of files are resident a minute after the start", resident())
			break
		}
	}
	if _, err := b.Usage(); err != nil {
		t.Error(err)
	}
	if err := b.Stop(time.Minute); err != nil {
		t.Error(err)
	}
}

func TestSettlingEndsAtOnce(t *testing.T) {
	settle(time.Hour, slog.New(slog.DiscardHandler))()
}
