package broker

import (
	"context"
	"errors"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// txnCoordinator has the transactions of one partition of __transaction_state.
type txnCoordinator struct {
	*coordinator
	s *txnService

	txns map[string]*txn.Transaction
	// ending is closed once the prepared transaction of an id is complete.
	ending map[string]chan struct{}
	// written is where the log ends after the last record of an id: what is told of it must be on stable storage up to there.
	written map[string]int64
}

// txnCall is one command on its way. answer has room for the one reply that it gets.
type txnCall struct{ answer chan txnAnswer }

type txnAnswer struct {
	result txn.Result
	end    int64 // the log must be on stable storage up to here first; 0: nothing was written
	// completion is closed when the transaction that was prepared then is complete; nil: none was.
	completion chan struct{}
}

// concurrent tells whether the request may be asked again once the transaction is complete.
func (a *txnAnswer) concurrent() bool {
	switch r := a.result.(type) {
	case txn.InitResult:
		return errors.Is(r.Err, txn.ErrConcurrent)
	case txn.AddResult:
		return errors.Is(r.Err, txn.ErrConcurrent)
	case txn.VerifyResult:
		return errors.Is(r.Err, txn.ErrConcurrent)
	case txn.EndResult:
		return errors.Is(r.Err, txn.ErrConcurrent)
	}
	return false
}

func (s *txnService) newCoordinator(c *coordinator) *txnCoordinator {
	t := &txnCoordinator{coordinator: c, s: s}
	t.reset()
	return t
}

func (c *txnCoordinator) reset() {
	c.txns, c.ending, c.written = map[string]*txn.Transaction{}, map[string]chan struct{}{}, map[string]int64{}
}

func (c *txnCoordinator) ask(ctx context.Context, id string, create bool, command func(*txnCall) txn.Command) (txnAnswer, error) {
	k := &txnCall{answer: make(chan txnAnswer, 1)}
	cmd := command(k)
	if err := c.do(ctx, func() { c.step(id, create, cmd) }); err != nil {
		return txnAnswer{}, err
	}
	a, err := answerOf(ctx, c.coordinator, k.answer)
	if err == nil {
		err = c.synced(ctx, id, a.end)
	}
	return a, err
}

func (c *txnCoordinator) timeout(id string) {
	if t := c.txns[id]; t != nil {
		c.logger.Info("transaction timed out and is aborted", "transactional.id", id, "producer", t.Describe().Producer.ID)
		c.step(id, false, txn.Tick{})
	}
}

func (c *txnCoordinator) sweep() {
	for id := range c.txns {
		c.step(id, false, txn.Expire{})
	}
}

func (c *txnCoordinator) txnConfig() txn.Config {
	cfg := c.config()
	return txn.Config{MaxTimeout: cfg.TransactionMaxTimeout, Expiration: cfg.TransactionalIDExpiry}
}

// step lets a command take effect.
func (c *txnCoordinator) step(id string, create bool, cmd txn.Command) {
	now := c.now()
	t := c.txns[id]
	if t == nil {
		t = txn.New(id, c.txnConfig, now) // which refuses all but Init, and is then forgotten
		if create {
			c.txns[id] = t
		}
	}
	o := t.Step(now, cmd)
	if o.NeedsID {
		newID, err := c.s.newID()
		if err != nil {
			c.logger.Error("handing out a producer id", "err", err)
			replyAll(t.Refuse(cmd, txn.ErrNotAvailable), txnAnswer{})
			c.forget(id, t)
			return
		}
		setNewID(cmd, newID)
		o = t.Step(now, cmd)
	}
	c.settle(id, t, o)
}

func setNewID(cmd txn.Command, id int64) {
	switch cmd := cmd.(type) {
	case *txn.Init:
		cmd.NewID = id
	case *txn.End:
		cmd.NewID = id
	}
}

func replyAll(replies []txn.Reply, a txnAnswer) {
	for _, r := range replies {
		a.result = r.Result
		r.Token.(*txnCall).answer <- a
	}
}

// settle appends what a step wants written, has its markers written and its replies sent.
func (c *txnCoordinator) settle(id string, t *txn.Transaction, o txn.Output) {
	end, err := c.write(o.Records)
	if err != nil {
		c.logger.Error("writing to the log of transactions", "transactional.id", id, "partition", c.number, "err", err)
		replyAll(t.Failed(o, txn.ErrNotAvailable), txnAnswer{})
		c.setTimer(id, t, c.now().Add(timeoutRetry))
		c.forget(id, t)
		return
	}
	if end > 0 {
		c.written[id] = end
	}
	if ch := c.ending[id]; ch != nil && o.Markers == nil && end > 0 {
		close(ch) // nothing but Complete is written while a transaction is prepared
		delete(c.ending, id)
	}
	a := txnAnswer{end: c.written[id], completion: c.ending[id]}
	if o.Markers != nil {
		a.completion = make(chan struct{})
		c.ending[id] = a.completion
		c.finish(id, *o.Markers, a, o.Replies)
	} else {
		replyAll(o.Replies, a)
	}
	c.setTimer(id, t, time.Time{})
	c.forget(id, t)
}

// setTimer has a transaction looked at when it times out, but not before a time.
func (c *txnCoordinator) setTimer(id string, t *txn.Transaction, notBefore time.Time) {
	at, ok := t.Deadline()
	if at.Before(notBefore) {
		at = notBefore
	}
	c.timers.set(id, at, ok)
}

// forget drops an id of which nothing is to be remembered.
func (c *txnCoordinator) forget(id string, t *txn.Transaction) {
	if t.Disposable() && c.txns[id] == t {
		delete(c.txns, id)
		c.timers.set(id, time.Time{}, false)
		delete(c.written, id)
	}
}

// write appends records as one batch each and returns where the log ends then.
func (c *txnCoordinator) write(records []txn.Record) (int64, error) {
	if len(records) == 0 {
		return 0, nil
	}
	var b []byte
	for _, r := range records {
		b = batch.AppendSimple(b, c.now().UnixMilli(), r.Key, r.Value)
	}
	return c.append(b)
}

func (c *txnCoordinator) replay(h *batch.Header, raw []byte) error {
	if h.IsControl() {
		return nil
	}
	return recordsOf(h, raw, func(key, value []byte) error {
		e, err := txn.ParseRecord(key, value)
		if errors.Is(err, txn.ErrUnknownRecord) {
			c.skip(err)
			return nil
		}
		if err == nil {
			c.replayEntry(e)
		}
		return err
	})
}

func (c *txnCoordinator) replayEntry(e txn.Entry) {
	t := c.txns[e.ID]
	if t == nil {
		t = txn.New(e.ID, c.txnConfig, c.now())
		c.txns[e.ID] = t
	}
	t.Replay(e)
}

// loaded completes the transactions that were decided before the start.
func (c *txnCoordinator) loaded() {
	end := c.log.Offsets().LogEnd
	for id, t := range c.txns {
		if m := t.Loaded(); m != nil {
			c.logger.Info("completing a transaction that was decided before the start", "transactional.id", id, "commit", m.Commit, "partitions", len(m.Partitions))
			c.ending[id] = make(chan struct{})
			c.finish(id, *m, txnAnswer{end: end}, nil)
		}
		c.setTimer(id, t, time.Time{})
		c.forget(id, t)
	}
}
