package broker

import (
	"sync"
	"time"
)

// connLines bounds the lines in the log about connections that are refused or closed for what they sent: whoever opens thousands a second must not fill a disk with them.
// The zero value is ready.
type connLines struct {
	mu     sync.Mutex
	room   float64 // lines that may come at once
	filled time.Time
	left   int // lines that were left out since the last one
}

const (
	connLinesAtOnce    = 100
	connLinesPerSecond = 10
)

// take tells whether a line may be written, and how many were left out before it.
func (l *connLines) take(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filled.IsZero() {
		l.room = connLinesAtOnce
	} else if d := now.Sub(l.filled); d > 0 {
		l.room = min(l.room+d.Seconds()*connLinesPerSecond, connLinesAtOnce)
	}
	l.filled = now
	if l.room < 1 {
		l.left++
		return 0, false
	}
	l.room--
	left, l.left = l.left, 0
	return left, true
}

// warn writes a line about a connection, if there is room for one.
func (s *server) warn(msg string, args ...any) {
	left, ok := s.lines.take(time.Now())
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "left.out.before", left)
	}
	s.log.Warn(msg, args...)
}
