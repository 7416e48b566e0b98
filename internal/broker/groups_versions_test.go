package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every version of every group key is answered, for a group and topic that are there and for ones that are not.
func TestGroupKeysInAllVersions(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	topic, _ := b.topics.Get("t")
	for _, a := range b.groupHandlers() {
		for version := a.min; version <= a.max; version++ {
			for _, group := range []string{"g", "", "absent"} {
				req := groupRequest(a.key, version, group, topic.ID)
				if _, err := b.serveOnce(t, req); err != nil {
					t.Errorf("%s version %d, group %q: %v", kmsg.NameForKey(a.key), version, group, err)
				}
			}
		}
	}
}

// serveOnce passes a request through the table of keys and the encodings of its version, as a connection does.
func (b *testBroker) serveOnce(t *testing.T, req kmsg.Request) (kmsg.Response, error) {
	t.Helper()
	body := req.AppendTo(nil)
	if err := checkBody(req.Key(), req.GetVersion(), body); err != nil {
		return nil, err
	}
	got := kmsg.RequestForKey(req.Key())
	got.SetVersion(req.GetVersion())
	if err := got.ReadFrom(body); err != nil {
		return nil, err
	}
	r, err := b.apis[req.Key()].serve(t.Context(), &conn{peer: "127.0.0.1:1", clientID: "c"}, got)
	if err != nil {
		return nil, err
	}
	resp := r.(message).Response
	resp.SetVersion(req.GetVersion())
	again := req.ResponseKind()
	again.SetVersion(req.GetVersion())
	return again, again.ReadFrom(resp.AppendTo(nil))
}

func groupRequest(key, version int16, group string, topicID [16]byte) kmsg.Request {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		r.Group, r.Generation = group, -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: topicID, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1, LeaderEpoch: -1}}}}
	case *kmsg.OffsetFetchRequest:
		r.Group = group
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: topicID, Partitions: []int32{0}}}}}
	case *kmsg.JoinGroupRequest:
		r.Group, r.MemberID, r.SessionTimeoutMillis = group, "m", 10_000
	case *kmsg.SyncGroupRequest:
		r.Group, r.MemberID = group, "m"
	case *kmsg.HeartbeatRequest:
		r.Group, r.MemberID = group, "m"
	case *kmsg.LeaveGroupRequest:
		r.Group, r.MemberID, r.Members = group, "m", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
	case *kmsg.DescribeGroupsRequest:
		r.Groups, r.IncludeAuthorizedOperations = []string{group}, true
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{group}
	case *kmsg.OffsetDeleteRequest:
		r.Group, r.Topics = group, []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
	}
	return req
}

func TestOffsetFetchVersions(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 2)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "t", Partition: 1, At: 7, LeaderEpoch: 2, Metadata: "m"})
	if err := b.admin(t).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	topic, _ := b.topics.Get("t")
	for version := int16(1); version <= 10; version++ {
		for _, all := range []bool{false, true} {
			if all && version < 2 {
				continue
			}
			req := groupRequest(keyOffsetFetch, version, "g", topic.ID).(*kmsg.OffsetFetchRequest)
			req.Topics[0].Partitions, req.Groups[0].Topics[0].Partitions = []int32{0, 1}, []int32{0, 1}
			want := 2
			if all {
				req.Topics, req.Groups[0].Topics, want = nil, nil, 1
			}
			r, err := b.serveOnce(t, req)
			if err != nil {
				t.Fatal(err)
			}
			resp := r.(*kmsg.OffsetFetchResponse)
			found := map[int32]int64{}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					found[p.Partition] = p.Offset
				}
			}
			for _, g := range resp.Groups {
				for _, ot := range g.Topics {
					if version < 10 && ot.Topic != "t" || version == 10 && ot.TopicID != topic.ID {
						t.Errorf("version %d: topic %q %v", version, ot.Topic, ot.TopicID)
					}
					for _, p := range ot.Partitions {
						found[p.Partition] = p.Offset
					}
				}
			}
			if len(found) != want || found[1] != 7 || want == 2 && found[0] != -1 {
				t.Errorf("version %d, all %t: %v", version, all, found)
			}
		}
	}
}
