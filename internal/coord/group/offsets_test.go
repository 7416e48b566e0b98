package group

import (
	"errors"
	"testing"
	"time"
)

func at(topic string, partition int32, offset int64, now time.Time) OffsetOf {
	return OffsetOf{TopicPartition{topic, partition}, Offset{Offset: offset, LeaderEpoch: -1, Committed: now}}
}

func (r *rig) commit(c Commit) CommitResult {
	c.Token = r.token()
	r.do(&c)
	return r.got[c.Token].(CommitResult)
}

func TestCommitOfMember(t *testing.T) {
	r := stable(t)
	for name, c := range map[string]struct {
		commit Commit
		want   error
	}{
		"member":         {Commit{MemberID: "a", Generation: 2}, nil},
		"old generation": {Commit{MemberID: "a", Generation: 1}, ErrIllegalGeneration},
		"stranger":       {Commit{MemberID: "x", Generation: 2}, ErrUnknownMember},
		"nobody":         {Commit{Generation: -1}, ErrUnknownMember},
		"no instance":    {Commit{MemberID: "a", InstanceID: "i", Generation: 2}, ErrUnknownMember},
	} {
		t.Run(name, func(t *testing.T) {
			c.commit.Offsets = []OffsetOf{at("t", 0, 5, r.now)}
			if got := r.commit(c.commit); !errors.Is(got.Err, c.want) {
				t.Errorf("%v, want %v", got.Err, c.want)
			}
		})
	}
	r.rejoin("a", nil)
	r.rejoin("b", nil)
	r.inState(CompletingRebalance)
	if got := r.commit(Commit{MemberID: "a", Generation: 3, Offsets: []OffsetOf{at("t", 0, 6, r.now)}}); !errors.Is(got.Err, ErrRebalance) {
		t.Errorf("while completing: %v", got.Err)
	}
	if p, _ := r.g.Offset(TopicPartition{"t", 0}); p.Offset != 5 {
		t.Errorf("offset %d", p.Offset)
	}
}

func TestCommitKeepsMemberAlive(t *testing.T) {
	r := stable(t)
	for range 6 {
		r.pass(5 * time.Second)
		for _, id := range []string{"a", "b"} {
			if got := r.commit(Commit{MemberID: id, Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, r.now)}}); got.Err != nil {
				t.Fatal(got.Err)
			}
		}
	}
}

func TestSimpleConsumer(t *testing.T) {
	r := newRig(t)
	o := at("t", 0, 5, r.now)
	o.Metadata = "12345678"
	long := at("t", 1, 6, r.now)
	long.Metadata = "123456789"
	got := r.commit(Commit{Generation: -1, Offsets: []OffsetOf{o, long}})
	if got.Err != nil || got.Partitions[0] != nil || !errors.Is(got.Partitions[1], ErrMetadataTooLarge) {
		t.Fatalf("got %+v", got)
	}
	if p, ok := r.g.Offset(TopicPartition{"t", 0}); !ok || p.Metadata != "12345678" {
		t.Errorf("got %+v", p)
	}
	if len(r.g.Offsets()) != 1 || len(r.log) != 1 {
		t.Errorf("%d offsets, %d records", len(r.g.Offsets()), len(r.log))
	}
	if r.g.Disposable() {
		t.Error("offsets would be lost")
	}
}

func TestFailedCommitIsTakenBack(t *testing.T) {
	r := newRig(t)
	r.commit(Commit{Generation: -1, Offsets: []OffsetOf{at("t", 0, 5, r.now)}})
	r.broken = true
	got := r.commit(Commit{Generation: -1, Offsets: []OffsetOf{at("t", 0, 6, r.now), at("t", 0, 7, r.now), at("u", 0, 1, r.now)}})
	if !errors.Is(got.Err, ErrNotAvailable) {
		t.Errorf("got %+v", got)
	}
	if p, _ := r.g.Offset(TopicPartition{"t", 0}); p.Offset != 5 {
		t.Errorf("offset %d", p.Offset)
	}
	if _, ok := r.g.Offset(TopicPartition{"u", 0}); ok {
		t.Error("an offset stayed")
	}
	token := r.token()
	r.do(&Delete{Token: token})
	r.fails(token, ErrNotAvailable)
	r.inState(Empty)
	if len(r.g.Offsets()) != 1 {
		t.Error("a failed deletion lost the offset")
	}
}

func TestDeleteOffsets(t *testing.T) {
	r := stable(t)
	r.commit(Commit{MemberID: "a", Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, r.now), at("old", 0, 5, r.now)}})
	token := r.token()
	r.do(&DeleteOffsets{Token: token, Partitions: []TopicPartition{{"t", 0}, {"old", 0}, {"none", 0}}})
	got := r.got[token].(CommitResult)
	if got.Err != nil || !errors.Is(got.Partitions[0], ErrSubscribed) || got.Partitions[1] != nil || got.Partitions[2] != nil {
		t.Fatalf("got %+v", got)
	}
	if len(r.g.Offsets()) != 1 || r.log[len(r.log)-1].Value != nil {
		t.Error("no tombstone")
	}
	r.pass(time.Hour)
	r.inState(Empty)
	token = r.token()
	r.do(&DeleteOffsets{Token: token, Partitions: []TopicPartition{{"t", 0}}})
	if got := r.got[token].(CommitResult); got.Partitions[0] != nil || len(r.g.Offsets()) != 0 {
		t.Errorf("got %+v", got)
	}

	other := newRig(t)
	other.joinNew("w", func(j *Join) { j.ProtocolType = "connect" })
	token = other.token()
	other.do(&DeleteOffsets{Token: token, Partitions: []TopicPartition{{"t", 0}}})
	other.fails(token, ErrNonEmpty)
}

func TestDeleteGroup(t *testing.T) {
	r := stable(t)
	r.commit(Commit{MemberID: "a", Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, r.now)}})
	token := r.token()
	r.do(&Delete{Token: token})
	r.fails(token, ErrNonEmpty)
	r.pass(time.Minute)
	r.inState(Empty)
	token = r.token()
	r.do(&Delete{Token: token})
	r.fails(token, nil)
	if !r.g.Disposable() || len(replayed(t, r.log).Offsets()) != 0 || replayed(t, r.log).classic().state != Dead {
		t.Error("something is left of the group")
	}
}

func TestForgetTopic(t *testing.T) {
	r := newRig(t)
	r.commit(Commit{Generation: -1, Offsets: []OffsetOf{at("t", 0, 5, r.now), at("t", 1, 5, r.now), at("u", 0, 5, r.now)}})
	r.do(ForgetTopic{"t"})
	if got := r.g.Offsets(); len(got) != 1 || got[0].Topic != "u" {
		t.Errorf("left: %v", got)
	}
}

func TestExpiry(t *testing.T) {
	t.Run("simple consumer", func(t *testing.T) {
		r := newRig(t)
		r.commit(Commit{Generation: -1, Offsets: []OffsetOf{at("t", 0, 5, r.now)}})
		r.pass(59 * time.Minute)
		r.commit(Commit{Generation: -1, Offsets: []OffsetOf{at("t", 1, 5, r.now)}})
		r.do(Expire{})
		if len(r.g.Offsets()) != 2 {
			t.Fatal("too early")
		}
		r.pass(time.Minute)
		r.do(Expire{})
		if got := r.g.Offsets(); len(got) != 1 || got[0].Partition != 1 {
			t.Errorf("left: %v", got)
		}
		r.pass(time.Hour)
		r.do(Expire{})
		if r.g.classic().state != Dead || replayed(t, r.log).classic().state != Dead {
			t.Error("the group is still there")
		}
	})
	t.Run("group that emptied", func(t *testing.T) {
		r := stable(t)
		r.commit(Commit{MemberID: "a", Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, r.now.Add(-2*time.Hour))}})
		r.do(Expire{})
		if len(r.g.Offsets()) != 1 {
			t.Fatal("expired under a living group")
		}
		r.pass(30 * time.Minute)
		r.inState(Empty)
		r.do(Expire{})
		if len(r.g.Offsets()) != 1 {
			t.Fatal("expired before the retention since it emptied")
		}
		r.pass(time.Hour)
		r.do(Expire{})
		if len(r.g.Offsets()) != 0 {
			t.Error("not expired")
		}
	})
	t.Run("topic that nobody subscribes to", func(t *testing.T) {
		r := stable(t)
		long := r.now.Add(-2 * time.Hour)
		r.commit(Commit{MemberID: "a", Generation: 2, Offsets: []OffsetOf{at("t", 0, 5, long), at("old", 0, 5, long)}})
		r.do(Expire{})
		if got := r.g.Offsets(); len(got) != 1 || got[0].Topic != "t" {
			t.Errorf("left: %v", got)
		}
	})
	t.Run("retention of its own", func(t *testing.T) {
		r := newRig(t)
		o := at("t", 0, 5, r.now)
		o.Expires = r.now.Add(time.Minute)
		r.commit(Commit{Generation: -1, Offsets: []OffsetOf{o, at("t", 1, 5, r.now)}})
		r.pass(time.Minute)
		r.do(Expire{})
		if got := r.g.Offsets(); len(got) != 1 {
			t.Errorf("left: %v", got)
		}
	})
}
