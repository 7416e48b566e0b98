package difftest

import (
	"bytes"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/control"
)

var onlyKeys = flag.String("keys", "", "the API keys to compare, with commas between them; all if empty")

func wanted(key int16) bool {
	return *onlyKeys == "" || slices.Contains(strings.Split(*onlyKeys, ","), strconv.Itoa(int(key)))
}

// long is the whole comparison: every mutation in every version, and pairs of them. Otherwise a sample is taken.
func long() bool { return os.Getenv("REWIND_DIFF_LONG") != "" }

// pairShare is how many pairs of mutations there are beside a hundred single ones, in a long run. None if nothing is said.
func pairShare() int {
	n, err := strconv.Atoi(os.Getenv("REWIND_DIFF_PAIRS"))
	if err != nil {
		return 0
	}
	return n
}

func seedOf(t *testing.T) uint64 {
	seed := uint64(1)
	if long() {
		seed = rand.Uint64()
	}
	if s := os.Getenv("REWIND_DIFF_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("REWIND_DIFF_SEED is %q", s)
		}
	}
	t.Logf("REWIND_DIFF_SEED=%d", seed)
	return seed
}

// pair is both brokers.
type pair struct {
	kafka, ours *side
	silent      map[string]int // mutations that went unanswered, and how often: each costs patience
}

func (p *pair) both(do func(s *side) error) error {
	var g errgroup.Group
	g.Go(func() error { return do(p.kafka) })
	g.Go(func() error { return do(p.ours) })
	return g.Wait()
}

// startPair starts both with an authorizer, of whom nobody asks anything, and with the same settings.
func startPair(t *testing.T) (*pair, []kmsg.ApiVersionsResponseApiKey) {
	t.Helper()
	c := clustertest.Start(t, clustertest.Options{ACLs: true, Config: map[string]string{"broker.rack": "", "group.max.session.timeout.ms": "1800000"}})
	args := []string{"broker", "--control", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--store", "file://" + t.TempDir()}
	for _, kv := range []string{
		"offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4", "remote.log.metadata.topic.num.partitions=5", "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS", "group.max.session.timeout.ms=1800000",
	} {
		args = append(args, "--set", kv)
	}
	var log bytes.Buffer
	child, err := control.StartBinary(t.Context(), rewindBinary.Path(t), &log, args...)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{kafka: &side{name: "Apache Kafka", addr: c.Bootstrap(clustertest.Plaintext)}, ours: &side{name: "ours", addr: child.Ready.Addr}}
	t.Cleanup(func() {
		p.kafka.close()
		p.ours.close()
		if err := child.Stop(30 * time.Second); err != nil {
			t.Errorf("stopping the broker: %v", err)
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
				t.Errorf("the broker says: %s", line)
			}
		}
	})
	for _, s := range []*side{p.kafka, p.ours} {
		s.topics = map[[16]byte]string{}
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.SetVersion(3)
	versions.ClientSoftwareName, versions.ClientSoftwareVersion = "difftest", "1"
	resp, err := ask[*kmsg.ApiVersionsResponse](p.ours, versions)
	if err == nil {
		for _, k := range resp.ApiKeys {
			p.ours.keys = append(p.ours.keys, k.ApiKey)
		}
		p.kafka.keys = p.ours.keys
		err = p.both((*side).prepare)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, resp.ApiKeys
}

// found is a case in which the answers differ.
type found struct {
	api         string
	version     int16
	what        string
	kafka, ours string
}

func (f found) String() string {
	return fmt.Sprintf("%s v%d, %s\n  Apache Kafka: %s\n  ours:         %s", f.api, f.version, f.what, f.kafka, f.ours)
}

// workers are how many keys are compared at one time: most of it is waiting.
const workers = 6

func TestAsApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("an Apache Kafka is started")
	}
	seed := seedOf(t)
	p, keys := startPair(t)
	tb := newTable()
	all := builds()
	var g errgroup.Group
	g.SetLimit(workers)
	lanes := map[int16][]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range keys {
		if wanted(k.ApiKey) {
			lanes[laneOf(k.ApiKey)] = append(lanes[laneOf(k.ApiKey)], k)
		}
	}
	for _, lane := range lanes {
		g.Go(func() error {
			q := p.another()
			defer q.close()
			for _, k := range lane {
				make, ok := all[k.ApiKey]
				if !ok {
					make = filled(k.ApiKey)
				}
				q.compareKey(t, k, make, seed, tb)
			}
			return nil
		})
	}
	_ = g.Wait()
	tb.judge(t, *onlyKeys != "")
}

// laneOf puts keys together whose requests see what the others' have done: they come one after the other.
func laneOf(key int16) int16 {
	switch key {
	case 8, 9, 28, 47:
		return 8
	case 29, 30, 31:
		return 29
	case 50, 51:
		return 50
	case 68, 69:
		return 68
	case 76, 77, 78, 79, 90, 91, 92:
		return 76
	}
	return key
}

// compareKey compares all versions.
func (p *pair) compareKey(t *testing.T, k kmsg.ApiVersionsResponseApiKey, make build, seed uint64, tb *table) {
	began, cases := time.Now(), 0
	for v := k.MinVersion; v <= k.MaxVersion; v++ {
		n, err := p.compare(k.ApiKey, v, make, seed, tb)
		cases += n
		if err != nil {
			t.Errorf("%s v%d: %v", kmsg.NameForKey(k.ApiKey), v, err)
			return
		}
	}
	t.Logf("%s: %d requests to each in %v", kmsg.NameForKey(k.ApiKey), cases, time.Since(began).Round(time.Millisecond))
}

// another is the same brokers asked over other connections.
func (p *pair) another() *pair {
	one := func(s *side) *side {
		return &side{name: s.name, addr: s.addr, topics: maps.Clone(s.topics), keys: s.keys}
	}
	return &pair{one(p.kafka), one(p.ours), map[string]int{}}
}

func (p *pair) close() {
	p.kafka.close()
	p.ours.close()
}

// compare sends what is made of the good request of one key and version to both.
func (p *pair) compare(key, version int16, make build, seed uint64, tb *table) (int, error) {
	n := 0
	scope := func() string { n++; return fmt.Sprintf("k%dv%dn%d-", key, version, n) }
	first, err := p.build(p.ours, scope(), version, make)
	if err == nil {
		n--
		_, err = p.build(p.kafka, scope(), version, make)
	}
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	fmt.Fprint(h, key, version)
	rnd := rand.New(rand.NewPCG(seed, h.Sum64()))
	nothing := mutation{name: "as it should be", change: func(kmsg.Request) error { return nil }}
	for _, m := range append([]mutation{nothing}, chosen(mutations(first), rnd, func(m string) bool { return tb.wants(key, m) })...) {
		// Two that leave Apache Kafka without a broker: that is taken away, or its controller ends with a fatal fault in the thread of its quorum.
		if p.silenced(m) || key == 64 && strings.Contains(m.name, "BrokerID=1") || key == 80 && strings.Contains(m.name, " and ") && strings.Contains(m.name, "VoterDirectoryID=unknown") {
			continue
		}
		sc := scope()
		f, err := p.one(sc, key, version, make, m, patience)
		if err != nil {
			return n, fmt.Errorf("%s: %w", m.name, err)
		}
		// On a busy machine one of them may have been too slow to answer, or not have done yet what it answered before: each try has more time.
		for try := 0; err == nil && f != nil && !tb.knows(key, f) && try < 2; try++ {
			f, err = p.one(scope(), key, version, make, m, patience<<(2*try+2))
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", m.name, err)
		}
		if f != nil {
			tb.add(key, *f)
		} else {
			tb.same(key, m.name)
		}
	}
	return n, nil
}

// sampled is how many mutations of each key and version are tried in the short run.
const sampled = 12

func chosen(all []mutation, rnd *rand.Rand, wanted func(string) bool) []mutation {
	if long() {
		single := len(all)
		for range single * pairShare() / 100 {
			a, b := all[rnd.IntN(single)], all[rnd.IntN(single)]
			if a.change == nil || b.change == nil {
				continue
			}
			all = append(all, mutation{name: a.name + " and " + b.name, change: func(req kmsg.Request) error {
				if err := a.change(req); err != nil {
					return err
				}
				_ = b.change(req) // what the first has taken away cannot be changed
				return nil
			}})
		}
		return all
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n := 0
	return slices.DeleteFunc(all, func(m mutation) bool {
		if wanted(m.name) {
			return false
		}
		n++
		return n > sampled
	})
}

// silenced: enough versions were not answered.
func (p *pair) silenced(m mutation) bool {
	for _, part := range strings.Split(m.name, " and ") {
		if n := p.silent[part]; n > 1 || n > 0 && part != m.name {
			return true
		}
	}
	return false
}

func (p *pair) build(s *side, scope string, version int16, make build) (kmsg.Request, error) {
	req, err := make(&scene{s: s, scope: scope, v: version})
	if err == nil {
		req.SetVersion(version)
	}
	return req, err
}

// one sends one mutation to both; nil: the answers are the same, or the version does not have what was changed.
func (p *pair) one(scope string, key, version int16, make build, m mutation, wait time.Duration) (*found, error) {
	var got [2][]string
	var changed [2]bool
	sides := [2]*side{p.kafka, p.ours}
	var g errgroup.Group
	for i, s := range sides {
		g.Go(func() error {
			req, err := p.build(s, scope, version, make)
			if err != nil {
				return err
			}
			frame, plain, err := mutated(s, req, m)
			if err != nil {
				return err
			}
			changed[i] = plain == nil || !bytes.Equal(frame, plain)
			if !changed[i] {
				return nil
			}
			got[i] = s.lines(s.send(frame, req, wait), scope)
			// A controller that is busy with its own state says that it is none.
			for try := 0; key == 80 || key == 81; try++ {
				if try > 100 || !slices.Contains(got[i], "ErrorCode="+code(kerr.NotLeaderForPartition.Code)) {
					break
				}
				time.Sleep(200 * time.Millisecond)
				got[i] = s.lines(s.send(frame, req, wait), scope)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || !changed[0] {
		return nil, err
	}
	for _, g := range got {
		if len(g) == 1 && g[0] == "silent" {
			p.silent[m.name]++
		}
	}
	kafka, ours := apart(got[0], got[1])
	if kafka == "" && ours == "" {
		return nil, nil
	}
	return &found{kmsg.NameForKey(key), version, m.name, kafka, ours}, nil
}

// mutated gives the frame, and the one without the mutation, nil where there is no other.
func mutated(s *side, req kmsg.Request, m mutation) (frame, plain []byte, err error) {
	plain = s.frame(req)
	if m.bytes != nil {
		frame, err = m.bytes(req, bytes.Clone(plain))
		return frame, plain, err
	}
	if err := m.change(req); err != nil {
		return nil, nil, err
	}
	s.id--
	if frame = s.frame(req); m.name == "as it should be" {
		plain = nil
	}
	return frame, plain, nil
}

// apart gives the lines that only one of them has.
func apart(kafka, ours []string) (onlyKafka, onlyOurs string) {
	count := map[string]int{}
	for _, l := range kafka {
		count[l]++
	}
	var a, b []string
	for _, l := range ours {
		if count[l]--; count[l] < 0 {
			b = append(b, l)
		}
	}
	for _, l := range kafka {
		if count[l] > 0 {
			count[l]--
			a = append(a, l)
		}
	}
	return strings.Join(a, "; "), strings.Join(b, "; ")
}

func readDoc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
