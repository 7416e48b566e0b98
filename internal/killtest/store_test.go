package killtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const metadataTopic = "__remote_log_metadata"

// recorded is every segment that the metadata topic has not recorded as deleted, as any client can read it there.
func (l *load) recorded(ctx context.Context) (map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata, error) {
	ends, err := l.ends(ctx, []string{metadataTopic})
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	c, err := l.client(kgo.ConsumeTopics(metadataTopic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	segments := map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata{}
	for len(ends) > 0 {
		fetches := c.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fault(fetches)); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if p := (place{r.Topic, r.Partition}); r.Offset+1 >= ends[p] {
				delete(ends, p)
			}
			if err := applyRecord(segments, r.Value); err != nil {
				l.ledger.fault("%s-%d, offset %d: %v", r.Topic, r.Partition, r.Offset, err)
			}
		})
	}
	return segments, nil
}

var errTransition = errors.New("a segment cannot go that way")

// applyRecord holds each segment to the way that it may go: started, finished or not, deletion started, deletion finished. A step may be written twice.
func applyRecord(segments map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata, value []byte) error {
	rec, err := remotelog.Parse(value)
	if err != nil {
		return err
	}
	switch rec := rec.(type) {
	case *remotelog.SegmentRecord:
		if old, ok := segments[rec.ID]; ok {
			return fmt.Errorf("%w: %s is announced again, being %v", errTransition, rec.RemoteLogSegmentID, old.State)
		}
		segments[rec.ID] = rec.RemoteLogSegmentMetadata
	case *remotelog.UpdateRecord:
		md, ok := segments[rec.ID]
		if !ok {
			if rec.State == remotestorage.DeleteSegmentFinished {
				return nil
			}
			return fmt.Errorf("%w: %s becomes %v and was not there", errTransition, rec.RemoteLogSegmentID, rec.State)
		}
		if rec.State < md.State {
			return fmt.Errorf("%w: %s goes from %v to %v", errTransition, rec.RemoteLogSegmentID, md.State, rec.State)
		}
		if md.State = rec.State; md.State == remotestorage.DeleteSegmentFinished {
			delete(segments, rec.ID)
			return nil
		}
		segments[rec.ID] = md
	}
	return nil
}

// stored is what lies in the store: the sizes of each segment's objects, and names that are none.
func (s *site) stored() (objects map[remotestorage.UUID]map[layout.Suffix]int64, strangers []string, err error) {
	objects = map[remotestorage.UUID]map[layout.Suffix]int64{}
	root := filepath.Join(s.storeDir, prefix)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was ever copied, or it went while it was looked at
		}
		if err != nil || d.IsDir() {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		o, perr := layout.ParseObject(name)
		if perr != nil {
			strangers = append(strangers, name)
			return nil
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if objects[o.ID] == nil {
			objects[o.ID] = map[layout.Suffix]int64{}
		}
		objects[o.ID][o.Suffix] = st.Size()
		return nil
	})
	return objects, strangers, err
}

// checkStore holds the store against the metadata: every object belongs to a finished segment, and every finished segment has its objects, whole.
func checkStore(segments map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata, objects map[remotestorage.UUID]map[layout.Suffix]int64, strangers []string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, name := range strangers {
		complain("%s is in the store and is no object of a segment", name)
	}
	for id := range objects {
		if _, ok := segments[id]; !ok {
			complain("objects of segment %s are in the store, of which nothing is recorded", id)
		}
	}
	for id, md := range segments {
		have := objects[id]
		if md.State != remotestorage.CopySegmentFinished {
			complain("segment %s is left in state %v, with %d objects", md.RemoteLogSegmentID, md.State, len(have))
			continue
		}
		want := []layout.Suffix{layout.Log, layout.OffsetIndex, layout.TimeIndex, layout.LeaderEpoch, layout.ProducerSnapshot}
		if !md.TxnIndexEmpty {
			want = append(want, layout.TransactionIndex)
		}
		for _, suffix := range want {
			if _, ok := have[suffix]; !ok {
				complain("segment %s has no %s", md.RemoteLogSegmentID, suffix)
			}
		}
		if len(have) > len(want) {
			complain("segment %s has %d objects, want %v", md.RemoteLogSegmentID, len(have), want)
		}
		if have[layout.Log] != int64(md.SegmentSizeInBytes) {
			complain("segment %s has a log of %d bytes, recorded are %d", md.RemoteLogSegmentID, have[layout.Log], md.SegmentSizeInBytes)
		}
	}
	slices.Sort(wrong)
	return wrong
}

const convergeLimit = 90 * time.Second

// converge waits until store and metadata agree, nothing is left half done, and of the tiered topics everything but the active segment is remote only.
func (l *load) converge(topics ...string) map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata {
	l.t.Helper()
	return l.convergeWithout(nil, topics...)
}

// convergeWithout waits for the end of deletions as well: of what is gone nothing is recorded.
func (l *load) convergeWithout(gone []string, topics ...string) map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, convergeLimit)
	defer cancel()
	for {
		segments, wrong, err := l.judgeStore(ctx, gone, topics)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(wrong) == 0 {
			return segments
		}
		if !pause(ctx, 200*time.Millisecond) {
			for _, w := range wrong[:min(len(wrong), 20)] {
				l.t.Errorf("tiering has not come to rest after %v: %s", convergeLimit, w)
			}
			l.t.FailNow()
		}
	}
}

func (l *load) judgeStore(ctx context.Context, gone, topics []string) (map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata, []string, error) {
	// Metadata that is read while the store goes on differs from it; then the next look tells.
	segments, err := l.recorded(ctx)
	if err != nil {
		return nil, nil, err
	}
	objects, strangers, err := l.s.stored()
	if err != nil {
		return nil, nil, err
	}
	wrong := checkStore(segments, objects, strangers)
	copied := map[place]int64{}
	for _, md := range segments {
		if slices.Contains(gone, md.Topic) {
			wrong = append(wrong, fmt.Sprintf("segment %s is recorded of a topic that was deleted", md.RemoteLogSegmentID))
		}
		p := place{md.Topic, md.Partition}
		copied[p] = max(copied[p], md.EndOffset)
	}
	for _, topic := range topics {
		for _, p := range placesOf(topic) {
			bases, err := l.s.localSegments(p)
			if err != nil {
				return nil, nil, err
			}
			if len(bases) != 1 {
				wrong = append(wrong, fmt.Sprintf("%s has local segments %v", p, bases))
			} else if last, some := copied[p]; some && bases[0] != last+1 {
				wrong = append(wrong, fmt.Sprintf("%s is local from %d on and remote up to %d", p, bases[0], last))
			} else if topic == short {
				over, err := l.s.overRetention(p, bases[0], segments)
				if err != nil {
					return nil, nil, err
				}
				if over {
					wrong = append(wrong, fmt.Sprintf("%s has a segment more than retention.bytes asks for", p))
				}
			}
		}
	}
	return segments, wrong, nil
}

// overRetention tells whether total retention by size has a segment of p to delete yet.
func (s *site) overRetention(p place, localBase int64, segments map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata) (bool, error) {
	st, err := os.Stat(filepath.Join(s.dataDir, p.String(), fmt.Sprintf("%020d.log", localBase)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // closed just now: look again
	}
	if err != nil {
		return false, err
	}
	total := st.Size()
	var oldest *remotestorage.RemoteLogSegmentMetadata
	for _, md := range segments {
		if md.Topic != p.topic || md.Partition != p.partition {
			continue
		}
		total += int64(md.SegmentSizeInBytes)
		if oldest == nil || md.StartOffset < oldest.StartOffset {
			oldest = &md
		}
	}
	return oldest != nil && total-int64(oldest.SegmentSizeInBytes) >= shortBytes, nil
}

// localSegments are the bases of the log files in a partition's folder.
func (s *site) localSegments(p place) (bases []int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dataDir, p.String()))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var base int64
		if name, ok := strings.CutSuffix(e.Name(), ".log"); ok {
			if _, err := fmt.Sscanf(name, "%d", &base); err != nil {
				return nil, err
			}
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases, nil
}
