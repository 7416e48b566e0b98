package partlog

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rewind-kafka/rewind/internal/codec"
)

// TestRefusedRecords: a batch names all of its records that are wrong, whether it is kept as it comes, opened or recompressed, and nothing of it is kept.
func TestRefusedRecords(t *testing.T) {
	now := epoch0.UnixMilli()
	const keyless, late = "keyless", "late"
	for name, tc := range map[string]struct {
		wrong map[int]string
		want  error
	}{
		"no key":                {map[int]string{1: keyless, 3: keyless}, ErrInvalidRecord},
		"too late":              {map[int]string{0: late, 4: late}, ErrInvalidTimestamp},
		"a time behind a key":   {map[int]string{0: keyless, 2: late}, ErrInvalidTimestamp},
		"a time before a key":   {map[int]string{1: late, 4: keyless}, ErrInvalidTimestamp},
		"nothing":               {nil, nil},
		"each, in many records": {map[int]string{0: keyless, 1: keyless, 2: keyless, 3: keyless, 4: keyless}, ErrInvalidRecord},
	} {
		for from := range int8(3) {
			for to := range int8(3) {
				t.Run(fmt.Sprintf("%s, from %d to %d", name, from, to), func(t *testing.T) {
					l := mustOpen(t, recompressing(to, func(c *Config) { c.Compact, c.TimestampBeforeMaxMs = true, 1000 }))
					s := spec{pid: -1, epoch: -1, seq: -1, codec: from}
					for i := range 5 {
						r := kv{key: []byte("k"), value: []byte("v"), ts: now}
						switch tc.wrong[i] {
						case keyless:
							r.key = nil
						case late:
							r.ts -= 5000
						}
						s.records = append(s.records, r)
					}
					_, err := l.Append(s.build(t), Client)
					var refused *RecordsError
					if tc.want == nil {
						if err != nil {
							t.Fatal(err)
						}
						return
					}
					if !errors.As(err, &refused) || !errors.Is(err, tc.want) {
						t.Fatalf("%v, want %v of records", err, tc.want)
					}
					var at []int
					for _, r := range refused.Records {
						if at = append(at, int(r.Index)); r.Reason == "" {
							t.Errorf("record %d: no reason", r.Index)
						}
					}
					want := make([]int, 0, len(tc.wrong))
					for i := range tc.wrong {
						want = append(want, i)
					}
					if slices.Sort(want); !slices.Equal(at, want) {
						t.Errorf("records %v are at fault, want %v", at, want)
					}
					if end := l.Offsets().LogEnd; end != 0 {
						t.Errorf("the log ends at %d", end)
					}
				})
			}
		}
	}
}

// TestRefusedRecordsAreBounded: a small batch of very many wrong records makes no large answer.
func TestRefusedRecordsAreBounded(t *testing.T) {
	l := mustOpen(t, recompressing(codec.None, func(c *Config) { c.Compact = true }))
	s := spec{pid: -1, epoch: -1, seq: -1, codec: codec.Gzip, records: make([]kv, 5*maxRefused)}
	for i := range s.records {
		s.records[i].ts = epoch0.UnixMilli()
	}
	var refused *RecordsError
	if _, err := l.Append(s.build(t), Client); !errors.As(err, &refused) || len(refused.Records) != maxRefused {
		t.Errorf("%v", err)
	}
}
