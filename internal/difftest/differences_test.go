package difftest

// The differences that are on purpose. The last column is part of the row of docs/differences.md that says why.

const (
	anything = `[^\x00]*`
	nowhere  = `` // Apache Kafka's answer has nothing that ours does not have
)

func differences() []difference {
	const instance = "an instance id that is empty, not null"
	const meaningless = "DeleteAcls and DescribeAcls whose filter has no meaning"
	return []difference{
		diff(0, `twice the same`, nowhere, anything, "one partition twice in a Produce"),
		diff(0, `Records=null|Partitions=one default`, `silent`, anything+`INVALID_RECORD`+anything, "records that are null, not empty"),
		diff(11, `Protocols=twice the same`, `silent`, anything, "a JoinGroup that names one protocol twice"),
		diff(11, `InstanceID=empty`, anything, anything+`MEMBER_ID_REQUIRED`+anything, instance),
		diff(12, `InstanceID=empty`, anything+`UNKNOWN_MEMBER_ID`+anything, anything, instance),
		diff(13, `InstanceID=empty`, anything+`UNKNOWN_MEMBER_ID`+anything, anything, instance),
		diff(14, `InstanceID=empty`, anything+`UNKNOWN_MEMBER_ID`+anything, anything, instance),
		diff(24, `^Transactions=(null|empty)`, `silent`, anything, "an AddPartitionsToTxn without transactions"),
		diff(27, `^Markers\[0\]\.ProducerID=-`, anything, anything+`UNKNOWN_SERVER_ERROR`+anything, "a marker of a negative producer id"),
		diff(27, `(Topics|Partitions)=twice the same`, `silent`, anything, "one partition twice in a marker of WriteTxnMarkers"),
		diff(29, `(ResourceType|ResourcePatternType|Operation|PermissionType)=`, `closed|ErrorCode=ok`, anything+`INVALID_REQUEST`+anything, meaningless),
		diff(30, anything, `closed|`+anything+`UNKNOWN_SERVER_ERROR`+anything, anything+`INVALID_REQUEST`+anything, meaningless),
		diff(31, anything, `closed|`+anything+`Results\.ErrorCode=ok`+anything, anything+`INVALID_REQUEST`+anything, meaningless),
		diff(33, `Resources=twice the same`, `silent`, anything+`INVALID_REQUEST`+anything, "one resource twice in AlterConfigs"),
		diff(51, `SaltedPassword=(null|empty)`, `Results\.ErrorCode=UNKNOWN_SERVER_ERROR`, `Results\.ErrorCode=UNACCEPTABLE_CREDENTIAL`, "a SCRAM credential with an empty salted password"),
	}
}
