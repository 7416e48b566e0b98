package group

import (
	"fmt"
	"testing"
)

// go test -bench . -benchmem ./internal/coord/group
func BenchmarkHeartbeat(b *testing.B) {
	for _, members := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			g := New("g", func() Config { c := testConfig(); c.MaxSize = 10_000; return c }, t0)
			for i := range members {
				j := join(i, "")
				j.NewMemberID = fmt.Sprint(i)
				g.Step(t0, j)
			}
			for i := range members {
				g.Step(t0, join(i, fmt.Sprint(i)))
			}
			beat := &Heartbeat{MemberID: "0", Generation: g.classic().generation}
			b.ReportAllocs()
			for b.Loop() {
				g.Step(t0, beat)
				g.Deadline()
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	g := New("g", testConfig, t0)
	c := &Commit{Generation: -1}
	for i := range int32(100) {
		c.Offsets = append(c.Offsets, at("topic", i, 5, t0))
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Step(t0, c)
	}
}
