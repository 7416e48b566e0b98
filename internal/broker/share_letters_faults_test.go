package broker

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// awayStore is a store that cannot be read for a while.
type awayStore struct {
	remotestorage.RemoteStorageManager
	away atomic.Bool
}

func (s *awayStore) FetchLogSegment(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	if s.away.Load() {
		return nil, errNoSpace
	}
	return s.RemoteStorageManager.FetchLogSegment(ctx, m, start, end)
}

// TestLettersWhileTheStoreIsAway: letters about history are copied if the store is there again soon. They go without a copy only if it is not.
func TestLettersWhileTheStoreIsAway(t *testing.T) {
	rsm, _ := directoryStore(t)
	store := &awayStore{RemoteStorageManager: rsm}
	b := startBroker(t, t.TempDir(), withRSM(store), tieredKeys(), shareKeys())
	b.tieredTopic(t, "history", 1)
	b.produceTiered(t, "history", 1, 200)
	b.letterQueue(t, "g", "errors.deadletterqueue.copy.record.enable", "true")
	m := b.member(t, "g", "m", "history")
	b.shares.letters.readWait = 200 * time.Millisecond
	store.away.Store(true)
	about := []sharepart.Letter{{First: 3, Last: 9, Count: 1, Rejected: true}, {First: 50, Last: 50, Count: 1, Rejected: true}}
	p := b.partition("history", 0)
	if got, err := b.shares.letters.read(t.Context(), p, about, 1<<20, false); !errors.Is(err, errLetterRead) || len(got.of) != 0 {
		t.Errorf("%d copies, %v", len(got.of), err)
	}
	if got, err := b.shares.letters.read(t.Context(), p, about, 1<<20, true); err != nil || len(got.of) != 0 || got.resolved != 50 {
		t.Errorf("the last time: %d copies, resolved up to %d, %v", len(got.of), got.resolved, err)
	}
	k := shareKey{"g", m.topicID, 0}
	b.shares.letters.post(k, about)
	began := time.Now()
	await(t, "an attempt to fail", func() bool { return time.Since(began) > 4*b.shares.letters.readWait })
	store.away.Store(false)
	await(t, "the letters", func() bool { return !b.archiving(k) })
	letters := b.deadLetters(t)
	for _, o := range []int64{3, 4, 5, 6, 7, 8, 9, 50} {
		if l := letters[o]; len(l) != 1 || string(l[0].key) != strconv.FormatInt(o, 10) || len(l[0].value) != int(100+o*7%900) {
			t.Errorf("letters of %d: %.100q", o, l)
		}
	}
}

// TestLettersWhileTheirQueueCannotBeMade: whichever write of it fails, the queue is made when there is room again, and has the letters.
func TestLettersWhileTheirQueueCannotBeMade(t *testing.T) {
	for at, failed := int64(1), true; failed; at += 3 {
		var f fault
		b := startBroker(t, "/node", withFS(f.fs(crashableFS(t))), shareKeys("errors.deadletterqueue.auto.create.topics.enable", "true"))
		b.createTopic(t, "t", 1)
		produceSome(t, b.client(t), "t", 0, 10)
		b.configureGroup(t, "g", map[string]string{"errors.deadletterqueue.topic.name": deadQueue})
		k := shareKey{"g", b.member(t, "g", "m", "t").topicID, 0}
		f.begin(at)
		b.shares.letters.post(k, []sharepart.Letter{{First: 3, Last: 4, Count: 1, Rejected: true}})
		await(t, "the write to fail, or none left", func() bool { return f.seen.Load() >= at || !b.archiving(k) })
		failed = f.end()
		await(t, "the letters", func() bool { return !b.archiving(k) })
		if b.partition(deadQueue, 0) == nil {
			t.Errorf("write %d failed: there is no queue", at)
			continue
		}
		if letters := b.deadLetters(t); len(letters[3]) != 1 || len(letters[4]) != 1 {
			t.Errorf("write %d failed: letters %v", at, letters)
		}
	}
}
