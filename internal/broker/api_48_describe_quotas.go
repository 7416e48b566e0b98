package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/quota"
)

// DescribeClientQuotas, versions 0 and 1.

const (
	matchExact     = 0
	matchDefault   = 1
	matchSpecified = 2
)

func (b *Broker) handleDescribeClientQuotas(_ context.Context, c *conn, req *kmsg.DescribeClientQuotasRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	if !b.allowedCluster(c, acl.DescribeConfigs) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		return resp, nil
	}
	filter, err := quotaFilterOf(req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = configCode(err)
		return resp, nil
	}
	table := b.quotas.all()
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for _, e := range table.Entities() {
		if filter.matches(&e) {
			resp.Entries = append(resp.Entries, quotaEntry(&e, table[e]))
		}
	}
	return resp, nil
}

func quotaEntry(e *quota.Entity, values map[string]float64) kmsg.DescribeClientQuotasResponseEntry {
	out := kmsg.NewDescribeClientQuotasResponseEntry()
	for _, kind := range quota.Types() {
		if p := e.Part(kind); p.Given {
			out.Entity = append(out.Entity, kmsg.DescribeClientQuotasResponseEntryEntity{Type: kind, Name: nameOf(p)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out.Values = append(out.Values, kmsg.DescribeClientQuotasResponseEntryValue{Key: name, Value: values[name]})
	}
	return out
}

// quotaFilter says of each part of an entity what it must be. A part that is not in it may be anything, unless it is strict.
type quotaFilter struct {
	parts  map[string]quota.Part // given, but neither named nor the default: any that is given
	strict bool
}

func quotaFilterOf(req *kmsg.DescribeClientQuotasRequest) (*quotaFilter, error) {
	f := &quotaFilter{parts: make(map[string]quota.Part), strict: req.Strict}
	invalid := func(format string, args ...any) (*quotaFilter, error) {
		return nil, &configError{errInvalidRequest, fmt.Sprintf(format, args...)}
	}
	for i := range req.Components {
		m := &req.Components[i]
		_, twice := f.parts[m.EntityType]
		switch {
		case m.EntityType == "":
			return invalid("a component names no type of entities")
		case twice:
			return invalid("entity type %s cannot appear more than once in the filter", m.EntityType)
		case new(quota.Entity).Part(m.EntityType) == nil:
			return nil, &configError{errUnsupportedVersion, "unsupported entity type " + m.EntityType}
		case (m.MatchType == matchExact) != (m.Match != nil) && m.MatchType >= matchExact && m.MatchType <= matchSpecified:
			return invalid("a match string belongs to an exact match, and to no other")
		}
		switch m.MatchType {
		case matchExact:
			f.parts[m.EntityType] = quota.Named(*m.Match)
		case matchDefault:
			f.parts[m.EntityType] = quota.ByDefault()
		case matchSpecified:
			f.parts[m.EntityType] = quota.Part{Given: true}
		default:
			return invalid("unknown match type %d", m.MatchType)
		}
	}
	if _, ip := f.parts[quota.TypeIP]; ip && len(f.parts) > 1 {
		return invalid("addresses are not to be combined with users or client ids")
	}
	return f, nil
}

func (f *quotaFilter) matches(e *quota.Entity) bool {
	if f.strict && len(f.parts) == 0 {
		return false
	}
	for _, kind := range quota.Types() {
		p := e.Part(kind)
		want, asked := f.parts[kind]
		switch {
		case !asked && f.strict && p.Given, asked && !p.Given:
			return false
		case asked && want != (quota.Part{Given: true}) && *p != want:
			return false
		}
	}
	return true
}
