package broker

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// ListTransactions, versions 0 to 2.

// age of a transaction in milliseconds. One that has not begun is as old as time, as in Apache Kafka.
func age(started, now time.Time) int64 {
	if started.IsZero() {
		return now.UnixMilli() + 1
	}
	return now.Sub(started).Milliseconds()
}

func (b *Broker) handleListTransactions(ctx context.Context, c *conn, req *kmsg.ListTransactionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListTransactionsResponse()
	var pattern *regexp.Regexp
	if p := deref(req.TransactionalIDPattern); p != "" {
		var err error
		if pattern, err = regexp.Compile("^(?:" + p + ")$"); err != nil {
			resp.ErrorCode = errInvalidRegularExpression
			return resp, nil
		}
	}
	var states []txn.State
	for _, name := range req.StateFilters {
		if s, ok := txn.ParseState(name); ok {
			states = append(states, s)
		} else if !slices.Contains(resp.UnknownStateFilters, name) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	now := b.now()
	err := b.txns.lookAll(ctx, func(t *txn.Transaction) {
		d := t.Describe()
		switch {
		case len(req.StateFilters) > 0 && !slices.Contains(states, d.State),
			len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, d.Producer.ID),
			req.DurationFilterMillis >= 0 && age(d.Started, now) <= req.DurationFilterMillis,
			pattern != nil && !pattern.MatchString(t.ID()),
			!b.allowedTransaction(c, acl.Describe, t.ID()):
			return
		}
		out := kmsg.NewListTransactionsResponseTransactionState()
		out.TransactionalID, out.ProducerID, out.TransactionState = t.ID(), d.Producer.ID, d.State.String()
		resp.TransactionStates = append(resp.TransactionStates, out)
	})
	if err != nil {
		resp.ErrorCode, resp.TransactionStates = txnCode(err), nil
	}
	slices.SortFunc(resp.TransactionStates, func(x, y kmsg.ListTransactionsResponseTransactionState) int {
		return strings.Compare(x.TransactionalID, y.TransactionalID)
	})
	return resp, nil
}
