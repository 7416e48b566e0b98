package checkers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const offsetTopic = "registers"

func (r *raw) commit(ctx context.Context, id [16]byte, partition int32, at int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = offsetGroup, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, at
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID, t.Partitions = offsetTopic, id, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := r.ask(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

func (r *raw) committed(ctx context.Context, id [16]byte, partition int32) (told, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = offsetTopic, id, []int32{partition}
	g.Group, g.Topics, g.MemberEpoch = offsetGroup, append(g.Topics, t), -1
	req.Groups = append(req.Groups, g)
	resp, err := r.ask(ctx, req)
	if err != nil {
		return told{}, err
	}
	out := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := kerr.ErrorForCode(out.ErrorCode); err != nil {
		return told{}, err
	}
	if len(out.Topics) == 0 || len(out.Topics[0].Partitions) == 0 {
		return told{}, errors.New("an answer without the partition")
	}
	p := out.Topics[0].Partitions[0]
	return told{n: max(p.Offset, 0), none: p.Offset < 0}, kerr.ErrorForCode(p.ErrorCode)
}

// findCoordinator has a broker make the topic that its coordinators keep their state in.
func findCoordinator(t *testing.T, r *raw, kind int8, key string) {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = kind, []string{key}
	for end := time.Now().Add(time.Minute); ; pause(t.Context(), 20*time.Millisecond) {
		resp, err := r.ask(t.Context(), req)
		if err == nil {
			err = kerr.ErrorForCode(resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(fmt.Errorf("finding a coordinator: %w", err))
		}
	}
}

// startOffsets has clients commit a group's offsets and ask for them. What they were told is linearisable.
func startOffsets(t *testing.T, v victim) (judge func(t *testing.T)) {
	t.Helper()
	id := createTopic(t, v, offsetTopic, logPartitions)
	findCoordinator(t, newRaw(t, v.address()), 0, offsetGroup)
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var histories [logPartitions]*recorder
	for p := range int32(logPartitions) {
		h := newRecorder()
		histories[p] = h
		var next atomic.Int64
		for n := range 3 {
			clients.Go(func() { commitOn(ctx, newRaw(t, v.address()), h, n, id, p, &next) })
			clients.Go(func() { readOn(ctx, newRaw(t, v.address()), h, 3+n, id, p) })
		}
	}
	t.Cleanup(clients.Wait)
	t.Cleanup(cancel)
	return func(t *testing.T) {
		cancel()
		clients.Wait()
		for p, h := range histories {
			if err := checkRegister(h.ops); err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
			lost := 0
			for _, o := range h.ops {
				if o.Return == forever {
					lost++
				}
			}
			t.Logf("partition %d: %d operations, %d of them never answered", p, len(h.ops), lost)
			if lost == 0 || len(h.ops) < 50 {
				t.Error("the load was none")
			}
		}
	}
}

func commitOn(ctx context.Context, r *raw, h *recorder, client int, id [16]byte, partition int32, next *atomic.Int64) {
	for ctx.Err() == nil {
		a := ask{"commit", next.Add(1)}
		call := h.now()
		switch err := r.commit(context.WithoutCancel(ctx), id, partition, a.value); {
		case err == nil:
			h.add(client, call, a, told{})
		case refused(err):
			pause(ctx, 20*time.Millisecond)
		default:
			h.lost(client, call, a)
			pause(ctx, 50*time.Millisecond)
		}
		pause(ctx, 8*time.Millisecond)
	}
}

func readOn(ctx context.Context, r *raw, h *recorder, client int, id [16]byte, partition int32) {
	for ctx.Err() == nil {
		call := h.now()
		if got, err := r.committed(ctx, id, partition); err == nil {
			h.add(client, call, ask{kind: "read"}, got)
		} else {
			pause(ctx, 20*time.Millisecond)
		}
		pause(ctx, 4*time.Millisecond)
	}
}
