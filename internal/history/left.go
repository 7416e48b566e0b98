package history

import "time"

// left is how often in a row the resolver has left a partition's questions to the broker, as where transactions are undecided from here on: those that follow are left to it for
// a while without a search. The answer to each would wait for the search, and behind the fetch that the search has let go ahead.
type left struct {
	times     int
	from      int64 // questions at or behind it
	committed bool
	until     time.Time
}

// again takes note of one more. After the first, what follows is still searched for: most ranges that are not to be read from here are short.
func (l *left) again(q question) {
	if l.times == 0 || q.offset < l.from || q.committed != l.committed {
		*l = left{from: q.offset, committed: q.committed}
	}
	if l.times++; l.times > 1 {
		l.until = time.Now().Add(notReadyFor)
	}
}

// holds tells whether a question is left to the broker. A seek to what lies before is a new one.
func (l *left) holds(q question) bool {
	return q.offset >= l.from && q.committed == l.committed && time.Now().Before(l.until)
}
