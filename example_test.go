package rewind_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// The dialer goes into franz-go by kgo.Dialer.
func Example() {
	dialer, err := rewind.NewDialer(rewind.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers("127.0.0.1:9092"), kgo.ConsumeTopics("history"), kgo.ConsumerGroup("backfill"),
		kgo.Dialer(dialer.DialContext), // the one line
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// Sarama takes it as a proxy.
func Example_sarama() {
	dialer, err := rewind.NewDialer(rewind.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
	config := sarama.NewConfig()
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialer // the one line
	group, err := sarama.NewConsumerGroup([]string{"127.0.0.1:9092"}, "backfill", config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
}

// kafka-go takes it as a dial function.
func Example_kafkaGo() {
	dialer, err := rewind.NewDialer(rewind.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{"127.0.0.1:9092"}, Topic: "history", GroupID: "backfill",
		Dialer: &kafka.Dialer{DialFunc: dialer.DialContext}, // the one line
	})
	defer reader.Close()
}

// Options for a private object store and a tight budget.
func ExampleNewDialer() {
	dialer, err := rewind.NewDialer(rewind.Options{
		AllowedHosts:                 []string{"minio.internal:9000"},
		MemoryBudget:                 32 << 20,
		RemoteMaxPartitionFetchBytes: 4 << 20,
		Logger:                       slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
}

// Straight on an Apache Kafka cluster with tiered storage, with no server of Rewind's: the history is found in the cluster's own metadata topic.
func ExampleOptions_resolver() {
	ctx := context.Background()
	store, err := file.Open("/mnt/tiered", file.Options{ReadOnly: true}) // or bucket/s3, bucket/gcs, bucket/azure
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	storage, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	resolver, err := metadatatopic.New(ctx, metadatatopic.Options{Seeds: []string{"127.0.0.1:9092"}, Storage: storage})
	if err != nil {
		log.Fatal(err)
	}
	defer resolver.Close()
	dialer, err := rewind.NewDialer(rewind.Options{Resolver: resolver}) // one for all clients of a program, and closed before the resolver
	if err != nil {
		log.Fatal(err)
	}
	defer dialer.Close()
}
