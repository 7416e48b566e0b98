package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
)

// DescribeConfigs, versions 1 to 4: topics, and this broker. The keys are those of docs/configuration.md, fewer than Apache Kafka's. A resource takes a few bytes to ask for and
// tens of thousands to describe, so an answer is bounded.

// maxDescription bounds about the bytes of one answer: some ten thousand topics with all that can be told of them.
const maxDescription = 256 << 20

func (b *Broker) handleDescribeConfigs(_ context.Context, c *conn, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	return b.describeConfigs(c, req, maxDescription), nil
}

func (b *Broker) describeConfigs(c *conn, req *kmsg.DescribeConfigsRequest, most int) kmsg.Response {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	unknown := slices.ContainsFunc(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool {
		return !slices.Contains(listedResources, r.ResourceType)
	})
	bytes := 0
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
		if err == nil && bytes > most {
			err = &configError{errPolicyViolation, "the answer would be too large: fewer resources are to be described by one request"}
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
			described := describedConfig(&e, asked.ResourceType == kmsg.ConfigResourceTypeBroker, req)
			bytes += sizeOfConfig(&described)
			out.Configs = append(out.Configs, described)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
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

// sizeOfConfig is about what a described configuration takes in the answer, and before it is written.
func sizeOfConfig(c *kmsg.DescribeConfigsResponseResourceConfig) int {
	n := 128 + len(c.Name) + len(deref(c.Value)) + len(deref(c.Documentation))
	for i := range c.ConfigSynonyms {
		n += 64 + len(c.ConfigSynonyms[i].Name) + len(deref(c.ConfigSynonyms[i].Value))
	}
	return n
}
