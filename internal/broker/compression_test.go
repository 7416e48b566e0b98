package broker

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// TestPipelinedRecompression: requests of one connection, of every acks and codec, large and small ones. While a batch is compressed anew the next ones are read
// already; they are appended in their order, and answered in it.
func TestPipelinedRecompression(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "squeezed", 1, "compression.type", "zstd", "compression.zstd.level", "19", "max.message.bytes", "20000000")
	nc, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	defer func() { nc.Close(); <-sent }()
	nc.SetDeadline(time.Now().Add(2 * time.Minute))
	const n = 60
	acks := [...]int16{acksAll, acksLeader, acksNone}
	go func() {
		defer close(sent)
		for i := range n {
			value := bytes.Repeat(fmt.Appendf(nil, "%d ", i), 10)
			if i%10 == 0 {
				value = bytes.Repeat(value, 50_000) // takes its time
			}
			raw := squeezed(int8(i%4), 1, payloadOf(kept{key: fmt.Append(nil, i), value: value}), func(h *batch.Header) {
				h.MaxTimestamp = h.BaseTimestamp
				h.ProducerID, h.ProducerEpoch, h.BaseSequence = 77, 0, int32(i)
			})
			if _, err := nc.Write(wire.AppendRequest(nil, produceRequest(9, acks[i%3], "squeezed", raw), int32(i), nil)); err != nil {
				sent <- err
				return
			}
		}
	}()
	for i := range n {
		if acks[i%3] == acksNone {
			continue
		}
		frame, err := wire.ReadFrame(nc, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		id, body, err := wire.ResponseBody(frame, int16(kmsg.Produce), 9)
		if err != nil || id != int32(i) {
			t.Fatalf("correlation id %d instead of %d, %v", id, i, err)
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(9)
		if err := resp.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Fatalf("answer %d: %+v", i, p)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	await(t, "the last one, which is not answered", func() bool { return b.partition("squeezed", 0).log.Offsets().LogEnd == n })
}
