package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells a person what is going on: one line that moves on a terminal, one line a step elsewhere.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex // guards all below; step and at come from several goroutines
	name  string
	total int64
	start time.Time
	shown time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		st, err := f.Stat()
		p.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step begins a stage of total bytes.
func (p *progress) step(name string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil {
		return
	}
	p.finishLocked()
	p.name, p.total, p.start, p.shown = name, total, time.Now(), time.Time{}
	if !p.terminal {
		fmt.Fprintf(p.w, "%s ...\n", name)
	}
}

// at says how many bytes of the stage are done.
func (p *progress) at(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	p.lineLocked(n)
}

func (p *progress) lineLocked(n int64) {
	d := time.Since(p.start).Seconds()
	fmt.Fprintf(p.w, "\r\x1b[K%-60s %3d %%  %6.0f MiB/s", p.name, min(100, 100*n/max(p.total, 1)), float64(n)/(1<<20)/max(d, 1e-3))
}

func (p *progress) finishLocked() {
	if p.name == "" || !p.terminal {
		return
	}
	p.lineLocked(p.total)
	fmt.Fprintln(p.w)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil && p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
