package remotelog

import (
	"sort"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// slot is one segment in memory: 88 bytes, where RemoteLogSegmentMetadata takes twice as much before its slices.
type slot struct {
	id             remotestorage.UUID
	start, end     int64
	maxTs, eventTs int64
	custom         string // "" stands for nil unless hasCustom
	size           int32
	broker         int32
	epoch          int32 // the only epoch, starting at start, if epochs is oneEpoch
	epochs         int32 // index into slots.lists
	state          remotestorage.SegmentState
	txnEmpty       bool
	hasCustom      bool
	used           bool
}

const oneEpoch = -1

// slots keeps the segments of a partition. A slot's number stays the same for the segment's life and is used again after it.
type slots struct {
	all   []slot
	free  []uint32
	byID  map[remotestorage.UUID]uint32
	lists [][]remotestorage.EpochStart // epochs of the segments that have several; nil where free
	gaps  []int32                      // free places in lists
}

func (s *slots) add(m *remotestorage.RemoteLogSegmentMetadata) uint32 {
	v := slot{
		id: m.ID, start: m.StartOffset, end: m.EndOffset, maxTs: m.MaxTimestampMs, eventTs: m.EventTimestampMs,
		custom: string(m.CustomMetadata), hasCustom: m.CustomMetadata != nil,
		size: m.SegmentSizeInBytes, broker: m.BrokerID, state: m.State, txnEmpty: m.TxnIndexEmpty, used: true,
	}
	if e := m.SegmentLeaderEpochs; len(e) == 1 && e[0].StartOffset == m.StartOffset {
		v.epoch, v.epochs = e[0].LeaderEpoch, oneEpoch
	} else {
		v.epochs = s.keepList(e)
	}
	n := uint32(len(s.all))
	if k := len(s.free); k > 0 {
		n, s.free = s.free[k-1], s.free[:k-1]
		s.all[n] = v
	} else {
		s.all = append(s.all, v)
	}
	s.byID[m.ID] = n
	return n
}

func (s *slots) keepList(e []remotestorage.EpochStart) int32 {
	e = append([]remotestorage.EpochStart(nil), e...)
	if k := len(s.gaps); k > 0 {
		n := s.gaps[k-1]
		s.gaps = s.gaps[:k-1]
		s.lists[n] = e
		return n
	}
	s.lists = append(s.lists, e)
	return int32(len(s.lists) - 1)
}

func (s *slots) remove(n uint32) {
	v := &s.all[n]
	delete(s.byID, v.id)
	if v.epochs != oneEpoch {
		s.lists[v.epochs] = nil
		s.gaps = append(s.gaps, v.epochs)
	}
	*v = slot{}
	s.free = append(s.free, n)
}

// epochsOf lists the segment's epochs. scratch saves an allocation for the common segment, which has one.
func (s *slots) epochsOf(n uint32, scratch *[1]remotestorage.EpochStart) []remotestorage.EpochStart {
	v := &s.all[n]
	if v.epochs != oneEpoch {
		return s.lists[v.epochs]
	}
	scratch[0] = remotestorage.EpochStart{LeaderEpoch: v.epoch, StartOffset: v.start}
	return scratch[:]
}

// span gives the offsets, both inclusive, that an epoch has in a segment; empty (first > last) if none.
func (s *slots) span(n uint32, epoch int32) (first, last int64) {
	v := &s.all[n]
	if v.epochs == oneEpoch {
		if v.epoch == epoch {
			return v.start, v.end
		}
		return 0, -1
	}
	list := s.lists[v.epochs]
	i := sort.Search(len(list), func(i int) bool { return list[i].LeaderEpoch >= epoch })
	if i == len(list) || list[i].LeaderEpoch != epoch {
		return 0, -1
	}
	return spanAt(list, i, v.start, v.end)
}

// spanAt is span for the i-th entry. The first epoch of a segment may have begun before it.
func spanAt(list []remotestorage.EpochStart, i int, start, end int64) (first, last int64) {
	first, last = max(list[i].StartOffset, start), end
	if i+1 < len(list) {
		last = min(end, list[i+1].StartOffset-1)
	}
	return first, last
}

func (s *slots) metadata(tp remotestorage.TopicIDPartition, n uint32) remotestorage.RemoteLogSegmentMetadata {
	v := &s.all[n]
	var one [1]remotestorage.EpochStart
	m := remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: v.id},
		StartOffset:        v.start, EndOffset: v.end, BrokerID: v.broker, MaxTimestampMs: v.maxTs, EventTimestampMs: v.eventTs,
		SegmentLeaderEpochs: append([]remotestorage.EpochStart(nil), s.epochsOf(n, &one)...),
		SegmentSizeInBytes:  v.size, State: v.state, TxnIndexEmpty: v.txnEmpty,
	}
	if v.hasCustom {
		m.CustomMetadata = []byte(v.custom)
	}
	return m
}
