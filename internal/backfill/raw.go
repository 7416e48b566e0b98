package backfill

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/usage"
)

// rawVersion is the first flexible Fetch and the last that names topics, so that the raw reader needs no Metadata.
const rawVersion = 12

// rawRetry is the pause after an error that passes.
const rawRetry = 200 * time.Millisecond

const rawFrameLimit = 256 << 20

// ReadRaw reads one partition to its end with one Fetch in flight and drops the records undecoded: what it measures is the way to the reader, not
// the reader. Options.Until names exactly one partition; Digest does not apply. Bytes are of whole record batches.
func ReadRaw(ctx context.Context, o Options) (Result, error) {
	if len(o.Until) != 1 || len(o.Brokers) == 0 {
		return Result{}, fmt.Errorf("a raw read takes one partition and a broker, not %d and %d", len(o.Until), len(o.Brokers))
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", o.Brokers[0])
	if err != nil {
		return Result{}, fmt.Errorf("connecting for a raw read: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	r := rawReader{conn: conn, o: o, limit: o.PartitionMaxBytes}
	if r.limit == 0 {
		r.limit = 1 << 20
	}
	before, err := usage.Read()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	for p, until := range o.Until {
		if err := r.partition(p, until); err != nil {
			return Result{}, fmt.Errorf("raw read of %s-%d at offset %d: %w", o.Topic, p, r.next, err)
		}
	}
	used, err := usage.Since(before)
	if err != nil {
		return Result{}, err
	}
	return Result{Records: r.records, Bytes: r.bytes, Seconds: time.Since(start).Seconds(), Client: used}, nil
}

type rawReader struct {
	conn           net.Conn
	o              Options
	limit          int32
	correlation    int32
	next           int64
	records, bytes int64
	req, resp      []byte
}

func (r *rawReader) partition(p int32, until int64) error {
	for idle := 0; r.next < until; {
		before := r.next
		if err := r.fetch(p); kerr.IsRetriable(err) { // a broker that has just started
			time.Sleep(rawRetry)
		} else if err != nil {
			return err
		}
		if r.next > before {
			idle = 0
		} else if idle++; idle > 60 {
			return ErrStalled
		}
		if r.o.Progress != nil {
			r.o.Progress(r.bytes)
		}
	}
	return nil
}

func (r *rawReader) fetch(p int32) error {
	resp, err := r.roundTrip(r.request(p))
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
			if err := r.count(p.RecordBatches); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFrame reads an answer into memory that is kept from answer to answer.
func (r *rawReader) readFrame() error {
	var size [4]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 5 || n > rawFrameLimit {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(r.resp) < n {
		r.resp = make([]byte, n)
	}
	r.resp = r.resp[:n]
	_, err := io.ReadFull(r.conn, r.resp)
	return err
}

func (r *rawReader) count(records []byte) error {
	n, err := batch.Each(records, func(h batch.Header, raw []byte) error {
		if h.LastOffset() >= r.next {
			r.next = h.LastOffset() + 1
		}
		r.records += int64(h.NumRecords)
		return nil
	})
	r.bytes += int64(n)
	return err
}
