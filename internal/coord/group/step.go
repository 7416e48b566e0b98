package group

import (
	"slices"
	"time"
)

// Step lets a command take effect.
func (g *Group) Step(now time.Time, c Command) Output {
	var o Output
	switch c := c.(type) {
	case *Commit:
		g.stepCommit(now, c, &o)
	case *TxnCommit:
		g.stepTxnCommit(now, c, &o)
	case EndTransaction:
		g.endTransaction(c.ProducerID, c.Commit)
	case *DeleteOffsets:
		g.stepDeleteOffsets(c, &o)
	case *Delete:
		g.stepDelete(now, c, &o)
	case ForgetTopic:
		g.forgetTopic(c.Topic, &o)
	case Expire:
		g.expire(now, &o)
	default:
		if f, ok := c.(Founder); ok && f.Type() != g.kind.Type() && !f.Found(now, g, &o) {
			break
		}
		g.kind.Step(now, g, c, &o)
	}
	return o
}

// Failed takes back what the step that gave o did, because its records could not be appended, and gives the replies to send instead of o's: cause,
// which is ErrNotAvailable or ErrTooLarge.
func (g *Group) Failed(now time.Time, o Output, cause error) Output {
	var next Output
	for _, r := range o.Replies {
		next.Reply(r.Token, r.Result.Failed(cause))
	}
	for _, p := range o.superseded {
		p.superseded = false
	}
	for _, undo := range slices.Backward(o.undo) {
		undo(&next)
	}
	return next
}
