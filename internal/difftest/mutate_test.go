package difftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// mutation changes a good request. Its name says what it does, and is the same for both brokers, whose requests may hold different ids.
type mutation struct {
	name   string
	change func(kmsg.Request) error
	bytes  func(good kmsg.Request, frame []byte) ([]byte, error) // instead of change: what no honest encoder writes
}

// place is a field of a request: the names and indices that lead to it.
type place []any // string or int

func (p place) String() string {
	var b strings.Builder
	for _, e := range p {
		switch e := e.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", e)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(e)
		}
	}
	return b.String()
}

func (p place) with(e any) place { return append(p[:len(p):len(p)], e) }

func (p place) in(req kmsg.Request) (reflect.Value, error) {
	v := reflect.ValueOf(req).Elem()
	for _, e := range p {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, fmt.Errorf("%v is not in this request", p)
			}
			v = v.Elem()
		}
		switch e := e.(type) {
		case int:
			if v.Len() <= e {
				return v, fmt.Errorf("%v is not in this request", p)
			}
			v = v.Index(e)
		case string:
			v = v.FieldByName(e)
		}
	}
	return v, nil
}

// mutations of a request, one field at a time. Fields that its version does not have are found out later: they change no byte.
func mutations(req kmsg.Request) (all []mutation) {
	w := walker{key: req.Key(), all: &all}
	w.walk(nil, reflect.ValueOf(req).Elem())
	all = append(all, mutation{name: "cut in half", bytes: func(_ kmsg.Request, f []byte) ([]byte, error) {
		h := headerLen(f)
		return resized(f[:h+(len(f)-h)/2]), nil
	}}, mutation{name: "cut by one", bytes: func(_ kmsg.Request, f []byte) ([]byte, error) {
		if len(f) == headerLen(f) {
			return f, nil
		}
		return resized(f[:len(f)-1]), nil
	}}, mutation{name: "one byte more", bytes: func(_ kmsg.Request, f []byte) ([]byte, error) { return resized(append(f, 0)), nil }})
	return all
}

// headerLen is how much of a frame with its size is the request's header.
func headerLen(frame []byte) int {
	h, err := wire.ParseRequestHeader(frame[4:])
	if err != nil {
		panic(err)
	}
	return len(frame) - len(h.Body)
}

func resized(frame []byte) []byte {
	frame = append([]byte(nil), frame...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// walker finds the mutations of a request.
type walker struct {
	key int16
	all *[]mutation
}

func (w walker) walk(at place, v reflect.Value) {
	all := w.all
	set := func(what string, value any) {
		*all = append(*all, mutation{name: fmt.Sprintf("%v=%s", at, what), change: func(req kmsg.Request) error {
			f, err := at.in(req)
			if err == nil {
				f.Set(reflect.ValueOf(value).Convert(f.Type()))
			}
			return err
		}})
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Version" || name == "UnknownTags" {
				continue
			}
			w.walk(at.with(name), v.Field(i))
		}
		if f := v.FieldByName("UnknownTags"); f.IsValid() {
			*all = append(*all, mutation{name: fmt.Sprintf("%v.UnknownTags=one", at), change: func(req kmsg.Request) error {
				f, err := at.in(req)
				if err == nil && f.Kind() == reflect.Pointer {
					f = f.Elem()
				}
				if err == nil {
					f.FieldByName("UnknownTags").Addr().Interface().(*kmsg.Tags).Set(7777, []byte("?"))
				}
				return err
			}})
		}
	case reflect.Bool:
		set(strconv.FormatBool(!v.Bool()), !v.Bool())
	case reflect.Int8:
		for _, n := range []int8{-1, 0, 1, 2, 3, 99, math.MinInt8} {
			set(strconv.Itoa(int(n)), n)
		}
	case reflect.Int16:
		for _, n := range []int16{-2, -1, 0, 1, 99, math.MaxInt16, math.MinInt16} {
			set(strconv.Itoa(int(n)), n)
		}
	case reflect.Int32:
		for _, n := range []int32{-2, -1, 0, 1, 7, math.MaxInt32, math.MinInt32} {
			if at.String() == "TimeoutMillis" && (n == 1 || n == 7) {
				continue // so short that what comes of it is a matter of luck
			}
			set(strconv.Itoa(int(n)), n)
		}
	case reflect.Int64:
		for _, n := range []int64{-6, -2, -1, 0, 5, math.MaxInt64, math.MinInt64} {
			if (n == 0 || n == 5) && strings.HasSuffix(at.String(), "ProducerID") {
				continue // somebody may have been given that number, on one side or the other
			}
			set(strconv.FormatInt(n, 10), n)
		}
	case reflect.String:
		for _, n := range names(w.key) {
			set(n.what, n.name)
		}
		broken(at, "null text", func(f reflect.Value) { f.SetString("") }, func(f reflect.Value) { f.SetString("a") }, 2, all)
	case reflect.Pointer:
		w.pointer(at, v)
	case reflect.Array:
		var unknown [16]byte
		for i := range unknown {
			unknown[i] = byte(0x40 + i)
		}
		set("none", [16]byte{})
		set("unknown", unknown)
	case reflect.Slice:
		w.slice(at, v, set)
	}
}

// names that are not those of anything. Those of one API key are its own: what one makes of them is not another's to find.
func names(key int16) []struct{ what, name string } {
	own := fmt.Sprintf("no-such-thing-%d", key)
	return []struct{ what, name string }{
		{"empty", ""}, {"unknown", own}, {"long", own + strings.Repeat("n", 249-len(own))}, {"too long", own + strings.Repeat("n", 250-len(own))},
		{"very long", own + strings.Repeat("n", 20_000)}, {"bad signs", own + " b/c\u00e9\x00"}, {"number", fmt.Sprint(1000 + key)},
	}
}

func (w walker) pointer(at place, v reflect.Value) {
	all := w.all
	elem := v.Type().Elem()
	put := func(what string, value reflect.Value) {
		*all = append(*all, mutation{name: fmt.Sprintf("%v=%s", at, what), change: func(req kmsg.Request) error {
			f, err := at.in(req)
			if err == nil {
				f.Set(value)
			}
			return err
		}})
	}
	put("null", reflect.Zero(v.Type()))
	if elem.Kind() == reflect.String {
		for _, n := range names(w.key) {
			p := reflect.New(elem)
			p.Elem().SetString(n.name)
			put(n.what, p)
		}
		return
	}
	if !v.IsNil() {
		w.walk(at, v.Elem())
		return
	}
	p := reflect.New(elem)
	if d, ok := p.Interface().(interface{ Default() }); ok {
		d.Default()
	}
	put("default", p)
}

func (w walker) slice(at place, v reflect.Value, set func(string, any)) {
	all := w.all
	if v.Type().Elem().Kind() == reflect.Uint8 {
		set("null", []byte(nil))
		set("empty", []byte{})
		broken(at, "null bytes", func(f reflect.Value) { f.SetBytes([]byte{}) }, func(f reflect.Value) { f.SetBytes([]byte("a")) }, 4, all)
		set("garbage", []byte("\x00\x01\xffgarbage that means nothing, and is longer than any header could be, one would think"))
		return
	}
	change := func(what string, do func(f reflect.Value)) {
		*all = append(*all, mutation{name: fmt.Sprintf("%v=%s", at, what), change: func(req kmsg.Request) error {
			f, err := at.in(req)
			if err == nil {
				do(f)
			}
			return err
		}})
	}
	change("null", func(f reflect.Value) { f.SetZero() })
	change("empty", func(f reflect.Value) { f.Set(reflect.MakeSlice(f.Type(), 0, 0)) })
	one := func(f reflect.Value) {
		e := reflect.New(f.Type().Elem())
		if d, ok := e.Interface().(interface{ Default() }); ok {
			d.Default()
		}
		f.Set(reflect.Append(reflect.MakeSlice(f.Type(), 0, 1), e.Elem()))
	}
	if at.String() != "ProducerIDFilters" { // nor is it known who has the number 0
		change("one default", one)
	}
	if v.Len() > 0 {
		change("twice the same", func(f reflect.Value) {
			if f.Len() > 0 {
				f.Set(reflect.Append(f, f.Index(0)))
			}
		})
	}
	empty := func(f reflect.Value) { f.Set(reflect.MakeSlice(f.Type(), 0, 0)) }
	broken(at, "null array", empty, one, 4, all)
	for i := range v.Len() {
		w.walk(at.with(i), v.Index(i))
	}
}

// broken adds what no encoder writes: a length of -1 where there may be none, and one that is longer than what follows. Where the length lies in the frame is found
// by encoding the field empty and with one element: the first byte that differs belongs to it. size is that of a length that is not compact.
func broken(at place, what string, empty, one func(reflect.Value), size int, all *[]mutation) {
	for _, claim := range []struct {
		name   string
		length uint32
		short  byte
	}{{what, math.MaxUint32, 0}, {"claims more than there is", 0x7ffffff0 >> (8 * (4 - size)), 0x7f}} {
		*all = append(*all, mutation{name: fmt.Sprintf("%v=%s", at, claim.name), bytes: func(good kmsg.Request, frame []byte) ([]byte, error) {
			f, err := at.in(good)
			if err != nil {
				return nil, err
			}
			header := frame[:headerLen(frame)]
			empty(f)
			a := good.AppendTo(nil)
			one(f)
			b := good.AppendTo(nil)
			i := 0
			for i < len(a) && i < len(b) && a[i] == b[i] {
				i++
			}
			if i == len(a) || i == len(b) {
				return frame, nil // not in this version
			}
			switch {
			case good.IsFlexible():
				a[i] = claim.short
			case i < size-1:
				return frame, nil
			case size == 2:
				binary.BigEndian.PutUint16(a[i-1:], uint16(claim.length))
			default:
				binary.BigEndian.PutUint32(a[i-3:], claim.length)
			}
			return resized(append(append([]byte(nil), header...), a...)), nil
		}})
	}
}
