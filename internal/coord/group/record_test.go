package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Records that Apache Kafka 4.4.0 wrote for its console consumer: the group in generation 1, its offset, the group when the consumer had left.
const (
	goldenGroupKey = "000200026731"
	goldenStable   = "00030008636f6e73756d657200000001000572616e67650035636f6e736f6c652d636f6e73756d65722d32313739336533662d663464652d343832662d623033352d633838633237316462346164" +
		"000001a2294f44650000000100" + "35636f6e736f6c652d636f6e73756d65722d32313739336533662d663464652d343832662d623033352d633838633237316462346164ffff0010636f6e736f6c652d636f6e73756d6572" +
		"000a2f3132372e302e302e31000493e00000afc800000018" + "00030000000100027431ffffffff00000000ffffffffffff" + "00000016" + "0003000000010002743100000001" + "00000000ffffffff"
	goldenOffsetKey = "00010002673100027431" + "00000000"
	goldenOffset    = "00040000000000000032ffffffff01000001a2294f451c010010" + "8556314e64084e908a90e0e4baadc25a"
	goldenEmpty     = "00030008636f6e73756d657200000002ffffffff000001a2294f452b00000000"
)

func TestGoldenGroup(t *testing.T) {
	e, err := ParseRecord(unhex(t, goldenGroupKey), unhex(t, goldenStable))
	if err != nil {
		t.Fatal(err)
	}
	g := New(e.Group, testConfig, t0)
	g.Replay(e, t0)
	g.Loaded(t0)
	d := g.classic().Describe()
	if e.Group != "g1" || d.State != Stable || d.Protocol != "range" || g.classic().generation != 1 || len(d.Members) != 1 || d.Members[0].ClientID != "console-consumer" {
		t.Errorf("group %s: %+v", e.Group, d)
	}
	if m := g.classic().members[g.classic().leader]; m.session != 45*time.Second || m.rebalance != 5*time.Minute || m.instance != "" {
		t.Errorf("member %+v", m)
	}
	if _, ok := g.classic().subscribed["t1"]; !ok || len(g.classic().subscribed) != 1 {
		t.Errorf("subscribed to %v", g.classic().subscribed)
	}
	if r := g.classic().record(); !bytes.Equal(r.Value, unhex(t, goldenStable)) || !bytes.Equal(r.Key, unhex(t, goldenGroupKey)) {
		t.Errorf("written as\n%x %x", r.Key, r.Value)
	}
	e, err = ParseRecord(unhex(t, goldenGroupKey), unhex(t, goldenEmpty))
	if err != nil {
		t.Fatal(err)
	}
	g.Replay(e, t0)
	if g.classic().state != Empty || g.classic().generation != 2 {
		t.Errorf("%s in generation %d", g.classic().state, g.classic().generation)
	}
	if r := g.classic().record(); !bytes.Equal(r.Value, unhex(t, goldenEmpty)) {
		t.Errorf("written as\n%x", r.Value)
	}
}

func TestGoldenOffset(t *testing.T) {
	e, err := ParseRecord(unhex(t, goldenOffsetKey), unhex(t, goldenOffset))
	if err != nil {
		t.Fatal(err)
	}
	if e.Offset.Offset != 50 || e.Offset.LeaderEpoch != -1 || *e.Partition != (TopicPartition{"t1", 0}) || e.Offset.TopicID[0] != 0x85 || e.Offset.Committed.UnixMilli() != 1795989390620 {
		t.Errorf("got %+v", e.Offset)
	}
	r := offsetRecord(e.Group, *e.Partition, e.Offset)
	if !bytes.Equal(r.Key, unhex(t, goldenOffsetKey)) || !bytes.Equal(r.Value, unhex(t, goldenOffset)) {
		t.Errorf("written as\n%x %x", r.Key, r.Value)
	}
}

func TestOlderOffsets(t *testing.T) {
	for name, value := range map[string]string{
		"v0": "0000" + "0000000000000007" + "00016d" + "000001a2294f451c",
		"v1": "0001" + "0000000000000007" + "00016d" + "000001a2294f451c" + "000001a2294f451d",
		"v2": "0002" + "0000000000000007" + "00016d" + "000001a2294f451c",
		"v3": "0003" + "0000000000000007" + "00000003" + "00016d" + "000001a2294f451c",
	} {
		t.Run(name, func(t *testing.T) {
			e, err := ParseRecord(unhex(t, goldenOffsetKey), unhex(t, value))
			if err != nil {
				t.Fatal(err)
			}
			wantEpoch := int32(-1)
			if name == "v3" {
				wantEpoch = 3
			}
			if e.Offset.Offset != 7 || e.Offset.Metadata != "m" || e.Offset.LeaderEpoch != wantEpoch || e.Offset.Expires.IsZero() == (name == "v1") {
				t.Errorf("got %+v", e.Offset)
			}
			if name == "v1" || name == "v3" { // those that are still written
				if r := offsetRecord(e.Group, *e.Partition, e.Offset); !bytes.Equal(r.Value, unhex(t, value)) {
					t.Errorf("written as %x", r.Value)
				}
			}
		})
	}
}

func TestUnknownRecords(t *testing.T) {
	for name, r := range map[string]Record{
		"no key":       {nil, nil},
		"newer key":    {unhex(t, "0003"+"00026731"), unhex(t, "0000")},
		"newer group":  {unhex(t, goldenGroupKey), unhex(t, "0005")},
		"newer offset": {unhex(t, goldenOffsetKey), unhex(t, "0005")},
		"no version":   {unhex(t, goldenOffsetKey), []byte{}},
		"negative":     {unhex(t, goldenGroupKey), unhex(t, "ffff")},
	} {
		if _, err := ParseRecord(r.Key, r.Value); !errors.Is(err, ErrUnknownRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, r := range map[string]Record{
		"cut key":   {unhex(t, "00010002"), nil},
		"cut value": {unhex(t, goldenGroupKey), unhex(t, goldenStable)[:40]},
	} {
		if _, err := ParseRecord(r.Key, r.Value); err == nil || errors.Is(err, ErrUnknownRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// replayed is the group that a log tells of.
func replayed(t testing.TB, log []Record) *Group {
	g := New("g", testConfig, t0)
	for _, r := range log {
		e, err := ParseRecord(r.Key, r.Value)
		if err != nil {
			t.Fatal(err)
		}
		g.Replay(e, t0)
	}
	g.Loaded(t0)
	return g
}

func TestReplay(t *testing.T) {
	r := stable(t)
	r.commit(Commit{MemberID: "a", Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, r.now), at("t", 1, 6, r.now)}})
	g := replayed(t, r.log)
	if g.classic().state != Stable || g.classic().generation != 2 || g.classic().leader != "a" || len(g.Offsets()) != 2 {
		t.Fatalf("replayed as %+v", g)
	}
	// Its members go on as if nothing had happened; who does not is given up.
	again := &rig{t: t, g: g, now: t0, parked: map[any]bool{}, got: map[any]Result{}, cfg: testConfig()}
	g.config = func() Config { return again.cfg }
	again.pass(5 * time.Second)
	if err := again.beat("a"); err != nil {
		t.Fatal(err)
	}
	if s := again.got[again.sync("a", nil)].(SyncResult); string(s.Assignment) != "A" {
		t.Errorf("got %+v", s)
	}
	again.pass(6 * time.Second)
	again.inState(PreparingRebalance)
	if got := again.joined(again.rejoin("a", nil)); got.Generation != 3 || len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(unhex(f, goldenGroupKey), unhex(f, goldenStable))
	f.Add(unhex(f, goldenGroupKey), unhex(f, goldenEmpty))
	f.Add(unhex(f, goldenOffsetKey), unhex(f, goldenOffset))
	f.Add(unhex(f, goldenOffsetKey), []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		e, err := ParseRecord(key, value)
		if err != nil {
			return
		}
		// What can be read can be replayed, and what a group writes of it reads the same.
		g := New(e.Group, testConfig, t0)
		g.Replay(e, t0)
		g.Loaded(t0)
		if e.State != nil {
			again, err := ParseRecord(groupKey(e.Group), g.classic().record().Value)
			if err != nil {
				t.Fatalf("%v: %x", err, g.classic().record().Value)
			}
			if again.State.Generation != e.State.Generation || len(again.State.Members) > len(e.State.Members) {
				t.Fatalf("%+v became %+v", e.State, again.State)
			}
		}
		if e.Offset != nil {
			r := offsetRecord(e.Group, *e.Partition, e.Offset)
			again, err := ParseRecord(r.Key, r.Value)
			if err != nil || again.Offset.Offset != e.Offset.Offset || again.Offset.Metadata != e.Offset.Metadata {
				t.Fatalf("%+v became %+v, %v", e.Offset, again.Offset, err)
			}
		}
	})
}
