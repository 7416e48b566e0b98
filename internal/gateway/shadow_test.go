package gateway

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// shadowed builds a batch of one record; producer 0 is none.
func shadowed(base, producer int64, control int8) []byte {
	h := batch.Header{BaseOffset: base, Magic: 2, ProducerID: producer, NumRecords: 1, BaseTimestamp: 1, MaxTimestamp: 1}
	key := []byte("key")
	if producer > 0 {
		h.Attributes |= batch.Transactional
	}
	if control >= 0 {
		h.Attributes |= batch.Control
		key = []byte{0, 0, 0, byte(control)}
	}
	value := []byte{0, 0, 0, 0, 0, 0}
	rec := append([]byte{0, 0, 0, byte(len(key) * 2)}, key...)
	rec = append(append(rec, byte(len(value)*2)), value...)
	rec = append(rec, 0)
	payload := append([]byte{byte(len(rec) * 2)}, rec...)
	return batch.AppendHeader(nil, &h, payload)
}

func answerOf(aborted []int64, batches ...[]byte) *kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = slices.Concat(batches...)
	for i := 0; i+1 < len(aborted); i += 2 {
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID, a.FirstOffset = aborted[i], aborted[i+1]
		p.AbortedTransactions = append(p.AbortedTransactions, a)
	}
	return &p
}

func TestDiffer(t *testing.T) {
	plain, data, abort, commit := shadowed(10, 0, -1), shadowed(11, 7, -1), shadowed(12, 7, batch.ControlAbort), shadowed(13, 7, batch.ControlCommit)
	other := bytes.Clone(plain)
	other[len(other)-2] ^= 1
	all := [][]byte{plain, data, abort, shadowed(13, 7, -1), shadowed(14, 7, batch.ControlCommit)}
	for _, c := range []struct {
		name         string
		ours, theirs *kmsg.FetchResponseTopicPartition
		committed    bool
		want         string
	}{
		{"same", answerOf(nil, all...), answerOf(nil, all...), true, ""},
		{"one is shorter", answerOf(nil, all[:2]...), answerOf(nil, all...), false, ""},
		{"one is cut", answerOf(nil, plain, data[:30]), answerOf(nil, all...), false, ""},
		{"nothing there", answerOf(nil, plain), answerOf(nil), false, "no batch"},
		{"other bytes", answerOf(nil, plain), answerOf(nil, other), false, "other bytes"},
		{"other offsets", answerOf(nil, plain, commit), answerOf(nil, plain, data), false, "13 to 13"},
		{"the same aborted, in another order and one more", answerOf([]int64{7, 11}, all...), answerOf([]int64{9, 14, 7, 11}, all...), true, ""},
		{"an aborted one is missing", answerOf(nil, all...), answerOf([]int64{7, 11}, all...), true, "hide different"},
		{"not of interest", answerOf(nil, all...), answerOf([]int64{7, 11}, all...), false, ""},
		{"aborted again after its marker", answerOf([]int64{7, 11, 7, 13}, all...), answerOf([]int64{7, 11}, all...), true, "hide different"},
	} {
		what, _ := differ(c.ours, c.theirs, c.committed)
		if c.want == "" && what != "" || !strings.Contains(what, c.want) {
			t.Errorf("%s: %q, want %q", c.name, what, c.want)
		}
	}
	hide := hidden(split(answerOf(nil, all...).RecordBatches), answerOf([]int64{7, 11}).AbortedTransactions)
	if !slices.Equal(hide, []bool{false, true, false, false, false}) {
		t.Errorf("hidden: %v", hide)
	}
}
