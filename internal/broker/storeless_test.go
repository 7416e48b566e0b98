package broker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestHistoryWithoutAStore: a broker that was not given the store its topics have their history in says so, in its log and to whoever asks for history. To answer that there
// is nothing would keep readers waiting for ever; to answer with what is local would make them skip the rest.
func TestHistoryWithoutAStore(t *testing.T) {
	dir := t.TempDir()
	rsm, _ := directoryStore(t)
	b := startBroker(t, dir, withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "t", 1)
	b.produceTiered(t, "t", 1, 200)
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	logs := new(logLines)
	b = startBroker(t, dir, tieredKeys(), shareKeys(), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(logs, nil)) })
	if all := strings.Join(logs.lines(), "\n"); !strings.Contains(all, "was not given one") {
		t.Errorf("nothing is said of it:\n%s", all)
	}
	local := b.partition("t", 0).log.Offsets().LocalLogStart
	c := b.raw(t)
	for offset, want := range map[int64]int16{0: errStorage, local - 1: errStorage, local: errNone} {
		p := c.ask(t, fetchOf("t", offset)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != want || (want == errNone) != (len(p.RecordBatches) > 0) {
			t.Errorf("at %d: error %d, %d bytes, want %d", offset, p.ErrorCode, len(p.RecordBatches), want)
		}
	}
	for ts, want := range map[int64]int16{offsetEarliest: errNone, offsetLatest: errNone, offsetMaxTimestamp: errStorage, 0: errStorage, 1_700_000_000_010: errStorage} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.SetVersion(7)
		rt := kmsg.NewListOffsetsRequestTopic()
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rt.Topic, rp.Timestamp = "t", ts
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		if p := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode != want {
			t.Errorf("time %d: error %d, offset %d, want error %d", ts, p.ErrorCode, p.Offset, want)
		}
	}
	b.configureGroup(t, "g", earliest)
	m := b.member(t, "g", "m", "t").join(t)
	if got, err := m.fetch(time.Second, nil); err == nil || !strings.Contains(err.Error(), code(errStorage)) {
		t.Errorf("a share group: %v, %v", got, err)
	}
}
