package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
)

// newStreamsGroup makes a streams group without members.
func (b *Broker) newStreamsGroup(id string) *streams.Group {
	return streams.New(id, groupConfig(b, id, streamsConfigOf), groupTopics{b.topics})
}

func streamsConfigOf(g config.Group, cfg *config.Broker) streams.Config {
	return streams.Config{Session: g.Streams.SessionTimeout, Heartbeat: g.Streams.Heartbeat, AssignmentInterval: g.Streams.AssignmentInterval,
		InitialDelay: g.StreamsInitialDelay, TaskOffsetInterval: g.StreamsTaskOffsetInterval, AcceptableLag: g.StreamsAcceptableLag,
		MaxSize: cfg.StreamsGroups.MaxSize, Standbys: g.StreamsStandby, RackTags: g.StreamsRackTags, Assignor: g.StreamsAssignor}
}

// creations are the internal topics of applications that could not be made: for a while it is not tried again, and members are told why.
type creations struct {
	mu     sync.Mutex
	failed map[string]creation
}

type creation struct {
	why   string
	until time.Time
}

// maxCreations bounds what is remembered: beyond, it is just tried again.
const maxCreations = 1000

// of gives why topics could not be made.
func (c *creations) of(infos []streams.TopicInfo, now time.Time) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for _, t := range infos {
		if f, ok := c.failed[t.Name]; ok && now.Before(f.until) {
			out[t.Name] = f.why
		}
	}
	return out
}

func (c *creations) note(name, why string, now time.Time, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.failed, func(_ string, f creation) bool { return !now.Before(f.until) })
	if c.failed == nil {
		c.failed = map[string]creation{}
	}
	if len(c.failed) < maxCreations {
		c.failed[name] = creation{why, now.Add(d)}
	}
}

// createInternals makes the topics that an application needs, and adds to what its member is told why one cannot be.
func (b *Broker) createInternals(c *conn, r *streams.HeartbeatResult) {
	if len(r.Create) == 0 {
		return
	}
	var denied []string
	for _, t := range r.Create {
		if !b.mayCreate(c, t.Name) {
			denied = append(denied, t.Name)
		}
	}
	if len(denied) > 0 {
		explain(r, fmt.Sprintf("Unauthorized to CREATE on topics %s.", strings.Join(denied, ",")))
		return
	}
	before := b.groups.creations.of(r.Create, b.now())
	for _, t := range r.Create {
		if before[t.Name] != "" {
			continue
		}
		if why := b.createInternal(c, &t); why != "" {
			b.log.Warn("making an internal topic of a Kafka Streams application", "topic", t.Name, "err", why)
			b.groups.creations.note(t.Name, why, b.now(), 2*r.Interval)
		}
	}
	if len(before) == 0 {
		return
	}
	const most = 3
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if parts = append(parts, fmt.Sprintf("%s (%s)", name, before[name])); len(parts) == most {
			break
		}
	}
	text := strings.Join(parts, ", ")
	if more := len(before) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	explain(r, fmt.Sprintf("Creation failed: %s.", text))
}

// explain adds to what is said of missing internal topics.
func explain(r *streams.HeartbeatResult, text string) {
	for i := range r.Status {
		if r.Status[i].Code == streams.MissingInternalTopics {
			r.Status[i].Detail += "; " + text
			return
		}
	}
	r.Status = append(r.Status, streams.Status{Code: streams.MissingInternalTopics, Detail: text})
}

// createInternal gives why a topic was not made, "" if it is there.
func (b *Broker) createInternal(c *conn, t *streams.TopicInfo) string {
	asked := kmsg.NewCreateTopicsRequestTopic()
	asked.Topic, asked.NumPartitions, asked.ReplicationFactor = t.Name, t.Partitions, -1
	if t.Replication != 0 {
		asked.ReplicationFactor = t.Replication
	}
	for _, p := range t.Configs {
		asked.Configs = append(asked.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: p.Key, Value: &p.Value})
	}
	out := b.createAsked(c, &asked, false, true)
	switch {
	case out.ErrorCode == errNone || out.ErrorCode == errTopicAlreadyExists:
		return ""
	case out.ErrorMessage != nil && *out.ErrorMessage != "":
		return *out.ErrorMessage
	}
	return fmt.Sprintf("error %d", out.ErrorCode)
}
