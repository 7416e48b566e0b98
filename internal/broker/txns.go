package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

const transactionsTopic = "__transaction_state"

// errNoTransactionalID: the request has an empty transactional id.
var errNoTransactionalID = errors.New("transactional id is empty")

// txnService coordinates all transactions. Besides the coordinators' goroutines there is one for each transaction that is being completed; close waits for
// them as well.
type txnService struct {
	*coordinators[*txnCoordinator]
	// newID gives a producer id that nobody has.
	newID func() (int64, error)
	// mark writes a marker into one partition's log, and gives what makes that last; both nil where the partition is gone.
	mark func(ctx context.Context, tp txn.TopicPartition, m marker) (sync func(context.Context) error, err error)
}

var transactionsStateTopic = stateTopic{
	name:       transactionsTopic,
	partitions: func(cfg *config.Broker) int32 { return cfg.TransactionPartitions },
	// As Kafka's; we write it uncompressed, as does Kafka.
	configs: func(cfg *config.Broker) map[string]string {
		return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": fmt.Sprint(cfg.TransactionSegmentBytes), "unclean.leader.election.enable": "false"}
	},
	sweep: func(cfg *config.Broker) time.Duration { return cfg.TransactionExpiryCheck },
}

func newTxnService(cfg func() *config.Broker, now func() time.Time, log *slog.Logger) *txnService {
	s := &txnService{coordinators: newCoordinators[*txnCoordinator](transactionsStateTopic, cfg, now, log)}
	s.states = s.newCoordinator
	return s
}

// openTransactions takes the transactions up that the log knows; those that were decided are completed.
func (b *Broker) openTransactions() {
	b.txns = newTxnService(b.config, b.now, b.log)
	b.txns.newID, b.txns.mark = b.producerIDs.next, b.mark
	b.txns.open(b)
}

func (b *Broker) closeTransactions() {
	if b.txns != nil {
		b.txns.close()
	}
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
	c, err := s.of(id)
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
			return nil, errNotAvailable
		}
	}
}

// look runs fn with a transaction, nil if there is none, where nothing changes it.
func (s *txnService) look(ctx context.Context, id string, fn func(*txn.Transaction)) error {
	if s.started() == nil {
		fn(nil)
		return nil
	}
	c, err := s.of(id)
	if err != nil {
		return err
	}
	return c.wait(ctx, func() { fn(c.txns[id]) })
}

// lookAll runs fn with every transaction.
func (s *txnService) lookAll(ctx context.Context, fn func(*txn.Transaction)) error {
	return s.eachOf(ctx, func(c *txnCoordinator) {
		for _, t := range c.txns {
			fn(t)
		}
	})
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
