package history

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// maxPartitions is how many partitions all connections together may have in their fetches. Each takes about a KiB here, whoever the client is: who it is, and whether the
// partition is there, is found out later.
const maxPartitions = 250_000

const (
	// maxDecoding is how much memory fetches may take that are being decoded, all together, in wire's units of 64 bytes; a request may take 32 times its size for that moment.
	maxDecoding = 1 << 20
	// freeDecoding is not counted: it is more than any usual fetch takes.
	freeDecoding = 4096
)

const (
	// maxTopicName is the most that Apache Kafka allows, maxRack more than anybody has. What is longer would be kept with each partition.
	maxTopicName = 249
	maxRack      = 1024
)

// ErrTooManyPartitions: all clients together fetch more partitions than are kept. Where it comes with clientconn.ErrForward the connection's fetches are all the broker's from
// now on; alone it ends the connection, which is the broker's when it comes again.
var ErrTooManyPartitions = errors.New("clients fetch too many partitions at once")

// decode decodes a fetch once it is known that there is memory for it. done is to be called when nothing of it is needed any more.
func (c *Conn) decode(h wire.RequestHeader) (req *kmsg.FetchRequest, done func(), err error) {
	units, err := wire.FetchRequestUnits(h.Body, h.Version, int(c.h.maxDecoding))
	if err != nil {
		return nil, nil, err
	}
	n := int64(units)
	if n <= freeDecoding {
		n = 0
	}
	done = func() { c.h.decoding.Add(-n) }
	if c.h.decoding.Add(n) > c.h.maxDecoding {
		done()
		return nil, nil, c.tooMany(fmt.Sprintf("a fetch of %d bytes", len(h.Body)))
	}
	req = kmsg.NewPtrFetchRequest()
	req.Version = h.Version
	if err := req.ReadFrom(h.Body); err != nil {
		done()
		return nil, nil, fmt.Errorf("decoding a fetch of version %d: %w", h.Version, err)
	}
	return req, done, nil
}

// tooMany is the end of a connection's fetches here: it is the broker's from now on if nothing is kept of it yet.
func (c *Conn) tooMany(what string) error {
	c.h.tellFull()
	return c.notHere(fmt.Errorf("%w: %s", ErrTooManyPartitions, what))
}

// notHere is err, with which the connection ends, unless the broker can have its fetches.
func (c *Conn) notHere(err error) error {
	if c.fetches == 0 {
		c.leaveToBroker()
		return fmt.Errorf("%w: %w", err, clientconn.ErrForward)
	}
	return err
}

// admitFirst looks at what may be kept of a fetch, and at how many partitions the first one of a connection has, of which nothing is kept yet.
func (c *Conn) admitFirst(req *kmsg.FetchRequest) error {
	n, longest := 0, 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
		longest = max(longest, len(req.Topics[i].Topic))
	}
	if longest > maxTopicName || len(req.Rack) > maxRack {
		return c.notHere(fmt.Errorf("%w: a fetch with a topic name of %d bytes, or a rack of %d", wire.ErrMalformed, longest, len(req.Rack)))
	}
	if c.fetches > 0 || c.h.partitions.Load()+int64(n) <= c.h.maxPartitions {
		return nil
	}
	return c.tooMany(fmt.Sprint(n))
}

// admit looks at what a later fetch adds.
func (c *Conn) admit(asked []session.Part) error {
	kept := c.h.partitions.Load()
	if kept+int64(len(asked)) <= c.h.maxPartitions {
		return nil
	}
	added := int64(0)
	c.mu.Lock()
	for i := range asked {
		if c.parts[partKeyOf(&asked[i])] == nil {
			added++
		}
	}
	c.mu.Unlock()
	if added == 0 || kept+added <= c.h.maxPartitions {
		return nil
	}
	return c.tooMany(fmt.Sprintf("%d, and %d are kept already", added, kept))
}

// tellFull says so once a minute.
func (h *History) tellFull() {
	now, last := time.Now().Unix(), h.toldFull.Load()
	if now-last >= 60 && h.toldFull.CompareAndSwap(last, now) {
		h.logger.Warn("all clients together fetch very many partitions; those that come now are left to the brokers", "limit", h.maxPartitions)
	}
}

func partKeyOf(p *session.Part) partKey { return partKey{p.Topic, p.TopicID, p.Partition} }
