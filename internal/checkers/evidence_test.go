package checkers

import (
	"fmt"
	"strings"
	"testing"
)

// evidence is what the log holds around the first record that a reader was given and that is not there in the end, what its producer knows of the transaction, and what
// our broker said.
func evidence(t *testing.T, v victim, n *notebook) {
	t.Helper()
	final := map[place]bool{}
	for _, s := range n.final {
		final[s.place] = true
	}
	for name, list := range n.readers {
		for _, s := range list {
			if final[s.place] {
				continue
			}
			var b strings.Builder
			for _, x := range n.all {
				if x.producer == s.producer && x.tx == s.tx {
					fmt.Fprintf(&b, "the transaction: %+v\n", x)
				}
			}
			for _, r := range readLog(t, v, txnTopic)[s.partition] {
				if r.Offset > s.offset-30 && r.Offset < s.offset+60 {
					fmt.Fprintf(&b, "%d: producer %d, epoch %d, control %t, at %s: %q %x\n", r.Offset, r.ProducerID, r.ProducerEpoch, r.Attrs.IsControl(), r.Timestamp.Format("05.000"), r.Value, r.Key)
				}
			}
			if o, ok := v.(*ourVictim); ok {
				b.WriteString(o.said())
			}
			t.Logf("%s was given %+v\n%s", name, s, &b)
			return
		}
	}
}
