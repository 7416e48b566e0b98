package clienttest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// A broker is killed while an idempotent producer writes, and comes back on the same files: the client's retries leave each record there once, in order.
func TestIdempotentProducersOutliveACrash(t *testing.T) {
	lab.java(t)
	for _, p := range producers {
		switch p.name {
		case "kgo", "java", "kcat", "confluent":
		default:
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			dir, store := t.TempDir(), "file://"+t.TempDir()
			logs := &logFile{path: filepath.Join(t.TempDir(), "broker.log")}
			start := func(listen string) (*control.Child, error) {
				return control.StartBinary(context.Background(), lab.binary.Path(t), logs, brokerArgs(dir, listen, store)...)
			}
			// Not a port that an outgoing connection may take while the broker is down.
			port, err := freeport.Find(1)
			if err != nil {
				t.Fatal(err)
			}
			child, err := start(freeport.Address(port))
			if err != nil {
				t.Fatal(err)
			}
			w := &world{addr: child.Ready.Addr, child: child, logs: logs}
			t.Cleanup(func() {
				if err := w.child.Stop(20 * time.Second); err != nil {
					t.Errorf("stopping the broker: %v", err)
				}
				if t.Failed() {
					t.Logf("the broker's log:\n%s", logs.end())
				}
			})
			w.admin = w.client(t)
			const n = 4000
			j := job{topic: topic{"crash-" + p.name, 1}, codec: "lz4", records: p.generate(5, 1, n)}
			for i := range j.records {
				j.records[i].topic = j.name
			}
			w.create(t, []topic{j.topic}, tiered("internal.segment.bytes", 100_000))
			crashed := make(chan error, 1)
			go func() {
				at, err := w.crash(j.name, n/8, start)
				if err == nil && at >= n {
					err = fmt.Errorf("the crash came after the last record")
				}
				crashed <- err
			}()
			p.produce(t, w, []job{j})
			if err := <-crashed; err != nil {
				t.Fatal(err)
			}
			var all []record
			kgoRead(t, w.client(t, fromStart([]topic{j.topic})...), n, func(k *kgo.Record) { all = append(all, fromKgo(k)) })
			equal(t, []topic{j.topic}, newReading(j.records), newReading(all), p.keeps)
			if end := w.offsets(t, []topic{j.topic}, latest)[j.name][0]; end != n {
				t.Errorf("the log ends at %d, not at %d", end, n)
			}
		})
	}
}

// crash kills the broker once a topic has so many records, and starts it again on the same address. It says how many there were.
func (w *world) crash(topic string, records int64, start func(listen string) (*control.Child, error)) (at int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	adm := kadm.NewClient(w.admin)
	for at < records {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return 0, err
		}
		if o, ok := ends.Lookup(topic, 0); ok {
			at = o.Offset
		}
	}
	if err := syscall.Kill(w.child.PID(), syscall.SIGKILL); err != nil {
		return at, err
	}
	if err := w.child.Stop(10 * time.Second); err == nil {
		return at, errors.New("the killed broker ended well")
	}
	child, err := start(w.addr)
	if err != nil {
		return at, err
	}
	w.child = child
	return at, nil
}
