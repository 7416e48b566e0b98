package aiven_test

import (
	"context"
	"crypto/rsa"
	"fmt"
	"io"
	"log"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// A store that the plug-in writes to with a key.prefix that is a folder, and with two keys: the older one still opens older segments.
func ExampleNewManager() {
	store, err := bucket.Open(context.Background(), "s3://kafka-history?region=eu-central-1&prefix=cluster-1", s3.Driver())
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	keys := make(map[string]*rsa.PrivateKey)
	for _, id := range []string{"key-2024", "key-2025"} { // as in the plug-in's encryption.key.pairs
		if keys[id], err = aiven.LoadKey("/etc/rewind/" + id + ".private.pem"); err != nil {
			log.Fatal(err)
		}
	}
	var manager remotestorage.RemoteStorageManager
	if manager, err = aiven.NewManager(aiven.Options{Store: store, Keys: keys}); err != nil {
		log.Fatal(err)
	}
	_ = manager // for instance metadatatopic.Options.Storage
}

// Reading one segment that the plug-in compressed and encrypted: its log, and its transaction index.
func Example() {
	const dir = "../../testdata/golden/aiven/zstd-aes/"
	store, err := file.Open(dir+"objects", file.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	key, err := aiven.LoadKey(dir + "keys/key1.private.pem")
	if err != nil {
		log.Fatal(err)
	}
	manager, err := aiven.NewManager(aiven.Options{Store: store, Keys: map[string]*rsa.PrivateKey{"key1": key}})
	if err != nil {
		log.Fatal(err)
	}
	segment := remotestorage.RemoteLogSegmentMetadata{StartOffset: 81}
	segment.Topic = "golden"
	segment.TopicID, _ = remotestorage.ParseUUID("zuEhtlTkQzy9jRNr9HRzcQ")
	segment.ID, _ = remotestorage.ParseUUID("6Ze00RVyROKRCb0Rwi5tmw")

	body, err := manager.FetchLogSegment(context.Background(), segment, 0, 1<<30)
	if err != nil {
		log.Fatal(err)
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err != nil {
		log.Fatal(err)
	}
	index, err := manager.FetchIndex(context.Background(), segment, remotestorage.IndexTransaction)
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()
	entries, err := io.ReadAll(index)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "bytes of log,", len(entries)/34, "aborted transactions")
	// Output: 139370 bytes of log, 1 aborted transactions
}
