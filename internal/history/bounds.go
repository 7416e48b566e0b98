package history

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/session"
)

// maxPartitions is how many partitions all connections together may have in their fetches. Each takes about a KiB here, whoever the client is: who it is, and whether the
// partition is there, is found out later.
const maxPartitions = 250_000

// ErrTooManyPartitions: all clients together fetch more partitions than are kept. Where it comes with clientconn.ErrForward the connection's fetches are all the broker's from
// now on; alone it ends the connection, which is the broker's when it comes again.
var ErrTooManyPartitions = errors.New("clients fetch too many partitions at once")

// admitFirst looks at the first fetch of a connection, of which nothing is kept yet.
func (c *Conn) admitFirst(req *kmsg.FetchRequest) error {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if c.fetches > 0 || c.h.partitions.Load()+int64(n) <= c.h.maxPartitions {
		return nil
	}
	c.h.tellFull()
	return fmt.Errorf("%w: %w", ErrTooManyPartitions, clientconn.ErrForward)
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
	c.h.tellFull()
	return fmt.Errorf("%w: %d, and %d are kept already", ErrTooManyPartitions, added, kept)
}

// tellFull says so once a minute.
func (h *History) tellFull() {
	now, last := time.Now().Unix(), h.toldFull.Load()
	if now-last >= 60 && h.toldFull.CompareAndSwap(last, now) {
		h.logger.Warn("all clients together fetch very many partitions; those that come now are left to the brokers", "limit", h.maxPartitions)
	}
}

func partKeyOf(p *session.Part) partKey { return partKey{p.Topic, p.TopicID, p.Partition} }
