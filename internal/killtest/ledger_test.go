package killtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// place is a partition.
type place struct {
	topic     string
	partition int32
}

func (p place) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

// id names a record: the client that produced it, and its number among what that client produced into the partition, from 1 on. 0 is no record.
type id uint64

const numberBits = 40

func newID(client int, number int64) id { return id(client)<<numberBits | id(number) }
func (i id) client() int                { return int(i >> numberBits) }
func (i id) number() int64              { return int64(i & (1<<numberBits - 1)) }
func (i id) String() string             { return fmt.Sprintf("%d/%d", i.client(), i.number()) }

// content is the value that belongs to an id: the id, and filling that follows from it.
func content(dst []byte, i id, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(i))
	x := uint64(i)*0x9e3779b97f4a7c15 | 1
	for len(dst) < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		dst = binary.LittleEndian.AppendUint64(dst, x&0x0f0f0f0f0f0f0f0f) // can be compressed
	}
	return dst
}

var errContent = errors.New("record has not the value that was produced")

func idOf(r *kgo.Record) (id, error) {
	if len(r.Value) < 8 {
		return 0, fmt.Errorf("%w: %d bytes", errContent, len(r.Value))
	}
	i := id(binary.BigEndian.Uint64(r.Value))
	if string(content(nil, i, len(r.Value))) != string(r.Value) {
		return 0, fmt.Errorf("%w: offset %d, id %s", errContent, r.Offset, i)
	}
	return i, nil
}

// ledger is what the clients know: what was produced, what was acknowledged, and what anybody has ever read.
type ledger struct {
	mu       sync.Mutex
	clients  int
	sent     map[place]map[int]*sent // by client
	seen     map[place]map[int64]id  // by offset
	faults   []string
	dropped  map[string]bool // topics that are no longer looked at
	acks     int64
	failures int64 // produced records that ended without an acknowledgement
}

// sent is what one client has produced into one partition.
type sent struct {
	idempotent bool
	produced   int64           // numbers 1 to produced
	acked      map[int64]int64 // number to offset, -1 if the client was not told
}

func newLedger() *ledger {
	return &ledger{sent: map[place]map[int]*sent{}, seen: map[place]map[int64]id{}, dropped: map[string]bool{}}
}

func (l *ledger) newClient() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients++
	return l.clients
}

// produce takes down that a client is about to produce the next record.
func (l *ledger) produce(p place, client int, idempotent bool) id {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent[p] == nil {
		l.sent[p] = map[int]*sent{}
	}
	s := l.sent[p][client]
	if s == nil {
		s = &sent{idempotent: idempotent, acked: map[int64]int64{}}
		l.sent[p][client] = s
	}
	s.produced++
	return newID(client, s.produced)
}

func (l *ledger) acked(p place, i id, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks++
	l.sent[p][i.client()].acked[i.number()] = offset
}

func (l *ledger) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
}

// drop forgets a topic whose deletion begins.
func (l *ledger) drop(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped[topic] = true
}

const maxFaults = 50

// fault notes something that is wrong, whoever found it.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < maxFaults {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) takeFaults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.faults
	l.faults = nil
	return f
}

// read takes down what a reader got. What was once read at an offset stays there: a kill loses nothing that the broker had in its log.
func (l *ledger) read(reader string, r *kgo.Record) {
	i, err := idOf(r)
	p := place{r.Topic, r.Partition}
	if err != nil {
		l.fault("%s, %s: %v", reader, p, err)
		return
	}
	l.mu.Lock()
	seen := l.seen[p]
	if seen == nil {
		seen = map[int64]id{}
		l.seen[p] = seen
	}
	before, known := seen[r.Offset]
	seen[r.Offset] = i
	l.mu.Unlock()
	if known && before != i {
		l.fault("%s, %s: offset %d holds record %s, and held %s before", reader, p, r.Offset, i, before)
	}
}
