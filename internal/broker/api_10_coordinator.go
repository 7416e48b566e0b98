package broker

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// FindCoordinator, versions 0 to 6. This node coordinates every group, every transaction and, from version 6 on, what share groups keep of partitions. For the
// latter only brokers may ask; a share group's own coordinator is found like that of any group.

const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
	coordinatorShare = 2 // the last type that Kafka knows
)

func (b *Broker) handleFindCoordinator(_ context.Context, c *conn, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	host, port := b.advertised(c)
	var code int16
	var message *string
	if req.Version >= 1 && (req.CoordinatorType < 0 || req.CoordinatorType > coordinatorShare || req.CoordinatorType == coordinatorShare && req.Version < 6) {
		code, message = errInvalidRequest, kmsg.StringPtr("the coordinator type is not known")
	}
	if req.Version < 4 {
		if code == errNone {
			code, message = b.coordinatorDenied(c, req, req.CoordinatorKey)
		}
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID = code, message, -1
		if code == errNone {
			resp.NodeID, resp.Host, resp.Port = b.nodeID, host, port
		}
		return resp, nil
	}
	for _, k := range req.CoordinatorKeys {
		code, message := code, message
		if code == errNone {
			code, message = b.coordinatorDenied(c, req, k)
		}
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key, out.NodeID, out.Port, out.ErrorCode, out.ErrorMessage = k, -1, -1, code, message
		if code == errNone {
			out.NodeID, out.Host, out.Port = b.nodeID, host, port
		}
		resp.Coordinators = append(resp.Coordinators, out)
	}
	return resp, nil
}

// coordinatorDenied: whoever may not know of a group or a transactional id may not know its coordinator.
func (b *Broker) coordinatorDenied(c *conn, req *kmsg.FindCoordinatorRequest, key string) (int16, *string) {
	switch txn := req.Version >= 1 && req.CoordinatorType == coordinatorTxn; {
	case txn && !b.allowedTransaction(c, acl.Describe, key):
		return errTransactionalIDDenied, kmsg.StringPtr("not authorized for the transactional id")
	case req.Version >= 6 && req.CoordinatorType == coordinatorShare:
		if !b.allowedCluster(c, acl.ClusterAction) {
			return errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		}
		if !isShareKey(key) {
			return errInvalidRequest, kmsg.StringPtr("the key is not that of a share-partition, group:topic id:partition")
		}
	case !txn && !b.allowedGroup(c, acl.Describe, key):
		return errGroupAuthorization, kmsg.StringPtr(groupDenied)
	}
	return errNone, nil
}

// isShareKey tells whether a key names a share-partition.
func isShareKey(key string) bool {
	rest, partition, ok := cutLast(key)
	groupID, topic, both := cutLast(rest) // a group's id may have colons in it
	if !ok || !both || strings.TrimSpace(groupID) == "" {
		return false
	}
	id, err := base64.RawURLEncoding.DecodeString(topic)
	n, nerr := strconv.ParseInt(partition, 10, 32)
	return err == nil && len(id) == 16 && nerr == nil && n >= 0
}

func cutLast(key string) (before, after string, ok bool) {
	i := strings.LastIndexByte(key, ':')
	if i < 0 {
		return "", "", false
	}
	return key[:i], key[i+1:], true
}
