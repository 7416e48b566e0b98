package metadatatopic

import (
	"context"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

type reading struct{}
type facts struct{}

func (r *Resolver) open(context.Context) error { return nil }
func (r *Resolver) Close()                     { r.cancel(); r.client.Close() }
func (r *Resolver) Ready() bool                { return false }
func (r *Resolver) Lag() int64                 { return 0 }
func (r *Resolver) Segments() int              { return 0 }
func (r *Resolver) Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	return name, id, resolve.ErrNotReady
}
func (r *Resolver) Facts(ctx context.Context, tp remotestorage.TopicIDPartition) (resolve.Facts, error) {
	return resolve.Facts{}, resolve.ErrNotReady
}
func (r *Resolver) Known(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	return resolve.Facts{}, false
}
func (r *Resolver) Local(tp remotestorage.TopicIDPartition, offset int64) bool { return true }
func (r *Resolver) Resolve(ctx context.Context, q resolve.Question) (remote.Range, error) {
	return remote.Range{}, resolve.ErrNotReady
}
func (r *Resolver) Location(ctx context.Context, q resolve.Question, rng *remote.Range) (*remotestorage.Location, error) {
	return nil, resolve.ErrNotOffered
}
func (r *Resolver) Learn(tp remotestorage.TopicIDPartition, l resolve.Learnt) {}
func (r *Resolver) Moved(tp remotestorage.TopicIDPartition)                   {}
