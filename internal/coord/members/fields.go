package members

import (
	"github.com/twmb/franz-go/pkg/kbin"
)

// Reader reads the fields of keys and values. What is read after an error is empty; whoever is done asks Complete.
type Reader struct{ kbin.Reader }

func (r *Reader) fail() { r.Span(len(r.Src) + 1) }

// Count is the length of an array, of which each element takes at least size bytes.
func (r *Reader) Count(size int) int32 {
	n := r.CompactArrayLen()
	if n < 0 {
		return 0
	}
	if int(n) > len(r.Src)/size {
		r.fail()
		return 0
	}
	return n
}

// Numbers are an array of them, never nil.
func (r *Reader) Numbers() []int32 {
	n := r.Count(4)
	out := make([]int32, 0, n)
	for range n {
		out = append(out, r.Int32())
	}
	return out
}

// Strings are an array of them.
func (r *Reader) Strings() []string {
	var out []string
	for range r.Count(1) {
		out = append(out, r.CompactString())
	}
	return out
}

// Optional is a string, "" for null.
func (r *Reader) Optional() string {
	if s := r.CompactNullableString(); s != nil {
		return *s
	}
	return ""
}

// Tags reads the tagged fields that end a struct: known[n] reads that of number n, others are left.
func (r *Reader) Tags(known ...func(*Reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		field := Reader{kbin.Reader{Src: r.Span(int(size))}}
		if int(tag) >= len(known) || !r.Ok() {
			continue
		}
		if known[tag](&field); field.Complete() != nil {
			r.fail()
		}
	}
}

// AppendTags ends a struct with tagged fields: fields[n] is that of number n, nil if it is left out.
func AppendTags(b []byte, fields ...[]byte) []byte {
	n := 0
	for _, f := range fields {
		if f != nil {
			n++
		}
	}
	b = kbin.AppendUvarint(b, uint32(n))
	for tag, f := range fields {
		if f != nil {
			b = kbin.AppendUvarint(b, uint32(tag))
			b = kbin.AppendUvarint(b, uint32(len(f)))
			b = append(b, f...)
		}
	}
	return b
}

// AppendNumbers writes an array of numbers.
func AppendNumbers(b []byte, all []int32) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, n := range all {
		b = kbin.AppendInt32(b, n)
	}
	return b
}

// AppendStrings writes an array of strings.
func AppendStrings(b []byte, all []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, s := range all {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

// AppendOptional writes a string, null for "".
func AppendOptional(b []byte, s string) []byte {
	if s == "" {
		return kbin.AppendCompactNullableString(b, nil)
	}
	return kbin.AppendCompactNullableString(b, &s)
}
