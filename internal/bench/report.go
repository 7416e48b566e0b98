package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Row is one comparison: Ours over Theirs, and the floor that the ratio is held against (a negative floor is a ceiling; 0 is no bound).
type Row struct {
	What   string  `json:"what"`
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
	Floor  float64 `json:"floor,omitempty"`
	Unit   string  `json:"unit,omitempty"`
}

// Ratio is Ours over Theirs; 0 if there is nothing to divide by.
func (r Row) Ratio() float64 {
	if r.Theirs == 0 {
		return 0
	}
	return r.Ours / r.Theirs
}

// Met tells whether the bound holds.
func (r Row) Met() bool {
	switch {
	case r.Floor > 0:
		return r.Ratio() >= r.Floor
	case r.Floor < 0:
		return r.Ratio() <= -r.Floor
	}
	return true
}

// Report is all that was measured in one run.
type Report struct {
	Options Options `json:"-"`
	Rows    []Row   `json:"rows"`
}

// WriteJSON writes the report as one object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes it for a person.
func (r *Report) WriteTable(w io.Writer) error {
	o := r.Options
	fmt.Fprintf(w, "\n%d MiB a topic, records of %d bytes, %d interleaved runs, medians; store at %v and %d MB/s a stream\n\n",
		o.Size>>20, o.RecordBytes, o.Runs, o.Latency, o.StreamRate/1e6)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ratio\tbound\t\tours\tother\twhat")
	for _, x := range r.Rows {
		bound, verdict := "", ""
		switch {
		case x.Floor > 0:
			bound, verdict = fmt.Sprintf(">= %g", x.Floor), met(x.Met())
		case x.Floor < 0:
			bound, verdict = fmt.Sprintf("<= %g", -x.Floor), met(x.Met())
		}
		fmt.Fprintf(t, "%.3g\t%s\t%s\t%.4g %s\t%.4g %s\t%s\n", x.Ratio(), bound, verdict, x.Ours, x.Unit, x.Theirs, x.Unit, x.What)
	}
	return t.Flush()
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}
