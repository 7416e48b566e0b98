package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/metadatatopic"
)

// metadataPatience is how long the reading of the metadata topic may stand still, lookAgain how often it is looked at.
const (
	metadataPatience = 15 * time.Second
	lookAgain        = 20 * time.Millisecond
)

// metadata reads the metadata topic to its end. It gives nil if that cannot be.
func (d *doctor) metadata(ctx context.Context) (history, func()) {
	h, end, err := d.open(ctx)
	if err != nil {
		d.rep.Findings = append(d.rep.Findings, d.judgeMetadataError(err))
		return nil, nil
	}
	s := await(ctx, h)
	d.rep.Findings = append(d.rep.Findings, judgeMetadata(s)...)
	if c, err := d.configs(ctx, kmsg.ConfigResourceTypeTopic, metadatatopic.DefaultTopic); err == nil {
		d.rep.Findings = append(d.rep.Findings, judgeMetadataConfig(c)...)
	}
	if s.Unread > 0 {
		end()
		return nil, nil
	}
	return h, end
}

// await waits until everything is read, or nothing more comes.
func await(ctx context.Context, h history) metadatatopic.Status {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	applied, since := int64(-1), time.Now()
	for {
		s := h.Status()
		if n := s.Applied + s.Skipped; n != applied {
			applied, since = n, time.Now()
		}
		if s.Unread == 0 || time.Since(since) > metadataPatience || errors.Is(s.Err, metadatatopic.ErrNotAllowed) {
			return s
		}
		select {
		case <-ctx.Done():
			return s
		case <-tick.C:
		}
	}
}

const checkMetadata = "metadata topic"

func (d *doctor) judgeMetadataError(err error) Finding {
	var r Report
	switch {
	case errors.Is(err, metadatatopic.ErrNoTopic):
		r.add(Problem, checkMetadata, "switch tiered storage on at the brokers; history can be read directly only where its metadata is kept in __remote_log_metadata", "%v", err)
	case errors.Is(err, metadatatopic.ErrNotAllowed):
		r.add(Problem, checkMetadata, d.grant("--operation Read --operation Describe --topic "+metadatatopic.DefaultTopic), "%v", err)
	default:
		what, do := d.unreachable(err)
		r.add(Problem, checkMetadata, do, "it cannot be read: %s", what)
	}
	return r.Findings[0]
}

func judgeMetadata(s metadatatopic.Status) []Finding {
	var r Report
	switch {
	case s.Unread > 0 && s.Err != nil:
		r.add(Problem, checkMetadata, "look at the brokers that lead its partitions", "%d of %d partitions cannot be read: %v", s.Unread, s.Partitions, s.Err)
	case s.Unread > 0:
		r.add(Problem, checkMetadata, "look at the brokers that lead its partitions", "%d of %d partitions are not read to their end, and nothing more comes", s.Unread, s.Partitions)
	case s.Segments == 0:
		r.add(Warning, checkMetadata, "wait until a topic's first segment is closed (segment.bytes, segment.ms) and copied, or look at the brokers' log for RemoteLogManager", "it is readable and knows no segment: nothing has been tiered yet")
	default:
		r.add(OK, checkMetadata, "", "%d partitions read to their end: %d records, %d segments", s.Partitions, s.Applied, s.Segments)
	}
	if len(s.Torn) > 0 {
		r.add(Warning, checkMetadata, "nothing brings them back: give the topic retention.ms=-1, so that no more are lost", "records are missing in partitions %v (cut at the beginning, or segments finished that were never announced): that history is left to the brokers", s.Torn)
	}
	if s.Skipped > 0 {
		r.add(Warning, checkMetadata, "look for a newer Rewind", "%d records are not understood and were skipped", s.Skipped)
	}
	return r.Findings
}

func judgeMetadataConfig(c map[string]string) []Finding {
	var r Report
	if ms, bytes := c["retention.ms"], c["retention.bytes"]; ms != "-1" || bytes != "-1" && bytes != "" {
		r.add(Warning, checkMetadata, "kafka-configs.sh --alter --entity-type topics --entity-name "+metadatatopic.DefaultTopic+" --add-config retention.ms=-1,retention.bytes=-1",
			"it has a retention (retention.ms=%s, retention.bytes=%s): metadata of older segments is deleted, the brokers lose them too", ms, bytes)
	}
	return r.Findings
}
