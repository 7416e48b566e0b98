package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLookupsStayBelowTheBound: who reads what is committed is not told of a record of an open transaction, whichever way it is asked for: neither its offset nor its
// timestamp. Apache Kafka 4.4.0 answers the same; it looks for no smaller timestamp either.
func TestLookupsStayBelowTheBound(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	stamp := time.UnixMilli(time.Now().UnixMilli()).Add(10 * time.Minute) // after that of the marker
	if err := b.client(t).ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("plain"), Timestamp: stamp}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl := b.client(t, kgo.TransactionalID("x"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("open"), Timestamp: stamp.Add(time.Minute)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := b.raw(t)
	ask := func(ts int64, isolation int8) string {
		req := listRequest(11, "t", 0, ts)
		req.IsolationLevel = isolation
		p := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		return fmt.Sprintf("code %d offset %d after %d epoch %d", p.ErrorCode, p.Offset, p.Timestamp-stamp.UnixMilli(), p.LeaderEpoch)
	}
	nothing := fmt.Sprintf("code 0 offset -1 after %d epoch -1", -1-stamp.UnixMilli())
	second := "code 0 offset 1 after 60000 epoch 0"
	for _, ts := range []int64{offsetMaxTimestamp, stamp.UnixMilli() + 1} {
		if got := ask(ts, 0); got != second {
			t.Errorf("%d, uncommitted: %s, want %s", ts, got, second)
		}
		if got := ask(ts, isolationCommitted); got != nothing {
			t.Errorf("%d, committed: %s, want %s", ts, got, nothing)
		}
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for _, ts := range []int64{offsetMaxTimestamp, stamp.UnixMilli() + 1} {
		await(t, "the end of the transaction", func() bool { return ask(ts, isolationCommitted) == second })
	}
}
