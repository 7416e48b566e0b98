package doctor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fake answers requests by their key, and fails the test at any other.
type fake struct {
	t       *testing.T
	answers map[int16]func(kmsg.Request) (kmsg.Response, error)
}

func (f fake) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	answer, ok := f.answers[r.Key()]
	if !ok {
		f.t.Errorf("asked for %s", kmsg.NameForKey(r.Key()))
		return nil, kerr.UnsupportedVersion
	}
	return answer(r)
}

func asking(t *testing.T, key int16, answer func(kmsg.Request) (kmsg.Response, error)) *doctor {
	return &doctor{o: Options{Patience: defaultPatience, Seeds: []string{"kafka:9092"}}, ask: fake{t, map[int16]func(kmsg.Request) (kmsg.Response, error){key: answer}}}
}

// TestCluster: brokers that cannot be reached are named, each with its address.
func TestCluster(t *testing.T) {
	metadata := func(r kmsg.Request) (kmsg.Response, error) {
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		for _, id := range []int32{1, 7} {
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: "kafka", Port: 9000 + id})
		}
		return resp, nil
	}
	versions := func(listOffsets int16) func(r kmsg.Request) (kmsg.Response, error) {
		return func(r kmsg.Request) (kmsg.Response, error) {
			resp := r.ResponseKind().(*kmsg.ApiVersionsResponse)
			for key, v := range map[int16]int16{1: 17, 2: listOffsets, 23: 4} {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: v})
			}
			return resp, nil
		}
	}
	refused := func(kmsg.Request) (kmsg.Response, error) { return nil, syscall.ECONNREFUSED }
	for name, c := range map[string]struct {
		first, second func(kmsg.Request) (kmsg.Response, error)
		want          []finding
	}{
		"both":           {versions(11), versions(11), []finding{{OK, "2 brokers"}, {OK, "ListOffsets up to 11"}}},
		"one is older":   {versions(11), versions(9), []finding{{OK, "2 brokers"}, {OK, "ListOffsets up to 9"}}},
		"one is too old": {versions(11), versions(7), []finding{{OK, "2 brokers"}, {Problem, "ListOffsets up to version 7"}}},
		"one is away":    {versions(11), refused, []finding{{OK, "2 brokers"}, {Problem, "7 at kafka:9007 (nobody listens there)"}, {OK, "ListOffsets up to 11"}}},
		"both are away":  {refused, refused, []finding{{OK, "2 brokers"}, {Problem, "1 at kafka:9001 (nobody listens there), 7 at kafka:9007"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := asking(t, 3, metadata)
			d.broker = func(id int32) requestor {
				answer := c.first
				if id == 7 {
					answer = c.second
				}
				return fake{t, map[int16]func(kmsg.Request) (kmsg.Response, error){18: answer}}
			}
			if !d.cluster(t.Context()) {
				t.Error("the cluster is taken for unreachable")
			}
			compare(t, d.rep.Findings, c.want...)
		})
	}
	d := asking(t, 3, refused)
	if d.cluster(t.Context()) {
		t.Error("the cluster is taken for reachable")
	}
	compare(t, d.rep.Findings, finding{Problem, "kafka:9092 cannot be used: nobody listens there"})
}

// TestConfigsAnswer: brokers that hide their configuration.
func TestConfigsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		code int16
		err  error
		want []finding
	}{
		"refused": {kerr.ClusterAuthorizationFailed.Code, nil, []finding{{Warning, "--operation DescribeConfigs --cluster"}}},
		"away":    {0, syscall.ECONNREFUSED, []finding{{Warning, "of broker 1 cannot be seen"}, {Warning, "of broker 7 cannot be seen"}}},
		"on":      {0, nil, []finding{{OK, "on at all 2 brokers"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := asking(t, 32, func(r kmsg.Request) (kmsg.Response, error) {
				resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
				on := "true"
				resp.Resources = append(resp.Resources, kmsg.DescribeConfigsResponseResource{ErrorCode: c.code, Configs: []kmsg.DescribeConfigsResponseResourceConfig{
					{Name: keySystem, Value: &on}, {Name: "ssl.keystore.password"}}})
				return resp, c.err
			})
			d.brokers = []kmsg.MetadataResponseBroker{{NodeID: 1}, {NodeID: 7}}
			d.tiering(t.Context())
			compare(t, d.rep.Findings, c.want...)
		})
	}
}

// TestGroup: what a group has committed, in the answers of old and new brokers, and when it may not be seen.
func TestGroup(t *testing.T) {
	partitions := []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 0, Offset: 5}, {Partition: 1, Offset: -1}}
	for name, c := range map[string]struct {
		resp kmsg.OffsetFetchResponse
		want finding
		n    int
	}{
		"new": {kmsg.OffsetFetchResponse{Groups: []kmsg.OffsetFetchResponseGroup{{Topics: []kmsg.OffsetFetchResponseGroupTopic{{Topic: "t", Partitions: partitions}}}}}, finding{OK, "offsets of t"}, 1},
		"old": {kmsg.OffsetFetchResponse{Topics: []kmsg.OffsetFetchResponseTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseTopicPartition{{Partition: 3, Offset: 9}}}}},
			finding{OK, "offsets of t"}, 1},
		"none":        {kmsg.OffsetFetchResponse{}, finding{Warning, "no offsets"}, 0},
		"refused":     {kmsg.OffsetFetchResponse{Groups: []kmsg.OffsetFetchResponseGroup{{ErrorCode: kerr.GroupAuthorizationFailed.Code}}}, finding{Warning, "--operation Describe --group g"}, 0},
		"not loaded":  {kmsg.OffsetFetchResponse{ErrorCode: kerr.CoordinatorLoadInProgress.Code}, finding{Warning, "cannot be seen"}, 0},
		"old refused": {kmsg.OffsetFetchResponse{ErrorCode: kerr.GroupAuthorizationFailed.Code}, finding{Warning, "--operation Describe --group g"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a coordinator is waited for
				d := asking(t, 9, func(kmsg.Request) (kmsg.Response, error) { return &c.resp, nil })
				d.o.Group = "g"
				offsets := d.group(t.Context())
				compare(t, d.rep.Findings, c.want)
				if len(offsets["t"]) != c.n {
					t.Errorf("%v", offsets)
				}
			})
		})
	}
}

// TestGroupOfYoungCluster: the first question for a group makes the cluster's topic of offsets, and is answered when that is there.
func TestGroupOfYoungCluster(t *testing.T) {
	for name, notYet := range map[string]func() (kmsg.Response, error){
		"told by the client": func() (kmsg.Response, error) { return nil, kerr.CoordinatorNotAvailable },
		"told by the coordinator": func() (kmsg.Response, error) {
			return &kmsg.OffsetFetchResponse{ErrorCode: kerr.CoordinatorLoadInProgress.Code}, nil
		},
		"told of the group": func() (kmsg.Response, error) {
			return &kmsg.OffsetFetchResponse{Groups: []kmsg.OffsetFetchResponseGroup{{ErrorCode: kerr.NotCoordinator.Code}}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				questions := 0
				d := asking(t, 9, func(kmsg.Request) (kmsg.Response, error) {
					if questions++; questions < 4 {
						return notYet()
					}
					return &kmsg.OffsetFetchResponse{}, nil
				})
				d.o.Group = "g"
				d.group(t.Context())
				compare(t, d.rep.Findings, finding{Warning, "no offsets"})
			})
		})
	}
}

// TestGroupWithoutOffsets: a group that names no topics does not end the examination.
func TestGroupWithoutOffsets(t *testing.T) {
	name := "history"
	d := asking(t, 9, func(kmsg.Request) (kmsg.Response, error) { return &kmsg.OffsetFetchResponse{}, nil })
	answers := d.ask.(fake).answers
	answers[3] = func(r kmsg.Request) (kmsg.Response, error) {
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{Topic: &name, Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: 1}}})
		return resp, nil
	}
	answers[32] = func(r kmsg.Request) (kmsg.Response, error) {
		resp, on := r.ResponseKind().(*kmsg.DescribeConfigsResponse), "true"
		resp.Resources = append(resp.Resources, kmsg.DescribeConfigsResponseResource{ResourceName: name, Configs: []kmsg.DescribeConfigsResponseResourceConfig{{Name: keyTopicTiered, Value: &on}}})
		return resp, nil
	}
	d.o.Group = "g"
	d.chosenTopics(t.Context())
	compare(t, d.rep.Findings[:3], finding{Warning, "group g has committed no offsets"}, finding{OK, "some that are tiered"}, finding{OK, "1 of 1 topics are tiered: history"})
	if len(d.topics) != 1 || d.topics[0].name != name || d.topics[0].committed != nil {
		t.Errorf("%+v", d.topics)
	}
}

// TestDescribe: topics that cannot be looked at.
func TestDescribe(t *testing.T) {
	for name, c := range map[string]struct {
		code   int16
		leader int32
		err    error
		want   []finding
		found  bool
	}{
		"refused":   {code: kerr.TopicAuthorizationFailed.Code, want: []finding{{Problem, "--operation Describe --topic t"}}},
		"not there": {code: kerr.UnknownTopicOrPartition.Code, want: []finding{{Problem, "does not exist"}}},
		"broken":    {code: kerr.UnknownServerError.Code, want: []finding{{Problem, "cannot be looked at"}}},
		"away":      {err: syscall.ECONNREFUSED, want: []finding{{Problem, "cannot be looked at"}}},
		"leaderless": {leader: -1, found: true, want: []finding{{Problem, "without a leader: [0]"},
			{Warning, "configuration cannot be seen"}}},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "t"
			answers := map[int16]func(kmsg.Request) (kmsg.Response, error){
				3: func(r kmsg.Request) (kmsg.Response, error) {
					resp := r.ResponseKind().(*kmsg.MetadataResponse)
					resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{ErrorCode: c.code, Topic: &topic, Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: c.leader}}})
					return resp, c.err
				},
				32: func(kmsg.Request) (kmsg.Response, error) { return nil, fmt.Errorf("no") },
			}
			d := &doctor{o: Options{Patience: defaultPatience}, ask: fake{t, answers}}
			if got := d.describe(t.Context(), "t"); (got != nil) != c.found {
				t.Errorf("%+v", got)
			}
			compare(t, d.rep.Findings, c.want...)
		})
	}
}

// TestOffsets: a partition without a leader is not asked for, and one that gives an error does not take the others' answers away.
func TestOffsets(t *testing.T) {
	tp := &topic{name: "t", leaders: map[int32]int32{0: 1, 1: -1, 2: 7}}
	questions := 0
	answer := func(bad int64) func(kmsg.Request) (kmsg.Response, error) {
		return func(r kmsg.Request) (kmsg.Response, error) {
			questions++
			resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
			rt := kmsg.NewListOffsetsResponseTopic()
			for _, p := range r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset = p.Partition, 100+int64(p.Partition)
				if p.Partition == 2 && p.Timestamp == bad {
					rp.ErrorCode = kerr.UnknownServerError.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
			return resp, nil
		}
	}
	got, err := asking(t, 2, answer(earliestLocal)).offsets(t.Context(), tp)
	want := map[int64]map[int32]int64{earliest: {0: 100, 2: 102}, earliestLocal: {0: 100}, latestTiered: {0: 100, 2: 102}, latest: {0: 100, 2: 102}}
	if !reflect.DeepEqual(got, want) || !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := asking(t, 2, answer(0)).offsets(t.Context(), tp); len(got) != 4 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	questions = 0
	refused := func(kmsg.Request) (kmsg.Response, error) { questions++; return nil, syscall.ECONNREFUSED }
	if got, err := asking(t, 2, refused).offsets(t.Context(), tp); len(got) != 0 || !errors.Is(err, syscall.ECONNREFUSED) || questions != 1 {
		t.Errorf("%v, %v after %d questions", got, err, questions)
	}
}
