package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Level is how bad a finding is.
type Level int

const (
	OK      Level = iota
	Warning       // worth knowing; nothing is broken by it
	Problem       // stands in the way of reading directly
)

func (l Level) String() string { return [...]string{"ok", "warning", "problem"}[l] }

// MarshalText writes the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"`        // which, in one or two words
	What  string `json:"what"`         // one line
	Do    string `json:"do,omitempty"` // one line; empty if there is nothing to do
}

// Place is where a partition's offsets are read. Offsets that are not known are -1.
type Place struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	LogStart      int64  `json:"log_start_offset"`
	LocalStart    int64  `json:"local_log_start_offset"`
	LastTiered    int64  `json:"last_tiered_offset"`
	HighWatermark int64  `json:"high_watermark"`
	Committed     int64  `json:"committed_offset"` // of the group; -1 without one
	// From is where a reader at the committed offset, or at the log start, gets its next record: "store", "broker" or, where the offset is not there any more or not yet, "none".
	From string `json:"reads_from"`
	Why  string `json:"why,omitempty"`
	// What lies in the store from that offset on and is read from there. Bytes of a segment that is read in part are told by its share of offsets.
	StoreOffsets  int64 `json:"store_offsets"`
	StoreBytes    int64 `json:"store_bytes"`
	StoreSegments int   `json:"store_segments"`
}

// Report is what an examination found.
type Report struct {
	Findings   []Finding `json:"findings"`
	Partitions []Place   `json:"partitions"`
}

// askAgain is what to do about a question that was not answered.
const askAgain = "see to what it says, and run doctor again"

func (r *Report) add(l Level, check, do, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Level: l, Check: check, What: fmt.Sprintf(format, args...), Do: do})
}

// Worst is the highest level of all findings.
func (r *Report) Worst() Level {
	worst := OK
	for _, f := range r.Findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// WriteJSON writes one object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := struct {
		Worst Level `json:"worst"`
		Report
	}{r.Worst(), *r}
	if out.Findings == nil {
		out.Findings = []Finding{}
	}
	if out.Partitions == nil {
		out.Partitions = []Place{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// WriteText writes findings and partitions for people.
func (r *Report) WriteText(w io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%-8s %-15s %s\n", f.Level, f.Check, f.What); err != nil {
			return err
		}
		if f.Do != "" {
			if _, err := fmt.Fprintf(w, "%-8s %-15s -> %s\n", "", "", f.Do); err != nil {
				return err
			}
		}
	}
	if len(r.Partitions) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\npartition\tlog start\tlast tiered\tlocal start\thigh watermark\tcommitted\treads from\toffsets in store\tMiB in store\t\n")
	for _, p := range r.Partitions {
		fmt.Fprintf(t, "%s-%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.1f\t\n", p.Topic, p.Partition, known(p.LogStart), known(p.LastTiered), known(p.LocalStart), known(p.HighWatermark),
			known(p.Committed), p.From, p.StoreOffsets, float64(p.StoreBytes)/(1<<20))
	}
	return t.Flush()
}

func known(offset int64) string {
	if offset < 0 {
		return "-"
	}
	return strconv.FormatInt(offset, 10)
}
