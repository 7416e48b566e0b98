package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// topic is one that is looked at.
type topic struct {
	name      string
	id        remotestorage.UUID
	leaders   map[int32]int32 // by partition
	tiered    bool
	committed map[int32]int64 // of the group; nil without one
}

func (t *topic) partition(p int32) remotestorage.TopicIDPartition {
	return remotestorage.TopicIDPartition{TopicID: t.id, Topic: t.name, Partition: p}
}

// maxUnasked bounds how many tiered topics are looked at closely if none was named.
const maxUnasked = 10

// chosenTopics finds the topics to look at: those that were named, or the group's, or, where there are none either, some that are tiered.
func (d *doctor) chosenTopics(ctx context.Context) {
	var committed map[string]map[int32]int64
	if d.o.Group != "" {
		committed = d.group(ctx)
	}
	var names []string
	for _, name := range d.o.Topics {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(committed))
	}
	if len(names) == 0 {
		if d.o.Group != "" {
			d.rep.add(OK, "topics", "", "offsets of group %s name no topics: some that are tiered are looked at, as a reader from their beginning sees them", d.o.Group)
		}
		names = d.tieredTopics(ctx)
	}
	for _, name := range names {
		if t := d.describe(ctx, name); t != nil {
			if d.o.Group != "" {
				t.committed = committed[name]
			}
			d.topics = append(d.topics, t)
		}
	}
}

// group asks for the group's committed offsets.
func (d *doctor) group(ctx context.Context) map[string]map[int32]int64 {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = d.o.Group
	req.Groups, req.Group = append(req.Groups, g), d.o.Group
	resp, err := d.fromCoordinator(limited, req)
	offsets := make(map[string]map[int32]int64)
	put := func(topic string, partition int32, offset int64) {
		if offset < 0 {
			return
		}
		if offsets[topic] == nil {
			offsets[topic] = make(map[int32]int64)
		}
		offsets[topic][partition] = offset
	}
	if err == nil {
		for _, g := range resp.Groups {
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					put(t.Topic, p.Partition, p.Offset)
				}
			}
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				put(t.Topic, p.Partition, p.Offset)
			}
		}
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		d.rep.add(Warning, "group", d.grant("--operation Describe --group "+d.o.Group)+" (only doctor needs it)", "the offsets of group %s may not be seen by this principal", d.o.Group)
	case err != nil:
		d.rep.add(Warning, "group", askAgain, "the offsets of group %s cannot be seen: %v", d.o.Group, err)
	case len(offsets) == 0:
		d.rep.add(Warning, "group", "check the group's name; a new group begins where auto.offset.reset says", "group %s has committed no offsets", d.o.Group)
	default:
		d.rep.add(OK, "group", "", "group %s has committed offsets of %s", d.o.Group, strings.Join(slices.Sorted(maps.Keys(offsets)), ", "))
	}
	return offsets
}

const (
	coordinatorPatience = 5 * time.Second
	coordinatorAgain    = 250 * time.Millisecond
)

// fromCoordinator asks until the group's coordinator is there: a cluster makes __consumer_offsets at the first question for any group.
func (d *doctor) fromCoordinator(ctx context.Context, req *kmsg.OffsetFetchRequest) (*kmsg.OffsetFetchResponse, error) {
	tick := time.NewTicker(coordinatorAgain)
	defer tick.Stop()
	for began := time.Now(); ; {
		resp, err := req.RequestWith(ctx, d.ask)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
			for _, g := range resp.Groups {
				err = errors.Join(err, kerr.ErrorForCode(g.ErrorCode))
			}
		}
		starting := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
		if !starting || time.Since(began) >= coordinatorPatience {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// tieredTopics lists what has remote.storage.enable=true.
func (d *doctor) tieredTopics(ctx context.Context) []string {
	limited, cancel := d.limited(ctx)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(limited, d.ask)
	if err != nil {
		d.rep.add(Warning, "topics", askAgain, "topics cannot be listed: %v", err)
		return nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range resp.Topics {
		if t.Topic == nil || t.IsInternal || *t.Topic == metadatatopic.DefaultTopic || t.ErrorCode != 0 {
			continue
		}
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, *t.Topic, []string{keyTopicTiered}
		req.Resources = append(req.Resources, r)
	}
	var tiered []string
	hidden := 0
	if len(req.Resources) > 0 {
		configs, err := req.RequestWith(limited, d.ask)
		if err != nil {
			d.rep.add(Warning, "topics", askAgain, "topics' configurations cannot be listed: %v", err)
			return nil
		}
		for _, r := range configs.Resources {
			if r.ErrorCode != 0 {
				hidden++
			}
			for _, c := range r.Configs {
				if c.Name == keyTopicTiered && c.Value != nil && *c.Value == "true" {
					tiered = append(tiered, r.ResourceName)
				}
			}
		}
	}
	slices.Sort(tiered)
	findings := judgeTiered(tiered, len(req.Resources), hidden)
	d.rep.Findings = append(d.rep.Findings, findings...)
	return tiered[:min(len(tiered), maxUnasked)]
}

func judgeTiered(tiered []string, all, hidden int) []Finding {
	var r Report
	shown := strings.Join(tiered[:min(len(tiered), maxUnasked)], ", ")
	if len(tiered) > maxUnasked {
		shown += ", ..."
	}
	switch {
	case len(tiered) > 0:
		r.add(OK, "topics", "", "%d of %d topics are tiered: %s", len(tiered), all, shown)
	case hidden > 0:
		r.add(Warning, "topics", "name one with --topic", "which topics are tiered cannot be seen: %d of %d configurations are hidden from this principal", hidden, all)
	default:
		r.add(Problem, "topics", "switch it on for a topic: "+enableTiering("TOPIC"), "none of %d topics is tiered", all)
	}
	return r.Findings
}

const keyTopicTiered = "remote.storage.enable"

func enableTiering(topic string) string {
	return "kafka-configs.sh --alter --entity-type topics --entity-name " + topic + " --add-config remote.storage.enable=true,local.retention.ms=86400000"
}

// describe asks for a topic and judges its configuration; nil if it cannot be looked at.
func (d *doctor) describe(ctx context.Context, name string) *topic {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics, req.AllowAutoTopicCreation = append(req.Topics, rt), false
	resp, err := req.RequestWith(limited, d.ask)
	if err == nil && len(resp.Topics) != 1 {
		err = fmt.Errorf("%d topics in the answer", len(resp.Topics))
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	check := "topic " + name
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		d.rep.add(Problem, check, d.grant("--operation Describe --topic "+name), "the topic may not be described by this principal; its history would be left to the brokers")
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		d.rep.add(Problem, check, "check the name", "the topic does not exist")
		return nil
	case err != nil:
		d.rep.add(Problem, check, askAgain, "the topic cannot be looked at: %v", err)
		return nil
	}
	t := &topic{name: name, id: resp.Topics[0].TopicID, leaders: make(map[int32]int32), tiered: true}
	var leaderless []int32
	for _, p := range resp.Topics[0].Partitions {
		t.leaders[p.Partition] = p.Leader
		if p.Leader < 0 {
			leaderless = append(leaderless, p.Partition)
		}
	}
	if len(leaderless) > 0 {
		slices.Sort(leaderless)
		d.rep.add(Problem, check, "bring the brokers that hold them back", "partitions without a leader: %v", leaderless)
	}
	config, err := d.configs(ctx, kmsg.ConfigResourceTypeTopic, name)
	if err != nil {
		do := askAgain
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			do = d.grant("--operation DescribeConfigs --topic "+name) + " (only doctor needs it)"
		}
		d.rep.add(Warning, check, do, "its configuration cannot be seen: %v", err)
		return t
	}
	findings, tiered := judgeTopic(name, config)
	d.rep.Findings, t.tiered = append(d.rep.Findings, findings...), tiered
	return t
}

// judgeTopic tells from its configuration whether a topic has history in the store that leaves the brokers' disks.
func judgeTopic(name string, c map[string]string) (findings []Finding, tiered bool) {
	var r Report
	check := "topic " + name
	switch compacted := strings.Contains(c["cleanup.policy"], "compact"); {
	case c[keyTopicTiered] == "true":
	case name == metadatatopic.DefaultTopic:
		r.add(Problem, check, "name a topic whose history is to be read", "it is where the brokers keep what they know of remote segments, and is never tiered itself")
		return r.Findings, false
	case compacted:
		r.add(Problem, check, "leave it to the brokers: Apache Kafka refuses remote.storage.enable=true for what is not cleanup.policy=delete",
			"it is compacted (cleanup.policy=%s) and so not tiered: all of it is on the brokers, and nothing can be read directly", c["cleanup.policy"])
		return r.Findings, false
	default:
		r.add(Problem, check, enableTiering(name), "it is not tiered (remote.storage.enable is not true): all of it is on the brokers, and nothing can be read directly")
		return r.Findings, false
	}
	local := func(key string) string { // -2 stands for the topic's whole retention
		if v := c[key]; v != "-2" {
			return v
		}
		return c[strings.TrimPrefix(key, "local.")]
	}
	if ms, bytes := local("local.retention.ms"), local("local.retention.bytes"); ms == c["retention.ms"] && bytes == c["retention.bytes"] {
		r.add(Warning, check, "set local.retention.ms or local.retention.bytes below the topic's retention, or give the gateway remote.read.policy=tiered",
			"it is tiered, but the brokers keep everything on their own disks too (local.retention.ms=%s, local.retention.bytes=%s)", c["local.retention.ms"], c["local.retention.bytes"])
	} else {
		r.add(OK, check, "", "it is tiered; the brokers keep local.retention.ms=%s, local.retention.bytes=%s of retention.ms=%s, retention.bytes=%s", ms, bytes, c["retention.ms"], c["retention.bytes"])
	}
	if c["remote.log.copy.disable"] == "true" {
		r.add(Warning, check, "remote.log.copy.disable=false, if more of it is to be tiered", "remote.log.copy.disable=true: nothing new is copied to the store")
	}
	return r.Findings, true
}
