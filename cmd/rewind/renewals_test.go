package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/gateway"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestStoreHangsWhileItIsOpened: who opens it anew goes on in time with the store that is there, and is not kept from trying again, nor from ending. What is open by then all the same is
// closed.
func TestStoreHangsWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &handles{t: t}
		r := o.reopened()
		let := make(chan struct{})
		o.wait = func(context.Context) { <-let } // as a file system does that hangs
		began := time.Now()
		if err := r.renew(t.Context()); !errors.Is(err, errOpenTime) || time.Since(began) != openTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := r.renew(t.Context()); !errors.Is(err, errOpening) || time.Since(began) != openTime {
			t.Errorf("while it hangs: %v", err)
		}
		if err := r.Ping(t.Context()); err != nil || o.all[0].times() != 0 {
			t.Error("the store is no longer in force", err)
		}
		close(let)
		synctest.Wait()
		if len(o.all) != 2 || o.all[1].times() != 1 || o.all[0].times() != 0 {
			t.Error("what came too late is not closed, or is in force")
		}
		o.wait = nil
		if err := r.renew(t.Context()); err != nil || o.all[0].times() != 1 || o.all[2].times() != 0 {
			t.Errorf("once it does not hang any more: %v", err)
		}
		// A signal ends the wait.
		ctx, cancel := context.WithCancel(t.Context())
		o.wait = func(ctx context.Context) { <-ctx.Done(); o.err = ctx.Err() }
		time.AfterFunc(time.Second, cancel)
		if err := r.renew(ctx); !errors.Is(err, context.Canceled) || time.Since(began) != openTime+time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		synctest.Wait()
		o.err = nil
		// Nothing holds up the end.
		let = make(chan struct{})
		o.wait = func(context.Context) { <-let }
		go func() { _ = r.renew(t.Context()) }()
		synctest.Wait()
		began = time.Now()
		if err := r.close(); err != nil || time.Since(began) != lastPatience || o.all[2].times() != 1 {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		close(let)
		synctest.Wait()
		if len(o.all) != 4 || o.all[3].times() != 1 {
			t.Error("what came after the end is not closed")
		}
	})
}

// TestStoreKeepsItsContext: that with which a store was opened lasts as long as the store, whatever becomes of who asked for it, and no longer.
func TestStoreKeepsItsContext(t *testing.T) {
	o := &handles{t: t}
	r := o.reopened()
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		body, err := r.FetchLogSegment(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, 0, 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.renew(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if o.ctxs[i].Err() != nil || o.ctxs[i+1].Err() != nil {
			t.Errorf("%d: a store that is in use has lost its context", i)
		}
		body.Close()
		if o.ctxs[i].Err() == nil || o.all[i].times() != 1 {
			t.Errorf("%d: a store that was closed keeps its context", i)
		}
	}
	if err := r.close(); err != nil || o.ctxs[3].Err() == nil {
		t.Errorf("at the end: %v", err)
	}
}

// TestSwitchWhileTheStoreHangs: a store that hangs while it is opened anew holds up no other signal, and not the end.
func TestSwitchWhileTheStoreHangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	configure := func(on bool) {
		t.Helper()
		text := fmt.Sprintf("upstream.bootstrap.servers: 127.0.0.1:1\nlisteners: 127.0.0.1:0\nremote.read.enable: %t\n", on)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(true)
	c := gatewayCmd{Config: file}
	cfg, err := c.configuration()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	up, err := newGatewayUpstream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	o, err := gatewayOptions(cfg, up, log)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	hangs, rounds := make(chan struct{}, 10), 0
	stores := startRenewals(log, func(ctx context.Context) error {
		rounds++
		hangs <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}, func(context.Context) error { t.Error("another store came before the end"); return nil })
	for i := range 5 {
		on := i%2 == 1
		configure(on)
		cfg = c.reload(cfg, g, up, stores, log)
		if i == 0 {
			<-hangs
		}
		if g.ReadsOff() == on {
			t.Errorf("signal %d: history is read: %t", i, !on)
		}
	}
	stores.stop()
	if rounds != 1 {
		t.Errorf("%d rounds", rounds)
	}

	// Signals that come in the middle of a round are followed by one more, with what is there by then.
	now, seen := make(chan int), make(chan int)
	stores = startRenewals(log, func(context.Context) error { seen <- <-now; return nil })
	defer stores.stop()
	stores.ask()
	now <- 1
	for range 3 {
		stores.ask()
	}
	if got := <-seen; got != 1 {
		t.Error(got)
	}
	now <- 2
	if got := <-seen; got != 2 {
		t.Error(got)
	}
	select {
	case now <- 3:
		t.Error("a round too many")
	case <-time.After(50 * time.Millisecond):
	}
}
