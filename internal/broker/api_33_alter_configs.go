package broker

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// AlterConfigs, versions 0 to 2: the values given replace all that were set.

func (b *Broker) handleAlterConfigs(_ context.Context, c *conn, req *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterConfigsResponse()
	seen := map[resourceName]bool{}
	for i := range req.Resources {
		asked := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = asked.ResourceType, asked.ResourceName
		err := seenTwice(seen, resourceName{asked.ResourceType, asked.ResourceName})
		if err == nil {
			err = b.mayConfigure(c, acl.AlterConfigs, asked.ResourceType, asked.ResourceName)
		}
		if err == nil {
			err = b.replaceConfigs(asked, req.ValidateOnly)
		}
		b.logAltered(c, asked.ResourceType, asked.ResourceName, req.ValidateOnly, err)
		out.ErrorCode, out.ErrorMessage = configCode(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func (b *Broker) replaceConfigs(asked *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	b.altering.Lock()
	defer b.altering.Unlock()
	r, missing := b.alterable(asked.ResourceType, asked.ResourceName)
	if r == nil {
		return missing
	}
	overrides := make(map[string]string, len(asked.Configs))
	for _, kv := range asked.Configs {
		if kv.Value == nil {
			return &configError{errInvalidRequest, "a null value is not supported for " + kv.Name}
		}
		if _, twice := overrides[kv.Name]; twice {
			return &configError{errInvalidRequest, kv.Name + " is given twice"}
		}
		overrides[kv.Name] = *kv.Value
	}
	return replaceConfigsOf(r, missing, overrides, validateOnly)
}

// alterable finds what is to be altered. Apache Kafka judges the configurations of a topic before it looks whether the topic is there: then there are a resource to
// judge them with and an error.
func (b *Broker) alterable(kind kmsg.ConfigResourceType, name string) (resource, error) {
	r, err := b.resource(kind, name)
	if err == nil || kind != kmsg.ConfigResourceTypeTopic {
		return r, err
	}
	if name == "" {
		err = &configError{errInvalidRequest, "the topic has no name"}
	}
	return &topicResource{b, topics.Topic{Name: name}}, err
}

// maxConfigValue is how long the value of a configuration may be, as in Apache Kafka. What is kept of it is read whole by the next start.
const maxConfigValue = 32767

func checkConfigValues(values map[string]string) error {
	for name, v := range values {
		if len(v) > maxConfigValue {
			return &configError{errInvalidConfig, fmt.Sprintf("the value of %.100q is %d bytes long, %d are allowed", name, len(v), maxConfigValue)}
		}
		if !utf8.ValidString(v) { // it would be another one after the next start
			return &configError{errInvalidConfig, fmt.Sprintf("the value of %.100q is not UTF-8", name)}
		}
	}
	return nil
}

func replaceConfigsOf(r resource, missing error, overrides map[string]string, validateOnly bool) error {
	if err := checkConfigValues(overrides); err != nil {
		return err
	}
	if missing == nil {
		return r.replace(overrides, validateOnly)
	}
	if errors.Is(missing, topics.ErrUnknown) {
		if err := r.replace(overrides, true); err != nil {
			return err
		}
	}
	return missing
}

type resourceName struct {
	kind kmsg.ConfigResourceType
	name string
}

func seenTwice(seen map[resourceName]bool, n resourceName) error {
	if seen[n] {
		return &configError{errInvalidRequest, fmt.Sprintf("%q is given twice in one request", n.name)}
	}
	seen[n] = true
	return nil
}

// logAltered notes who changed what. Values are left out, they may be secret.
func (b *Broker) logAltered(c *conn, kind kmsg.ConfigResourceType, name string, validateOnly bool, err error) {
	if !validateOnly && err == nil {
		b.log.Info("configuration altered", "kind", kind.String(), "name", name, "client", c.clientID, "peer", c.peer)
	}
}
