package clientdrivers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoHost has members in the test process, each with a goroutine that ends with the test at the latest.
type kgoHost struct {
	listen func(Event) // one at a time

	mu      sync.Mutex
	members map[string]*kgoMember
	conns   map[net.Conn]bool
	cut     bool // there is no network any more
	wg      sync.WaitGroup
}

type kgoMember struct {
	host   *kgoHost
	name   string
	how    Membership
	client *kgo.Client
	leave  chan struct{}

	mu     sync.Mutex
	failed map[string]bool // partitions of a share group whose acknowledgements may have come to nothing
}

func startKgoHost(t *testing.T, listen func(Event)) *kgoHost {
	t.Helper()
	h := &kgoHost{members: map[string]*kgoMember{}, conns: map[net.Conn]bool{}}
	var mu sync.Mutex
	h.listen = func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		listen(e)
	}
	t.Cleanup(func() { h.Kill(t) })
	return h
}

func (h *kgoHost) Join(t *testing.T, name string, how Membership) {
	t.Helper()
	m := &kgoMember{host: h, name: name, how: how.withDefaults(), leave: make(chan struct{})}
	var err error
	if m.client, err = kgo.NewClient(m.options()...); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.members[name] = m
	h.mu.Unlock()
	h.wg.Go(m.run)
}

func (h *kgoHost) Leave(t *testing.T, name string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[name]
	if m == nil {
		t.Fatalf("%s is no member", name)
	}
	delete(h.members, name)
	close(m.leave)
}

func (h *kgoHost) Kill(*testing.T) {
	h.mu.Lock()
	h.cut = true
	for c := range h.conns {
		_ = c.Close()
	}
	for name, m := range h.members {
		delete(h.members, name)
		close(m.leave)
	}
	h.mu.Unlock()
	h.wg.Wait()
}

var errCut = errors.New("no network")

func (h *kgoHost) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut {
		_ = c.Close()
		return nil, errCut
	}
	h.conns[c] = true
	return c, nil
}

func (m *kgoMember) options() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(m.how.Addr, ",")...), kgo.ClientID(m.name), kgo.ConsumeTopics(m.how.Topics...), kgo.Dialer(m.host.dial),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second)}
	if m.how.Share {
		return append(opts, kgo.ShareGroup(m.how.Group), kgo.ShareMaxRecords(int32(m.how.Batch)), kgo.ShareMaxRecordsStrict(), kgo.ShareAckCallback(m.acknowledged))
	}
	told := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			var all []string
			for t, ps := range parts {
				for _, p := range ps {
					all = append(all, fmt.Sprintf("%s-%d", t, p))
				}
			}
			m.say(what, strings.Join(all, ","))
		}
	}
	opts = append(opts, kgo.ConsumerGroup(m.how.Group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(told("assigned")), kgo.OnPartitionsRevoked(told("revoked")), kgo.OnPartitionsLost(told("lost")))
	if m.how.Instance != "" {
		opts = append(opts, kgo.InstanceID(m.how.Instance))
	}
	if m.how.Pattern != "" {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+m.how.Pattern+"$"))
	}
	next := m.how.Protocol == "consumer"
	switch {
	case m.how.Assignor == "range":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case next: // what this client calls sticky is the broker's uniform
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()))
	default:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if next {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	return opts
}

func (m *kgoMember) say(what string, fields ...string) { m.host.listen(Event{m.name, what, fields}) }

// leaveWait is for a member's last request: whoever has no network would wait for long.
const leaveWait = 10 * time.Second

func (m *kgoMember) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for !m.leaving() {
		m.poll(ctx)
	}
	m.host.mu.Lock()
	cut := m.host.cut
	m.host.mu.Unlock()
	if cut {
		m.client.CloseAllowingRebalance()
		return
	}
	last, done := context.WithTimeout(ctx, leaveWait)
	defer done()
	var err error
	if m.how.Share {
		err = m.client.FlushAcks(last)
	}
	m.client.AllowRebalance()
	if !m.how.Share {
		err = m.client.LeaveGroupContext(last)
	}
	m.client.CloseAllowingRebalance()
	if err != nil {
		m.say("failed", err.Error())
		return
	}
	m.say("left")
}

func shown(value []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(value[:min(80, len(value))]))
}

func (m *kgoMember) leaving() bool {
	select {
	case <-m.leave:
		return true
	default:
		return false
	}
}

// poll reads once, for a moment, and commits. Errors of fetches are tried again: the broker may be down.
func (m *kgoMember) poll(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	records := m.client.PollRecords(short, m.how.Batch).Records()
	defer m.client.AllowRebalance()
	for _, r := range records {
		m.say("read", r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10), shown(r.Value), strconv.Itoa(int(r.DeliveryCount())))
	}
	if len(records) == 0 {
		return
	}
	last, done := context.WithTimeout(ctx, sessionWait)
	defer done()
	if m.how.Share {
		m.acknowledge(last, records)
		return
	}
	if err := m.client.CommitUncommittedOffsets(last); err != nil {
		m.say("uncommitted", err.Error())
		return
	}
	m.say("committed")
}

// acknowledge is as programs/Members.java has it.
func (m *kgoMember) acknowledge(ctx context.Context, records []*kgo.Record) {
	fates := make([]string, len(records))
	for i, r := range records {
		switch value := string(r.Value); {
		case strings.HasPrefix(value, "reject"):
			fates[i] = "REJECT"
			r.Ack(kgo.AckReject)
		case strings.HasPrefix(value, "release") && r.DeliveryCount() == 1:
			fates[i] = "RELEASE"
			r.Ack(kgo.AckRelease)
		default:
			fates[i] = "ACCEPT"
			r.Ack(kgo.AckAccept)
		}
	}
	if err := m.client.FlushAcks(ctx); err != nil {
		m.say("failed", err.Error())
		return
	}
	m.mu.Lock()
	failed := m.failed
	m.failed = nil
	m.mu.Unlock()
	for i, r := range records {
		what := "acknowledged"
		if failed[fmt.Sprintf("%s-%d", r.Topic, r.Partition)] {
			what = "unsure"
		}
		m.say(what, r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10), fates[i], strconv.Itoa(int(r.DeliveryCount())))
	}
}

func (m *kgoMember) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range results {
		if r.Err != nil {
			if m.failed == nil {
				m.failed = map[string]bool{}
			}
			m.failed[fmt.Sprintf("%s-%d", r.Topic, r.Partition)] = true
		}
	}
}
