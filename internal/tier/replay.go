package tier

import (
	"fmt"
	"log/slog"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// replay reads a metadata partition from its start. What it does not know is skipped with one warning for all.
type replay struct {
	apply  func(remotelog.Record) error
	logger *slog.Logger
	warned bool
}

const replayReadBytes = 1 << 20

func (r *replay) partition(number int32, log RecordLog) error {
	o := log.Offsets()
	for next := o.LogStart; next < o.LogEnd; {
		data, err := log.Read(next, replayReadBytes, o.LogEnd, true)
		if err != nil {
			return fmt.Errorf("reading remote log metadata, partition %d, offset %d: %w", number, next, err)
		}
		after, err := r.data(number, next, data.Records)
		if data.Records.Release != nil {
			data.Records.Release()
		}
		if err != nil {
			return fmt.Errorf("reading remote log metadata, partition %d, offset %d: %w", number, next, err)
		}
		if after <= next {
			return nil // the log gives nothing more: its tail holds no batch
		}
		next = after
	}
	return nil
}

func (r *replay) data(number int32, from int64, records wire.Records) (next int64, err error) {
	raw := records.Bufs[0:]
	var joined []byte
	if len(raw) == 1 {
		joined = raw[0]
	} else {
		for _, b := range raw {
			joined = append(joined, b...)
		}
	}
	next = from
	_, err = batch.Each(joined, func(h batch.Header, b []byte) error {
		if err := batch.CheckCRC(&h, b); err != nil {
			return err
		}
		next = h.LastOffset() + 1
		if h.IsControl() {
			return nil
		}
		return eachValue(h, b, func(offset int64, value []byte) error {
			if offset < from {
				return nil
			}
			return r.value(number, offset, value)
		})
	})
	return next, err
}

func (r *replay) value(number int32, offset int64, value []byte) error {
	rec, err := remotelog.Parse(value)
	if err == nil {
		_, err = partitionOf(rec)
	}
	if err == nil {
		err = r.apply(rec)
	}
	if err != nil && !r.warned {
		// Once for all: a topic that a newer broker wrote to may hold thousands of them.
		r.warned = true
		r.logger.Warn("skipping a record of __remote_log_metadata, and all further ones of its kind silently", "partition", number, "offset", offset, "err", err)
	}
	return nil
}
