// Package rewind lets a Go Kafka consumer read a topic's history straight from the object store that it was tiered to, past the brokers. It is a dialer:
// given to franz-go, Sarama or kafka-go it changes nothing else in a program.
//
//	dialer, err := rewind.NewDialer(rewind.Options{})
//	...
//	client, err := kgo.NewClient(kgo.Dialer(dialer.DialContext), ...)
//
// # How it works
//
// A connection made by a [Dialer] passes the client's requests on to the broker, except Fetch. A fetch it answers itself, in the version that the
// client spoke: it asks the broker, adding KIP-1248's question for the location of remote segments, and where the broker answers with a location it
// reads that segment from the store, several ranges at a time, checks every batch, and hands the client ordinary Fetch responses. What is
// not in remote storage, what the broker does not give locations for, and what the store does not deliver, comes through the broker as ever,
// partition by partition. Against a broker that does not know KIP-1248 nothing is read directly, unless Options.Resolver finds the segments itself: an Apache
// Kafka cluster with tiered storage is enough then, with no server of Rewind's anywhere.
//
// The consumer's group, offsets, seeks, pauses and isolation level stay its own affair. High watermark, last stable offset and log start in
// the responses are at most a few seconds old, as docs/format/wire.md and the comments at Options say.
//
// # Goroutines and memory
//
// A Dialer may serve any number of clients, brokers and partitions of a process; all share Options.MemoryBudget. Each connection has goroutines of its own,
// which end when the client closes it. [Dialer.Close] closes what is left and waits.
//
// # Stores
//
// Signed locations need nothing but HTTP. For unsigned ones (s3://, gs://, azblob://) bring a [RemoteStorageFetcher] with the store's credentials
// (package bucket makes one of a gocloud bucket). This package imports no cloud SDK.
package rewind

import (
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

type (
	// Resolver knows where the history of a cluster's partitions lies. Package metadatatopic makes one for an Apache Kafka cluster with tiered storage
	// (metadatatopic.New); there is nothing to be called on it but what that package adds.
	Resolver = resolve.Resolver
	// RemoteStorageFetcher is KIP-1254's interface: a byte range of a segment in, a stream out.
	RemoteStorageFetcher = remotestorage.RemoteStorageFetcher
	// Location is KIP-1248's answer to a fetch: where a remote log segment lies, and what of it may be read.
	Location = remotestorage.Location
)
