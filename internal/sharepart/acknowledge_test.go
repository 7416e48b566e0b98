package sharepart

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"
)

func defaults() Config { return Config{MaxRecords: 2000, DeliveryLimit: 5, Lock: 30 * time.Second} }

func acquired(t *testing.T, member string, spans ...Span) *Partition {
	t.Helper()
	p, err := New(defaults, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spans {
		if got := p.Acquire(base, Fetched{Member: member, MaxRecords: 500, BatchSize: 500, Offset: p.Next(), Batches: []Span{s}}); len(got) == 0 {
			t.Fatalf("nothing of %v is acquired", s)
		}
	}
	return p
}

// What Apache Kafka answers; the session in internal/broker/testdata holds the same cases.
func TestAcknowledge(t *testing.T) {
	for _, c := range []struct {
		name   string
		member string
		acks   []Ack
		want   error
		start  int64
	}{
		{"all", "a", []Ack{{0, 9, []int8{Accept}}, {10, 19, []int8{Accept}}}, nil, 20},
		{"over two batches", "a", []Ack{{0, 19, []int8{Accept}}}, nil, 20},
		{"the first half", "a", []Ack{{0, 4, []int8{Accept}}}, nil, 5},
		{"released", "a", []Ack{{0, 9, []int8{Giveup}}}, nil, 0},
		{"one by one", "a", []Ack{{0, 3, []int8{Accept, Reject, Gap, Giveup}}}, nil, 3},
		{"another member", "b", []Ack{{0, 9, []int8{Accept}}}, ErrInvalidRecordState, 0},
		{"the second is another's", "a", []Ack{{0, 9, []int8{Accept}}, {20, 29, []int8{Accept}}}, ErrInvalidRequest, 0},
		{"beyond the end", "a", []Ack{{15, 22, []int8{Accept}}}, ErrInvalidRequest, 0},
		{"twice", "a", []Ack{{0, 9, []int8{Accept}}, {9, 10, []int8{Accept}}}, ErrInvalidRecordState, 0},
		{"out of order", "a", []Ack{{0, 9, []int8{Accept}}, {8, 8, []int8{Accept}}}, ErrInvalidRequest, 0},
		{"renewed", "a", []Ack{{0, 9, []int8{Renew}}}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := acquired(t, "a", Span{0, 9}, Span{10, 19})
			before := fmt.Sprint(p.describe())
			err := Valid(c.acks)
			if err == nil {
				err = p.Acknowledge(base, c.member, c.acks)
			}
			if !errors.Is(err, c.want) || err == nil && c.want != nil {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if p.Start() != c.start {
				t.Errorf("start %d, want %d", p.Start(), c.start)
			}
			if err != nil && fmt.Sprint(p.describe()) != before {
				t.Errorf("a refused acknowledgement changed %s to %v", before, p.describe())
			}
		})
	}
}

func TestAcknowledgedTwice(t *testing.T) {
	p := acquired(t, "a", Span{0, 9}, Span{10, 19})
	if err := p.Acknowledge(base, "a", []Ack{{10, 19, []int8{Accept}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Acknowledge(base, "a", []Ack{{10, 19, []int8{Accept}}}); !errors.Is(err, ErrInvalidRecordState) {
		t.Errorf("in flight still: %v", err)
	}
	if err := p.Acknowledge(base, "a", []Ack{{0, 9, []int8{Accept}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Acknowledge(base, "a", []Ack{{0, 9, []int8{Accept}}}); err != nil {
		t.Errorf("below the start: %v", err)
	}
}

func TestRenewKeepsTheLock(t *testing.T) {
	p := acquired(t, "a", Span{0, 9})
	later := base.Add(20 * time.Second)
	if err := p.Acknowledge(later, "a", []Ack{{0, 4, []int8{Renew}}}); err != nil {
		t.Fatal(err)
	}
	p.Expire(base.Add(30 * time.Second))
	if s, _, m, _ := p.Held(4); s != Acquired || m != "a" {
		t.Errorf("renewed: state %d of %q", s, m)
	}
	if s, _, _, _ := p.Held(5); s != Available {
		t.Errorf("not renewed: state %d", s)
	}
	if at, ok := p.Deadline(); !ok || !at.Equal(later.Add(30*time.Second)) {
		t.Errorf("deadline %v", at)
	}
}

// A record that makes its readers fail comes alone in the end, and then no more.
func TestLastAttemptsAreCareful(t *testing.T) {
	p := acquired(t, "a", Span{0, 15})
	var sizes []int64
	for range 200 {
		p.Release("a")
		p.TakeUpdates()
		if p.Start() > 15 {
			break
		}
		got := p.Acquire(base, Fetched{Member: "a", MaxRecords: 500, BatchSize: 500, Offset: p.Next(), Batches: []Span{{0, 15}}})
		var n int64
		for _, d := range got {
			n += d.Last - d.First + 1
		}
		sizes = append(sizes, n)
	}
	if p.Start() != 16 {
		t.Fatalf("start %d, sizes %v", p.Start(), sizes)
	}
	if sizes[0] != 16 || sizes[len(sizes)-1] != 1 {
		t.Errorf("sizes %v", sizes)
	}
}

func FuzzAcknowledge(f *testing.F) {
	f.Add([]byte{0, 0, 9, 1, 1})
	f.Add([]byte{0, 3, 3, 4, 1, 2, 3, 0, 10, 12, 1, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		p := acquired(t, "a", Span{0, 9}, Span{10, 19}, Span{25, 29})
		var acks []Ack
		for len(in) >= 4 && len(acks) < 50 {
			a := Ack{First: int64(int8(in[0]))<<8 | int64(in[1]), Types: []AckType{}}
			a.Last = a.First + int64(int8(in[2]))
			n := int(in[3]) % 40
			in = in[4:]
			for range min(n, len(in)) {
				a.Types = append(a.Types, int8(in[0]))
				in = in[1:]
			}
			acks = append(acks, a)
		}
		if len(in) >= 2 && len(acks) > 0 { // offsets from the whole range
			acks[0].Last += int64(binary.BigEndian.Uint16(in)) << 40
		}
		before := fmt.Sprint(p.describe())
		if Valid(acks) != nil {
			return
		}
		if err := p.Acknowledge(base, "a", acks); err != nil {
			if after := fmt.Sprint(p.describe()); after != before {
				t.Fatalf("refused (%v), and changed\n%s to\n%s", err, before, after)
			}
			return
		}
		accepted := map[int64]bool{}
		for _, a := range acks {
			for o := a.First; o <= min(a.Last, 29); o++ {
				if k := a.Types[0]; len(a.Types) == 1 && k == Accept || len(a.Types) > 1 && a.Types[o-a.First] == Accept {
					accepted[o] = true
				}
			}
		}
		for o := range int64(30) {
			s, _, _, ok := p.Held(o)
			if accepted[o] && ok && s != Acknowledged && o >= p.Start() {
				t.Fatalf("record %d is accepted and in state %d", o, s)
			}
			if !accepted[o] && ok && s == Acknowledged {
				t.Fatalf("record %d is not accepted and in state %d", o, s)
			}
		}
	})
}
