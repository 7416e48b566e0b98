package members

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
)

// read takes bytes for a list of numbers, a list of strings, and tags of which number 1 is known.
func read(src []byte) (numbers []int32, names []string, tag int32, err error) {
	r := Reader{kbin.Reader{Src: src}}
	numbers, names = r.Numbers(), r.Strings()
	r.Tags(func(f *Reader) { f.Span(len(f.Src)) }, func(f *Reader) { tag = f.Int32() })
	return numbers, names, tag, r.Complete()
}

func TestFields(t *testing.T) {
	lists := slices.Clip(AppendStrings(AppendNumbers(nil, []int32{7, 8}), []string{"a", "b"}))
	four := slices.Clip([]byte{0, 0, 0, 9})
	for _, c := range []struct {
		name string
		src  []byte
		tag  int32
		bad  bool
	}{
		{"no tags", AppendTags(lists), 0, false},
		{"a tag that is left out, and one that is known", AppendTags(lists, nil, four), 9, false},
		{"tags of a later release", AppendTags(lists, []byte{1}, four, []byte{1, 2, 3}), 9, false},
		{"a known tag with more in it, as of a later release", AppendTags(lists, nil, append(four, 1)), 9, false},
		{"a known tag with less in it", AppendTags(lists, nil, four[:3]), 0, true},
		{"a tag that is longer than what is left", append(lists, 1, 5, 100), 0, true},
		{"more tags than there are", append(lists, 3), 0, true},
		{"an array that is longer than what is left", []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0, 0}, 0, true},
		{"nothing", nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			numbers, names, tag, err := read(c.src)
			if (err != nil) != c.bad {
				t.Fatalf("error %v", err)
			}
			if !c.bad && (!slices.Equal(numbers, []int32{7, 8}) || !slices.Equal(names, []string{"a", "b"}) || tag != c.tag) {
				t.Errorf("%v, %v, %d", numbers, names, tag)
			}
		})
	}
}
