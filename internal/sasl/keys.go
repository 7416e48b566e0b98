package sasl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// maxKeySet bounds a set of keys, maxKeys how many are in it: a token that names no key is tried with each.
const (
	maxKeySet = 1 << 20
	maxKeys   = 100
)

// KeysOptions say where the keys are that tokens are signed with.
type KeysOptions struct {
	URL     string        // of a JSON Web Key Set: https, http or file
	Refresh time.Duration // how often it is read again
	Retry   time.Duration // the least time between two reads, however many unknown keys are asked for
	Client  *http.Client  // nil: one with a time limit, which follows no redirects
	Logger  *slog.Logger
}

// Keys are the public keys of a set that is read again from time to time, and when a token names a key that is not in it. What was read last stays in
// use while the set cannot be had. Close must follow.
type Keys struct {
	o      KeysOptions
	want   chan struct{} // holds one wish for a new read
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	keys []jose.JSONWebKey
}

// OpenKeys reads a set of keys. A file must be there at once; a URL may be late, no token is good until then.
func OpenKeys(ctx context.Context, o KeysOptions) (*Keys, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "file" && u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the URL of a key set begins with https://, http:// or file://")
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	k := &Keys{o: o, want: make(chan struct{}, 1)}
	if err := k.read(ctx); err != nil {
		if u.Scheme == "file" {
			return nil, err
		}
		o.Logger.Error("the keys of tokens cannot be read; it is tried again", "err", err)
		k.want <- struct{}{}
	}
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.done.Go(func() { k.refresh(ctx) })
	return k, nil
}

// Close ends the reading.
func (k *Keys) Close() {
	k.cancel()
	k.done.Wait()
	k.o.Client.CloseIdleConnections()
}

// Find implements KeySource.
func (k *Keys) Find(id string) []jose.JSONWebKey {
	k.mu.Lock()
	keys := k.keys
	k.mu.Unlock()
	if id == "" {
		return keys
	}
	var found []jose.JSONWebKey
	for _, key := range keys {
		if key.KeyID == id {
			found = append(found, key)
		}
	}
	if found == nil {
		// A new key, perhaps: the client's next attempt finds it.
		select {
		case k.want <- struct{}{}:
		default:
		}
	}
	return found
}

func (k *Keys) refresh(ctx context.Context) {
	tick := time.NewTicker(k.o.Refresh)
	defer tick.Stop()
	for {
		// However often it is wished for: not more often than that.
		pause := time.NewTimer(k.o.Retry)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-k.want:
		case <-ctx.Done():
			return
		}
		if err := k.read(ctx); err != nil && ctx.Err() == nil {
			k.o.Logger.Error("the keys of tokens cannot be read again; the old ones stay in use", "err", err)
		}
	}
}

func (k *Keys) read(ctx context.Context) error {
	text, err := k.fetch(ctx)
	if err != nil {
		return fmt.Errorf("reading the key set: %w", err)
	}
	keys, err := ParseKeySet(text)
	if err != nil {
		return fmt.Errorf("reading the key set: %w", err)
	}
	k.mu.Lock()
	k.keys = keys
	k.mu.Unlock()
	return nil
}

func (k *Keys) fetch(ctx context.Context) ([]byte, error) {
	u, err := url.Parse(k.o.URL)
	if err != nil {
		return nil, err
	}
	var body io.ReadCloser
	if u.Scheme == "file" {
		if body, err = os.Open(u.Path); err != nil {
			return nil, err
		}
	} else if body, err = k.get(ctx); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(body, maxKeySet+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxKeySet {
		return nil, fmt.Errorf("more than %d bytes", maxKeySet)
	}
	return text, nil
}

func (k *Keys) get(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.o.URL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.o.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("status %s", resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// ParseKeySet reads a JSON Web Key Set. Keys of kinds that are not known here, and secret ones, are passed over.
func ParseKeySet(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&set); err != nil {
		return nil, fmt.Errorf("no key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, %d are allowed", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && key.Valid() && key.IsPublic() {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in the set")
	}
	return keys, nil
}
