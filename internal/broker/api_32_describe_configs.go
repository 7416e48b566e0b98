package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
)

// DescribeConfigs, versions 1 to 4: topics, and this broker. The keys are those of docs/configuration.md, fewer than Apache Kafka's.

func (b *Broker) handleDescribeConfigs(_ context.Context, c *conn, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	unknown := slices.ContainsFunc(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool {
		return !slices.Contains(listedResources, r.ResourceType)
	})
	for i := range req.Resources {
		asked := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = asked.ResourceType, asked.ResourceName
		var r resource
		err := b.mayConfigure(c, acl.DescribeConfigs, asked.ResourceType, asked.ResourceName)
		if unknown { // of one of them: none is answered, as in Apache Kafka
			err = &configError{errInvalidRequest, "a resource of the request is of a type that has no configurations"}
		}
		if err == nil {
			r, err = b.resource(asked.ResourceType, asked.ResourceName)
		}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = configCode(err)
			resp.Resources = append(resp.Resources, out)
			continue
		}
		for _, e := range r.describe() {
			if len(asked.ConfigNames) > 0 && !slices.Contains(asked.ConfigNames, e.Key.Name) || e.Key.Internal && e.Null {
				continue
			}
			out.Configs = append(out.Configs, describedConfig(&e, asked.ResourceType == kmsg.ConfigResourceTypeBroker, req))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func describedConfig(e *config.Entry, ofBroker bool, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Source, out.IsDefault = e.Key.Name, kmsg.ConfigSource(e.Source), e.Source == config.SourceDefault
	out.ConfigType, out.ReadOnly, out.IsSensitive = kmsg.ConfigType(e.Key.Kind), ofBroker && !e.Key.Dynamic, e.Key.Sensitive
	shown := func(value string, null bool) *string {
		if null || e.Key.Sensitive {
			return nil
		}
		return &value
	}
	out.Value = shown(e.Value, e.Null)
	if req.IncludeDocumentation {
		out.Documentation = &e.Key.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			os := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			os.Name, os.Source, os.Value = s.Name, kmsg.ConfigSource(s.Source), shown(s.Value, s.Null)
			out.ConfigSynonyms = append(out.ConfigSynonyms, os)
		}
	}
	return out
}
