package broker

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// denyingStore answers every read, once told to, as a store whose credentials have run out.
type denyingStore struct {
	remotestorage.RemoteStorageManager
	deny atomic.Bool
}

func (s *denyingStore) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	if s.deny.Load() {
		return nil, fmt.Errorf("status 403: %w", remotestorage.ErrDenied)
	}
	return s.RemoteStorageManager.FetchLogSegment(ctx, md, start, end)
}

func (s *denyingStore) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, x remotestorage.IndexType) (io.ReadCloser, error) {
	if s.deny.Load() {
		return nil, fmt.Errorf("status 403: %w", remotestorage.ErrDenied)
	}
	return s.RemoteStorageManager.FetchIndex(ctx, md, x)
}

// TestStoreThatRefuses: a store that refuses for now is not told to clients as damage, which is final, but as what they try again.
func TestStoreThatRefuses(t *testing.T) {
	rsm, _ := directoryStore(t)
	store := &denyingStore{RemoteStorageManager: rsm}
	b := startBroker(t, t.TempDir(), withRSM(store), tieredKeys())
	b.tieredTopic(t, "t", 1)
	b.produceTiered(t, "t", 1, 200)
	store.deny.Store(true)
	c := b.raw(t)
	if p := c.ask(t, fetchOf("t", 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != errStorage {
		t.Errorf("a fetch: error %d, %d bytes, want error %d", p.ErrorCode, len(p.RecordBatches), errStorage)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(7)
	rt := kmsg.NewListOffsetsRequestTopic()
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rt.Topic, rp.Timestamp = "t", 1_700_000_000_010
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if p := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode != errStorage {
		t.Errorf("a search by timestamp: error %d, offset %d, want error %d", p.ErrorCode, p.Offset, errStorage)
	}
}
