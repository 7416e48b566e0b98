package main

import (
	"context"
	"log/slog"
)

// renewals open stores anew in the background, one after the other: whoever asks for it, and has a kill switch to see to, is not held up by a store that does not answer. They have
// one goroutine; stop waits for it.
type renewals struct {
	renew  []func(context.Context) error
	log    *slog.Logger
	asked  chan struct{} // one slot: another round is owed
	cancel context.CancelFunc
	done   chan struct{}
}

func startRenewals(log *slog.Logger, renew ...func(context.Context) error) *renewals {
	ctx, cancel := context.WithCancel(context.Background())
	r := &renewals{renew: renew, log: log, asked: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go r.run(ctx)
	return r
}

// ask has them opened anew with what is there from now on. It does not block. A round that is under way may have read what was there before, so another one follows it.
func (r *renewals) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

func (r *renewals) run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-r.asked:
		case <-ctx.Done():
			return
		}
		for _, renew := range r.renew {
			switch err := renew(ctx); {
			case ctx.Err() != nil:
				return
			case err != nil:
				r.log.Error("the store cannot be opened anew; it stays as it is", "err", err)
			default:
				r.log.Info("the store was opened anew")
			}
		}
	}
}

func (r *renewals) stop() {
	r.cancel()
	<-r.done
}
