// Package logdir is a node's data directory: its lock, its identity, the checkpoints that cover all partitions, and the partitions' folders. The files
// are Apache Kafka's, so that its tools read them. It is opened once, by the broker; it has no goroutines. What is inside a partition's folder
// is internal/partlog's.
package logdir

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// The files of a data directory.
const (
	RecoveryPointFile  = "recovery-point-offset-checkpoint"
	LogStartFile       = "log-start-offset-checkpoint"
	HighWatermarkFile  = "replication-offset-checkpoint"
	CleanShutdownFile  = ".kafka_cleanshutdown"
	MetaPropertiesFile = "meta.properties"
	LockFile           = ".lock"
	// NodeEpochFile is ours: the leader epoch that this node appends with.
	NodeEpochFile = "node-epoch"
	// PartitionMetadataFile lies in each partition's folder.
	PartitionMetadataFile = "partition.metadata"
)

var (
	// ErrLocked: another process has the directory open.
	ErrLocked = errors.New("data directory is in use by another process")
	// ErrForeign: the directory belongs to another node or cluster.
	ErrForeign = errors.New("data directory belongs to another node")
	// ErrMalformed: a file of the directory cannot be read.
	ErrMalformed = errors.New("file is malformed")
)

// TopicPartition is the key of the checkpoints.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Dir is an open data directory. Safe for concurrent use.
type Dir struct {
	fs    vfs.FS
	path  string
	lock  io.Closer
	meta  Meta
	clean bool
	epoch int32

	mu sync.Mutex // one writer of checkpoints at a time
}

// Options say who the directory should belong to. Zero values are taken from the directory, or made up for a new one.
type Options struct {
	ClusterID string
	NodeID    int32
}

// Open locks the directory (making it if needed), reads or writes its identity, and settles whether the last stop was clean. The marker of a clean
// stop is removed at once: from here on a crash is a crash. After an unclean stop the node's leader epoch is one higher, so that what followers,
// readers and the tiers learnt of the lost tail is told apart from what is written now.
func Open(fs vfs.FS, path string, o Options) (*Dir, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if err := fs.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("making data directory: %w", err)
	}
	if err := atomicfile.SyncDir(fs, fs.PathDir(path)); err != nil { // or a crash may take the whole directory
		return nil, fmt.Errorf("making data directory: %w", err)
	}
	lock, err := fs.Lock(fs.PathJoin(path, LockFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
	}
	d := &Dir{fs: fs, path: path, lock: lock}
	if err := d.load(o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d *Dir) load(o Options) error {
	fresh, err := d.loadMeta(o)
	if err != nil {
		return err
	}
	if d.clean, err = atomicfile.Exists(d.fs, d.fs.PathJoin(d.path, CleanShutdownFile)); err != nil {
		return err
	}
	if d.epoch, err = d.loadEpoch(); err != nil {
		return err
	}
	switch {
	case fresh:
		d.clean = true // nothing is there that could need recovery
	case !d.clean:
		d.epoch++
	}
	if err := d.write(NodeEpochFile, fmt.Appendf(nil, "0\n%d\n", d.epoch)); err != nil {
		return err
	}
	if !d.clean || fresh {
		return nil
	}
	if err := d.fs.Remove(d.fs.PathJoin(d.path, CleanShutdownFile)); err != nil {
		return fmt.Errorf("removing the clean shutdown marker: %w", err)
	}
	return atomicfile.SyncDir(d.fs, d.path)
}

// Close gives the lock back. It does not mark the stop clean: MarkClean does, once every log is closed.
func (d *Dir) Close() error { return d.lock.Close() }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// Clean tells whether the last stop was clean (or the directory is new).
func (d *Dir) Clean() bool { return d.clean }

// LeaderEpoch is the epoch that this run of the node leads in.
func (d *Dir) LeaderEpoch() int32 { return d.epoch }

// Meta is the directory's identity.
func (d *Dir) Meta() Meta { return d.meta }

// MarkClean says that every log was closed cleanly and the checkpoints are written. It is the last thing before Close.
func (d *Dir) MarkClean() error {
	return d.write(CleanShutdownFile, []byte(`{"version":0,"brokerEpoch":-1}`))
}

// RecoveryPoints reads recovery-point-offset-checkpoint; empty if there is none.
func (d *Dir) RecoveryPoints() (map[TopicPartition]int64, error) {
	return d.readOffsets(RecoveryPointFile)
}

// LogStartOffsets reads log-start-offset-checkpoint; empty if there is none.
func (d *Dir) LogStartOffsets() (map[TopicPartition]int64, error) { return d.readOffsets(LogStartFile) }

// HighWatermarks reads replication-offset-checkpoint; empty if there is none.
func (d *Dir) HighWatermarks() (map[TopicPartition]int64, error) {
	return d.readOffsets(HighWatermarkFile)
}

// WriteRecoveryPoints replaces recovery-point-offset-checkpoint, durably.
func (d *Dir) WriteRecoveryPoints(m map[TopicPartition]int64) error {
	return d.write(RecoveryPointFile, AppendOffsets(nil, m))
}

// WriteLogStartOffsets replaces log-start-offset-checkpoint, durably.
func (d *Dir) WriteLogStartOffsets(m map[TopicPartition]int64) error {
	return d.write(LogStartFile, AppendOffsets(nil, m))
}

// WriteHighWatermarks replaces replication-offset-checkpoint, durably.
func (d *Dir) WriteHighWatermarks(m map[TopicPartition]int64) error {
	return d.write(HighWatermarkFile, AppendOffsets(nil, m))
}

func (d *Dir) readOffsets(name string) (map[TopicPartition]int64, error) {
	b, err := d.read(name)
	if err != nil || b == nil {
		return map[TopicPartition]int64{}, err
	}
	m, err := ParseOffsets(b)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return m, nil
}
