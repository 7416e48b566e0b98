package logdir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Meta is what meta.properties says.
type Meta struct {
	ClusterID   string
	NodeID      int32
	DirectoryID string
}

func (d *Dir) loadMeta(o Options) (fresh bool, err error) {
	b, err := d.read(MetaPropertiesFile)
	if err != nil {
		return false, err
	}
	if b != nil {
		if d.meta, err = ParseMeta(b); err != nil {
			return false, fmt.Errorf("reading %s: %w", MetaPropertiesFile, err)
		}
		if o.ClusterID != "" && o.ClusterID != d.meta.ClusterID {
			return false, fmt.Errorf("%w: cluster id is %s, not %s", ErrForeign, d.meta.ClusterID, o.ClusterID)
		}
		if o.NodeID != 0 && o.NodeID != d.meta.NodeID {
			return false, fmt.Errorf("%w: node id is %d, not %d", ErrForeign, d.meta.NodeID, o.NodeID)
		}
		return false, nil
	}
	d.meta = Meta{ClusterID: o.ClusterID, NodeID: o.NodeID}
	for _, id := range []*string{&d.meta.ClusterID, &d.meta.DirectoryID} {
		if *id == "" {
			*id = remotestorage.RandomUUID().String()
		}
	}
	partitions, err := d.Partitions()
	if err != nil {
		return false, err
	}
	return len(partitions) == 0, d.write(MetaPropertiesFile, AppendMeta(nil, d.meta))
}

// ParseMeta reads meta.properties: lines key=value, # begins a comment.
func ParseMeta(b []byte) (Meta, error) {
	var m Meta
	seen := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return m, fmt.Errorf("%w: line %.60q", ErrMalformed, line)
		}
		seen[strings.TrimSpace(k)] = strings.ReplaceAll(strings.TrimSpace(v), `\`, "")
	}
	if v := seen["version"]; v != "0" && v != "1" {
		return m, fmt.Errorf("%w: version %.20q", ErrMalformed, v)
	}
	id := cmp.Or(seen["node.id"], seen["broker.id"])
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil {
		return m, fmt.Errorf("%w: node.id %.20q", ErrMalformed, id)
	}
	return Meta{ClusterID: seen["cluster.id"], NodeID: int32(n), DirectoryID: seen["directory.id"]}, nil
}

// AppendMeta writes meta.properties, version 1.
func AppendMeta(dst []byte, m Meta) []byte {
	return fmt.Appendf(dst, "#\nnode.id=%d\ndirectory.id=%s\nversion=1\ncluster.id=%s\n", m.NodeID, m.DirectoryID, m.ClusterID)
}

func (d *Dir) loadEpoch() (int32, error) {
	b, err := d.read(NodeEpochFile)
	if err != nil || b == nil {
		return 0, err
	}
	version, value, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || version != "0" || n < 0 {
		return 0, fmt.Errorf("reading %s: %w: %.40q", NodeEpochFile, ErrMalformed, b)
	}
	return int32(n), nil
}

// ParseOffsets reads one of the offset checkpoints: version 0, count, then "topic partition offset" lines.
func ParseOffsets(b []byte) (map[TopicPartition]int64, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != "0" {
		return nil, fmt.Errorf("%w: checkpoint begins with %.40q", ErrMalformed, lines[0])
	}
	if n, err := strconv.Atoi(strings.TrimSpace(lines[1])); err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: checkpoint says %.20q entries and has %d", ErrMalformed, lines[1], len(lines)-2)
	}
	m := make(map[TopicPartition]int64, len(lines)-2)
	for _, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%w: checkpoint line %.300q", ErrMalformed, line)
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		off, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || off < 0 {
			return nil, fmt.Errorf("%w: checkpoint line %.300q", ErrMalformed, line)
		}
		m[TopicPartition{f[0], int32(p)}] = off
	}
	return m, nil
}

// AppendOffsets writes an offset checkpoint, sorted.
func AppendOffsets(dst []byte, m map[TopicPartition]int64) []byte {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	dst = fmt.Appendf(dst, "0\n%d\n", len(keys))
	for _, k := range keys {
		dst = fmt.Appendf(dst, "%s %d %d\n", k.Topic, k.Partition, m[k])
	}
	return dst
}

// read gives a file of the directory whole; nil without an error if it is not there.
func (d *Dir) read(name string) ([]byte, error) {
	return atomicfile.Read(d.fs, d.fs.PathJoin(d.path, name))
}

// write replaces a file of the directory so that after a crash there is the old content or the new one, whole.
func (d *Dir) write(name string, content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := atomicfile.Replace(d.fs, d.fs.PathJoin(d.path, name), content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// PartitionFolder is one partition's folder.
type PartitionFolder struct {
	TopicPartition
	TopicID remotestorage.UUID // zero if the folder has no partition.metadata
	Path    string
}

// Partitions lists the partitions' folders, sorted. Folders of deleted partitions ("-delete") are not among them: see RemoveDeleted.
func (d *Dir) Partitions() ([]PartitionFolder, error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	var folders []PartitionFolder
	for _, name := range names {
		tp, ok := ParseFolderName(name)
		if !ok {
			continue
		}
		path := d.fs.PathJoin(d.path, name)
		if st, err := d.fs.Stat(path); err != nil {
			return nil, fmt.Errorf("listing partitions: %w", err)
		} else if !st.IsDir() {
			continue
		}
		id, err := d.topicID(path)
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", name, err)
		}
		folders = append(folders, PartitionFolder{TopicPartition: tp, TopicID: id, Path: path})
	}
	slices.SortFunc(folders, func(a, b PartitionFolder) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return folders, nil
}

// ParseFolderName takes "topic-3" apart; false for what is not a live partition's folder.
func ParseFolderName(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || strings.HasSuffix(name, "-delete") || strings.HasSuffix(name, "-future") || strings.HasSuffix(name, "-stray") {
		return TopicPartition{}, false
	}
	p, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != name[i+1:] {
		return TopicPartition{}, false
	}
	return TopicPartition{Topic: name[:i], Partition: int32(p)}, true
}

// PartitionPath is the folder of a partition, there or not.
func (d *Dir) PartitionPath(topic string, partition int32) string {
	return d.fs.PathJoin(d.path, fmt.Sprintf("%s-%d", topic, partition))
}

// CreatePartition makes a partition's folder with its partition.metadata, durably, and gives its path. A folder that is already there keeps what it has.
func (d *Dir) CreatePartition(tp remotestorage.TopicIDPartition) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := d.PartitionPath(tp.Topic, tp.Partition)
	if err := d.fs.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("making partition folder: %w", err)
	}
	have, err := d.topicID(path)
	if err != nil {
		return "", err
	}
	if !have.IsZero() {
		if have != tp.TopicID {
			return "", fmt.Errorf("partition %s: %w: folder has topic id %s, not %s", tp, ErrForeign, have, tp.TopicID)
		}
		return path, nil
	}
	// The folder's name comes first: whoever finds the file later takes it that all is on stable storage.
	if err := atomicfile.SyncDir(d.fs, d.path); err != nil {
		return "", err
	}
	if err := atomicfile.Replace(d.fs, d.fs.PathJoin(path, PartitionMetadataFile), AppendPartitionMetadata(nil, tp.TopicID)); err != nil {
		return "", fmt.Errorf("writing %s: %w", PartitionMetadataFile, err)
	}
	return path, nil
}

func (d *Dir) topicID(path string) (remotestorage.UUID, error) {
	b, err := atomicfile.Read(d.fs, d.fs.PathJoin(path, PartitionMetadataFile))
	if err != nil || b == nil {
		return remotestorage.UUID{}, err
	}
	return ParsePartitionMetadata(b)
}

// ParsePartitionMetadata reads a partition.metadata file.
func ParsePartitionMetadata(b []byte) (remotestorage.UUID, error) {
	version, rest, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	id, ok := strings.CutPrefix(strings.TrimSpace(rest), "topic_id: ")
	if strings.TrimSpace(version) != "version: 0" || !ok {
		return remotestorage.UUID{}, fmt.Errorf("%s: %w: %.80q", PartitionMetadataFile, ErrMalformed, b)
	}
	u, err := remotestorage.ParseUUID(id)
	if err != nil {
		return u, fmt.Errorf("%s: %w: %w", PartitionMetadataFile, ErrMalformed, err)
	}
	return u, nil
}

// AppendPartitionMetadata writes a partition.metadata file.
func AppendPartitionMetadata(dst []byte, topicID remotestorage.UUID) []byte {
	return fmt.Appendf(dst, "version: 0\ntopic_id: %s", topicID)
}

// RemovePartition takes a partition's folder away, if it is there. It is renamed first, durably: one that is removed in part, and has lost the file that says whose it was,
// would lend its records to the next topic of the name.
func (d *Dir) RemovePartition(topic string, partition int32) error {
	gone, err := MoveAway(d.fs, d.PartitionPath(topic, partition))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.fs.RemoveAll(gone)
	}
	if err != nil {
		return fmt.Errorf("removing deleted partition %s-%d: %w", topic, partition, err)
	}
	return nil
}

// MoveAway renames a partition's folder, durably, to what Apache Kafka calls one on its way out: RemoveDeleted finds it, whatever becomes of whoever is to remove it.
func MoveAway(fsys vfs.FS, path string) (gone string, err error) {
	suffix := fmt.Sprintf(".%x-delete", remotestorage.RandomUUID())
	name, parent := fsys.PathBase(path), fsys.PathDir(path)
	gone = fsys.PathJoin(parent, name[:min(len(name), 255-len(suffix))]+suffix) // a file name's length
	if err := fsys.Rename(path, gone); err != nil {
		return "", err
	}
	return gone, atomicfile.SyncDir(fsys, parent)
}

// RemoveDeleted removes the folders of deleted partitions that an earlier run left.
func (d *Dir) RemoveDeleted() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("listing deleted partitions: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "-delete") {
			continue
		}
		if err := d.fs.RemoveAll(d.fs.PathJoin(d.path, name)); err != nil {
			return fmt.Errorf("removing deleted partition: %w", err)
		}
	}
	return nil
}
