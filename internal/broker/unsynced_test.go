package broker

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/quota"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// TestRefusedChangesStayRefused: what could not be kept because the sync of the folder failed, when the file had its name already, is not in force after the next start: whoever asked
// for it was told that it failed.
func TestRefusedChangesStayRefused(t *testing.T) {
	authorized := withKeys("authorizer.class.name", standardAuthorizer, "allow.everyone.if.no.acl.found", "true")
	for name, change := range map[string]func(b *testBroker) error{
		"rules": func(b *testBroker) error {
			return b.secrets.addACLs([]acl.Binding{{Resource: acl.Topic, Name: "t", Pattern: acl.Literal, Principal: "User:x", Host: "*", Operation: acl.Read, Permission: acl.Allow}})
		},
		"users": func(b *testBroker) error {
			return b.secrets.alterUsers([]scramChange{{user: "x", mechanism: 1, credential: &sasl.Credential{Salt: []byte("s"), Iterations: 4096, StoredKey: []byte("k"), ServerKey: []byte("k")}}})
		},
		"quotas": func(b *testBroker) error {
			return b.quotas.alter(func(table quota.Table) {
				table[quota.Entity{User: quota.Named("x")}] = map[string]float64{quota.ProducerByteRate: 1}
			})
		},
	} {
		var broken atomic.Bool
		mem := crashableFS(t)
		b := startBroker(t, "/node", authorized, withFS(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && op.Path == "/node/security" && broken.Swap(false) {
				return errors.New("disk")
			}
			return nil
		}))))
		broken.Store(true)
		if err := change(b); err == nil || broken.Load() {
			t.Errorf("%s: changed: %v", name, err)
		}
		broken.Store(false)
		if err := b.Close(t.Context()); err != nil {
			t.Error(name, err)
		}
		b = startBroker(t, "/node", authorized, withFS(mem))
		if len(b.authorizer.All()) > 0 || len(b.secrets.userNames()) > 0 || len(b.quotas.all()) > 0 {
			t.Errorf("%s: in force after a restart: rules %v, users %v, quotas %v", name, b.authorizer.All(), b.secrets.userNames(), b.quotas.all())
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(name, err)
		}
	}
}
