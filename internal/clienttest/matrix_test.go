package clienttest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// job is one topic that a producer fills.
type job struct {
	topic
	codec   string
	records []record // in the order of each partition
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"} // the order of their numbers in batch attributes

// perPartition is how many records a producer writes to a partition.
const perPartition = 80

// producers, and what is theirs.
var producers = []struct {
	name       string
	codecs     []string
	partitions int32
	text       bool // its records are lines of text
	idempotent bool // by default or because it was told to be
	generate   func(seed uint64, partitions int32, n int) []record
	produce    func(*testing.T, *world, []job)
	keeps      func(record) record // what of a record that was to be written must come back
}{
	{"kgo", codecs, 2, false, true, generate, kgoProduce, nil},
	{"java", codecs, 2, false, true, generate, javaProduce, nil},
	{"java-perf", codecs, 1, true, true, generatePerf, perfProduce, noContent},
	{"java-console", codecs, 1, true, true, generateConsole, consoleProduce, noTimestamp},
	{"kcat", codecs, 2, true, true, generateKcat, kcatProduce, noTimestamp},
	{"confluent", codecs, 2, false, true, generate, pythonProduce("confluent"), nil},
	{"sarama", codecs, 2, false, true, generate, saramaProduce, nil},
	{"kafka-go", codecs, 2, false, false, generate, kafkaGoProduce, nil},
	{"kafka-python", codecs[:2], 2, false, false, generateForPython, pythonProduce("kafka-python"), nil},
	{"aiokafka", codecs[:2], 2, false, true, generateForPython, pythonProduce("aiokafka"), nil},
}

// Limits of one fetch of a partition: a narrow one makes answers that end within a batch.
const (
	wide   = 1 << 20
	narrow = 3000
)

// consumers, and which topics they can read and what they can tell.
var consumers = []struct {
	name    string
	suits   func(job, bool) bool // nil: every topic
	consume func(*testing.T, *world, []topic, reading) reading
	sees    func(record) record
}{
	{"kgo", nil, kgoConsume(false, wide), nil},
	{"kgo-narrow", nil, kgoConsume(false, narrow), nil},
	{"kgo-direct", nil, kgoConsume(true, wide), nil},
	{"kgo-direct-narrow", nil, kgoConsume(true, narrow), nil},
	{"java", nil, javaConsume("read_uncommitted", wide), nil},
	{"java-committed-narrow", nil, javaConsume("read_committed", narrow), nil},
	{"java-console", isText, consoleConsume, nil},
	{"kcat", nil, kcatConsume, headersAreStrings},
	{"confluent", nil, pythonConsume("confluent"), nil},
	{"sarama", nil, saramaConsume(false), nil},
	{"sarama-direct", nil, saramaConsume(true), nil},
	{"kafka-go", nil, kafkaGoConsume(false), emptyIsNull},
	{"kafka-go-direct", nil, kafkaGoConsume(true), emptyIsNull},
	{"kafka-python", isSimple, pythonConsume("kafka-python"), nil},
	{"aiokafka", isSimple, pythonConsume("aiokafka"), nil},
}

func isText(_ job, text bool) bool { return text }

// isSimple: Python's own codecs.
func isSimple(j job, _ bool) bool { return j.codec == "none" || j.codec == "gzip" }

func noTimestamp(r record) record { r.timestamp = 0; return r }

// emptyIsNull: the client does not tell them apart.
func emptyIsNull(r record) record {
	null := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		return b
	}
	r.key, r.value, r.headers = null(r.key), null(r.value), slices.Clone(r.headers)
	for i, h := range r.headers {
		r.headers[i].value = null(h.value)
	}
	return r
}

// headersAreStrings: kcat prints a header's value up to a zero.
func headersAreStrings(r record) record {
	r.headers = slices.Clone(r.headers)
	for i, h := range r.headers {
		if h.value != nil {
			value, _, _ := bytes.Cut(h.value, []byte{0})
			r.headers[i].value = append([]byte{}, value...)
		}
	}
	return r
}

func noContent(r record) record { r.timestamp, r.value = 0, make([]byte, len(r.value)); return r }

func generatePerf(_ uint64, partitions int32, n int) (all []record) {
	for i := range n {
		all = append(all, record{offset: int64(i), value: make([]byte, 300)})
	}
	return all
}

func generateConsole(seed uint64, partitions int32, n int) []record {
	all := generateText(seed, partitions, n)
	for i := range all {
		if i%3 == 0 {
			all[i].headers = []header{{"one", []byte("1")}, {"number", []byte(strconv.Itoa(i))}}
		}
	}
	return all
}

func generateKcat(seed uint64, partitions int32, n int) []record {
	all := generateText(seed, partitions, n)
	for i, r := range all {
		if r.partition == 0 {
			all[i].headers = []header{{"by", []byte("kcat")}, {"twice", []byte("1")}, {"twice", []byte("2")}}
		}
	}
	return all
}

// generateForPython leaves out what these clients refuse to send: headers without value, records with neither key nor value.
func generateForPython(seed uint64, partitions int32, n int) []record {
	all := generate(seed, partitions, n)
	for i, r := range all {
		if r.key == nil && r.value == nil {
			all[i].value = []byte{}
		}
		for k, h := range r.headers {
			if h.value == nil {
				r.headers[k].value = []byte{}
			}
		}
	}
	return all
}

func names(topics []topic) (all []string) {
	for _, tp := range topics {
		all = append(all, tp.name)
	}
	return all
}

// Every producer with every codec, and every consumer: what is read of a history that has left the local log is what was written.
func TestProducersAndConsumers(t *testing.T) {
	lab.jvm.Get(t) // a peer that is missing is better known early
	w := newWorld(t, "")
	var jobs []job
	var text []bool
	var topics []topic
	start := time.Now()
	for i, p := range producers {
		t.Run("produce/"+p.name, func(t *testing.T) {
			var mine []job
			var its []topic
			for k, codec := range p.codecs {
				j := job{topic: topic{p.name + "-" + codec, p.partitions}, codec: codec, records: p.generate(uint64(i*10+k), p.partitions, perPartition)}
				for n := range j.records {
					j.records[n].topic = j.name
				}
				mine, its, text = append(mine, j), append(its, j.topic), append(text, p.text)
			}
			w.create(t, its, tiered("internal.segment.bytes", segmentBytes))
			p.produce(t, w, mine)
			jobs, topics = append(jobs, mine...), append(topics, its...)
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	w.sink(t, topics, segmentBytes-200)
	want := w.truth(t, jobs, topics, start)
	if t.Failed() {
		t.FailNow()
	}
	for _, c := range consumers {
		t.Run("consume/"+c.name, func(t *testing.T) {
			var mine []topic
			for i, j := range jobs {
				if c.suits == nil || c.suits(j, text[i]) {
					mine = append(mine, j.topic)
				}
			}
			equal(t, mine, want, c.consume(t, w, mine, want), c.sees)
		})
	}
	t.Run("consume/java-perf", func(t *testing.T) { perfConsume(t, w, topics, want) })
}

// truth reads everything once, and checks it against what the producers were to write. The other consumers must see the same.
func (w *world) truth(t *testing.T, jobs []job, topics []topic, start time.Time) reading {
	t.Helper()
	n := len(topics)
	for _, tp := range topics {
		n += int(tp.partitions) - 1 // the last record of each partition
	}
	for _, j := range jobs {
		n += len(j.records)
	}
	var all []record
	used, ids := make(map[string]map[uint8]int), make(map[string]int)
	kgoRead(t, w.client(t, fromStart(topics)...), n, func(k *kgo.Record) {
		all = append(all, fromKgo(k))
		if used[k.Topic] == nil {
			used[k.Topic] = make(map[uint8]int)
		}
		used[k.Topic][k.Attrs.CompressionType()]++
		if k.ProducerID >= 0 {
			ids[k.Topic]++
		}
	})
	got := newReading(all)
	keeps, idempotent := make(map[string]func(record) record), make(map[string]bool)
	for _, p := range producers {
		keeps[p.name], idempotent[p.name] = p.keeps, p.idempotent
	}
	for _, j := range jobs {
		producer := strings.TrimSuffix(j.name, "-"+j.codec)
		equal(t, []topic{j.topic}, newReading(j.records), got.withoutLast(j.topic), keeps[producer])
		checkCodec(t, j, used[j.name])
		if idempotent[producer] && ids[j.name] < len(j.records) {
			t.Errorf("%s: %d of %d records have a producer's id", j.name, ids[j.name], len(j.records))
		}
		if keeps[producer] != nil {
			checkTimestamps(t, got[j.name], start)
		}
	}
	return got
}

// withoutLast leaves out the records that sink wrote.
func (r reading) withoutLast(tp topic) reading {
	out := reading{tp.name: make(map[int32][]record)}
	for p, records := range r[tp.name] {
		if last := len(records) - 1; last >= 0 && bytes.Equal(records[last].key, []byte("last")) {
			records = records[:last]
		}
		out[tp.name][p] = records
	}
	return out
}

// checkCodec: batches come back as they were written. A producer leaves a batch alone that its codec would make larger.
func checkCodec(t *testing.T, j job, used map[uint8]int) {
	t.Helper()
	number := uint8(slices.Index(codecs, j.codec))
	for codec, n := range used {
		if codec != number && codec != 0 {
			t.Errorf("%s: %d records in codec %d", j.name, n, codec)
		}
	}
	if used[number] < len(j.records)/2 {
		t.Errorf("%s: codecs of records are %v", j.name, used)
	}
}

// checkTimestamps: where the client took the time, it is now.
func checkTimestamps(t *testing.T, partitions map[int32][]record, start time.Time) {
	t.Helper()
	for _, records := range partitions {
		for _, r := range records {
			if at := time.UnixMilli(r.timestamp); r.timestamp != firstTimestamp && (at.Before(start.Truncate(time.Millisecond)) || at.After(time.Now())) {
				t.Errorf("%s/%d: record %d is of %v", r.topic, r.partition, r.offset, at)
				return
			}
		}
	}
}

// perfConsume counts with Apache Kafka's ConsumerPerformance, all topics in one run.
func perfConsume(t *testing.T, w *world, topics []topic, want reading) {
	n, size := want.count(topics), 0
	for _, partitions := range want {
		for _, records := range partitions {
			for _, r := range records {
				size += len(r.key) + len(r.value)
			}
		}
	}
	out := lab.jvm.Get(t).Tool(t, perfConsumer, nil, "--bootstrap-server", w.addr, "--include", strings.Join(names(topics), "|"), "--num-records", strconv.Itoa(n),
		"--hide-header", "--timeout", "20000")
	f := strings.Split(string(out), ", ")
	if len(f) < 5 || f[4] != strconv.Itoa(n) || f[2] != fmt.Sprintf("%.4f", float64(size)/(1<<20)) {
		t.Errorf("%d records of %.4f MiB were to be read: %s", n, float64(size)/(1<<20), out)
	}
}
