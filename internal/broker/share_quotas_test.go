package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/quota"
)

// shareFetchOf asks for records of partition 0, in a session that is open.
func (m *shareMember) shareFetchOf(wait time.Duration) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.SetVersion(2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.session
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = int32(wait.Milliseconds()), 1, 1<<20, 100, 100
	if m.session == 0 {
		req.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: m.topicID, Partitions: []kmsg.ShareFetchRequestTopicPartition{{}}}}
	}
	m.session++
	return req
}

// TestThrottledShareFetches: what members of a share group read counts against consumer_byte_rate like what others fetch, they are told how long to wait, and nobody gets
// anything while its quota is used up; what a member acknowledges is taken all the same.
func TestThrottledShareFetches(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow(), shareKeys())
	b.createTopic(t, "t", 1)
	cl := b.client(t, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, 50_000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.configureGroup(t, "g", earliest)
	one, other := b.member(t, "g", "one", "t").join(t), b.member(t, "g", "other", "t").join(t)
	b.setQuota(t, quota.ConsumerByteRate, 10_000, "user", "ANONYMOUS")
	fetch := func(m *shareMember, change func(*kmsg.ShareFetchRequest)) (resp *kmsg.ShareFetchResponse, bytes int) {
		t.Helper()
		req := m.shareFetchOf(0)
		if change != nil {
			change(req)
		}
		r, err := m.ask(req)
		if err != nil {
			t.Fatal(err)
		}
		resp = r.(*kmsg.ShareFetchResponse)
		if resp.ErrorCode != errNone {
			t.Fatalf("error %d", resp.ErrorCode)
		}
		return resp, recordBytes(resp)
	}
	began := time.Now()
	first, n := fetch(one, nil)
	wait := time.Duration(first.ThrottleMillis) * time.Millisecond
	if n < 50_000 || n > 60_000 || wait < time.Second || wait > 10*time.Second { // one record, for which (50000 - 10000) / 10000 s are to be waited
		t.Fatalf("%d bytes, told to wait %s", n, wait)
	}
	empty, n := fetch(other, nil)
	if n != 0 || empty.ThrottleMillis == 0 {
		t.Errorf("on another connection: %d bytes, told to wait %d ms", n, empty.ThrottleMillis)
	}
	acknowledged, _ := fetch(one, func(r *kmsg.ShareFetchRequest) {
		ack := kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: 0, LastOffset: 0, AcknowledgeTypes: []int8{accept}}
		r.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: one.topicID, Partitions: []kmsg.ShareFetchRequestTopicPartition{{AcknowledgementBatches: []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{ack}}}}}
	})
	if took := time.Since(began); took < wait {
		t.Errorf("served again after %s, told to wait %s", took, wait)
	}
	if len(acknowledged.Topics) != 1 || acknowledged.Topics[0].Partitions[0].AcknowledgeErrorCode != errNone {
		t.Errorf("acknowledged: %+v", acknowledged.Topics)
	}
	sp := b.shares.known(shareKey{"g", one.topicID, 0})
	sp.mu.Lock()
	start := sp.machine.Start()
	sp.mu.Unlock()
	if start != 1 {
		t.Errorf("the group is at %d", start)
	}
	b.setQuota(t, quota.ConsumerByteRate, 0, "user", "ANONYMOUS")
	last := b.member(t, "g", "last", "t").join(t)
	if resp, n := fetch(last, nil); n == 0 || resp.ThrottleMillis != 0 {
		t.Errorf("without a quota: %d bytes, told to wait %d ms", n, resp.ThrottleMillis)
	}
}

// TestShareWaitsAreNotWork: the time that a ShareFetch waits for data is not the broker's work, and does not count against request_percentage.
func TestShareWaitsAreNotWork(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow(), shareKeys())
	b.createTopic(t, "t", 1)
	m := b.member(t, "g", "m", "t").join(t)
	b.setQuota(t, quota.RequestPercentage, 50, "user", "ANONYMOUS")
	for range 3 {
		r, err := m.ask(m.shareFetchOf(1500 * time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if resp := r.(*kmsg.ShareFetchResponse); resp.ErrorCode != errNone || resp.ThrottleMillis != 0 {
			t.Errorf("error %d, told to wait %d ms", resp.ErrorCode, resp.ThrottleMillis)
		}
	}
}
