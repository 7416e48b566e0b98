package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Records are what the brokers themselves give of a topic from the log start to the end: per partition, in order. With committed it is what a read_committed
// consumer sees, up to the last stable offset; else everything, control records (markers of transactions) included.
func (c *Cluster) Records(t testing.TB, topic string, committed bool) [][]*kgo.Record {
	t.Helper()
	return c.Read(t, c.Seeds(internal), topic, committed)
}

// Read reads is Records through any address that leads to the cluster, by the ends that the cluster itself says. Records that come twice or out of order fail the test.
func (c *Cluster) Read(t testing.TB, seeds []string, topic string, committed bool, opts ...kgo.Opt) [][]*kgo.Record {
	t.Helper()
	starts, ends := c.Offsets(t, topic, Earliest), c.ends(t, topic, committed)
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	positions := make(map[int32]kgo.Offset)
	for p, at := range starts {
		positions[int32(p)] = kgo.NewOffset().At(at)
	}
	// The last offset may be a marker's, so the client must show them.
	all := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(200 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: positions})}
	k, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	out, next := make([][]*kgo.Record, len(starts)), slices.Clone(starts)
	ctx, cancel := context.WithTimeout(t.Context(), awaitFor)
	defer cancel()
	for {
		done := true
		for p := range next {
			done = done && next[p] >= ends[p]
		}
		if done {
			return out
		}
		poll, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		f := k.PollFetches(poll)
		stop()
		if ctx.Err() != nil {
			t.Fatalf("reading %s: at %v of %v", topic, next, ends)
		}
		f.EachError(func(_ string, p int32, err error) {
			if poll.Err() == nil {
				t.Logf("reading %s/%d at %d: %v", topic, p, next[p], err)
			}
		})
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset < next[r.Partition] {
				t.Errorf("%s/%d: offset %d comes after %d", topic, r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition] = r.Offset + 1
			if committed && r.Attrs.IsControl() {
				return
			}
			out[r.Partition] = append(out[r.Partition], r)
		})
	}
}

// ends are the log ends, or the last stable offsets.
func (c *Cluster) ends(t testing.TB, topic string, committed bool) []int64 {
	t.Helper()
	if !committed {
		return c.Offsets(t, topic, Latest)
	}
	var listed kadm.ListedOffsets
	err := Retried(t.Context(), func(ctx context.Context) (err error) {
		listed, err = c.adm.ListCommittedOffsets(ctx, topic)
		return cmp.Or(err, listed.Error())
	})
	if err != nil {
		t.Fatalf("last stable offsets of %s: %v", topic, err)
	}
	all := make([]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		all[p] = o.Offset
	}
	return all
}

// Line tells everything that a consumer sees of a record but the topic's name, so that readings can be compared as text.
func Line(r *kgo.Record) string {
	var b bytes.Buffer
	b.WriteString(strconv.Itoa(int(r.Partition)) + " " + strconv.FormatInt(r.Offset, 10) + " " + strconv.FormatInt(r.Timestamp.UnixMilli(), 10))
	bytesOrNull := func(v []byte) {
		if v == nil {
			b.WriteString(" null")
			return
		}
		fmt.Fprintf(&b, " x%x", v)
	}
	bytesOrNull(r.Key)
	bytesOrNull(r.Value)
	for _, h := range r.Headers {
		b.WriteString(" " + h.Key)
		bytesOrNull(h.Value)
	}
	return b.String()
}

// Difference of two readings of a topic, "" if there is none.
func Difference(want, got [][]*kgo.Record) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d partitions instead of %d", len(got), len(want))
	}
	for p := range want {
		for i := range min(len(want[p]), len(got[p])) {
			if w, g := Line(want[p][i]), Line(got[p][i]); w != g {
				return fmt.Sprintf("partition %d: record %d is\n\t%.300s instead of\n\t%.300s", p, i, g, w)
			}
		}
		if len(want[p]) != len(got[p]) {
			return fmt.Sprintf("partition %d: %d records instead of %d", p, len(got[p]), len(want[p]))
		}
	}
	return ""
}
