package clienttest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	perfProducer    = "org.apache.kafka.tools.ProducerPerformance"
	perfConsumer    = "org.apache.kafka.tools.ConsumerPerformance"
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
)

func javaProduce(t *testing.T, w *world, jobs []job) {
	j := lab.jvm.Get(t)
	for _, job := range jobs {
		path := filepath.Join(t.TempDir(), job.name)
		writeLines(t, path, job.records)
		if got := j.Do(t, "produce", w.addr, job.name, job.codec, path); got != strconv.Itoa(len(job.records)) {
			t.Errorf("%s: %s records sent instead of %d", job.name, got, len(job.records))
		}
	}
}

func javaConsume(isolation string, limit int) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, _ reading) reading {
		path := filepath.Join(t.TempDir(), "read")
		lab.jvm.Get(t).Do(t, append([]string{"consume", w.addr, isolation, strconv.Itoa(limit), path}, names(topics)...)...)
		return newReading(readLines(t, path))
	}
}

// perfProduce writes records of random letters: their values are not known before they are read.
func perfProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		out := lab.jvm.Get(t).Tool(t, perfProducer, nil, "--bootstrap-server", w.addr, "--topic", job.name, "--num-records", strconv.Itoa(len(job.records)),
			"--record-size", strconv.Itoa(len(job.records[0].value)), "--throughput", "-1", "--command-property", "compression.type="+job.codec, "batch.size=2000", "linger.ms=20")
		if want := fmt.Sprintf("%d records sent", len(job.records)); !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %q in %s", job.name, want, out)
		}
	}
}

func consoleProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		var in bytes.Buffer
		for _, r := range job.records {
			headers, value := "<none>", "<none>"
			for i, h := range r.headers {
				if i == 0 {
					headers = ""
				} else {
					headers += ","
				}
				headers += h.name + ":" + string(h.value)
			}
			if r.value != nil {
				value = string(r.value)
			}
			fmt.Fprintf(&in, "%s\t%s\t%s\n", headers, r.key, value)
		}
		lab.jvm.Get(t).Tool(t, consoleProducer, in.Bytes(), "--bootstrap-server", w.addr, "--topic", job.name, "--compression-codec", job.codec, "--batch-size", "2000",
			"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--reader-property", "null.marker=<none>",
			"--command-property", "linger.ms=20")
	}
}

// consoleConsume reads topics of text, one run for each: the tool does not print a record's topic.
func consoleConsume(t *testing.T, w *world, topics []topic, want reading) reading {
	var all []record
	for _, tp := range topics {
		n := 0
		for _, records := range want[tp.name] {
			n += len(records)
		}
		all = append(all, runConsole(t, w, tp.name, n)...)
	}
	return newReading(all)
}

// separator is not in the values of any topic of text, nor in the random bytes of its last record (for if it is, the field is the last one).
const separator = "\x01\x02\x03"

func runConsole(t *testing.T, w *world, topic string, n int, more ...string) (all []record) {
	t.Helper()
	args := []string{"--bootstrap-server", w.addr, "--topic", topic, "--from-beginning", "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000"}
	for _, p := range []string{
		"print.timestamp=true", "print.partition=true", "print.offset=true", "print.headers=true", "print.key=true", "print.value=true", "null.literal=<none>",
		"key.separator=" + separator, "line.separator=" + separator + "end" + separator,
	} {
		args = append(args, "--formatter-property", p)
	}
	out := lab.jvm.Get(t).Tool(t, consoleConsumer, nil, append(args, more...)...)
	for line := range strings.SplitSeq(string(out), separator+"end"+separator) {
		if line == "" || strings.HasPrefix(line, "Processed a total") {
			continue
		}
		r, err := parseConsole(line)
		if err != nil {
			t.Fatal(err)
		}
		r.topic = topic
		all = append(all, r)
	}
	if len(all) != n {
		t.Errorf("%s: the console consumer printed %d records, not %d", topic, len(all), n)
	}
	return all
}

func parseConsole(line string) (r record, err error) {
	f := strings.SplitN(line, separator, 6)
	if len(f) != 6 {
		return r, fmt.Errorf("%d fields in %q", len(f), line)
	}
	if _, err := fmt.Sscanf(f[0]+" "+f[1]+" "+f[2], "CreateTime:%d Partition:%d Offset:%d", &r.timestamp, &r.partition, &r.offset); err != nil {
		return r, fmt.Errorf("%q: %w", line, err)
	}
	if f[3] != "NO_HEADERS" {
		for h := range strings.SplitSeq(f[3], ",") {
			name, value, _ := strings.Cut(h, ":")
			r.headers = append(r.headers, header{name, []byte(value)})
		}
	}
	for i, to := range []*[]byte{&r.key, &r.value} {
		if f[4+i] != "<none>" {
			*to = append([]byte{}, f[4+i]...)
		}
	}
	return r, nil
}
