package replicaserver

// Kafka's error codes that this server sets itself (Kafka: Errors).
const (
	codeUnknownTopicOrPartition    = 3
	codeNotLeader                  = 6
	codeCoordinatorNotAvailable    = 15
	codeTopicAuthorizationFailed   = 29
	codeClusterAuthorizationFailed = 31
	codeUnsupportedMechanism       = 33
	codeIllegalSASLState           = 34
	codeUnsupportedVersion         = 35
	codeInvalidRequest             = 42
	codeUnsupportedForFormat       = 43
	codeStorageError               = 56
	codeAuthenticationFailed       = 58
	codeSessionNotFound            = 70
	codeInvalidSessionEpoch        = 71
	codeFencedLeaderEpoch          = 74
	codeUnknownLeaderEpoch         = 75
	codeUnknownTopicID             = 100
	codeInconsistentClusterID      = 104
)
