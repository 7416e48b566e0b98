package remotelog_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	goldenStarted  = "01000007746965726564bd8c070c673b4d78a1221033de80ff210000000000ac3c0869d928497eb2c21c77fc1c6da70000000000000000000000000000003ebc00000001000001a228e37097000001a228e372dc020000000000000000000000000000fd66db000001000101"
	goldenFinished = "01010007746965726564bd8c070c673b4d78a1221033de80ff210000000000ac3c0869d928497eb2c21c77fc1c6da70000000001000001a228e376a1000100"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldenID(t testing.TB) remotestorage.RemoteLogSegmentID {
	t.Helper()
	return remotestorage.RemoteLogSegmentID{
		TopicIDPartition: remotestorage.TopicIDPartition{TopicID: golden.TopicID(t, "vYwHDGc7TXihIhAz3oD_IQ"), Topic: "tiered"},
		ID:               golden.TopicID(t, "rDwIadkoSX6ywhx3_Bxtpw"),
	}
}

func TestGoldenBytes(t *testing.T) {
	segment := &remotelog.SegmentRecord{RemoteLogSegmentMetadata: remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: goldenID(t), StartOffset: 0, EndOffset: 16060, BrokerID: 1,
		MaxTimestampMs: 1795982323863, EventTimestampMs: 1795982324444, SegmentLeaderEpochs: []remotestorage.EpochStart{{}},
		SegmentSizeInBytes: 16606939, State: remotestorage.CopySegmentStarted, TxnIndexEmpty: true,
	}}
	update := &remotelog.UpdateRecord{RemoteLogSegmentID: goldenID(t), BrokerID: 1, EventTimestampMs: 1795982325409, State: remotestorage.CopySegmentFinished}
	for _, c := range []struct {
		hex  string
		want remotelog.Record
	}{{goldenStarted, segment}, {goldenFinished, update}} {
		b := unhex(t, c.hex)
		got, err := remotelog.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("parsed\n%+v\nwant\n%+v", got, c.want)
		}
		if again := remotelog.Append(nil, c.want); !bytes.Equal(again, b) {
			t.Errorf("written\n%x\nwant\n%x", again, b)
		}
	}
}

// TestGoldenSets reads every metadata record that a real broker wrote, compares it with what Apache Kafka's serde saw and writes it again.
func TestGoldenSets(t *testing.T) {
	for _, s := range append(golden.KafkaSets(t), golden.AivenSets(t)...) {
		t.Run(s.Name, func(t *testing.T) {
			for _, rec := range s.Metadata(t) {
				got, err := remotelog.Parse(rec.Value)
				if err != nil {
					t.Fatalf("record %d of partition %d: %v", rec.Offset, rec.Partition, err)
				}
				if again := remotelog.Append(nil, got); !bytes.Equal(again, rec.Value) {
					t.Fatalf("record %d of partition %d: written\n%x\nwant\n%x", rec.Offset, rec.Partition, again, rec.Value)
				}
				tp := partitionOf(t, got)
				if p := remotelog.MetadataPartition(tp, 5); p != rec.Partition {
					t.Errorf("%s: metadata partition %d, want %d", tp, p, rec.Partition)
				}
				var text string
				if json.Unmarshal(rec.DecodedJSON, &text) == nil {
					continue // Aiven's sets keep only the serde's toString
				}
				var want golden.Decoded
				if err := json.Unmarshal(rec.DecodedJSON, &want); err != nil {
					t.Fatal(err)
				}
				if d := describe(t, got); !reflect.DeepEqual(d, want) {
					t.Errorf("record %d of partition %d:\n%+v\nwant\n%+v", rec.Offset, rec.Partition, d, want)
				}
			}
		})
	}
}

// TestAivenReplay: what the index makes of the metadata of Aiven's plug-in agrees with what the broker answered, from the log start to the last tiered offset.
func TestAivenReplay(t *testing.T) {
	type offset struct{ Offset int64 }
	type answers struct {
		TopicID    string `json:"topic_id"`
		Topic      string
		Partitions []struct {
			Partition int32
			LogStart  offset `json:"log_start_offset"`
			Tiered    offset `json:"latest_tiered_offset"`
		}
	}
	for _, s := range golden.AivenSets(t) {
		var a answers
		if err := json.NewDecoder(s.Open(t, "offsets.json")).Decode(&a); err != nil {
			t.Fatal(err)
		}
		x := s.Index(t)
		for _, want := range a.Partitions {
			b, err := io.ReadAll(s.Open(t, fmt.Sprintf("checkpoints/leader-epoch-checkpoint.%d", want.Partition)))
			if err != nil {
				t.Fatal(err)
			}
			entries, err := epoch.ParseCheckpoint(b)
			if err != nil {
				t.Fatal(err)
			}
			l := epoch.New(entries)
			p := x.Partition(remotestorage.TopicIDPartition{TopicID: golden.TopicID(t, a.TopicID), Topic: a.Topic, Partition: want.Partition})
			if off, _, ok := p.HighestOffset(l); !ok || off != want.Tiered.Offset {
				t.Errorf("%s-%d: last tiered %d, want %d", s.Name, want.Partition, off, want.Tiered.Offset)
			}
			at := want.LogStart.Offset
			for at <= want.Tiered.Offset {
				m, last, ok := p.Find(l, at)
				if first, _, live := remotelog.Live(l, &m); !ok || !live || first > at {
					t.Fatalf("%s-%d: no segment holds %d", s.Name, want.Partition, at)
				}
				at = last + 1
			}
			if at != want.Tiered.Offset+1 {
				t.Errorf("%s-%d: segments end before %d, want %d", s.Name, want.Partition, at, want.Tiered.Offset+1)
			}
		}
	}
}

func partitionOf(t *testing.T, r remotelog.Record) remotestorage.TopicIDPartition {
	t.Helper()
	switch m := r.(type) {
	case *remotelog.SegmentRecord:
		return m.TopicIDPartition
	case *remotelog.UpdateRecord:
		return m.TopicIDPartition
	case *remotelog.PartitionDeleteRecord:
		return m.TopicIDPartition
	}
	t.Fatalf("a %T in the metadata topic", r)
	return remotestorage.TopicIDPartition{}
}

func describe(t *testing.T, r remotelog.Record) golden.Decoded {
	t.Helper()
	switch m := r.(type) {
	case *remotelog.SegmentRecord:
		d := golden.Decoded{
			Type: "RemoteLogSegmentMetadata", Topic: m.Topic, TopicID: m.TopicID.String(), Partition: m.Partition, SegmentID: m.ID.String(),
			StartOffset: m.StartOffset, EndOffset: m.EndOffset, BrokerID: m.BrokerID, MaxTimestampMs: m.MaxTimestampMs,
			EventTimestampMs: m.EventTimestampMs, SegmentSizeInBytes: m.SegmentSizeInBytes, CustomMetadata: m.CustomMetadata,
			State: m.State.String(), TxnIdxEmpty: m.TxnIndexEmpty,
		}
		for _, e := range m.SegmentLeaderEpochs {
			d.SegmentLeaderEpochs = append(d.SegmentLeaderEpochs, [2]int64{int64(e.LeaderEpoch), e.StartOffset})
		}
		return d
	case *remotelog.UpdateRecord:
		return golden.Decoded{
			Type: "RemoteLogSegmentMetadataUpdate", Topic: m.Topic, TopicID: m.TopicID.String(), Partition: m.Partition,
			SegmentID: m.ID.String(), BrokerID: m.BrokerID, EventTimestampMs: m.EventTimestampMs, CustomMetadata: m.CustomMetadata, State: m.State.String(),
		}
	}
	t.Fatalf("a %T in the metadata topic", r)
	return golden.Decoded{}
}

func TestRoundTrip(t *testing.T) {
	id := goldenID(t)
	meta := remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: id, StartOffset: 7, EndOffset: 1 << 40, BrokerID: 100, MaxTimestampMs: -1, EventTimestampMs: 5,
		SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 2, StartOffset: 7}, {LeaderEpoch: 9, StartOffset: 300}},
		SegmentSizeInBytes:  1<<31 - 1, CustomMetadata: []byte{}, State: remotestorage.DeleteSegmentStarted,
	}
	snapshot := meta
	snapshot.TopicIDPartition = remotestorage.TopicIDPartition{}
	snapshot.TxnIndexEmpty = true
	for _, r := range []remotelog.Record{
		&remotelog.SegmentRecord{RemoteLogSegmentMetadata: meta},
		&remotelog.UpdateRecord{RemoteLogSegmentID: id, BrokerID: 3, EventTimestampMs: 4, CustomMetadata: []byte("custom"), State: remotestorage.CopySegmentFinished},
		&remotelog.PartitionDeleteRecord{TopicIDPartition: id.TopicIDPartition, BrokerID: 1, EventTimestampMs: 2, State: remotelog.DeletePartitionStarted},
		&remotelog.SnapshotRecord{RemoteLogSegmentMetadata: snapshot},
	} {
		got, err := remotelog.Parse(remotelog.Append(nil, r))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%T: got %+v, %v, want %+v", r, got, err, r)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	started := unhex(t, goldenStarted)
	change := func(at int, b byte) []byte {
		c := bytes.Clone(started)
		c[at] = b
		return c
	}
	hugeEpochs := append([]byte(nil), started[:len("\x01\x00\x00\x07tiered")+16+4+1+16+1+8+8+4+8+8]...)
	for _, c := range []struct {
		name  string
		value []byte
		want  error
	}{
		{"nothing", nil, remotelog.ErrMalformed},
		{"other frame", change(0, 2), remotelog.ErrUnknown},
		{"other key", change(1, 4), remotelog.ErrUnknown},
		{"other version", change(2, 1), remotelog.ErrUnknown},
		{"null topic", change(3, 0), remotelog.ErrMalformed},
		{"left over", append(bytes.Clone(started), 0), remotelog.ErrMalformed},
		{"four billion epochs", append(hugeEpochs, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0), remotelog.ErrMalformed},
		{"null epochs", append(bytes.Clone(hugeEpochs), 0), remotelog.ErrMalformed},
		{"long varint", []byte{1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, remotelog.ErrMalformed},
	} {
		if r, err := remotelog.Parse(c.value); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", c.name, r, err, c.want)
		}
	}
	for n := range started {
		if r, err := remotelog.Parse(started[:n]); err == nil {
			t.Errorf("cut to %d bytes: parsed %+v", n, r)
		}
	}
}

// TestUnknownTag: a tagged field that a newer writer adds is skipped, and the rest of the record counts.
func TestUnknownTag(t *testing.T) {
	b := unhex(t, goldenStarted)
	b = append(b[:len(b)-4], 2, 0, 1, 1, 9, 3, 'n', 'e', 'w') // two tags now: the known one, and number 9
	got, err := remotelog.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	m := got.(*remotelog.SegmentRecord)
	if m.UnknownTags != 1 || !m.TxnIndexEmpty || m.EndOffset != 16060 {
		t.Errorf("got %+v", m)
	}
	x := remotelog.NewIndex()
	if err := x.Apply(m); err != nil || x.Warnings().UnknownTags != 1 {
		t.Errorf("index: %v, %+v", err, x.Warnings())
	}
}

func FuzzParse(f *testing.F) {
	f.Add(unhex(f, goldenStarted))
	f.Add(unhex(f, goldenFinished))
	f.Add([]byte{1, 2, 0, 2, 'a', 0})
	for _, s := range golden.AivenSets(f) {
		for _, r := range s.Metadata(f)[:4] {
			f.Add([]byte(r.Value))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := remotelog.Parse(b)
		if err != nil {
			return
		}
		again, err := remotelog.Parse(remotelog.Append(nil, r))
		if err != nil {
			t.Fatalf("%+v was written so that it cannot be read: %v", r, err)
		}
		// What is not known is dropped, and the rest stays.
		clearUnknown(r)
		if !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v", r, again)
		}
		if err := remotelog.NewIndex().Apply(r); err != nil && !errors.Is(err, remotelog.ErrMalformed) && !errors.Is(err, remotelog.ErrNoPartition) {
			t.Fatal(err)
		}
	})
}

func clearUnknown(r remotelog.Record) {
	switch m := r.(type) {
	case *remotelog.SegmentRecord:
		m.UnknownTags = 0
	case *remotelog.UpdateRecord:
		m.UnknownTags = 0
	case *remotelog.PartitionDeleteRecord:
		m.UnknownTags = 0
	case *remotelog.SnapshotRecord:
		m.UnknownTags = 0
	}
}

// TestParserAgain: what a parser makes of a record does not depend on those before.
func TestParserAgain(t *testing.T) {
	var values [][]byte
	for n := range 300 {
		r := started(n, int64(n)*10, int64(n)*10+9, int64(n%7), int64(n)*10)
		r.Topic = fmt.Sprintf("topic-%d", n%5)
		if n%3 == 0 {
			r.SegmentLeaderEpochs = append(r.SegmentLeaderEpochs, remotestorage.EpochStart{LeaderEpoch: 100, StartOffset: int64(n)*10 + 5})
		}
		if n%4 == 0 {
			r.CustomMetadata, r.TxnIndexEmpty = []byte{1, 2, byte(n)}, true
		}
		values = append(values, remotelog.Append(nil, r), remotelog.Append(nil, update(n, remotestorage.CopySegmentFinished)))
	}
	var p remotelog.Parser
	for i, v := range values {
		got, err := p.Parse(v)
		want, wantErr := remotelog.Parse(v)
		if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("record %d: %+v, %v; want %+v, %v", i, got, err, want, wantErr)
		}
		if _, err := p.Parse(v[:len(v)-1]); err == nil {
			t.Fatal("a record cut short was parsed")
		}
	}
}
