package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

const transactionsTopic = "__transaction_state"

// errNoTransactionalID: the request has an empty transactional id.
var errNoTransactionalID = errors.New("transactional id is empty")

// stateLog is what a transaction coordinator needs of one partition of __transaction_state.
type stateLog interface {
	Append(records []byte, origin partlog.Origin) (partlog.AppendInfo, error)
	Sync(ctx context.Context, offset int64) error
	Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error)
	Offsets() partlog.Offsets
	LeaderEpoch() int32
}

// txnService coordinates all transactions: one coordinator, with one goroutine, for each partition of __transaction_state, and one goroutine for each
// transaction that is being completed. close waits for them.
type txnService struct {
	config func() *config.Broker
	// make gives the logs of __transaction_state, which it makes if they are not there.
	make func() ([]stateLog, error)
	// newID gives a producer id that nobody has.
	newID func() (int64, error)
	// mark writes a marker into one partition's log, and gives what makes that last; both nil where the partition is gone.
	mark func(ctx context.Context, tp txn.TopicPartition, m marker) (sync func(context.Context) error, err error)
	now  func() time.Time
	log  *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	opening sync.Mutex // held while the topic is being made
	mu      sync.Mutex
	parts   []*txnCoordinator // set once
	closed  bool
}

func newTxnService(cfg func() *config.Broker, now func() time.Time, log *slog.Logger) *txnService {
	s := &txnService{config: cfg, now: now, log: log}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// openTransactions takes the transactions up that the log knows. They are read in the background, and those that were decided are completed.
func (b *Broker) openTransactions() {
	logsOf := func(tl *topicLogs) []stateLog {
		out := make([]stateLog, len(tl.parts))
		for i, p := range tl.parts {
			out[i] = p.log
		}
		return out
	}
	b.txns = newTxnService(b.config, b.now, b.log)
	b.txns.newID, b.txns.mark = b.producerIDs.next, b.mark
	b.txns.make = func() ([]stateLog, error) {
		tl, err := b.ensureTopic(transactionsTopic, b.config().TransactionPartitions, transactionsTopicConfigs(b.config()))
		if err != nil {
			return nil, err
		}
		return logsOf(tl), nil
	}
	if tl := b.logs.topic(transactionsTopic); tl != nil {
		b.txns.start(logsOf(tl))
	}
}

// transactionsTopicConfigs are Kafka's for __transaction_state; we write it uncompressed, as does Kafka.
func transactionsTopicConfigs(cfg *config.Broker) map[string]string {
	return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": fmt.Sprint(cfg.TransactionSegmentBytes), "unclean.leader.election.enable": "false"}
}

func (b *Broker) closeTransactions() {
	if b.txns != nil {
		b.txns.close()
	}
}

// start begins to read the transactions from their logs.
func (s *txnService) start(logs []stateLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.parts != nil {
		return
	}
	for i, l := range logs {
		c := newTxnCoordinator(s, int32(i), l)
		s.parts = append(s.parts, c)
		s.done.Go(c.run)
	}
}

func (s *txnService) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
}

func (s *txnService) started() []*txnCoordinator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts
}

// coordinators are all coordinators; the first use of transactions on a new node makes their topic.
func (s *txnService) coordinators() ([]*txnCoordinator, error) {
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	logs, err := s.make()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", txn.ErrNotAvailable, err)
	}
	s.start(logs)
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	return nil, txn.ErrNotAvailable // closing
}

// coordinator is the one that a transactional id belongs to.
func (s *txnService) coordinator(id string) (*txnCoordinator, error) {
	parts, err := s.coordinators()
	if err != nil {
		s.log.Error("no transaction coordinator", "transactional.id", id, "err", err)
		return nil, txn.ErrNotAvailable
	}
	c := parts[groupPartition(id, len(parts))]
	return c, c.ready()
}

// patience is how long a request waits for the transaction before it to be completed. Clients ask again, but their back-off is longer than it mostly takes.
const patience = 100 * time.Millisecond

// ask lets a command take effect and waits for its reply, which is on stable storage as far as the configuration asks for it. create makes the
// transactional id known. The command's token must be the call.
func (s *txnService) ask(ctx context.Context, id string, create bool, command func(*txnCall) txn.Command) (txn.Result, error) {
	if id == "" {
		return nil, errNoTransactionalID
	}
	if !create && s.started() == nil {
		return nil, txn.ErrUnknownMapping // on a node without transactions: asking makes no topic for them
	}
	c, err := s.coordinator(id)
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		a, err := c.ask(ctx, id, create, command)
		if err != nil {
			return nil, err
		}
		if !a.concurrent() || a.completion == nil {
			return a.result, nil
		}
		select {
		case <-a.completion:
		case <-limit.C:
			return a.result, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ctx.Done():
			return nil, txn.ErrNotAvailable
		}
	}
}

// look runs fn with a transaction, nil if there is none, where nothing changes it.
func (s *txnService) look(ctx context.Context, id string, fn func(*txn.Transaction)) error {
	if s.started() == nil {
		fn(nil)
		return nil
	}
	c, err := s.coordinator(id)
	if err != nil {
		return err
	}
	return c.wait(ctx, func() { fn(c.txns[id]) })
}

// lookAll runs fn with every transaction.
func (s *txnService) lookAll(ctx context.Context, fn func(*txn.Transaction)) error {
	for _, c := range s.started() {
		if err := c.ready(); err != nil {
			return err
		}
		err := c.wait(ctx, func() {
			for _, t := range c.txns {
				fn(t)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Kafka's API keys of transactions that are named in this package.
const (
	keyAddPartitionsToTxn   int16 = 24
	keyWriteTxnMarkers      int16 = 27
	keyTxnOffsetCommit      int16 = 28
	keyDescribeProducers    int16 = 61
	keyDescribeTransactions int16 = 65
	keyListTransactions     int16 = 66
)

// transactionHandlers are the keys of transactions.
func (b *Broker) transactionHandlers() []api {
	return []api{
		on(0, 5, b.handleAddPartitionsToTxn),
		on(0, 4, b.handleAddOffsetsToTxn),
		on(0, 5, b.handleEndTxn),
		on(1, 2, b.handleWriteTxnMarkers),
		on(0, 6, b.handleTxnOffsetCommit),
		on(0, 0, b.handleDescribeProducers),
		on(0, 0, b.handleDescribeTransactions),
		on(0, 2, b.handleListTransactions),
	}
}

func (b *Broker) allowedTransaction(c *conn, op acl.Operation, id string) bool {
	return b.allowed(c, op, acl.TransactionalID, id)
}
