package clienttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
)

var kgoCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func kgoProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		c := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(3000), kgo.ProducerBatchCompression(kgoCodecs[job.codec]))
		var records []*kgo.Record
		for _, r := range job.records {
			k := &kgo.Record{Topic: job.name, Partition: r.partition, Timestamp: time.UnixMilli(r.timestamp), Key: r.key, Value: r.value}
			for _, h := range r.headers {
				k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
			}
			records = append(records, k)
		}
		if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Errorf("%s: %v", job.name, err)
		}
	}
}

// fromKgo copies a record; the attributes tell its codec.
func fromKgo(k *kgo.Record) record {
	r := record{topic: k.Topic, partition: k.Partition, offset: k.Offset, timestamp: k.Timestamp.UnixMilli(), key: k.Key, value: k.Value}
	for _, h := range k.Headers {
		r.headers = append(r.headers, header{h.Key, h.Value})
	}
	return r
}

// kgoRead reads n records of the topics from the start.
func kgoRead(t *testing.T, c *kgo.Client, n int, each func(*kgo.Record)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for got := 0; got < n; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Errorf("%v after %d of %d records", err, got, n)
			return
		}
		f.EachRecord(func(r *kgo.Record) { each(r); got++ })
	}
}

func fromStart(topics []topic) []kgo.Opt {
	return []kgo.Opt{kgo.ConsumeTopics(names(topics)...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
}

func kgoConsume(direct bool, limit int32) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, want reading) reading {
		opts := append(fromStart(topics), kgo.FetchMaxPartitionBytes(limit))
		if direct {
			d := w.dialer(t)
			defer isDirect(t, d, want, topics)
			opts = append(opts, kgo.Dialer(d.DialContext))
		}
		var all []record
		kgoRead(t, w.client(t, opts...), want.count(topics), func(r *kgo.Record) { all = append(all, fromKgo(r)) })
		return newReading(all)
	}
}

// isDirect checks that all but the last segment of each partition was read past the broker.
func isDirect(t *testing.T, d *rewind.Dialer, want reading, topics []topic) {
	t.Helper()
	partitions := 0
	for _, tp := range topics {
		partitions += int(tp.partitions)
	}
	// What is left in a local log is the record that filled a segment.
	s, most := d.Stats(), int64(partitions)*segmentBytes
	if s.DirectBytes == 0 || s.Ranges == 0 || s.BrokerBytes > most || s.Fallbacks > 0 {
		t.Errorf("not all history was read directly: %+v; through the broker at most %d bytes were to come", s, most)
	}
}

// count is how many records the topics have.
func (r reading) count(topics []topic) (n int) {
	for _, tp := range topics {
		for _, records := range r[tp.name] {
			n += len(records)
		}
	}
	return n
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion
	conf.Consumer.MaxWaitTime = 100 * time.Millisecond
	return conf
}

func saramaProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		conf := saramaConfig()
		conf.Producer.Return.Successes, conf.Producer.Partitioner, conf.Producer.Compression = true, sarama.NewManualPartitioner, saramaCodecs[job.codec]
		conf.Producer.RequiredAcks, conf.Producer.Idempotent, conf.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
		conf.Producer.Flush.Bytes, conf.Producer.Flush.MaxMessages, conf.Producer.Flush.Frequency = 3000, 10, 20*time.Millisecond
		p, err := sarama.NewSyncProducer([]string{w.addr}, conf)
		if err != nil {
			t.Fatal(err)
		}
		var messages []*sarama.ProducerMessage
		for _, r := range job.records {
			m := &sarama.ProducerMessage{Topic: job.name, Partition: r.partition, Timestamp: time.UnixMilli(r.timestamp)}
			if r.key != nil {
				m.Key = sarama.ByteEncoder(r.key)
			}
			if r.value != nil {
				m.Value = sarama.ByteEncoder(r.value)
			}
			for _, h := range r.headers {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.name), Value: h.value})
			}
			messages = append(messages, m)
		}
		if err := p.SendMessages(messages); err != nil {
			t.Errorf("%s: %v", job.name, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// gather collects records from many goroutines.
type gather struct {
	mu  sync.Mutex
	all []record
}

func (g *gather) add(r record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, r)
}

// eachPartition runs read for every partition, a few at a time.
func eachPartition(topics []topic, want reading, read func(tp topic, p int32, n int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, 8)
	for _, tp := range topics {
		for p := range tp.partitions {
			room <- struct{}{}
			wg.Go(func() { read(tp, p, len(want[tp.name][p])); <-room })
		}
	}
	wg.Wait()
}

func saramaConsume(direct bool) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, want reading) reading {
		conf := saramaConfig()
		if direct {
			d := w.dialer(t)
			defer isDirect(t, d, want, topics)
			conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
		}
		consumer, err := sarama.NewConsumer([]string{w.addr}, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		var g gather
		eachPartition(topics, want, func(tp topic, p int32, n int) {
			pc, err := consumer.ConsumePartition(tp.name, p, sarama.OffsetOldest)
			if err != nil {
				t.Error(err)
				return
			}
			defer pc.Close()
			timeout := time.After(30 * time.Second)
			for i := range n {
				select {
				case m := <-pc.Messages():
					r := record{topic: m.Topic, partition: m.Partition, offset: m.Offset, timestamp: m.Timestamp.UnixMilli(), key: m.Key, value: m.Value}
					for _, h := range m.Headers {
						r.headers = append(r.headers, header{string(h.Key), h.Value})
					}
					g.add(r)
				case <-timeout:
					t.Errorf("%s/%d: %d of %d messages", tp.name, p, i, n)
					return
				}
			}
		})
		return newReading(g.all)
	}
}

var kafkaGoCodecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

func kafkaGoProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		// The writer has no place for a message's partition: the balancer finds it in WriterData.
		to := kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) })
		kw := &kafka.Writer{
			Addr: kafka.TCP(w.addr), Topic: job.name, Balancer: to, Compression: kafkaGoCodecs[job.codec], RequiredAcks: kafka.RequireAll, BatchSize: 10,
			BatchTimeout: 10 * time.Millisecond,
		}
		var messages []kafka.Message
		for _, r := range job.records {
			m := kafka.Message{Key: r.key, Value: r.value, Time: time.UnixMilli(r.timestamp), WriterData: int(r.partition)}
			for _, h := range r.headers {
				m.Headers = append(m.Headers, kafka.Header{Key: h.name, Value: h.value})
			}
			messages = append(messages, m)
		}
		if err := kw.WriteMessages(t.Context(), messages...); err != nil {
			t.Errorf("%s: %v", job.name, err)
		}
		if err := kw.Close(); err != nil {
			t.Error(err)
		}
	}
}

func kafkaGoConsume(direct bool) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, want reading) reading {
		dial := &kafka.Dialer{Timeout: 10 * time.Second}
		if direct {
			d := w.dialer(t)
			defer isDirect(t, d, want, topics)
			dial.DialFunc = d.DialContext
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		var g gather
		eachPartition(topics, want, func(tp topic, p int32, n int) {
			r := kafka.NewReader(kafka.ReaderConfig{
				Brokers: []string{w.addr}, Topic: tp.name, Partition: int(p), Dialer: dial, MaxWait: 100 * time.Millisecond, MaxBytes: 1 << 20,
			})
			defer r.Close()
			for i := range n {
				m, err := r.ReadMessage(ctx)
				if err != nil {
					t.Errorf("%s/%d: %v after %d of %d messages", tp.name, p, err, i, n)
					return
				}
				rec := record{topic: m.Topic, partition: int32(m.Partition), offset: m.Offset, timestamp: m.Time.UnixMilli(), key: m.Key, value: m.Value}
				for _, h := range m.Headers {
					rec.headers = append(rec.headers, header{h.Key, h.Value})
				}
				g.add(rec)
			}
		})
		return newReading(g.all)
	}
}
