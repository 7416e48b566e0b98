package clienttest

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
)

// soon lets members of the new group protocols be missed within seconds.
var soon = []string{
	"group.consumer.min.heartbeat.interval.ms=100", "group.consumer.heartbeat.interval.ms=300", "group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=8000",
	"group.share.min.heartbeat.interval.ms=100", "group.share.heartbeat.interval.ms=300", "group.share.min.session.timeout.ms=1000", "group.share.session.timeout.ms=8000",
	"group.consumer.assignment.interval.ms=0", "group.share.assignment.interval.ms=0", "group.share.min.record.lock.duration.ms=1000", "group.share.record.lock.duration.ms=3000",
	"group.min.session.timeout.ms=1000", "share.coordinator.state.topic.num.partitions=4",
}

// fullGroups asks for the long version of the suites of groups.
func fullGroups() bool { return os.Getenv("REWIND_GROUPS_FULL") != "" }

// crew is the members of one group and where they live.
type crew struct {
	*roll
	w     *world
	how   clientdrivers.Membership
	hosts map[string]clientdrivers.Host
}

// hire starts hosts, of which several may be of one library: "java", "java/2".
func hire(t *testing.T, w *world, how clientdrivers.Membership, hosts ...string) *crew {
	t.Helper()
	c := &crew{roll: newRoll(), w: w, how: how, hosts: map[string]clientdrivers.Host{}}
	c.how.Addr = w.addr
	for _, h := range hosts {
		library, _, _ := strings.Cut(h, "/")
		c.hosts[h] = clientdrivers.StartHost(t, library, c.listen)
	}
	return c
}

func (c *crew) join(t *testing.T, host, name string, change ...func(*clientdrivers.Membership)) {
	t.Helper()
	m := c.how
	for _, f := range change {
		f(&m)
	}
	c.hosts[host].Join(t, name, m)
}

func (c *crew) leave(t *testing.T, host, name string) {
	t.Helper()
	c.hosts[host].Leave(t, name)
	c.until(t, name+" to leave", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.gone[name]
	})
}

// kill ends a host and its members.
func (c *crew) kill(t *testing.T, host string, members ...string) {
	t.Helper()
	c.hosts[host].Kill(t)
	c.killed(members...)
}

// described is a consumer group as ConsumerGroupDescribe tells it.
func described(t *testing.T, w *world, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(t.Context(), w.admin)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Groups[0]
}

// stable waits until nobody in the group has anything to give up or to take.
func stable(t *testing.T, w *world, group string, members int) (g kmsg.ConsumerGroupDescribeResponseGroup) {
	t.Helper()
	eventually(t, "a stable group", func() bool {
		g = described(t, w, group)
		return kerr.ErrorForCode(g.ErrorCode) == nil && g.State == "Stable" && len(g.Members) == members
	})
	return g
}

// groupOffsets are what is committed.
func groupOffsets(t *testing.T, w *world, group string) map[string]map[int32]int64 {
	t.Helper()
	all, err := kadm.NewClient(w.admin).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[int32]int64{}
	for topic, parts := range all {
		out[topic] = map[int32]int64{}
		for p, o := range parts {
			out[topic][p] = o.At
		}
	}
	return out
}

// Members of all libraries that know the protocol come, leave and are killed, the broker too, while records flow: every record comes once, but what a killed member had not committed.
func TestNextGroup(t *testing.T) {
	t.Parallel()
	w := newLastingWorld(t, soon...)
	topics := []topic{{"flow", 6}}
	w.create(t, topics, nil)
	c := hire(t, w, clientdrivers.Membership{Group: "next", Topics: names(topics), Protocol: "consumer", Assignor: "uniform"}, "java", "java/doomed", "confluent", "kgo")
	f := startFlow(t, w, 10*time.Millisecond, topics...)
	c.join(t, "java", "j1")
	c.join(t, "java", "j2")
	c.join(t, "java/doomed", "j3")
	c.await(t, topics, "j1", "j2", "j3")
	if g := stable(t, w, "next", 3); g.AssignorName != "uniform" {
		t.Errorf("the assignor is %s", g.AssignorName)
	}
	c.join(t, "confluent", "c1")
	c.join(t, "kgo", "k1")
	c.await(t, topics, "j1", "j2", "j3", "c1", "k1")
	c.leave(t, "java", "j2")
	c.await(t, topics, "j1", "j3", "c1", "k1")
	if bad, _ := c.repeated(); len(bad) > 0 {
		t.Errorf("before anybody was killed %d records came again: %.500v", len(bad), bad)
	}

	c.kill(t, "java/doomed", "j3")
	c.await(t, topics, "j1", "c1", "k1")
	// From here on nobody is to be missed, however long this machine takes to start a broker.
	w.configureGroup(t, "next", "consumer.session.timeout.ms", "45000")
	epoch := stable(t, w, "next", 3).Epoch

	if err := w.crash(); err != nil {
		t.Fatal(err)
	}
	seen := w.offsets(t, topics, latest)
	c.until(t, "records after the crash", func() bool {
		for p, end := range groupOffsets(t, w, "next")["flow"] {
			if end < seen["flow"][p]+20 {
				return false
			}
		}
		return true
	})
	if g := stable(t, w, "next", 3); g.Epoch != epoch {
		t.Errorf("the group is in epoch %d after a crash, and was in %d", g.Epoch, epoch)
	}
	c.await(t, topics, "j1", "c1", "k1")
	ends := f.finish(t, w, topics...)
	c.complete(t, ends)
	for host, name := range map[string]string{"java": "j1", "confluent": "c1", "kgo": "k1"} {
		c.leave(t, host, name)
	}
	if g := described(t, w, "next"); g.State != "Empty" {
		t.Errorf("the group is %s", g.State)
	}
	committedUpTo(t, w, "next", ends)
}

// Where all ask for range, each member has one range of each topic, whichever library it is of; an assignor that there is not is refused.
func TestNextGroupRange(t *testing.T) {
	t.Parallel()
	w := newLastingWorld(t, soon...)
	topics := []topic{{"left", 6}, {"right", 6}}
	w.create(t, topics, nil)
	c := hire(t, w, clientdrivers.Membership{Group: "ranges", Topics: names(topics), Protocol: "consumer", Assignor: "range"}, "java", "confluent", "kgo")
	f := startFlow(t, w, 20*time.Millisecond, topics...)
	c.join(t, "java", "j1")
	c.join(t, "confluent", "c1")
	c.join(t, "kgo", "k1")
	c.await(t, topics, "j1", "c1", "k1")
	if g := stable(t, w, "ranges", 3); g.AssignorName != "range" {
		t.Errorf("the assignor is %s", g.AssignorName)
	}
	for m, parts := range c.owners() {
		want := [][]string{}
		for i := range 3 {
			var one []string
			for _, topic := range []string{"left", "right"} {
				one = append(one, topic+"-"+string(rune('0'+2*i)), topic+"-"+string(rune('1'+2*i)))
			}
			want = append(want, one)
		}
		if !slices.ContainsFunc(want, func(w []string) bool { return slices.Equal(w, parts) }) {
			t.Errorf("%s has %v", m, parts)
		}
	}
	c.complete(t, f.finish(t, w, topics...))
}

// A regular expression is the broker's to resolve: a topic that comes later is read as well.
func TestNextGroupPattern(t *testing.T) {
	t.Parallel()
	w := newLastingWorld(t, soon...)
	topics := []topic{{"re-a", 2}, {"re-bb", 2}, {"xre-a", 2}}
	w.create(t, topics, nil)
	c := hire(t, w, clientdrivers.Membership{Group: "patterns", Pattern: "re-(a|b+|c)", Protocol: "consumer"}, "java", "confluent", "kgo")
	f := startFlow(t, w, 20*time.Millisecond, topics...)
	c.join(t, "java", "j1")
	c.await(t, topics[:2], "j1")
	c.join(t, "confluent", "c1")
	c.join(t, "kgo", "k1")
	c.await(t, topics[:2], "j1", "c1", "k1")
	late := topic{"re-c", 2}
	w.create(t, []topic{late}, nil)
	more := startFlow(t, w, 20*time.Millisecond, late)
	matched := append(slices.Clone(topics[:2]), late)
	c.await(t, matched, "j1", "c1", "k1")
	ends := f.finish(t, w, topics[:2]...)
	for topic, parts := range more.finish(t, w, late) {
		ends[topic] = parts
	}
	c.complete(t, ends)
	if g := described(t, w, "patterns"); len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
}
