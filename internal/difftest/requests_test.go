package difftest

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// build makes a good request of one key in the scene's version, with what it needs on the scene's side.
type build func(sc *scene) (kmsg.Request, error)

// builds has a good request for each key, from which others are made by changing it. A key that is not here is asked with a request that is filled with defaults.
func builds() map[int16]build {
	all := map[int16]build{}
	for _, m := range []map[int16]build{logBuilds(), groupBuilds(), transactionBuilds(), adminBuilds(), describeBuilds(), streamsBuilds()} {
		for k, b := range m {
			all[k] = b
		}
	}
	return all
}

// good is for requests that need nothing made.
func good(make func(sc *scene) kmsg.Request) build {
	return func(sc *scene) (kmsg.Request, error) { return make(sc), nil }
}

// filled is a request with one element in each of its lists.
func filled(key int16) build {
	return good(func(sc *scene) kmsg.Request {
		req := kmsg.RequestForKey(key)
		fill(reflect.ValueOf(req).Elem())
		return req
	})
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" && name != "UnknownTags" {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	case reflect.String:
		v.SetString("d-unknown")
	}
}

func logBuilds() map[int16]build {
	return map[int16]build{
		0: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 30_000
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = scratch, sc.s.topicID(scratch)
			t.Partitions = []kmsg.ProduceRequestTopicPartition{{Records: records(2, -1, -1, -1, false)}}
			req.Topics = append(req.Topics, t)
			return req
		}),
		1: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrFetchRequest()
			req.ReplicaID, req.ReplicaState.ID = -1, -1
			req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 100, 1, 1<<20, -1
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = logs, sc.s.topicID(logs)
			p := kmsg.NewFetchRequestTopicPartition()
			p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = 4, 1<<20, -1, -1
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			return req
		}),
		2: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID, req.TimeoutMillis = -1, 30_000
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp, p.MaxNumOffsets = -1, 1
			req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: logs, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
			return req
		}),
		21: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.TimeoutMillis = 30_000
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: shrinking, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 1, Offset: 0}}}}
			return req
		}),
		23: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LeaderEpoch = -1, 0
			req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: logs, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
			return req
		}),
	}
}

func groupBuilds() map[int16]build {
	member := func(use func(sc *scene, group, member string, generation int32) kmsg.Request) build {
		return func(sc *scene) (kmsg.Request, error) {
			id, generation, err := sc.s.join(sc.scope+"group", nil)
			if err != nil {
				return nil, err
			}
			return use(sc, sc.scope+"group", id, generation), nil
		}
	}
	return map[int16]build{
		8: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group, req.Generation = sc.scope+"group", -1
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = logs, sc.s.topicID(logs)
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Offset, p.Metadata = 3, kmsg.StringPtr("why")
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			return req
		}),
		9: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Group = group
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: logs, Partitions: []int32{0, 1}}}
			g := kmsg.NewOffsetFetchRequestGroup()
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID, t.Partitions = logs, sc.s.topicID(logs), []int32{0, 1}
			g.Group, g.Topics = group, append(g.Topics, t)
			req.Groups = append(req.Groups, g)
			return req
		}),
		10: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
			return req
		}),
		11: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = sc.scope+"group", 60_000, 1_000, "consumer"
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
			return req
		}),
		12: member(func(sc *scene, group, member string, generation int32) kmsg.Request {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation = group, member, generation
			return req
		}),
		13: member(func(sc *scene, group, member string, _ int32) kmsg.Request {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group, req.MemberID = group, member
			m := kmsg.NewLeaveGroupRequestMember()
			m.MemberID = member
			req.Members = append(req.Members, m)
			return req
		}),
		14: member(func(sc *scene, group, member string, generation int32) kmsg.Request {
			req := kmsg.NewPtrSyncGroupRequest()
			req.Group, req.MemberID, req.Generation = group, member, generation
			req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
			req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("assigned")}}
			return req
		}),
		15: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = []string{group, live}
			return req
		}),
		16: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = []string{"Stable", "Empty"}, []string{"classic"}
			return req
		}),
		42: func(sc *scene) (kmsg.Request, error) {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{sc.scope + "group", live}
			return req, sc.s.commit(sc.scope+"group", logs, 1)
		},
		47: func(sc *scene) (kmsg.Request, error) {
			req := kmsg.NewPtrOffsetDeleteRequest()
			req.Group = sc.scope + "group"
			req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: logs, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
			return req, sc.s.commit(sc.scope+"group", logs, 1)
		},
	}
}

func transactionBuilds() map[int16]build {
	const (
		empty = iota // not begun
		partition
		offsets
	)
	transaction := func(with int, use func(sc *scene, id string, p producer) kmsg.Request) build {
		return func(sc *scene) (kmsg.Request, error) {
			id := sc.scope + "id"
			p, err := sc.s.initProducer(id)
			switch {
			case err != nil:
			case with == partition:
				err = sc.s.addPartition(id, p, transactsElsewhere)
			case with == offsets:
				err = sc.s.addOffsets(id, p, sc.scope+"group")
			}
			if err != nil {
				return nil, err
			}
			return use(sc, id, p), nil
		}
	}
	return map[int16]build{
		22: transaction(empty, func(sc *scene, id string, p producer) kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, p.id, p.epoch
			return req
		}),
		24: transaction(empty, func(sc *scene, id string, p producer) kmsg.Request {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, p.id, p.epoch
			req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: transactsElsewhere, Partitions: []int32{0, 1}}}
			t := kmsg.NewAddPartitionsToTxnRequestTransaction()
			t.TransactionalID, t.ProducerID, t.ProducerEpoch = id, p.id, p.epoch
			t.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: transactsElsewhere, Partitions: []int32{0, 1}}}
			req.Transactions = append(req.Transactions, t)
			return req
		}),
		25: transaction(empty, func(sc *scene, id string, p producer) kmsg.Request {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, p.id, p.epoch, sc.scope+"group"
			return req
		}),
		26: transaction(partition, func(sc *scene, id string, p producer) kmsg.Request {
			req := kmsg.NewPtrEndTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, p.id, p.epoch, true
			return req
		}),
		27: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrWriteTxnMarkersRequest()
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.ProducerEpoch, m.Committed = 1_000_000, 0, true
			m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: transactsElsewhere, Partitions: []int32{1}}}
			req.Markers = append(req.Markers, m)
			return req
		}),
		28: transaction(offsets, func(sc *scene, id string, p producer) kmsg.Request {
			req := kmsg.NewPtrTxnOffsetCommitRequest()
			req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, sc.scope+"group", p.id, p.epoch, -1
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic, t.TopicID = logs, sc.s.topicID(logs)
			o := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			o.Offset, o.Metadata = 2, kmsg.StringPtr("why")
			t.Partitions = append(t.Partitions, o)
			req.Topics = append(req.Topics, t)
			return req
		}),
		61: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeProducersRequest()
			req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: transacts, Partitions: []int32{0}}}
			return req
		}),
		65: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = []string{openID, "d-committed"}
			return req
		}),
		66: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrListTransactionsRequest()
			req.StateFilters = []string{"Ongoing"}
			req.TransactionalIDPattern = kmsg.StringPtr("d-.*")
			return req
		}),
	}
}

func adminBuilds() map[int16]build {
	return map[int16]build{
		19: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.TimeoutMillis = 30_000
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = sc.scope+"topic", 1, 1
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = "retention.ms", kmsg.StringPtr("123456")
			t.Configs = append(t.Configs, c)
			req.Topics = append(req.Topics, t)
			return req
		}),
		20: func(sc *scene) (kmsg.Request, error) {
			name := sc.scope + "topic"
			if err := sc.s.createTopic(name, 1); err != nil {
				return nil, err
			}
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis, req.TopicNames = 30_000, []string{name}
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &name
			req.Topics = append(req.Topics, t)
			return req, nil
		},
		30: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrCreateACLsRequest()
			c := kmsg.NewCreateACLsRequestCreation()
			c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host = kmsg.ACLResourceTypeTopic, sc.scope+"topic", kmsg.ACLResourcePatternTypeLiteral, "User:made", "*"
			c.Operation, c.PermissionType = kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, c)
			return req
		}),
		31: func(sc *scene) (kmsg.Request, error) {
			if err := sc.s.createACL(sc.scope+"topic", "User:deleted"); err != nil {
				return nil, err
			}
			req := kmsg.NewPtrDeleteACLsRequest()
			f := kmsg.NewDeleteACLsRequestFilter()
			f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(sc.scope+"topic"), kmsg.ACLResourcePatternTypeAny
			f.Principal, f.Host, f.Operation, f.PermissionType = kmsg.StringPtr("User:deleted"), kmsg.StringPtr("*"), kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
			req.Filters = append(req.Filters, f)
			return req, nil
		},
		33: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrAlterConfigsRequest()
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = "retention.ms", kmsg.StringPtr("-1")
			req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: scratch, Configs: []kmsg.AlterConfigsRequestResourceConfig{c}}}
			return req
		}),
		37: func(sc *scene) (kmsg.Request, error) {
			name := sc.scope + "topic"
			if err := sc.s.createTopic(name, 1); err != nil {
				return nil, err
			}
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis = 30_000
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = name, 3
			req.Topics = append(req.Topics, t)
			return req, nil
		},
		44: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = "retention.ms", kmsg.StringPtr("-1")
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: scratch, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}}}
			return req
		}),
		51: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
			req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: sc.scope + "user", Mechanism: 1, Iterations: 4096, Salt: []byte("some salt"), SaltedPassword: make([]byte, 32)}}
			req.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: sc.scope + "other", Mechanism: 1}}
			return req
		}),
	}
}

func describeBuilds() map[int16]build {
	return map[int16]build{
		3: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			name := logs
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = &name
			req.Topics = append(req.Topics, t)
			return req
		}),
		17: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrSASLHandshakeRequest()
			req.Mechanism = "PLAIN"
			return req
		}),
		18: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = "difftest", "1"
			return req
		}),
		29: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourceName, req.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(sc.scope+"topic"), kmsg.ACLResourcePatternTypeAny
			req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
			return req
		}),
		32: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: logs, ConfigNames: []string{"retention.ms", "cleanup.policy"}}}
			return req
		}),
		35: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: logs, Partitions: []int32{0}}}
			return req
		}),
		50: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
			req.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "nobody"}}
			return req
		}),
		55: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeQuorumRequest()
			req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
			return req
		}),
		60: good(func(sc *scene) kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() }),
		94: good(func(sc *scene) kmsg.Request { return &kmsg.UnregisterControllerRequest{ControllerID: 9} }),
		75: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: logs}, {Topic: empty}}
			return req
		}),
	}
}
