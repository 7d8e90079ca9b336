package replicaserver

import "github.com/twmb/franz-go/pkg/kmsg"

// Kafka's keys of the requests that are answered.
const (
	keyFetch            = 1
	keyListOffsets      = 2
	keyFindCoordinator  = 10
	keySASLHandshake    = 17
	keyApiVersions      = 18
	keyOffsetForEpoch   = 23
	keyWriteTxnMarkers  = 27
	keySASLAuthenticate = 36
)

// answered is one kind of request that is answered, and in which versions. They are what a follower of Kafka 3.9 to 4.4 sends; see the table in the package's manual.
type answered struct {
	key      int16
	name     string
	min, max int16
	flexible int16 // the first version with tagged fields (KIP-482); -1 none
	sasl     bool  // on SASL listeners only
}

// allAnswered are all kinds, by key.
var allAnswered = []answered{
	{keyFetch, "Fetch", 13, 18, 12, false},
	{keyListOffsets, "ListOffsets", 7, 11, 6, false},
	{keyFindCoordinator, "FindCoordinator", 4, 6, 3, false},
	{keySASLHandshake, "SaslHandshake", 1, 1, -1, true},
	{keyApiVersions, "ApiVersions", 0, 4, 3, false},
	{keyOffsetForEpoch, "OffsetForLeaderEpoch", 3, 4, 4, false},
	{keyWriteTxnMarkers, "WriteTxnMarkers", 1, 2, 1, false},
	{keySASLAuthenticate, "SaslAuthenticate", 0, 2, 2, true},
}

// kindOf finds what is answered of a key, on a listener with or without SASL.
func kindOf(key int16, sasl bool) (answered, bool) {
	for _, k := range allAnswered {
		if k.key == key && (sasl || !k.sasl) {
			return k, true
		}
	}
	return answered{}, false
}

// isFlexible says whether requests of this version have tagged fields.
func (k answered) isFlexible(version int16) bool { return k.flexible >= 0 && version >= k.flexible }

// versionsAnswer answers ApiVersions. A version that is not known is answered in version 0 with the range that is (KIP-511), so the other side can ask again.
func versionsAnswer(version int16, sasl bool) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	own, _ := kindOf(keyApiVersions, sasl)
	known := version >= own.min && version <= own.max
	if known {
		resp.Version = version
	} else {
		resp.ErrorCode = codeUnsupportedVersion
	}
	for _, k := range allAnswered {
		if k.sasl && !sasl || !known && k.key != keyApiVersions {
			continue
		}
		a := kmsg.NewApiVersionsResponseApiKey()
		a.ApiKey, a.MinVersion, a.MaxVersion = k.key, k.min, k.max
		resp.ApiKeys = append(resp.ApiKeys, a)
	}
	return resp
}
