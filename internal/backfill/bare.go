package backfill

import (
	"context"
	"crypto/rsa"
	"errors"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// bareCluster is what resolves on a cluster without any server of ours, and its store.
type bareCluster struct {
	store    *bucket.Store
	resolver *metadatatopic.Resolver
}

func (b *Bare) open(ctx context.Context, broker string) (*bareCluster, error) {
	store, err := file.Open(b.Dir, file.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	m, err := b.manager(store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	far := distance.Distance{Latency: b.Latency, BytesPerSecond: b.StreamRate}
	r, err := metadatatopic.New(ctx, metadatatopic.Options{Seeds: []string{broker}, Storage: far.Manager(m)})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &bareCluster{store, r}, nil
}

func (b *Bare) manager(store *bucket.Store) (remotestorage.RemoteStorageManager, error) {
	if b.KeyFile == "" {
		return bucket.NewManager(bucket.Options{Store: store})
	}
	key, err := aiven.LoadKey(b.KeyFile)
	if err != nil {
		return nil, err
	}
	return aiven.NewManager(aiven.Options{Store: store, Keys: map[string]*rsa.PrivateKey{b.KeyID: key}})
}

func (c *bareCluster) close() error {
	c.resolver.Close()
	return c.store.Close()
}
