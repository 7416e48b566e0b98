package clienttest

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupCommand = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

// grouped makes a tiered topic of history that all clients know, and reads it once.
func grouped(t *testing.T, w *world, name string, partitions int32) ([]topic, reading) {
	t.Helper()
	topics := []topic{{name, partitions}}
	w.create(t, topics, tiered("internal.segment.bytes", segmentBytes))
	kgoProduce(t, w, []job{{topic: topics[0], codec: "lz4", records: generateText(99, partitions, perPartition)}})
	w.sink(t, topics, segmentBytes-200)
	var all []record
	kgoRead(t, w.client(t, fromStart(topics)...), int(partitions)*(perPartition+1), func(k *kgo.Record) { all = append(all, fromKgo(k)) })
	return topics, newReading(all)
}

// committed asks Apache Kafka's tool for a group's offsets: the sums of what is committed, of log ends, and of the lag.
func committed(t *testing.T, w *world, group string) (current, end, lag int) {
	t.Helper()
	out := lab.jvm.Get(t).Tool(t, groupCommand, nil, "--bootstrap-server", w.addr, "--describe", "--group", group, "--offsets")
	lines := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != group {
			continue
		}
		lines++
		if f[3] == "-" { // nothing was committed for this partition
			n, err := strconv.Atoi(f[4])
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			end, lag = end+n, lag+n
			continue
		}
		for i, to := range []*int{&current, &end, &lag} {
			n, err := strconv.Atoi(f[3+i])
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			*to += n
		}
	}
	if lines == 0 {
		t.Fatalf("nothing of group %s: %s", group, out)
	}
	return current, end, lag
}

// A group goes on where it stopped, whichever client takes it up, from the Java client to librdkafka and back: each record once.
func TestGroupGoesFromClientToClient(t *testing.T) {
	w := newWorld(t, "")
	topics, want := grouped(t, w, "shared", 2)
	total := want.count(topics)
	var all []record
	for _, step := range []struct {
		name string
		n    int
		read func(*testing.T, string, int) []record
	}{
		{"console", 30, func(t *testing.T, group string, n int) []record {
			return runConsole(t, w, "shared", n, "--group", group)
		}},
		{"kcat", 25, func(t *testing.T, group string, n int) []record {
			out := kcat(t, w, nil, "-G", group, "-c", strconv.Itoa(n), "-f", kcatFormat, "-X", "auto.offset.reset=earliest", "shared")
			return parseKcat(t, out)
		}},
		{"java", 20, func(t *testing.T, group string, n int) []record {
			path := filepath.Join(t.TempDir(), "read")
			lab.jvm.Get(t).Do(t, "group", w.addr, group, strconv.Itoa(n), path, "shared")
			return readLines(t, path)
		}},
		{"confluent", 15, func(t *testing.T, group string, n int) []record {
			path := filepath.Join(t.TempDir(), "read")
			python(t, "confluent", "group", w.addr, group, strconv.Itoa(n), path, "shared")
			return readLines(t, path)
		}},
		{"kgo-direct", total - 90, func(t *testing.T, group string, n int) (got []record) {
			d := w.dialer(t)
			c := w.client(t, append(fromStart(topics), kgo.ConsumerGroup(group), kgo.Dialer(d.DialContext), kgo.DisableAutoCommit())...)
			kgoRead(t, c, n, func(k *kgo.Record) { got = append(got, fromKgo(k)) })
			if err := c.CommitUncommittedOffsets(t.Context()); err != nil {
				t.Error(err)
			}
			c.LeaveGroup()
			if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
				t.Errorf("%+v", s)
			}
			return got
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := step.read(t, "relay", step.n)
			if len(got) != step.n {
				t.Errorf("%d records instead of %d", len(got), step.n)
			}
			all = append(all, got...)
			current, end, lag := committed(t, w, "relay")
			if current != len(all) || end != total || lag != total-len(all) {
				t.Errorf("after %d of %d records the group is at %d of %d, lag %d", len(all), total, current, end, lag)
			}
		})
	}
	equal(t, topics, want, newReading(all), nil)
}

// Members of one group on librdkafka and kgo share a topic at the same time, and nothing is left out.
func TestGroupOfDifferentClients(t *testing.T) {
	w := newWorld(t, "")
	topics, want := grouped(t, w, "mixed", 4)
	c := w.client(t, append(fromStart(topics), kgo.ConsumerGroup("mixed"), kgo.Balancers(kgo.RangeBalancer()), kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.FetchMaxPartitionBytes(1000), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())...)
	var all []record
	poll := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		for _, k := range c.PollRecords(ctx, 10).Records() {
			all = append(all, fromKgo(k))
		}
		if err := c.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Log("commit: ", err)
		}
		c.AllowRebalance()
	}
	for len(all) < 20 {
		poll()
	}
	other := startKcat(t, w, "-G", "mixed", "-u", "-f", kcatFormat, "-X", "auto.offset.reset=earliest", "-X", "partition.assignment.strategy=range",
		"-X", "heartbeat.interval.ms=100", "-X", "auto.commit.interval.ms=100", "mixed")
	adm := kadm.NewClient(w.admin)
	eventually(t, "two members", func() bool {
		g, err := adm.DescribeGroups(t.Context(), "mixed")
		return err == nil && g["mixed"].State == "Stable" && len(g["mixed"].Members) == 2
	})
	eventually(t, "no lag", func() bool {
		poll()
		l, err := adm.Lag(t.Context(), "mixed")
		return err == nil && l["mixed"].Lag.Total() == 0
	})
	theirs := parseKcat(t, other.stop(t))
	if len(theirs) == 0 {
		t.Error("kcat got nothing")
	}
	got := make(map[string]bool)
	for _, r := range append(all, theirs...) {
		got[r.line()] = true
	}
	// A record that came again after a rebalance is the same record.
	for _, tp := range topics {
		for p := range tp.partitions {
			for _, r := range want[tp.name][p] {
				if !got[r.line()] {
					t.Errorf("missing or another: %s", short(r.line()))
				}
				delete(got, r.line())
			}
		}
	}
	for line := range got {
		t.Errorf("nobody wrote %s", short(line))
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(60 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("no sign of %s", what)
		}
	}
}

// Apache Kafka's tool lists, describes, resets and deletes groups.
func TestGroupCommand(t *testing.T) {
	w := newWorld(t, "")
	topics, want := grouped(t, w, "administered", 2)
	j := lab.jvm.Get(t)
	first := runConsole(t, w, "administered", 40, "--group", "g")
	run := func(args ...string) string {
		return string(j.Tool(t, groupCommand, nil, append([]string{"--bootstrap-server", w.addr}, args...)...))
	}
	if out := run("--list"); !slices.Contains(strings.Fields(out), "g") {
		t.Errorf("list: %s", out)
	}
	if out := run("--list", "--state"); !strings.Contains(out, "Empty") {
		t.Errorf("states: %s", out)
	}
	if out := run("--describe", "--group", "g", "--state"); !strings.Contains(out, "Empty") || !strings.Contains(out, w.addr) {
		t.Errorf("state: %s", out)
	}
	if out := run("--describe", "--group", "g", "--members"); strings.Contains(out, "CONSUMER-ID") && strings.Contains(out, "console-consumer") {
		t.Errorf("members: %s", out)
	}
	if current, _, _ := committed(t, w, "g"); current != 40 {
		t.Errorf("committed %d", current)
	}
	run("--group", "g", "--topic", "administered", "--reset-offsets", "--to-earliest", "--execute")
	if current, _, lag := committed(t, w, "g"); current != 0 || lag != want.count(topics) {
		t.Errorf("after a reset: %d, lag %d", current, lag)
	}
	again := runConsole(t, w, "administered", 40, "--group", "g")
	less := func(a, b record) int { return strings.Compare(a.line(), b.line()) }
	slices.SortFunc(first, less)
	slices.SortFunc(again, less)
	if d := difference(first, again, func(r record) record { return r }); d != "" {
		t.Logf("the second time other partitions came first: %s", d)
	}
	// By timestamp: the record in the store that has it.
	at := time.UnixMilli(want["administered"][0][50].timestamp).UTC().Format("2006-01-02T15:04:05.000")
	run("--group", "g", "--topic", "administered", "--reset-offsets", "--to-datetime", at+"Z", "--execute")
	if current, _, _ := committed(t, w, "g"); current != 2*50 {
		t.Errorf("after a reset to a time: %d", current)
	}
	if out := run("--delete-offsets", "--group", "g", "--topic", "administered:0"); strings.Contains(strings.ToLower(out), "error") {
		t.Errorf("delete-offsets: %s", out)
	}
	if current, _, _ := committed(t, w, "g"); current != 50 {
		t.Errorf("after an offset was deleted: %d", current)
	}
	if out := run("--delete", "--group", "g"); !strings.Contains(out, "successful") {
		t.Errorf("delete: %s", out)
	}
	if out := run("--list"); slices.Contains(strings.Fields(out), "g") {
		t.Errorf("list after delete: %s", out)
	}
}
