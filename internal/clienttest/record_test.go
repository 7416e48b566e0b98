package clienttest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// record is what any client sees of a record. Its line is what the helpers in Java and Python read and write:
//
//	TOPIC PARTITION OFFSET TIMESTAMP KEY VALUE HEADERS
//
// KEY and VALUE are null, or x and hexadecimal digits; HEADERS are none, or NAME=VALUE with commas between.
type record struct {
	topic             string
	partition         int32
	offset, timestamp int64
	key, value        []byte // nil is null
	headers           []header
}

type header struct {
	name  string
	value []byte
}

func encode(b []byte) string {
	if b == nil {
		return "null"
	}
	return "x" + hex.EncodeToString(b)
}

func decode(s string) ([]byte, error) {
	if s == "null" {
		return nil, nil
	}
	digits, ok := strings.CutPrefix(s, "x")
	if !ok {
		return nil, fmt.Errorf("%q is neither null nor hexadecimal", s)
	}
	b, err := hex.DecodeString(digits)
	return append([]byte{}, b...), err
}

func (r record) line() string {
	headers := "none"
	if len(r.headers) > 0 {
		parts := make([]string, len(r.headers))
		for i, h := range r.headers {
			parts[i] = h.name + "=" + encode(h.value)
		}
		headers = strings.Join(parts, ",")
	}
	return fmt.Sprint(r.topic, " ", r.partition, " ", r.offset, " ", r.timestamp, " ", encode(r.key), " ", encode(r.value), " ", headers)
}

func parseLine(line string) (r record, err error) {
	f := strings.Split(line, " ")
	if len(f) != 7 {
		return r, fmt.Errorf("%d fields in %q", len(f), line)
	}
	var errs [5]error
	var p int64
	r.topic = f[0]
	p, errs[0] = strconv.ParseInt(f[1], 10, 32)
	r.offset, errs[1] = strconv.ParseInt(f[2], 10, 64)
	r.timestamp, errs[2] = strconv.ParseInt(f[3], 10, 64)
	r.key, errs[3] = decode(f[4])
	r.value, errs[4] = decode(f[5])
	for _, err := range errs {
		if err != nil {
			return r, fmt.Errorf("%q: %w", line, err)
		}
	}
	r.partition = int32(p)
	if f[6] == "none" {
		return r, nil
	}
	for h := range strings.SplitSeq(f[6], ",") {
		name, text, _ := strings.Cut(h, "=")
		value, err := decode(text)
		if err != nil {
			return r, fmt.Errorf("%q: %w", line, err)
		}
		r.headers = append(r.headers, header{name, value})
	}
	return r, nil
}

func writeLines(t *testing.T, path string, records []record) {
	t.Helper()
	var b strings.Builder
	for _, r := range records {
		b.WriteString(r.line())
		b.WriteByte('\n')
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readLines(t *testing.T, path string) (all []record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		r, err := parseLine(s.Text())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return all
}

// reading is what a consumer saw, per partition in the order in which it came.
type reading map[string]map[int32][]record

func newReading(all []record) reading {
	g := make(reading)
	for _, r := range all {
		if g[r.topic] == nil {
			g[r.topic] = make(map[int32][]record)
		}
		g[r.topic][r.partition] = append(g[r.topic][r.partition], r)
	}
	return g
}

// equal fails the test where got is not want for one of the topics. sees is what this kind of client can tell of a record; nil is everything.
func equal(t *testing.T, topics []topic, want, got reading, sees func(record) record) {
	t.Helper()
	if sees == nil {
		sees = func(r record) record { return r }
	}
	var wrong []string
	for _, tp := range topics {
		for p := range tp.partitions {
			if len(want[tp.name][p]) == 0 {
				wrong = append(wrong, fmt.Sprintf("%s/%d: nothing to compare with", tp.name, p))
			}
			if s := difference(want[tp.name][p], got[tp.name][p], sees); s != "" {
				wrong = append(wrong, fmt.Sprintf("%s/%d: %s", tp.name, p, s))
			}
		}
	}
	for i, s := range wrong {
		if i == 5 {
			t.Errorf("and %d more partitions", len(wrong)-i)
			break
		}
		t.Error(s)
	}
}

func difference(want, got []record, sees func(record) record) string {
	for i := range min(len(want), len(got)) {
		if w, g := sees(want[i]).line(), sees(got[i]).line(); w != g {
			return fmt.Sprintf("record %d is\n\t%s instead of\n\t%s", i, short(g), short(w))
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d records instead of %d", len(got), len(want))
	}
	return ""
}

func short(line string) string {
	if len(line) > 300 {
		return line[:120] + "..." + line[len(line)-120:]
	}
	return line
}

func tail(text string) string { return text[max(0, len(text)-2000):] }

// firstTimestamp is long past, so that a timestamp that a client or the broker made up is told from one that was given.
const firstTimestamp = 1_700_000_000_000

// generate makes records of every shape that the protocol has: null and empty keys and values, doubled headers, headers without value, any byte.
func generate(seed uint64, partitions int32, n int) (all []record) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		for p := range partitions {
			rec := record{partition: p, offset: int64(i), timestamp: firstTimestamp + int64(i)*7, key: fmt.Appendf(nil, "%d-%d\x00\xff", p, i), value: value(r, 0, 256)}
			switch {
			case i%5 == 3:
				rec.key = nil
			case i%19 == 7:
				rec.key = []byte{}
			}
			switch i % 17 {
			case 5:
				rec.value = nil
			case 6:
				rec.value = []byte{}
			}
			switch i % 4 {
			case 1:
				rec.headers = []header{{"source", fmt.Appendf(nil, "s-%d", i)}}
			case 2:
				rec.headers = []header{{"twice", []byte("1")}, {"other", []byte{0, 0xff}}, {"twice", []byte("2")}}
			case 3:
				rec.headers = []header{{"nothing", nil}}
			}
			all = append(all, rec)
		}
	}
	return all
}

// generateText makes records that fit into lines of text, for tools.
func generateText(seed uint64, partitions int32, n int) (all []record) {
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range n {
		for p := range partitions {
			rec := record{partition: p, offset: int64(i), timestamp: firstTimestamp + int64(i)*7, key: fmt.Appendf(nil, "k%d-%d", p, i), value: value(r, ' ', 0x7f)}
			if i%13 == 4 {
				rec.value = nil
			}
			all = append(all, rec)
		}
	}
	return all
}

// value is half of one word and half of random bytes, so that every codec makes it smaller.
func value(r *rand.Rand, from, to int) []byte {
	b := slices.Repeat([]byte("rewind "), 5+r.IntN(30))
	for range len(b) {
		b = append(b, byte(from+r.IntN(to-from)))
	}
	return b
}
