package broker

import (
	"log/slog"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// What a client may do is asked here, by each handler, for exactly what Apache Kafka asks there (docs/security.md has the table). Without an authorizer the
// answer is yes.

func (b *Broker) allowed(c *conn, op acl.Operation, r acl.ResourceType, name string) bool {
	if b.authorizer == nil || b.authorizer.Allowed(&c.who, op, r, name) {
		return true
	}
	b.metrics.denied.WithLabelValues(op.String(), r.String()).Inc()
	if b.log.Enabled(c.ctx, slog.LevelDebug) {
		b.log.Debug("denied", "principal", c.who.Principal, "host", c.who.Host, "operation", op.String(), "resource", r.String(), "name", name)
	}
	return false
}

func (b *Broker) allowedTopic(c *conn, op acl.Operation, topic string) bool {
	return b.allowed(c, op, acl.Topic, topic)
}

func (b *Broker) allowedGroup(c *conn, op acl.Operation, group string) bool {
	return b.allowed(c, op, acl.Group, group)
}

func (b *Broker) allowedCluster(c *conn, op acl.Operation) bool {
	return b.allowed(c, op, acl.Cluster, acl.ClusterName)
}

// allowedOnAny tells whether there may be a resource of the type that the client may do the operation on.
func (b *Broker) allowedOnAny(c *conn, op acl.Operation, r acl.ResourceType) bool {
	return b.authorizer == nil || b.authorizer.AllowedOnAny(&c.who, op, r)
}

// operations is the bit field of what the client may do on a resource.
func (b *Broker) operations(c *conn, r acl.ResourceType, name string) int32 {
	if b.authorizer != nil {
		return b.authorizer.AuthorizedOperations(&c.who, r, name)
	}
	var bits int32
	for _, op := range acl.Operations(r) {
		bits |= 1 << op
	}
	return bits
}

// clusterOperations is what answers tell about the cluster: nothing to those who may not describe it.
func (b *Broker) clusterOperations(c *conn) int32 {
	if !b.allowedCluster(c, acl.Describe) {
		return 0
	}
	return b.operations(c, acl.Cluster, acl.ClusterName)
}

// noOperations: the field was not asked for.
const noOperations = -1 << 31

// Texts of refusals, Apache Kafka's.
const (
	topicDenied   = "Topic authorization failed."
	groupDenied   = "Group authorization failed."
	clusterDenied = "Cluster authorization failed."
	quotaExceeded = "The throttling quota has been exceeded."
)
