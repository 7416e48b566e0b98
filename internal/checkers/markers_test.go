package checkers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The states of a transaction that its coordinator's log tells of and that are looked at.
const (
	prepareCommit kmsg.TransactionState = iota + 2
	prepareAbort
	completeCommit
	completeAbort
)

// marker is what ends a transaction in one partition's log.
type marker struct {
	producerID int64
	epoch      int16
	partition  int32
	commit     bool
}

// decision is a marker that a coordinator's log says is to be written.
type decision struct {
	marker
	id   string // of the transaction
	done bool   // so says the log: all markers are written
}

// decisions that a partition of __transaction_state tells of for a topic.
func decisions(topic string, log []*kgo.Record) (all []decision, err error) {
	open := map[string][]int{} // the decisions of each id that are not done yet
	for _, r := range log {
		var key kmsg.TxnMetadataKey
		var v kmsg.TxnMetadataValue
		if err := key.ReadFrom(r.Key); err != nil {
			return nil, fmt.Errorf("%s/%d, offset %d: key: %w", r.Topic, r.Partition, r.Offset, err)
		}
		if r.Value == nil {
			continue
		}
		if err := v.ReadFrom(r.Value); err != nil {
			return nil, fmt.Errorf("%s/%d, offset %d: value: %w", r.Topic, r.Partition, r.Offset, err)
		}
		switch v.State {
		case prepareCommit, prepareAbort:
			open[key.TransactionalID] = nil
			for _, t := range v.Topics {
				for _, p := range t.Partitions {
					if t.Topic == topic {
						open[key.TransactionalID] = append(open[key.TransactionalID], len(all))
						all = append(all, decision{marker: marker{v.ProducerID, v.ProducerEpoch, p, v.State == prepareCommit}, id: key.TransactionalID})
					}
				}
			}
		case completeCommit, completeAbort:
			for _, i := range open[key.TransactionalID] {
				all[i].done = true
			}
			open[key.TransactionalID] = nil
		}
	}
	return all, nil
}

// markerOf a control record.
func markerOf(r *kgo.Record) (marker, error) {
	if len(r.Key) < 4 || binary.BigEndian.Uint16(r.Key[2:]) > 1 {
		return marker{}, fmt.Errorf("%s/%d, offset %d: key %x is no marker's", r.Topic, r.Partition, r.Offset, r.Key)
	}
	return marker{r.ProducerID, r.ProducerEpoch, r.Partition, binary.BigEndian.Uint16(r.Key[2:]) == 1}, nil
}

// leftOut gives the decisions that are told to be done although their marker is nowhere in the partition's log.
func leftOut(decided []decision, logs [][]*kgo.Record) (missing []decision, err error) {
	written, known := map[marker]int{}, map[marker]bool{}
	for _, log := range logs {
		for _, r := range log {
			if r.Attrs.IsControl() {
				m, err := markerOf(r)
				if err != nil {
					return nil, err
				}
				written[m]++
			}
		}
	}
	for _, d := range decided {
		known[d.marker] = true
		switch {
		case written[d.marker] > 0:
			written[d.marker]-- // twice is nothing bad: who was killed after it writes it once more
		case d.done:
			missing = append(missing, d)
		}
	}
	for m := range written {
		if !known[m] {
			return nil, fmt.Errorf("%+v is in the log, and no coordinator decided so", m)
		}
	}
	return missing, nil
}

// endedByOthers gives what became, in each partition, of the transactions whose own marker is among the missing: the next one of their producer there ended them too, and
// the value is whether it committed.
func endedByOthers(missing []decision, logs [][]*kgo.Record) (map[[2]int]map[int32]bool, error) {
	type part struct {
		tx    [2]int
		epoch int16
	}
	lost := map[marker]bool{}
	for _, d := range missing {
		d.commit = false // of either kind
		lost[d.marker] = true
	}
	others := map[[2]int]map[int32]bool{}
	for p, log := range logs {
		open := map[int64][]part{}
		for _, r := range log {
			if !r.Attrs.IsTransactional() {
				continue
			}
			if !r.Attrs.IsControl() {
				s, err := parse(r)
				if err != nil {
					return nil, fmt.Errorf("%s/%d, offset %d: %w", r.Topic, r.Partition, r.Offset, err)
				}
				if x := (part{[2]int{s.producer, s.tx}, r.ProducerEpoch}); !slices.Contains(open[r.ProducerID], x) {
					open[r.ProducerID] = append(open[r.ProducerID], x)
				}
				continue
			}
			m, err := markerOf(r)
			if err != nil {
				return nil, err
			}
			for _, x := range open[r.ProducerID] {
				// A marker has an epoch more than the records that it ends (KIP-890).
				if m.epoch == x.epoch+1 || !lost[marker{m.producerID, x.epoch + 1, int32(p), false}] {
					continue
				}
				if others[x.tx] == nil {
					others[x.tx] = map[int32]bool{}
				}
				others[x.tx][int32(p)] = m.commit
			}
			delete(open, r.ProducerID)
		}
	}
	return others, nil
}

// checkMarkers holds the coordinator's log against the markers.
//
// An Apache Kafka leaves markers out: when it starts again before the controller's session of its last life has run out, it loads its transactions, is then fenced, and
// for that moment no partition has a leader. A partition without one counts as deleted to TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, which sends the markers of
// a transaction that was decided: it logs so, drops the marker, and where it is quick enough writes down that the transaction is complete. The records stay open until the producer's next transaction in that partition, and share its
// fate: what a client was told is committed may be lost, what it was told is aborted may be there. So for an Apache Kafka, and only as often as it says in its own log that it
// did so, such transactions are expected to have come out as the next one did. Of a broker of ours no marker may be missing.
func checkMarkers(t *testing.T, v victim, n *notebook) {
	t.Helper()
	var decided []decision
	for _, log := range readLog(t, v, "__transaction_state") {
		more, err := decisions(txnTopic, log)
		if err != nil {
			t.Fatal(err)
		}
		decided = append(decided, more...)
	}
	logs := readLog(t, v, txnTopic)
	missing, err := leftOut(decided, logs)
	if err != nil {
		n.fault("%v", err)
	}
	admitted := map[string]int{}
	missing = slices.DeleteFunc(missing, func(d decision) bool {
		of := fmt.Sprint(d.id, d.partition)
		if admitted[of]++; admitted[of] <= v.dropped(d.id, d.partition) {
			return false
		}
		n.fault("%s is told to be complete, and its marker %+v is not there", d.id, d.marker)
		return true
	})
	if n.others, err = endedByOthers(missing, logs); err != nil {
		t.Fatal(err)
	}
	if len(decided) == 0 {
		t.Error("no transaction was decided")
	}
	t.Logf("%d markers were decided on, %d of them left out; %d transactions were ended by another's marker: %v", len(decided), len(missing), len(n.others),
		slices.SortedFunc(maps.Keys(n.others), func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }))
}

// TestMarkers: what is derived from logs in which markers are missing.
func TestMarkers(t *testing.T) {
	state := func(id string, state kmsg.TransactionState, epoch int16, partitions ...int32) *kgo.Record {
		key, v := kmsg.TxnMetadataKey{TransactionalID: id}, kmsg.NewTxnMetadataValue()
		v.ProducerID, v.ProducerEpoch, v.State = 7, epoch, state
		if partitions != nil {
			v.Topics = []kmsg.TxnMetadataValueTopic{{Topic: "other", Partitions: []int32{0}}, {Topic: txnTopic, Partitions: partitions}}
		}
		return &kgo.Record{Key: key.AppendTo(nil), Value: v.AppendTo(nil)}
	}
	log := []*kgo.Record{
		state("a", 0, 0), state("a", 1, 0, 0), state("a", prepareCommit, 1, 0, 1), state("a", completeCommit, 1),
		state("a", 1, 1, 0), state("a", prepareAbort, 2, 0, 1), state("a", completeAbort, 2),
		state("a", 1, 2, 0), state("a", prepareCommit, 3, 1), state("a", completeCommit, 3),
		state("a", 1, 3, 0), state("a", prepareAbort, 4, 0), // not done
		{Key: state("b", 0, 0).Key}, // forgotten
	}
	all, err := decisions(txnTopic, log)
	if err != nil || len(all) != 6 || !all[0].done || all[5].done {
		t.Fatalf("%+v, %v", all, err)
	}
	attrs := func(control bool) kgo.RecordAttrs {
		return kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: control})
	}
	data := func(epoch int16, tx int) *kgo.Record {
		return &kgo.Record{Value: fmt.Appendf(nil, "0 %d 0", tx), ProducerID: 7, ProducerEpoch: epoch, Attrs: attrs(false)}
	}
	mark := func(epoch int16, partition int32, commit byte) *kgo.Record {
		return &kgo.Record{Key: []byte{0, 0, 0, commit}, Partition: partition, ProducerID: 7, ProducerEpoch: epoch, Attrs: attrs(true)}
	}
	logs := [][]*kgo.Record{
		{data(0, 1), mark(1, 0, 1), mark(1, 0, 1), data(1, 2), mark(2, 0, 0)},
		{data(0, 1), data(1, 2), data(2, 3), mark(3, 1, 1)},
	}
	missing, err := leftOut(all, logs)
	if err != nil || len(missing) != 2 || missing[0].marker != (marker{7, 1, 1, true}) || missing[1].marker != (marker{7, 2, 1, false}) {
		t.Fatalf("%+v, %v", missing, err)
	}
	others, err := endedByOthers(missing, logs)
	if want := map[[2]int]map[int32]bool{{0, 1}: {1: true}, {0, 2}: {1: true}}; err != nil || !maps.EqualFunc(others, want, maps.Equal) {
		t.Errorf("%v, %v", others, err)
	}
	if others, err = endedByOthers(missing[:1], logs); err != nil || len(others) != 1 {
		t.Errorf("%v, %v", others, err)
	}
	if _, err := leftOut(all, append(logs, []*kgo.Record{mark(1, 0, 0)})); err == nil || !strings.Contains(err.Error(), "no coordinator") {
		t.Errorf("a marker that nobody decided on: %v", err)
	}
}
