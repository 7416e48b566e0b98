package clustertest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is loaded has left the broker, which reads it back from the store.
func TestLoad(t *testing.T) {
	c := Start(t, Options{})
	for _, topic := range append(c.LoadAll(t, "load", 2, 80), "plain") {
		if topic == "plain" {
			c.Load(t, topic, 1, "none", 80)
		}
		before := c.Meters(t, topic)
		for p, records := range c.Records(t, topic, false) {
			if len(records) != 81 || string(records[80].Key) != RollKey {
				t.Errorf("%s/%d: %d records", topic, p, len(records))
			}
		}
		if m := c.Meters(t, topic).Since(before); m.RemoteBytes < 10_000 || m.BytesOut < m.RemoteBytes || m.RemoteFetches == 0 {
			t.Errorf("%s: %+v", topic, m)
		}
	}
	m := c.Meters(t, "")
	t.Logf("%+v", m)
	c.LoadTransactions(t, "txn", 2)
	all, committed := c.Records(t, "txn", false), c.Records(t, "txn", true)
	t.Log(len(all[0]), len(committed[0]))
	c.Kill(t, 1)
	c.Restart(t, 1)
	if d := Difference(all, c.Records(t, "txn", false)); d != "" {
		t.Error(d)
	}
}

func TestFork(t *testing.T) {
	c := Start(t, Options{IDs: []int32{400, 7, 100}})
	f := c.Fork(t, "forked", 2)
	t.Log(f.At, f.Old, f.New)
	got := c.Records(t, "forked", false)
	for p := range got {
		t.Log(len(got[p]), len(f.Lost[p]))
	}
	t.Log(c.NextLeader(t, "forked", 1))
	if d := Difference(got, c.Records(t, "forked", false)); d != "" {
		t.Error(d)
	}
}
