package broker

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options make a Broker.
type Options struct {
	FS     vfs.FS                             // nil: the operating system's
	RSM    remotestorage.RemoteStorageManager // nil: no tiering
	Logger *slog.Logger                       // nil: discarded
	Clock  func() time.Time                   // nil: the system's
}

// Broker is one node.
type Broker struct {
	log    *slog.Logger
	now    func() time.Time
	topics *topics.Registry
	apis   map[int16]api
}

// New makes a broker from its data directory. Nothing is served before Start.
func New(o Options) (*Broker, error) {
	b := &Broker{log: o.Logger, now: o.Clock}
	b.apis = b.apiTable()
	return b, nil
}

// Start begins to serve.
func (b *Broker) Start(ctx context.Context) error { return nil }

// Addr is the address that Start listens on.
func (b *Broker) Addr() net.Addr { return nil }

// Close ends serving, then closes the logs cleanly.
func (b *Broker) Close(ctx context.Context) error { return nil }

func (b *Broker) coreHandlers() []api { return nil }
