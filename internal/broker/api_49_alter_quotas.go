package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/quota"
)

// AlterClientQuotas, versions 0 and 1. Each entity's changes are made together or not at all; an address must be one, names of hosts are not looked up.

func (b *Broker) handleAlterClientQuotas(_ context.Context, c *conn, req *kmsg.AlterClientQuotasRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	allowed := b.allowedCluster(c, acl.AlterConfigs)
	changes := make([]quotaChange, len(req.Entries))
	named := make([]string, len(req.Entries))
	times := make(map[string]int)
	for i := range req.Entries {
		changes[i] = quotaChangeOf(&req.Entries[i])
		named[i] = entityText(req.Entries[i].Entity)
		times[named[i]]++
	}
	for i := range changes {
		if !allowed {
			changes[i].err = &configError{errClusterAuthorization, clusterDenied}
		} else if times[named[i]] > 1 {
			changes[i].err = &configError{errInvalidRequest, "the entity is in the request more than once"}
		}
	}
	if allowed && !req.ValidateOnly {
		b.applyQuotas(c, changes)
	}
	answered := make(map[string]bool)
	for i := range changes {
		if ch := &changes[i]; !answered[named[i]] || !allowed { // one answer for an entity
			answered[named[i]] = true
			out := kmsg.NewAlterClientQuotasResponseEntry()
			for _, part := range lastOfEach(req.Entries[i].Entity) {
				out.Entity = append(out.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: part.Type, Name: part.Name})
			}
			out.ErrorCode, out.ErrorMessage = configCode(ch.err)
			resp.Entries = append(resp.Entries, out)
		}
	}
	return resp, nil
}

// lastOfEach are the parts of an entity that count: of several of one type the last. They are in the order of their types.
func lastOfEach(parts []kmsg.AlterClientQuotasRequestEntryEntity) []kmsg.AlterClientQuotasRequestEntryEntity {
	last := make(map[string]kmsg.AlterClientQuotasRequestEntryEntity, len(parts))
	for _, part := range parts {
		last[part.Type] = part
	}
	var out []kmsg.AlterClientQuotasRequestEntryEntity
	for _, kind := range slices.Sorted(maps.Keys(last)) {
		out = append(out, last[kind])
	}
	return out
}

// entityText tells entities apart, those too that there cannot be.
func entityText(parts []kmsg.AlterClientQuotasRequestEntryEntity) string {
	var b strings.Builder
	for _, part := range lastOfEach(parts) {
		fmt.Fprintf(&b, "%q=", part.Type)
		if part.Name != nil {
			fmt.Fprintf(&b, "%q", *part.Name)
		}
		b.WriteByte(';')
	}
	return b.String()
}

// quotaChange is what is to become of an entity's quotas.
type quotaChange struct {
	entity quota.Entity
	values map[string]*float64 // nil: taken away
	err    error
}

func quotaChangeOf(asked *kmsg.AlterClientQuotasRequestEntry) quotaChange {
	ch := quotaChange{values: make(map[string]*float64)}
	refuse := func(err error) { ch.err = errors.Join(ch.err, &configError{errInvalidRequest, err.Error()}) }
	for _, part := range asked.Entity {
		p := ch.entity.Part(part.Type)
		if p == nil {
			refuse(fmt.Errorf("entities have no %q", part.Type))
			continue
		}
		*p = partOf(part.Name)
	}
	if ch.err == nil {
		if err := ch.entity.Check(); err != nil {
			refuse(err)
		}
	}
	for _, op := range asked.Ops {
		if _, twice := ch.values[op.Key]; twice {
			refuse(fmt.Errorf("%s is given twice", op.Key))
		}
		ch.values[op.Key] = nil
		if op.Remove {
			continue // of what is not there, too
		}
		if err := ch.entity.CheckValue(op.Key, op.Value); err != nil {
			refuse(err)
		}
		ch.values[op.Key] = &op.Value
	}
	return ch
}

// applyQuotas makes the changes that are in order, all of them or none.
func (b *Broker) applyQuotas(c *conn, changes []quotaChange) {
	any := false
	for i := range changes {
		any = any || changes[i].err == nil
	}
	if !any {
		return
	}
	err := b.quotas.alter(func(table quota.Table) {
		for i := range changes {
			if changes[i].err == nil {
				changes[i].apply(table)
			}
		}
	})
	for i := range changes {
		if changes[i].err == nil {
			changes[i].err = err
		}
	}
	switch {
	case err == nil:
		b.log.Info("quotas altered", "client", c.clientID, "peer", c.peer)
	case !errors.Is(err, errTooManyQuotas):
		b.log.Error("altering quotas", "err", err)
	}
}

func (ch *quotaChange) apply(table quota.Table) {
	values := maps.Clone(table[ch.entity])
	if values == nil {
		values = make(map[string]float64)
	}
	for name, v := range ch.values {
		if v == nil {
			delete(values, name)
		} else {
			values[name] = *v
		}
	}
	if table[ch.entity] = values; len(values) == 0 {
		delete(table, ch.entity)
	}
}
