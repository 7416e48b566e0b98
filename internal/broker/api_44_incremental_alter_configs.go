package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
)

// IncrementalAlterConfigs, versions 0 and 1. All operations on one resource take effect together or not at all.

func (b *Broker) handleIncrementalAlterConfigs(_ context.Context, c *conn, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	times := map[resourceName]int{}
	for i := range req.Resources {
		times[resourceName{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		asked := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = asked.ResourceType, asked.ResourceName
		var err error
		if times[resourceName{asked.ResourceType, asked.ResourceName}] > 1 {
			err = &configError{errInvalidRequest, fmt.Sprintf("%q is given twice in one request", asked.ResourceName)} // neither counts
		} else if err = b.mayConfigure(c, acl.AlterConfigs, asked.ResourceType, asked.ResourceName); err == nil {
			err = b.alterConfigs(asked, req.ValidateOnly)
		}
		b.logAltered(c, asked.ResourceType, asked.ResourceName, req.ValidateOnly, err)
		out.ErrorCode, out.ErrorMessage = configCode(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func (b *Broker) alterConfigs(asked *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	b.altering.Lock()
	defer b.altering.Unlock()
	if asked.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
		return b.alterLoggers(asked, validateOnly)
	}
	r, missing := b.alterable(asked.ResourceType, asked.ResourceName)
	if r == nil {
		return missing
	}
	inForce := map[string]string{}
	for _, e := range r.describe() {
		inForce[e.Key.Name] = e.Value
	}
	overrides := maps.Clone(r.overrides())
	if overrides == nil {
		overrides = map[string]string{}
	}
	seen := map[string]bool{}
	for i := range asked.Configs {
		kv := &asked.Configs[i]
		if seen[kv.Name] {
			return &configError{errInvalidRequest, kv.Name + " is given twice"}
		}
		seen[kv.Name] = true
		if kv.Value == nil && kv.Op != kmsg.IncrementalAlterConfigOpDelete {
			return &configError{errInvalidRequest, "a null value is not supported for " + kv.Name}
		}
	}
	for i := range asked.Configs {
		if err := alterOne(r, &asked.Configs[i], overrides, inForce); err != nil {
			return err
		}
	}
	return replaceConfigsOf(r, missing, overrides, validateOnly)
}

func alterOne(r resource, kv *kmsg.IncrementalAlterConfigsRequestResourceConfig, overrides, inForce map[string]string) error {
	if kv.Op == kmsg.IncrementalAlterConfigOpDelete {
		delete(overrides, kv.Name)
		return nil
	}
	if kv.Op < kmsg.IncrementalAlterConfigOpSet || kv.Op > kmsg.IncrementalAlterConfigOpSubtract {
		return &configError{errUnknown, fmt.Sprintf("unknown operation %d on %s", kv.Op, kv.Name)}
	}
	if kv.Op == kmsg.IncrementalAlterConfigOpSet {
		overrides[kv.Name] = *kv.Value
		return nil
	}
	k, err := r.key(kv.Name)
	if err != nil {
		return err
	}
	if k.Kind != config.List || !r.splits() {
		return &configError{errInvalidConfig, fmt.Sprintf("%s is no list: nothing can be appended to it or subtracted from it", kv.Name)}
	}
	items, given := config.SplitList(inForce[kv.Name]), config.SplitList(*kv.Value)
	switch kv.Op {
	case kmsg.IncrementalAlterConfigOpAppend:
		there := setOf(items)
		for _, item := range given {
			if !there[item] {
				there[item], items = true, append(items, item)
			}
		}
	case kmsg.IncrementalAlterConfigOpSubtract:
		gone := setOf(given)
		items = slices.DeleteFunc(items, func(i string) bool { return gone[i] })
	}
	overrides[kv.Name] = strings.Join(items, ",")
	return nil
}

func setOf(items []string) map[string]bool {
	set := make(map[string]bool, len(items))
	for _, i := range items {
		set[i] = true
	}
	return set
}
