package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestCheckpointsOfAnEarlierTopic: what the node's checkpoints say of a topic says nothing of a later one of the same name. Whenever the power goes, what the later
// one has confirmed is there, from its own log start on, and nothing of it is hidden.
func TestCheckpointsOfAnEarlierTopic(t *testing.T) {
	for _, restart := range []string{"no restart", "a clean stop", "a crash"} {
		for _, again := range []int{0, 10, 150} { // records of the later topic: none, fewer than were deleted of the earlier one, more
			t.Run(fmt.Sprintf("%s, %d records", restart, again), func(t *testing.T) {
				mem := crashableFS(t)
				b := startBroker(t, "/node", withFS(mem))
				b.createTopic(t, "t", 2)
				produceTo(t, b, 0, 100)
				for n := range int32(2) {
					deleteRecordsTo(t, b, n, 100)
				}
				if err := b.deleteTopic("t", remotestorage.UUID{}); err != nil {
					t.Fatal(err)
				}
				switch restart {
				case "a clean stop":
					if err := b.Close(context.Background()); err != nil {
						t.Fatal(err)
					}
					b = startBroker(t, "/node", withFS(mem))
				case "a crash":
					mem = mem.CrashClone(vfs.CrashCloneCfg{})
					b = startBroker(t, "/node", withFS(mem))
				}
				b.createTopic(t, "t", 2)
				produceTo(t, b, 0, again)

				after := startBroker(t, "/node", withFS(mem.CrashClone(vfs.CrashCloneCfg{})))
				for n := range int32(2) {
					o := after.partition("t", n).log.Offsets()
					want := int64(0)
					if n == 0 {
						want = int64(again)
					}
					if o.LogStart != 0 || o.LogEnd != want {
						t.Errorf("partition %d has %d to %d, want 0 to %d", n, o.LogStart, o.LogEnd, want)
					}
				}
			})
		}
	}
}

func produceTo(t *testing.T, b *testBroker, partition int32, n int) {
	t.Helper()
	cl := b.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: fmt.Appendf(nil, "%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// deleteRecordsTo fills a partition up to an offset, and deletes all of it.
func deleteRecordsTo(t *testing.T, b *testBroker, partition int32, offset int64) {
	t.Helper()
	produceTo(t, b, partition, int(offset-b.partition("t", partition).log.Offsets().LogEnd))
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.SetVersion(2)
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	if p := b.raw(t).ask(t, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; p.ErrorCode != errNone || p.LowWatermark != offset {
		t.Fatalf("error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
	}
}

// TestOffsetsOfAnEarlierTopic: offsets that a group committed for a topic which is gone are none of a later topic of that name, whatever kept them from being forgotten: a
// crash right after the deletion, or a commit that came at the same moment as it. Who got them would skip records that nobody has read.
func TestOffsetsOfAnEarlierTopic(t *testing.T) {
	mem := crashableFS(t)
	b := startBroker(t, "/node", withFS(mem))
	b.createTopic(t, "t", 2)
	b.createTopic(t, "other", 1)
	earlier, _ := b.topics.Get("t")
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 50, LeaderEpoch: -1})
	offsets.Add(kadm.Offset{Topic: "other", Partition: 0, At: 7, LeaderEpoch: -1})
	if err := b.admin(t).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	if err := b.deleteTopic("t", remotestorage.UUID{}); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, "/node", withFS(mem.CrashClone(vfs.CrashCloneCfg{})))
	b.createTopic(t, "t", 2)
	later, _ := b.topics.Get("t")
	late := group.OffsetOf{TopicPartition: group.TopicPartition{Topic: "t", Partition: 1}, Offset: group.Offset{Offset: 60, LeaderEpoch: -1, Committed: time.Now(), TopicID: earlier.ID}}
	await(t, "the coordinator", func() bool {
		_, err := b.groups.ask(t.Context(), "g", true, nil, func(k *call) group.Command {
			return &group.Commit{Token: k, Generation: -1, Offsets: []group.OffsetOf{late}}
		})
		return err == nil
	})
	cl := b.client(t)
	want := func(what string, version int16, all bool, offsets map[string]int64) {
		t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "g"
		if !all {
			other, _ := b.topics.Get("other")
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}, {Topic: "other", Partitions: []int32{0}}}
			g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: later.ID, Partitions: []int32{0, 1}}, {Topic: "other", TopicID: other.ID, Partitions: []int32{0}}}
		}
		req.Groups = []kmsg.OffsetFetchRequestGroup{g}
		s := groupSession{t: t, cl: cl}
		resp := s.send(req, version).(*kmsg.OffsetFetchResponse)
		got := map[string]int64{}
		note := func(topic string, id [16]byte, n int32, offset int64, code int16) {
			if version >= 10 {
				known, _ := b.topics.ByID(id)
				topic = known.Name
			}
			if got[fmt.Sprint(topic, n)] = offset; code != errNone {
				t.Errorf("%s: %s-%d: error %d", what, topic, n, code)
			}
		}
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				note(rt.Topic, [16]byte{}, p.Partition, p.Offset, p.ErrorCode)
			}
		}
		for _, rg := range resp.Groups {
			for _, rt := range rg.Topics {
				for _, p := range rt.Partitions {
					note(rt.Topic, rt.TopicID, p.Partition, p.Offset, p.ErrorCode)
				}
			}
		}
		if !maps.Equal(got, offsets) {
			t.Errorf("%s, version %d: %v, want %v", what, version, got, offsets)
		}
	}
	for _, version := range []int16{1, 5, 7, 8, 9, 10} {
		want("asked for", version, false, map[string]int64{"t0": -1, "t1": -1, "other0": 7})
		if version > 1 {
			want("all", version, true, map[string]int64{"other0": 7})
		}
	}
	again := kadm.Offsets{}
	again.Add(kadm.Offset{Topic: "t", Partition: 0, At: 3, LeaderEpoch: -1})
	if err := b.admin(t).CommitAllOffsets(t.Context(), "g", again); err != nil {
		t.Fatal(err)
	}
	want("all, of the later one too", 9, true, map[string]int64{"t0": 3, "other0": 7})
}

// TestIDsOfAnEarlierTopic: between the look for a topic by its id and the use of what has its name the topic may be deleted and another one made. Nothing that was meant for
// the one happens to the other.
func TestIDsOfAnEarlierTopic(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	b.createTopic(t, "later", 1)
	earlier, _ := b.topics.Get("t")
	// As if "t" were deleted and made anew after the registry was asked.
	own := b.logs.topic("t")
	b.logs.put("t", b.logs.topic("later"))
	defer b.logs.put("t", own)
	c := &conn{ctx: t.Context()}
	if _, code := b.resolvePartition(c, acl.Write, true, "", earlier.ID, 0); code != errUnknownTopicID {
		t.Errorf("by id: code %d, want %d", code, errUnknownTopicID)
	}
	if _, code := b.resolvePartition(c, acl.Write, false, "t", [16]byte{}, 0); code != errNone {
		t.Errorf("by name: code %d", code)
	}
	r := fetchRequest{conn: c, version: 17, replica: 1}
	if _, code := b.fetchable(&r, &session.Part{TopicID: earlier.ID}); code != errUnknownTopicID {
		t.Errorf("a follower's fetch: code %d, want %d", code, errUnknownTopicID)
	}
	if err := b.deleteTopic("later", earlier.ID); !errors.Is(err, topics.ErrUnknown) {
		t.Errorf("deleted by another one's id: %v", err)
	}
	if err := b.setTopicConfigs("later", earlier.ID, map[string]string{"retention.ms": "1"}); !errors.Is(err, topics.ErrUnknown) {
		t.Errorf("altered by another one's id: %v", err)
	}
	if _, there := b.topics.Get("later"); !there {
		t.Error("it is gone")
	}
}
