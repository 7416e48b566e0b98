package tier

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// history drives one partition through random events: appends, turns over a store that fails or loses power anywhere, local and total retention,
// DeleteRecords, remote storage off and on, restarts whose log start is an old one.
type history struct {
	t     *testing.T
	rt    *rapid.T
	log   *fakeLog
	part  Partition
	rig   *rig
	end   int64
	epoch int32
	saved int64 // the log start that a checkpoint holds
	legal int64 // how far any event has asked the log start to move
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: t, rt: rt, log: newFakeLog()}
		h.part = Partition{TP: tpOf(0), Log: h.log}
		h.rig = newRig(t, fakeRecordLogs(3), newMemStore(), h.part)
		rt.Repeat(map[string]func(*rapid.T){
			"append":     h.append,
			"append2":    h.append,
			"turn":       h.turn,
			"faulty":     func(rt *rapid.T) { h.faulty(rt, false) },
			"power":      func(rt *rapid.T) { h.faulty(rt, true) },
			"local":      h.localRetention,
			"total":      h.totalRetention,
			"delete":     h.deleteRecords,
			"restart":    h.restart,
			"checkpoint": func(*rapid.T) { h.saved = h.log.Offsets().LogStart },
			"switch":     h.switchRemote,
			"":           h.check,
		})
		h.converge()
	})
}

func (h *history) append(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "new epoch") {
		h.epoch++
	}
	h.log.epochs.Assign(h.epoch, h.end)
	last := h.end + rapid.Int64Range(0, 20).Draw(rt, "records")
	h.log.add(h.end, last, rapid.IntRange(1, 300).Draw(rt, "bytes"), h.end)
	h.end = last + 1
}

func (h *history) turn(*rapid.T) {
	h.refresh()
	if err := h.takeTurn(); err != nil {
		h.rt.Fatalf("a turn over a sound store: %v", err)
	}
}

func (h *history) takeTurn() error {
	if h.part.RemoteOff {
		_, err := h.rig.tier.purge(h.t.Context(), h.part, false)
		h.legal = max(h.legal, h.log.Offsets().LogStart)
		return err
	}
	return h.rig.turn(h.part)
}

// refresh lets the tier know the partition as it is configured now.
func (h *history) refresh() {
	h.rig.setParts(h.part)
	h.rig.tier.scan(false)
}

// faulty takes a turn that fails at some step of the store; with power, all that was not synced is lost in that moment.
func (h *history) faulty(rt *rapid.T, power bool) {
	n := rapid.IntRange(1, 30).Draw(rt, "step")
	h.rig.store.partial = rapid.Bool().Draw(rt, "partial")
	var after *rig
	h.rig.store.point = func(string, string, bool) error {
		if n--; n > 0 {
			return nil
		}
		if power && after == nil {
			after = h.rig.restart(h.part)
		}
		return errors.New("no")
	}
	err := h.takeTurn()
	h.rig.store.point = nil
	if err == nil && n <= 0 {
		rt.Fatal("a failure of the store was lost")
	}
	if after != nil {
		h.rig = after
		h.crashed()
	}
}

func (h *history) restart(*rapid.T) {
	h.rig = h.rig.restart(h.part)
	h.crashed()
}

// crashed brings the log back as a node finds it: an old log start, the local files, no knowledge of what is remote.
func (h *history) crashed() {
	h.log.offsets.LogStart = max(h.saved, 0)
	if h.part.RemoteOff { // a log without remote storage begins with its first file
		h.log.offsets.LogStart = max(h.log.offsets.LogStart, h.log.offsets.LocalLogStart)
	}
	h.log.highest = -1
	h.rig.tier.adopt(h.part)
}

func (h *history) localRetention(rt *rapid.T) {
	if h.part.RemoteOff {
		rt.Skip()
	}
	free := 0
	for _, s := range h.log.segments {
		if s.End > h.log.highestRemote() {
			break
		}
		free++
	}
	h.log.dropLocal(rapid.IntRange(0, free).Draw(rt, "segments"))
}

func (h *history) totalRetention(rt *rapid.T) {
	p := h.part
	p.Retention = &Retention{Ms: -1, Bytes: rapid.Int64Range(0, 2000).Draw(rt, "bytes")}
	if p.RemoteOff {
		rt.Skip()
	}
	if err := h.rig.turn(p); err != nil {
		rt.Fatal(err)
	}
	h.legal = max(h.legal, h.log.Offsets().LogStart)
}

func (h *history) deleteRecords(rt *rapid.T) {
	o := h.log.Offsets()
	to := rapid.Int64Range(o.LogStart, max(o.LogStart, o.LogEnd)).Draw(rt, "offset")
	if err := h.log.AdvanceLogStart(to, "DeleteRecords"); err != nil {
		rt.Fatal(err)
	}
	h.legal = max(h.legal, to)
}

func (h *history) switchRemote(*rapid.T) {
	h.refresh()
	h.part.RemoteOff = !h.part.RemoteOff
	h.rig.setParts(h.part)
	if h.part.RemoteOff {
		if err := h.rig.tier.DisableRemote(h.part.TP); err != nil {
			h.rt.Fatal(err)
		}
		h.legal = max(h.legal, h.log.Offsets().LogStart)
		h.saved = h.log.Offsets().LogStart // the node writes its checkpoint with the configuration
		return
	}
	h.rig.tier.adopt(h.part)
}

// check: every offset at or above the log start is in a local segment or in a whole remote one; the log start never moved further than it was asked to.
func (h *history) check(*rapid.T) {
	o := h.log.Offsets()
	if o.LogStart > h.legal {
		h.rt.Fatalf("the log start is %d, nothing asked for more than %d", o.LogStart, h.legal)
	}
	var holes []string
	readable := o.LogStart
	if e := h.log.epochs.Entries(); len(e) > 0 { // an old log start came back, see covered
		readable = max(readable, e[0].StartOffset)
	}
	for off := readable; off < o.LogEnd; off++ {
		if !h.local(off) && !h.remote(off) {
			holes = append(holes, fmt.Sprint(off))
		}
	}
	if len(holes) > 0 {
		h.rt.Fatalf("nowhere are %v; log %+v", holes, o)
	}
	if hi := h.log.highestRemote(); hi >= 0 {
		for off := max(readable, localStart(o)); off <= hi; off++ {
			if !h.remote(off) {
				h.rt.Fatalf("local files up to %d may go, but %d is not remote", hi, off)
			}
		}
	}
}

func (h *history) local(off int64) bool {
	for _, s := range h.log.segments {
		if s.Base <= off && off <= s.End {
			return true
		}
	}
	return false
}

func (h *history) remote(off int64) bool {
	p := h.rig.meta.Index().Partition(h.part.TP)
	if p == nil {
		return false
	}
	md, last, ok := p.Find(h.log.epochs, off)
	if !ok || md.StartOffset > off || last < off {
		return false
	}
	b, ok := h.rig.store.get(objectName(md.ID, ".log"))
	return ok && len(b) == int(md.SegmentSizeInBytes)
}

// converge: with a sound store nothing is left but whole, recorded segments, and everything closed is remote.
func (h *history) converge() {
	for range 100 {
		if err := h.takeTurn(); err != nil {
			h.rt.Fatal(err)
		}
	}
	h.check(h.rt)
	all := h.rig.segments(h.part.TP)
	if h.part.RemoteOff && len(all) > 0 {
		h.rt.Fatalf("remote storage is off, %d segments are left", len(all))
	}
	requireWhole(h.t, h.rig.store, all)
	if h.t.Failed() {
		h.rt.Fatal("see above")
	}
	if o := h.log.Offsets(); !h.part.RemoteOff && o.LogEnd > o.LogStart && h.log.highestRemote() != o.LogEnd-1 {
		h.rt.Fatalf("closed up to %d, remote up to %d", o.LogEnd-1, h.log.highestRemote())
	}
}

var (
	_ remotelog.Lineage                  = (*epoch.Cache)(nil)
	_ Log                                = (*partlog.Log)(nil)
	_ remotestorage.RemoteStorageManager = (*memStore)(nil)
)
