package locate_test

import (
	"reflect"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/locate"
)

// TestGoldenThroughABucket reads what Apache Kafka's LocalTieredStorage wrote through our own store, and gets the same as from the files themselves.
func TestGoldenThroughABucket(t *testing.T) {
	eachPartition(t, func(t *testing.T, b *bench) {
		store, err := file.Open(b.set.ObjectsDir(), file.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		m, err := bucket.NewManager(bucket.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		r := locate.New(locate.Options{RSM: m, Index: b.index, TxnIndexEmptyKnown: true})
		for offset := b.view.Start; offset <= b.tiered; offset += 13 {
			want, err := b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, true)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, true)
			if err != nil {
				t.Fatalf("offset %d: %v", offset, err)
			}
			if !reflect.DeepEqual(readRange(t, &got), readRange(t, &want)) || !reflect.DeepEqual(got.Aborted, want.Aborted) {
				t.Fatalf("offset %d: another answer", offset)
			}
			l, err := r.Location(ctx, b.view, &got)
			if err == nil && (l.RemoteLogSegmentLocation == "" || l.SegmentSizeInBytes != got.Size) {
				t.Fatalf("offset %d: location %+v", offset, l)
			}
		}
	})
}
