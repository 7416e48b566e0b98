package atomicfile

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestReplaceOrKeep fails each write of a replacement once, the sync of the folder after the new name is there too: after an error the old content is there, or none where there was
// none, also where that folder fails every sync from then on.
func TestReplaceOrKeep(t *testing.T) {
	for _, before := range []string{"", "the old content"} {
		for at, failed := 1, true; failed; at++ {
			mem := newDir(t)
			if before != "" {
				if err := Replace(mem, "dir/file", []byte(before)); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			faulty := WithFolders(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					if n++; n == at {
						return errors.New("disk")
					}
				}
				return nil
			})))
			err := ReplaceOrKeep(faulty, "dir/file", []byte("new"))
			failed = n >= at
			want := "new"
			if err != nil {
				want = before
			}
			if (err != nil) != failed {
				t.Errorf("write %d: %v", at, err)
			}
			there, eerr := Exists(mem, "dir/file")
			if got := string(read(t, mem)); got != want || there != (want != "") || eerr != nil {
				t.Errorf("write %d failed, before %q: %q (%v), want %q", at, before, got, there, want)
			}
		}
	}
}
