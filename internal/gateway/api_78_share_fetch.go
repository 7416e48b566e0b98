package gateway

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// ShareFetch names the new leaders of partitions that have moved, behind the records, in a field that has no tag to be renamed. The response streams by; where its list of
// nodes is not empty, an empty one takes its place and the rest of the frame becomes one tag that clients skip, see shareWalker. They still learn the new
// leaders' ids, and know the addresses of ids from Metadata.
const keyShareFetch = 78

func (c *conn) passShareFetch(ctx context.Context, req wire.RequestHeader) (clientconn.Answer, error) {
	r, err := decode(req)
	if err != nil {
		return clientconn.Answer{}, err
	}
	in, err := c.carrier.Pull(ctx, r)
	if err != nil {
		return clientconn.Answer{}, err
	}
	w := newShareWalker(req.Version)
	return clientconn.Answer{Stream: in, Transform: w.Walk, Skip: w}, nil
}

// shareOp is a piece of the grammar of a ShareFetch response.
type shareOp struct {
	kind shareKind
	n    int       // fixed: bytes; repeat: times that are left
	each []shareOp // array, repeat: of what
}

type shareKind uint8

const (
	shareFixed  shareKind = iota // n bytes
	shareBytes                   // compact nullable string or bytes: length + 1, then so many
	shareTags                    // number of tags, then so many
	shareTag                     // number, then a shareSized
	shareSized                   // length, then so many bytes
	shareArray                   // compact array: length + 1, then so many of each
	shareRepeat                  // n more of each
	shareNodes                   // the array that is to be hidden, and all behind it
)

var (
	shareAcquired  = []shareOp{{kind: shareFixed, n: 8 + 8 + 2}, {kind: shareTags}}
	sharePartition = []shareOp{
		{kind: shareFixed, n: 4 + 2}, {kind: shareBytes}, // index, error and its message
		{kind: shareFixed, n: 2}, {kind: shareBytes}, // the same of the acknowledgements
		{kind: shareFixed, n: 4 + 4}, {kind: shareTags}, // leader and its epoch
		{kind: shareBytes}, // records
		{kind: shareArray, each: shareAcquired}, {kind: shareTags},
	}
	shareTopic = []shareOp{{kind: shareFixed, n: 16}, {kind: shareArray, each: sharePartition}, {kind: shareTags}}
)

// shareWalker steps through a ShareFetch response while its bytes go by in chunks of any cut, and hides its nodes. It keeps a stack of what is still to come, whose
// depth is that of the grammar.
type shareWalker struct {
	size    [4]byte
	got     int       // bytes of size
	left    int       // bytes of the frame that are still to come
	todo    []shareOp // the next last
	varint  uint64
	shift   uint
	hiding  []byte // what replaces the first bytes of the nodes; nil: not yet
	blanked bool
}

// hiddenTag is a number that Kafka has not assigned.
const hiddenTag = 127

func newShareWalker(version int16) *shareWalker {
	grammar := []shareOp{{kind: shareFixed, n: 4}, {kind: shareTags}, {kind: shareFixed, n: 4 + 2}, {kind: shareBytes}} // header; throttle time, error and its message
	if version >= 1 {
		grammar = append(grammar, shareOp{kind: shareFixed, n: 4}) // acquisition lock timeout
	}
	w := &shareWalker{}
	w.push(append(grammar, shareOp{kind: shareArray, each: shareTopic}, shareOp{kind: shareNodes})...)
	return w
}

// push puts ops before all others.
func (w *shareWalker) push(ops ...shareOp) {
	for i := len(ops) - 1; i >= 0; i-- {
		w.todo = append(w.todo, ops[i])
	}
}

func (w *shareWalker) next() *shareOp { return &w.todo[len(w.todo)-1] }
func (w *shareWalker) pop()           { w.todo = w.todo[:len(w.todo)-1] }

// Ahead is how many bytes from here on need not be seen: records, mostly.
func (w *shareWalker) Ahead() int {
	if w.got < len(w.size) || len(w.todo) == 0 || w.next().kind != shareFixed {
		return 0
	}
	return min(w.next().n, w.left)
}

// Skip takes up to n bytes as seen.
func (w *shareWalker) Skip(n int) int {
	n = max(min(n, w.Ahead()), 0)
	if n == 0 {
		return 0
	}
	w.left -= n
	if op := w.next(); op.n == n {
		w.pop()
	} else {
		op.n -= n
	}
	w.settle()
	return n
}

// settle takes away ops that need no byte.
func (w *shareWalker) settle() {
	for len(w.todo) > 0 {
		op := w.next()
		switch {
		case (op.kind == shareFixed || op.kind == shareRepeat) && op.n == 0:
			w.pop()
		case op.kind == shareRepeat:
			op.n--
			w.push(op.each...)
		default:
			return
		}
	}
}

// Walk sees the next bytes of the frame, its size first.
func (w *shareWalker) Walk(chunk []byte) error {
	for len(chunk) > 0 && w.got < len(w.size) {
		w.size[w.got] = chunk[0]
		w.got, chunk = w.got+1, chunk[1:]
		if w.got == len(w.size) {
			w.left = int(binary.BigEndian.Uint32(w.size[:]))
		}
	}
	for len(chunk) > 0 {
		if w.left == 0 || len(w.todo) == 0 {
			return fmt.Errorf("%w: ShareFetch response with %d bytes behind its end", wire.ErrMalformed, len(chunk))
		}
		if n := w.Skip(len(chunk)); n > 0 {
			chunk = chunk[n:]
			continue
		}
		w.left--
		if err := w.step(chunk[:1]); err != nil {
			return err
		}
		chunk = chunk[1:]
	}
	if w.got == len(w.size) && w.left == 0 && len(w.todo) > 0 && !(len(w.todo) == 1 && w.next().kind == shareNodes && w.blanked) {
		return fmt.Errorf("%w: ShareFetch response ends too early", wire.ErrMalformed)
	}
	return nil
}

// step takes one byte that is no fixed field's.
func (w *shareWalker) step(b []byte) error {
	if w.next().kind == shareNodes {
		return w.node(b)
	}
	if w.shift > 28 {
		return fmt.Errorf("%w: ShareFetch response with a length of more than five bytes", wire.ErrMalformed)
	}
	w.varint |= uint64(b[0]&0x7f) << w.shift
	w.shift += 7
	if b[0]&0x80 != 0 {
		return nil
	}
	v := int(w.varint)
	w.varint, w.shift = 0, 0
	op := *w.next()
	w.pop()
	// Everything that is counted takes a byte at least: what cannot be there is refused before it is waited for.
	if v > w.left+1 && op.kind != shareTag {
		return fmt.Errorf("%w: ShareFetch response with a length of %d where %d bytes are left", wire.ErrMalformed, v, w.left)
	}
	switch op.kind {
	case shareBytes:
		w.push(shareOp{kind: shareFixed, n: max(v-1, 0)})
	case shareSized:
		w.push(shareOp{kind: shareFixed, n: v})
	case shareTags:
		w.push(shareOp{kind: shareRepeat, n: v, each: []shareOp{{kind: shareTag}}})
	case shareTag:
		w.push(shareOp{kind: shareSized})
	case shareArray:
		w.push(shareOp{kind: shareRepeat, n: max(v-1, 0), each: op.each})
	}
	w.settle()
	return nil
}

// node hides the list of nodes. Its first byte, the length, becomes that of an empty list. The top-level tags follow, and whatever is left of the frame becomes the
// content of one tag: so the frame keeps its length.
func (w *shareWalker) node(b []byte) error {
	switch {
	case w.blanked:
		if len(w.hiding) == 0 {
			b[0] = 0
			return nil
		}
		b[0], w.hiding = w.hiding[0], w.hiding[1:]
		return nil
	case b[0] <= 1: // null or empty
		w.pop()
		w.push(shareOp{kind: shareTags})
		return nil
	}
	// A node takes 12 bytes at least, so the tag's head fits, and its size may be written in as many bytes as it takes.
	width := 1
	for w.left-2-width >= 1<<(7*width) {
		width++
	}
	size := w.left - 2 - width
	if size < 0 {
		return fmt.Errorf("%w: ShareFetch response with nodes in %d bytes", wire.ErrMalformed, w.left)
	}
	b[0] = 1
	w.hiding = append(w.hiding, 1, hiddenTag)
	for i := range width {
		more := byte(0x80)
		if i == width-1 {
			more = 0
		}
		w.hiding = append(w.hiding, byte(size>>(7*i))&0x7f|more)
	}
	w.blanked = true
	return nil
}
