package clienttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// kafkaWorld is an Apache Kafka in our broker's place.
func kafkaWorld(t *testing.T, sets ...string) *world {
	t.Helper()
	conf := map[string]string{}
	for _, kv := range sets {
		k, v, _ := strings.Cut(kv, "=")
		conf[k] = v
	}
	c := clustertest.Start(t, clustertest.Options{Config: conf})
	w := &world{addr: c.Bootstrap(clustertest.Plaintext)}
	w.admin = w.client(t)
	return w
}

// standing is what tools are told of a group, once it has settled with so many members of each protocol.
func standing(t *testing.T, w *world, group string, classic, consumer int) string {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("at last: %s", last)
		}
	}()
	eventually(t, fmt.Sprintf("%d classic and %d consumer members, settled", classic, consumer), func() bool {
		var settled bool
		last, settled = standingNow(t, w, group, classic, consumer)
		return settled
	})
	return last
}

func standingNow(t *testing.T, w *world, group string, classic, consumer int) (string, bool) {
	t.Helper()
	list, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), w.admin)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == group })
	if i < 0 {
		return "not there", false
	}
	g := list.Groups[i]
	told := fmt.Sprintf("%s %s %s", g.GroupType, g.ProtocolType, g.GroupState)
	if g.GroupType == "consumer" {
		d := described(t, w, group)
		counts := map[int8]int{}
		for _, m := range d.Members {
			counts[m.MemberType]++
		}
		told += fmt.Sprintf(", assignor %s, %d classic, %d consumer", d.AssignorName, counts[0], counts[1])
		return told, g.GroupState == "Stable" && counts[0] == classic && counts[1] == consumer
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(t.Context(), w.admin)
	if err != nil || kerr.ErrorForCode(resp.Groups[0].ErrorCode) != nil {
		t.Fatalf("%v, %+v", err, resp)
	}
	d := resp.Groups[0]
	return told + fmt.Sprintf(", protocol %s, %d members", d.Protocol, len(d.Members)), g.GroupState == "Stable" && len(d.Members) == classic && consumer == 0
}

// migrated is how a group stands at each step of migrate, on Apache Kafka 4.4.0 and here.
var migrated = []string{
	"three classic members: classic consumer Stable, protocol cooperative-sticky, 3 members",
	"one more, of the consumer protocol: consumer consumer Stable, assignor uniform, 3 classic, 1 consumer",
	"one of each library has come over: consumer consumer Stable, assignor uniform, 0 classic, 3 consumer",
	"one is back: consumer consumer Stable, assignor uniform, 1 classic, 3 consumer",
	"all are back: classic consumer Stable, protocol cooperative-sticky, 3 members",
}

// migrate lets the members of a group be replaced one after the other, first by such of the consumer protocol and then by classic ones again, while records flow. mixed is
// called when there are members of both.
func migrate(t *testing.T, w *world, mixed func()) (trace []string) {
	topics := []topic{{"moving", 6}}
	w.create(t, topics, nil)
	c := hire(t, w, clientdrivers.Membership{Group: "moved", Topics: names(topics), Protocol: "classic"}, "java", "confluent", "kgo")
	next := func(m *clientdrivers.Membership) { m.Protocol = "consumer" }
	note := func(what string, classic, consumer int, members ...string) {
		t.Helper()
		c.await(t, topics, members...)
		trace = append(trace, what+": "+standing(t, w, "moved", classic, consumer))
	}
	f := startFlow(t, w, 10*time.Millisecond, topics...)
	c.join(t, "java", "j1")
	c.await(t, topics, "j1") // so that it leads: see TestGroupMigrationRefused
	c.join(t, "kgo", "k1")
	c.join(t, "confluent", "c1")
	note("three classic members", 3, 0, "j1", "k1", "c1")

	c.join(t, "java", "j2", next)
	note("one more, of the consumer protocol", 3, 1, "j1", "k1", "c1", "j2")
	mixed()
	c.leave(t, "java", "j1")
	c.leave(t, "kgo", "k1")
	c.join(t, "kgo", "k2", next)
	c.leave(t, "confluent", "c1")
	c.join(t, "confluent", "c2", next)
	note("one of each library has come over", 0, 3, "j2", "k2", "c2")
	between := groupOffsets(t, w, "moved")["moving"]

	c.join(t, "kgo", "k3")
	note("one is back", 1, 3, "j2", "k2", "c2", "k3")
	mixed()
	c.leave(t, "kgo", "k2")
	c.join(t, "confluent", "c3")
	c.leave(t, "confluent", "c2")
	c.join(t, "java", "j3")
	c.leave(t, "java", "j2")
	note("all are back", 3, 0, "j3", "k3", "c3")
	for p, at := range groupOffsets(t, w, "moved")["moving"] {
		if at < between[p] || at == 0 {
			t.Errorf("partition %d is committed up to %d, and was up to %d", p, at, between[p])
		}
	}
	ends := f.finish(t, w, topics...)
	c.complete(t, ends)
	c.leave(t, "java", "j3")
	c.leave(t, "kgo", "k3")
	c.leave(t, "confluent", "c3")
	committedUpTo(t, w, "moved", ends)
	return trace
}

// A group whose leader is librdkafka's cooperative-sticky keeps its classic members only: that leader puts data of the assignor into the assignments, of which a broker knows nothing.
func TestGroupMigrationRefused(t *testing.T) {
	t.Parallel()
	worlds := map[string]func(*testing.T) *world{"ours": func(t *testing.T) *world { return newLastingWorld(t, soon...) }}
	if fullGroups() {
		worlds["kafka"] = func(t *testing.T) *world { return kafkaWorld(t, soon...) }
	}
	for name, start := range worlds {
		t.Run(name, func(t *testing.T) {
			w, topics := start(t), []topic{{"staying", 3}}
			w.create(t, topics, nil)
			c := hire(t, w, clientdrivers.Membership{Group: "stays", Topics: names(topics), Protocol: "classic"}, "java", "confluent")
			f := startFlow(t, w, 20*time.Millisecond, topics...)
			c.join(t, "confluent", "c1")
			c.await(t, topics, "c1")
			c.join(t, "java", "j0")
			c.await(t, topics, "c1", "j0")
			c.mu.Lock()
			c.refused["j1"] = ""
			c.mu.Unlock()
			c.join(t, "java", "j1", func(m *clientdrivers.Membership) { m.Protocol = "consumer" })
			if why := c.awaitRefusal(t, "j1"); !strings.Contains(why, "GroupIdNotFoundException: Cannot upgrade classic group stays to consumer group because an unsupported custom assignor is in use.") {
				t.Errorf("refused because: %s", why)
			}
			if got := standing(t, w, "stays", 2, 0); got != "classic consumer Stable, protocol cooperative-sticky, 2 members" {
				t.Errorf("the group is %s", got)
			}
			c.complete(t, f.finish(t, w, topics...))
		})
	}
}

// The broker is killed while there are members of both protocols. In the long version it is not, too, and nor is an Apache Kafka.
func TestGroupMigration(t *testing.T) {
	t.Parallel()
	check := func(name string, start func(*testing.T) (*world, func())) {
		t.Run(name, func(t *testing.T) {
			w, mixed := start(t)
			if got := migrate(t, w, mixed); !slices.Equal(got, migrated) {
				t.Errorf("the group stood like this:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(migrated, "\n"))
			}
		})
	}
	check("killed", func(t *testing.T) (*world, func()) {
		w := newLastingWorld(t, soon...)
		return w, func() {
			if err := w.crash(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if fullGroups() {
		check("ours", func(t *testing.T) (*world, func()) { return newLastingWorld(t, soon...), func() {} })
		check("kafka", func(t *testing.T) (*world, func()) { return kafkaWorld(t, soon...), func() {} })
	}
}
