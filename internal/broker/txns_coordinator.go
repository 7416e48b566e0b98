package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// txnCoordinator runs the transactions of one partition of __transaction_state. All of its state but state belongs to its goroutine, run.
type txnCoordinator struct {
	s      *txnService
	number int32
	log    stateLog
	events chan func()
	state  atomic.Int32

	txns map[string]*txn.Transaction
	// due is when each transaction's Tick is due, as far as it has one.
	due map[string]time.Time
	// ending is closed once the prepared transaction of an id is complete.
	ending map[string]chan struct{}
	// written is where the log ends after the last record of an id: what is told of it must be on stable storage up to there.
	written map[string]int64
	// expiry is when ids are looked through for expired ones.
	expiry time.Time
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

func newTxnCoordinator(s *txnService, number int32, log stateLog) *txnCoordinator {
	c := &txnCoordinator{s: s, number: number, log: log, events: make(chan func(), queuedEvents), txns: map[string]*txn.Transaction{}, due: map[string]time.Time{},
		ending: map[string]chan struct{}{}, written: map[string]int64{}}
	if o := log.Offsets(); o.LogStart == o.LogEnd {
		c.state.Store(coordinatorReady) // nothing to read: the first client of a new node is not told to wait
	}
	return c
}

func (c *txnCoordinator) ready() error {
	switch c.state.Load() {
	case coordinatorReady:
		return nil
	case coordinatorLoading:
		return errLoading
	}
	return txn.ErrNotAvailable
}

// do hands fn to the coordinator's goroutine.
func (c *txnCoordinator) do(ctx context.Context, fn func()) error {
	select {
	case c.events <- fn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.s.ctx.Done():
		return txn.ErrNotAvailable
	}
}

// wait is do that returns after fn has run.
func (c *txnCoordinator) wait(ctx context.Context, fn func()) error {
	ran := make(chan struct{})
	if err := c.do(ctx, func() { defer close(ran); fn() }); err != nil {
		return err
	}
	select {
	case <-ran:
		return nil
	case <-c.s.ctx.Done():
		return txn.ErrNotAvailable
	}
}

func (c *txnCoordinator) ask(ctx context.Context, id string, create bool, command func(*txnCall) txn.Command) (txnAnswer, error) {
	k := &txnCall{answer: make(chan txnAnswer, 1)}
	cmd := command(k)
	if err := c.do(ctx, func() { c.step(id, create, cmd) }); err != nil {
		return txnAnswer{}, err
	}
	select {
	case a := <-k.answer:
		if a.end > 0 && c.s.config().AcksAllSync {
			if err := c.log.Sync(ctx, a.end); err != nil {
				c.s.log.Error("syncing the log of transactions", "transactional.id", id, "err", err)
				return a, txn.ErrNotAvailable
			}
		}
		return a, nil
	case <-ctx.Done():
		return txnAnswer{}, ctx.Err()
	case <-c.s.ctx.Done():
		return txnAnswer{}, txn.ErrNotAvailable
	}
}

// run reads the transactions, then serves them until the service is closed.
func (c *txnCoordinator) run() {
	if err := c.load(); err != nil {
		if c.s.ctx.Err() == nil {
			c.s.log.Error("reading transactions; those of this partition stay unavailable", "topic", transactionsTopic, "partition", c.number, "err", err)
		}
		c.state.Store(coordinatorFailed)
	} else {
		c.state.Store(coordinatorReady)
	}
	c.expiry = c.s.now().Add(c.s.config().TransactionExpiryCheck)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(c.nextDue().Sub(c.s.now()), 0))
		select {
		case fn := <-c.events:
			fn()
		case <-timer.C:
			c.tick()
		case <-c.s.ctx.Done():
			return
		}
	}
}

func (c *txnCoordinator) nextDue() time.Time {
	next := c.expiry
	for _, at := range c.due {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

func (c *txnCoordinator) tick() {
	now := c.s.now()
	for id, at := range c.due {
		if !at.After(now) {
			c.s.log.Info("transaction timed out and is aborted", "transactional.id", id, "producer", c.txns[id].Describe().Producer.ID)
			c.step(id, false, txn.Tick{})
		}
	}
	if c.expiry.After(now) {
		return
	}
	c.expiry = now.Add(c.s.config().TransactionExpiryCheck)
	for id := range c.txns {
		c.step(id, false, txn.Expire{})
	}
}

func (c *txnCoordinator) txnConfig() txn.Config {
	cfg := c.s.config()
	return txn.Config{MaxTimeout: cfg.TransactionMaxTimeout, Expiration: cfg.TransactionalIDExpiry}
}

// step lets a command take effect.
func (c *txnCoordinator) step(id string, create bool, cmd txn.Command) {
	now := c.s.now()
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
			c.s.log.Error("handing out a producer id", "err", err)
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
	end, err := c.append(o.Records)
	if err != nil {
		c.s.log.Error("writing to the log of transactions", "transactional.id", id, "partition", c.number, "err", err)
		replyAll(t.Failed(o, txn.ErrNotAvailable), txnAnswer{})
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
	if at, ok := t.Deadline(); ok {
		c.due[id] = at
	} else {
		delete(c.due, id)
	}
	c.forget(id, t)
}

// forget drops an id of which nothing is to be remembered.
func (c *txnCoordinator) forget(id string, t *txn.Transaction) {
	if t.Disposable() && c.txns[id] == t {
		delete(c.txns, id)
		delete(c.due, id)
		delete(c.written, id)
	}
}

// append writes records as one batch and returns where the log ends then.
func (c *txnCoordinator) append(records []txn.Record) (int64, error) {
	if len(records) == 0 {
		return 0, nil
	}
	var b []byte
	for _, r := range records {
		b = batch.AppendSimple(b, c.s.now().UnixMilli(), r.Key, r.Value)
	}
	info, err := c.log.Append(b, partlog.Internal)
	if err != nil {
		return 0, err
	}
	return info.LastOffset + 1, nil
}

// load replays the log.
func (c *txnCoordinator) load() error {
	o := c.log.Offsets()
	unknown, first := 0, error(nil)
	err := eachBatch(c.s.ctx, c.log, o.LogStart, o.LogEnd, func(h *batch.Header, raw []byte) error {
		if h.IsControl() {
			return nil
		}
		return recordsOf(h, raw, func(key, value []byte) error {
			e, err := txn.ParseRecord(key, value)
			if errors.Is(err, txn.ErrUnknownRecord) {
				if unknown++; first == nil {
					first = err
				}
				return nil
			}
			if err == nil {
				c.replay(e)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	if unknown > 0 {
		c.s.log.Warn("records of an unknown kind were skipped", "topic", transactionsTopic, "partition", c.number, "count", unknown, "first", first)
	}
	for id, t := range c.txns {
		if m := t.Loaded(); m != nil {
			c.s.log.Info("completing a transaction that was decided before the start", "transactional.id", id, "commit", m.Commit, "partitions", len(m.Partitions))
			c.ending[id] = make(chan struct{})
			c.finish(id, *m, txnAnswer{end: o.LogEnd}, nil)
		}
		if at, ok := t.Deadline(); ok {
			c.due[id] = at
		}
		c.forget(id, t)
	}
	return nil
}

func (c *txnCoordinator) replay(e txn.Entry) {
	t := c.txns[e.ID]
	if t == nil {
		t = txn.New(e.ID, c.txnConfig, c.s.now())
		c.txns[e.ID] = t
	}
	t.Replay(e)
}
