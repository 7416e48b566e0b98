package broker

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// api is one served key. What is not in the table is absent from ApiVersions and closes the connection.
type api struct {
	key, min, max int16
	unlisted      bool // not in the answer to ApiVersions
	serve         func(ctx context.Context, c *conn, req kmsg.Request) (reply, error)
}

// reply is an answer on its way to the connection's writer; nil sends nothing (acks=0).
type reply interface {
	// buffers blocks until the answer may go out (a produce with acks=all waits for the disk here, so that the requests behind it are already
	// being handled), and gives the frame. An error closes the connection.
	buffers(ctx context.Context, version int16, correlationID int32) (net.Buffers, error)
	// release is called once, after the frame was written or dropped.
	release()
}

// on makes a table entry from a handler. The handler runs on the connection's handler goroutine: it may block, the connection's later requests
// then wait, others' do not. ctx ends when the client has gone or the broker closes. An error closes the connection; a nil response sends nothing.
// The request's byte slices are good until the handler returns, unless the table says otherwise (see keepsFrame).
func on[R kmsg.Request](min, max int16, h func(ctx context.Context, c *conn, req R) (kmsg.Response, error)) api {
	var zero R
	return api{key: zero.Key(), min: min, max: max, serve: func(ctx context.Context, c *conn, req kmsg.Request) (reply, error) {
		resp, err := h(ctx, c, req.(R))
		if err != nil || resp == nil {
			return nil, err
		}
		return message{resp}, nil
	}}
}

// later makes a table entry from a handler that builds its own reply.
func later[R kmsg.Request](min, max int16, h func(ctx context.Context, c *conn, req R) (reply, error)) api {
	var zero R
	return api{key: zero.Key(), min: min, max: max, serve: func(ctx context.Context, c *conn, req kmsg.Request) (reply, error) {
		return h(ctx, c, req.(R))
	}}
}

// message is a reply that is ready.
type message struct{ kmsg.Response }

func (m message) buffers(_ context.Context, version int16, correlationID int32) (net.Buffers, error) {
	m.SetVersion(version)
	return net.Buffers{wire.AppendResponse(nil, m.Response, correlationID)}, nil
}

func (message) release() {}

// apiTable gathers the served keys.
func (b *Broker) apiTable() map[int16]api {
	var list []api
	list = append(list, b.coreHandlers()...)
	list = append(list, b.groupHandlers()...)
	list = append(list, b.shareHandlers()...)
	list = append(list, b.transactionHandlers()...)
	list = append(list, b.configHandlers()...)
	list = append(list, b.aclHandlers()...)
	list = append(list, b.clusterHandlers()...)
	table := make(map[int16]api, len(list))
	for _, a := range list {
		if _, twice := table[a.key]; twice {
			panic("two handlers for " + kmsg.NameForKey(a.key))
		}
		table[a.key] = b.gated(a)
	}
	return table
}

// Kafka's API keys that are named in this package.
const (
	keyProduce                 int16 = 0
	keyFetch                   int16 = 1
	keyListOffsets             int16 = 2
	keyMetadata                int16 = 3
	keyOffsetCommit            int16 = 8
	keyOffsetFetch             int16 = 9
	keyFindCoordinator         int16 = 10
	keyJoinGroup               int16 = 11
	keyLeaveGroup              int16 = 13
	keySyncGroup               int16 = 14
	keyDescribeGroups          int16 = 15
	keyListGroups              int16 = 16
	keySaslHandshake           int16 = 17
	keyApiVersions             int16 = 18
	keyCreateTopics            int16 = 19
	keyDeleteTopics            int16 = 20
	keyDeleteRecords           int16 = 21
	keyOffsetForLeaderEpoch    int16 = 23
	keyDescribeAcls            int16 = 29
	keyCreateAcls              int16 = 30
	keyDeleteAcls              int16 = 31
	keyDescribeConfigs         int16 = 32
	keyAlterConfigs            int16 = 33
	keyAlterReplicaLogDirs     int16 = 34
	keyDescribeLogDirs         int16 = 35
	keySaslAuthenticate        int16 = 36
	keyCreatePartitions        int16 = 37
	keyCreateDelegationToken   int16 = 38
	keyDescribeDelegationToken int16 = 41
	keyDeleteGroups            int16 = 42
	keyElectLeaders            int16 = 43
	keyIncrementalAlterConfigs int16 = 44
	keyAlterReassignments      int16 = 45
	keyListReassignments       int16 = 46
	keyOffsetDelete            int16 = 47
	keyDescribeClientQuotas    int16 = 48
	keyAlterClientQuotas       int16 = 49
	keyDescribeScram           int16 = 50
	keyAlterScram              int16 = 51
	keyConsumerGroupHeartbeat  int16 = 68
	keyConsumerGroupDescribe   int16 = 69
	keyShareGroupHeartbeat     int16 = 76
	keyShareGroupDescribe      int16 = 77
	keyShareFetch              int16 = 78
	keyShareAcknowledge        int16 = 79
	keyStreamsGroupHeartbeat   int16 = 88
	keyStreamsGroupDescribe    int16 = 89
	keyDescribeShareOffsets    int16 = 90
	keyAlterShareOffsets       int16 = 91
	keyDeleteShareOffsets      int16 = 92
	keyStreamsDescription      int16 = 93
	keyUpdateFeatures          int16 = 57
	keyPushTelemetry           int16 = 72
	keyListConfigResources     int16 = 74
	keyDescribeTopicPartitions int16 = 75
	keyAddRaftVoter            int16 = 80
	keyHeartbeat               int16 = 12
	keyInitProducerID          int16 = 22
	keyAddOffsetsToTxn         int16 = 25
	keyEndTxn                  int16 = 26
	keyRenewDelegationToken    int16 = 39
	keyExpireToken             int16 = 40
	keyDescribeQuorum          int16 = 55
	keyDescribeCluster         int16 = 60
	keyUnregisterBroker        int16 = 64
	keyGetTelemetry            int16 = 71
	keyRemoveRaftVoter         int16 = 81
	keyUnregisterController    int16 = 94
)
