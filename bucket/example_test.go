package bucket_test

import (
	"context"
	"log"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// A consumer with credentials of its own opens unsigned locations with them.
func ExampleNewFetcher() {
	store, err := bucket.Open(context.Background(), "s3://history?region=eu-central-1", s3.Driver())
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	fetcher := bucket.NewFetcher(bucket.FetcherOptions{Stores: []*bucket.Store{store}})
	dialer, err := rewind.NewDialer(rewind.Options{Fetchers: []rewind.StoreFetcher{{Prefix: "s3://history/", Fetcher: fetcher}}})
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
}

// A server, or a tool, copies, reads and deletes segments through the manager.
func ExampleNewManager() {
	store, err := bucket.Open(context.Background(), "s3://history?region=eu-central-1&prefix=cluster-1", s3.Driver())
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	var manager remotestorage.RemoteStorageManager
	if manager, err = bucket.NewManager(bucket.Options{Store: store}); err != nil {
		log.Fatal(err)
	}
	_ = manager
}
