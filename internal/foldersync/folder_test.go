package foldersync

import (
	"errors"
	"sync"
	"testing"
)

// TestFailureIsKnownBeforeTheNext: of many who come while a sync is under way each has one of its own, one after the other; when the first fails none is made any more,
// and all are told.
func TestFailureIsKnownBeforeTheNext(t *testing.T) {
	for _, fault := range []error{nil, errors.New("disk")} {
		const callers = 50
		var f Folder
		syncs, running := 0, 0 // guarded by f alone: the race detector tells if there are two at once
		arrived, letGo := make(chan struct{}), make(chan struct{})
		slow := func() error {
			syncs, running = syncs+1, running+1
			if running != 1 {
				t.Error("two at once")
			}
			defer func() { running-- }()
			if syncs == 1 {
				close(arrived)
				<-letGo
				return fault
			}
			return nil
		}
		first := make(chan error, 1)
		go func() { first <- f.Sync(slow) }()
		<-arrived
		var wg, waiting sync.WaitGroup
		errs := make([]error, callers)
		waiting.Add(callers)
		for i := range callers {
			wg.Go(func() {
				waiting.Done()
				errs[i] = f.Sync(slow)
			})
		}
		waiting.Wait()
		close(letGo)
		wg.Wait()
		if err := <-first; !errors.Is(err, fault) {
			t.Errorf("the first: %v, want %v", err, fault)
		}
		for i, err := range errs {
			if !errors.Is(err, fault) {
				t.Errorf("caller %d: %v, want %v", i, err, fault)
			}
		}
		want := callers + 1
		if fault != nil {
			want = 1
		}
		if syncs != want {
			t.Errorf("%d syncs, want %d", syncs, want)
		}
	}
}
