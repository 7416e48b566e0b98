package broker

// Kafka's error codes, as far as they are used here.
const (
	errUnknown                  int16 = -1
	errNone                     int16 = 0
	errOffsetOutOfRange         int16 = 1
	errCorruptMessage           int16 = 2
	errUnknownTopicOrPartition  int16 = 3
	errLeaderNotAvailable       int16 = 5
	errNotLeader                int16 = 6
	errRequestTimedOut          int16 = 7
	errMessageTooLarge          int16 = 10
	errOffsetMetadataTooLarge   int16 = 12
	errCoordinatorLoading       int16 = 14
	errCoordinatorNotAvailable  int16 = 15
	errNotCoordinator           int16 = 16
	errInvalidTopic             int16 = 17
	errRecordListTooLarge       int16 = 18
	errInvalidRequiredAcks      int16 = 21
	errIllegalGeneration        int16 = 22
	errInconsistentProtocol     int16 = 23
	errInvalidGroupID           int16 = 24
	errUnknownMemberID          int16 = 25
	errInvalidSessionTimeout    int16 = 26
	errRebalanceInProgress      int16 = 27
	errInvalidCommitOffsetSize  int16 = 28
	errInvalidTimestamp         int16 = 32
	errUnsupportedVersion       int16 = 35
	errTopicAlreadyExists       int16 = 36
	errInvalidPartitions        int16 = 37
	errInvalidReplicationFactor int16 = 38
	errInvalidReplicaAssignment int16 = 39
	errInvalidConfig            int16 = 40
	errInvalidRequest           int16 = 42
	errUnsupportedForFormat     int16 = 43
	errPolicyViolation          int16 = 44
	errOutOfOrderSequence       int16 = 45
	errDuplicateSequence        int16 = 46
	errInvalidProducerEpoch     int16 = 47
	errStorage                  int16 = 56
	errUnknownProducerID        int16 = 59
	errOperationNotAttempted    int16 = 55
	errNonEmptyGroup            int16 = 68
	errGroupIDNotFound          int16 = 69
	errFencedLeaderEpoch        int16 = 74
	errUnknownLeaderEpoch       int16 = 75
	errUnsupportedCompression   int16 = 76
	errOffsetNotAvailable       int16 = 78
	errMemberIDRequired         int16 = 79
	errGroupMaxSize             int16 = 81
	errFencedInstanceID         int16 = 82
	errInvalidRecord            int16 = 87
	errUnknownTopicID           int16 = 100
	errInconsistentTopicID      int16 = 103
	errTransactionalIDNotFound  int16 = 105
)
