package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// node is a partition and its metadata topic on real logs, over a file system that can lose power.
type node struct {
	log   *partlog.Log
	metas []*partlog.Log
	meta  *MetadataLog
	tier  *Tier
	part  Partition
	out   *lines
}

const metadataParts = 2

func nodeConfig() partlog.Config {
	c := partlog.DefaultConfig()
	c.RemoteStorage, c.LocalRetentionBytes, c.RetentionMs, c.FileDeleteDelayMs, c.SegmentIndexBytes = true, 1, -1, 0, 4096
	return c
}

func openNode(disk vfs.FS, dir string, store remotestorage.RemoteStorageManager) (*node, error) {
	return openNodeOf(disk, dir, store, tpOf(0), metadataParts)
}

func openNodeOf(disk vfs.FS, dir string, store remotestorage.RemoteStorageManager, tp remotestorage.TopicIDPartition, metadataParts int32) (*node, error) {
	n := &node{out: &lines{}}
	logger := slog.New(slog.NewTextHandler(n.out, nil))
	var err error
	for i := range metadataParts {
		c := partlog.DefaultConfig()
		c.RetentionMs, c.SegmentIndexBytes = -1, 4096
		meta := remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{8}, Topic: "__remote_log_metadata", Partition: i}
		l, err := partlog.Open(partlog.Options{FS: disk, Dir: disk.PathJoin(dir, meta.String()), TP: meta, Config: c, Logger: logger})
		if err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
		n.metas = append(n.metas, l)
	}
	if n.meta, err = NewMetadataLog(n.metas, remotelog.NewIndex(), MetadataOptions{Logger: logger}); err != nil {
		return nil, err
	}
	// No checkpoint is ever written: what the node knows of log starts is as old as can be.
	n.log, err = partlog.Open(partlog.Options{FS: disk, Dir: disk.PathJoin(dir, tp.String()), TP: tp, Config: nodeConfig(), Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	n.part = Partition{TP: tp, Log: n.log}
	n.tier, err = New(Options{RSM: store, Metadata: n.meta, Partitions: func() []Partition { return []Partition{n.part} }, BrokerID: 1, Logger: logger})
	if err != nil {
		return nil, err
	}
	n.tier.adopt(n.part)
	return n, nil
}

func (n *node) close() error {
	var errs []error
	for _, l := range append(n.metas, n.log) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

var errStore = errors.New("the store failed")

// settle takes turns until there is nothing more to do, over a store that fails now and then.
func (n *node) settle() error {
	for range 200 {
		more, err := n.tier.maintain(context.Background(), n.part)
		if errors.Is(err, errStore) {
			continue
		}
		if err != nil || !more {
			return err
		}
	}
	return errors.New("there is always more to do")
}

// model is what has been promised: how many offsets were acknowledged, and how far the log start was allowed to move.
type model struct {
	acked, legal int64
	tell         func(model) // called whenever one changes
}

func (m *model) set(acked, legal int64) {
	m.acked, m.legal = acked, legal
	if m.tell != nil {
		m.tell(*m)
	}
}

// valueAt is what every history writes at an offset.
func valueAt(off int64) string {
	return fmt.Sprintf("value %d %s", off, strings.Repeat("x", int(off*off%67)))
}

func (m *model) append(l *partlog.Log) error {
	off := l.Offsets().LogEnd
	info, err := l.Append(batch.AppendSimple(nil, time.Now().UnixMilli(), nil, []byte(valueAt(off))), partlog.Internal)
	if err != nil {
		return err
	}
	if info.BaseOffset != off {
		return fmt.Errorf("the value of offset %d went to %d", off, info.BaseOffset)
	}
	if err := l.Sync(context.Background(), off+1); err != nil {
		return err
	}
	m.set(off+1, m.legal)
	return nil
}

// script is a life: appends, copies, local retention, total retention, DeleteRecords.
func script(n *node, m *model, steps int, rng *rand.Rand) error {
	for i := range steps {
		for range 1 + rng.IntN(3) {
			if err := m.append(n.log); err != nil {
				return err
			}
		}
		if err := n.log.Roll(); err != nil {
			return err
		}
		if i%2 == 1 {
			if err := n.settle(); err != nil {
				return err
			}
			if _, err := n.log.ApplyRetention(time.Now()); err != nil {
				return err
			}
		}
		switch i % 6 {
		case 3:
			m.set(m.acked, m.acked) // retention may take anything up to here
			n.part.Retention = &Retention{Ms: -1, Bytes: 1200}
			if err := n.settle(); err != nil {
				return err
			}
			n.part.Retention = nil
			m.set(m.acked, n.log.Offsets().LogStart)
		case 5:
			o := n.log.Offsets()
			to := o.LogStart + rng.Int64N((o.LogEnd-o.LogStart)/4+1)
			m.set(m.acked, max(m.legal, to))
			if _, err := n.log.DeleteRecords(to); err != nil {
				return err
			}
			if err := n.settle(); err != nil {
				return err
			}
		}
	}
	return nil
}

// moment is the world as a loss of power leaves it.
type moment struct {
	where string
	fs    *vfs.MemFS
	store *memStore
	model model
}

// TestPowerLossAfterEveryWrite captures the world before each write to the disk and around each operation of the store, and starts anew from each capture.
func TestPowerLossAfterEveryWrite(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { losePower(t, newRNG(seed), seed%2 == 1) })
	}
}

func losePower(t *testing.T, rng *rand.Rand, faults bool) {
	disk := vfs.NewCrashableMem()
	store := newMemStore()
	store.partial = faults
	var m model
	var moments []moment
	capture := func(where string) {
		cfg := vfs.CrashCloneCfg{}
		if len(moments)%3 == 2 { // sometimes part of what was not synced is there, too
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}
		}
		moments = append(moments, moment{where: where, fs: disk.CrashClone(cfg), store: store.clone(), model: m})
	}
	recording := false
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if recording && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			capture(fmt.Sprintf("%d before disk operation %d on %s", len(moments), op.Kind, op.Path))
		}
		return nil
	}))
	store.point = func(op, object string, after bool) error {
		capture(fmt.Sprintf("%d %s %s, after: %v", len(moments), op, object, after))
		if faults && rng.IntN(20) == 0 {
			return errStore
		}
		return nil
	}
	if err := disk.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	syncRoot(t, disk)
	n, err := openNode(fs, "data", store)
	if err != nil {
		t.Fatal(err)
	}
	recording = true
	if err := script(n, &m, 12, rng); err != nil {
		t.Fatal(err)
	}
	recording, store.point = false, nil
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	if len(moments) < 200 {
		t.Fatalf("%d moments only", len(moments))
	}
	for _, at := range moments {
		if err := checkAfterPowerLoss(t, at); err != nil {
			t.Fatalf("%s: %v", at.where, err)
		}
	}
	t.Logf("%d moments", len(moments))
}

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(1, seed)) }

func syncRoot(t *testing.T, fs vfs.FS) {
	t.Helper()
	d, err := fs.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

func checkAfterPowerLoss(t *testing.T, at moment) error {
	n, err := openNode(at.fs, "data", at.store)
	if err != nil {
		return err
	}
	if s := n.out.String(); strings.Contains(s, "skipping a record") {
		return fmt.Errorf("a record does not parse:\n%s", s)
	}
	if err := n.check(at.store, at.model); err != nil {
		return fmt.Errorf("before recovery: %w", err)
	}
	if err := n.log.Roll(); err != nil {
		return err
	}
	if err := n.settle(); err != nil {
		return err
	}
	requireWhole(t, at.store, n.tier.segments(tpOf(0)))
	requireIndexes(t, at.store, n.tier.segments(tpOf(0)))
	requireSnapshots(t, at.store, n.tier.segments(tpOf(0)))
	if t.Failed() {
		return errors.New("see above")
	}
	if _, err := n.log.ApplyRetention(time.Now()); err != nil {
		return err
	}
	if err := n.check(at.store, at.model); err != nil {
		return fmt.Errorf("after recovery: %w", err)
	}
	return n.close()
}

// requireIndexes fails unless each segment's copied indexes can be read and lead to its last batch.
func requireIndexes(t *testing.T, s *memStore, segments []remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	for _, md := range segments {
		offsets, _ := s.get(objectName(md.ID, ".index"))
		x, err := segment.ParseOffsetIndex(offsets, md.StartOffset)
		if err != nil || x.Lookup(md.EndOffset) >= int64(md.SegmentSizeInBytes) {
			t.Errorf("index of %d: %v", md.StartOffset, err)
		}
		times, _ := s.get(objectName(md.ID, ".timeindex"))
		if _, err := segment.ParseTimeIndex(times, md.StartOffset); err != nil || len(times) == 0 {
			t.Errorf("time index of %d: %d bytes, %v", md.StartOffset, len(times), err)
		}
	}
}

// requireSnapshots fails unless each segment's producer snapshot can be read: a torn local one must not be copied.
func requireSnapshots(t *testing.T, s *memStore, segments []remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	for _, md := range segments {
		b, _ := s.get(objectName(md.ID, ".snapshot"))
		if _, err := producerstate.ParseSnapshot(b); err != nil {
			t.Errorf("snapshot of %d: %v", md.StartOffset, err)
		}
	}
}

// check reads every acknowledged offset, locally or from the store, and compares it.
func (n *node) check(store remotestorage.RemoteStorageManager, m model) error {
	o := n.log.Offsets()
	if o.LogStart > m.legal {
		return fmt.Errorf("log start %d, nothing asked for more than %d", o.LogStart, m.legal)
	}
	if o.LogEnd < m.acked {
		return fmt.Errorf("log end %d, acknowledged are %d", o.LogEnd, m.acked)
	}
	for off := max(o.LogStart, m.legal); off < o.LogEnd; off++ {
		var raw []byte
		var err error
		if off >= o.LocalLogStart {
			raw, err = n.readLocal(off)
		} else {
			raw, err = n.readRemote(store, off)
		}
		if err != nil {
			return fmt.Errorf("offset %d (log %+v): %w", off, o, err)
		}
		if err := hasValue(raw, off, valueAt(off)); err != nil {
			return fmt.Errorf("offset %d (log %+v): %w", off, o, err)
		}
	}
	return nil
}

func (n *node) readLocal(off int64) ([]byte, error) {
	d, err := n.log.Read(off, 1, n.log.Offsets().LogEnd, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if d.Records.Release != nil {
			d.Records.Release()
		}
	}()
	return bytes.Join(d.Records.Bufs, nil), nil
}

func (n *node) readRemote(store remotestorage.RemoteStorageManager, off int64) ([]byte, error) {
	p := n.meta.Index().Partition(n.part.TP)
	if p == nil {
		return nil, errors.New("nothing is remote")
	}
	md, last, ok := p.Find(n.log.Epochs(), off)
	if !ok || md.StartOffset > off || last < off {
		return nil, fmt.Errorf("not in a remote segment: %+v, %v", md, ok)
	}
	r, err := store.FetchLogSegment(context.Background(), md, 0, int64(md.SegmentSizeInBytes))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		return nil, err
	}
	if b.Len() != int(md.SegmentSizeInBytes) {
		return nil, fmt.Errorf("segment %s: %d bytes of %d", md.ID, b.Len(), md.SegmentSizeInBytes)
	}
	return b.Bytes(), nil
}

func hasValue(raw []byte, off int64, want string) error {
	found := false
	_, err := batch.Each(raw, func(h batch.Header, b []byte) error {
		if err := batch.CheckCRC(&h, b); err != nil {
			return err
		}
		return eachValue(h, b, func(o int64, v []byte) error {
			if o != off {
				return nil
			}
			found = true
			if string(v) != want {
				return fmt.Errorf("value %q, want %q", v, want)
			}
			return nil
		})
	})
	if err == nil && !found {
		err = errors.New("is not in what was read")
	}
	return err
}
