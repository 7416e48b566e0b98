package checkers

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// rewindBinary is the broker under test.
var rewindBinary rewindbin.Binary

func TestMain(m *testing.M) { rewindBinary.Main(m) }

// kills are how often a broker is killed: REWIND_CHECK_KILLS, or as often as a short run allows.
func kills(t *testing.T) int {
	s := os.Getenv("REWIND_CHECK_KILLS")
	if s == "" {
		return 2
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("REWIND_CHECK_KILLS is %q", s)
	}
	return n
}

// TestKill puts all loads on a broker, ours and an Apache Kafka, kills it time and again, and judges the histories.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("an Apache Kafka is started")
	}
	each(t, func(t *testing.T, v victim) {
		loads := []struct {
			name  string
			start func(*testing.T, victim) func(*testing.T)
		}{{"log", startLog}, {"offsets", startOffsets}, {"transactions", startTransactions}}
		judges := make([]func(*testing.T), len(loads))
		for i, l := range loads {
			judges[i] = l.start(t, v)
		}
		rounds(t, v)
		for i, l := range loads {
			t.Run(l.name, judges[i])
		}
	})
}

// rounds kills the broker time and again, some moments after each start.
func rounds(t *testing.T, v victim) {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("REWIND_CHECK_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("REWIND_CHECK_SEED is %q", s)
		}
	}
	t.Logf("REWIND_CHECK_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range kills(t) {
		time.Sleep(time.Second + time.Duration(rnd.Int64N(int64(2*time.Second)))) // the load runs meanwhile
		v.kill()
		v.restart()
	}
	time.Sleep(time.Second)
}
