package txn

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"
)

func TestUnknownRecords(t *testing.T) {
	for _, r := range []Record{{}, {Key: []byte{0}}, {Key: []byte{0, 1, 0, 1, 'a'}, Value: []byte{0, 1}}, {Key: key("a"), Value: []byte{}}, {Key: key("a"), Value: []byte{0, 2, 0}}} {
		if _, err := ParseRecord(r.Key, r.Value); !errors.Is(err, ErrUnknownRecord) {
			t.Errorf("%x: %v", r, err)
		}
	}
	if _, err := ParseRecord(key("a"), []byte{0, 1, 0}); err == nil || errors.Is(err, ErrUnknownRecord) {
		t.Errorf("a cut record: %v", err)
	}
}

// golden are records of an Apache Kafka 4.4.0, key and value.
var golden = []struct{ key, value string }{
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea600000000001a22a14eacfffffffffffffffff0100080000000000000002"},
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea6001020674786e2d7403000000000000000100000001a22a14ecb9000001a22a14ecb90100080000000000000002"},
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea6002020674786e2d7403000000000000000100000001a22a14eceb000001a22a14ecb90100080000000000000002"},
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea600401000001a22a14ed07000001a22a14ecb90100080000000000000002"},
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea6003020674786e2d74020000000000000001a22a14ed80000001a22a14ed780100080000000000000002"},
	{"000000176f6e652d31373936303032333432353339353538323836", "0001000000000000000200000000ea600501000001a22a14ed81000001a22a14ed780100080000000000000002"},
	{"0000001774776f2d31373936303032333432353339353538323836", "0001000000000000000300010000ea600301000001a22a14ee12000001a22a14ee12020008000000000000000302020002"},
	{"0000001774776f2d31373936303032333432353339353538323836", "0001000000000000000300010000ea600501000001a22a14ee17000001a22a14ee12020008000000000000000302020002"},
	{"0000001774776f2d31373936303032333432353339353538323836", "0001000000000000000300010000ea6001020674786e2d75020000000000000001a22a14ee38000001a22a14ee38020008000000000000000302020002"},
	{"0000001774776f2d31373936303032333432353339353538323836", "0001000000000000000300020000ea600401000001a22a14ee46000001a22a14ee38020008000000000000000302020002"},
	{"0000001774776f2d31373936303032333432353339353538323836", "0001000000000000000300030000ea6003020674786e2d75020000000000000001a22a14ee80000001a22a14ee6e020008000000000000000302020002"},
}

// TestGoldenRecords: Apache Kafka's records, replayed and written again, are the same bytes.
func TestGoldenRecords(t *testing.T) {
	states := map[State]bool{}
	for _, g := range golden {
		k, err1 := hex.DecodeString(g.key)
		v, err2 := hex.DecodeString(g.value)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		e, err := ParseRecord(k, v)
		if err != nil {
			t.Errorf("%s: %v", g.value, err)
			continue
		}
		tx := New(e.ID, config, time.Now())
		tx.Replay(e)
		states[tx.state] = true
		if r := tx.record(); hex.EncodeToString(r.Key) != g.key || hex.EncodeToString(r.Value) != g.value {
			t.Errorf("%s: written again\n%x\n%x", tx.state, r.Value, v)
		}
	}
	for _, s := range []State{Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort} {
		if !states[s] {
			t.Errorf("no record in state %s", s)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, g := range golden {
		k, _ := hex.DecodeString(g.key)
		v, _ := hex.DecodeString(g.value)
		f.Add(k, v)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		e, err := ParseRecord(k, v)
		if err != nil {
			return
		}
		tx := New(e.ID, config, base)
		tx.Replay(e)
		tx.Loaded()
		tx.Describe()
		tx.record()
	})
}
