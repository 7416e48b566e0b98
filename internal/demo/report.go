package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// ErrDiffer: two paths gave different histories.
var ErrDiffer = errors.New("the paths did not read the same history")

// Report is what a demo found.
type Report struct {
	Options Options `json:"-"`
	Reads   []Read  `json:"reads"`
}

// ErrNotDirect: the direct read went through the broker.
var ErrNotDirect = errors.New("what should have been read directly came through the broker (--verbose shows why)")

// check compares count, bytes and digest of every path with the first's, and sees that the direct one was direct.
func (r *Report) check() error {
	if last := r.Reads[len(r.Reads)-1]; last.BrokerBytes > last.Bytes/2 {
		return fmt.Errorf("%w: %d of %d bytes", ErrNotDirect, last.BrokerBytes, last.Bytes)
	}
	for _, x := range r.Reads {
		first := r.Reads[0]
		if x.Records != first.Records || x.Bytes != first.Bytes || x.Digest != first.Digest {
			return fmt.Errorf("%w: %s has %d records, %d bytes, digest %s; %s has %d, %d, %s", ErrDiffer,
				first.Path, first.Records, first.Bytes, first.Digest, x.Path, x.Records, x.Bytes, x.Digest)
		}
	}
	return nil
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
	where := o.Store
	if where == "" {
		where = "a directory"
	}
	distance := "no added distance"
	if o.Latency > 0 || o.StreamRate > 0 {
		distance = fmt.Sprintf("%v before the first byte of a GET", o.Latency)
		if o.StreamRate > 0 {
			distance += fmt.Sprintf(", %d MB/s a stream", o.StreamRate/1e6)
		}
	}
	if len(r.Reads) == 0 {
		return errors.New("nothing was read")
	}
	first := r.Reads[0]
	fmt.Fprintf(w, "\n%d records, %.0f MiB, 1 partition; store: %s, %s\n\n", first.Records, float64(first.Bytes)/(1<<20), where, distance)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "MiB/s\ttimes\tfetches\tMiB out of broker\tbroker CPU s\tbroker MiB resident\tclient CPU s\t  path")
	for i, x := range r.Reads {
		fmt.Fprintf(t, "%.0f\t%.1f\t%d\t%.1f\t%.2f\t%d\t%.2f\t  %s\n", x.MiBPerS, first.Seconds/x.Seconds, x.Fetches,
			float64(x.BrokerBytes)/(1<<20), x.BrokerCPUS, x.BrokerRSS>>10, x.ClientCPUS, paths[i].title)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nAll four gave the same history: digest %s over keys, values and offsets.\n", first.Digest)
	return err
}
