package clientlistener

import "github.com/twmb/franz-go/pkg/kmsg"

// Kafka's keys of the requests that are not passed on as they are, or whose answers are not.
const (
	keyProduce             = 0
	keyFetch               = 1
	keyListOffsets         = 2
	keySASLHandshake       = 17
	keyApiVersions         = 18
	keyDeleteRecords       = 21
	keyOffsetForEpoch      = 23
	keyAlterReplicaLogDirs = 34
	keyDescribeLogDirs     = 35
	keySASLAuthenticate    = 36
)

// kind is one kind of request that is not only passed on.
type kind struct {
	key      int16
	name     string
	min, max int16 // versions that are told to clients, if the broker has them; none if max is below min
	accepted int16 // the lowest version that is answered all the same
	flexible int16 // the first version with tagged fields (KIP-482)
	read     bool  // requests have to be understood, not only their answers
	// done is what is done, for the manual.
	done string
}

// kinds are all of them, by key.
var kinds = []kind{
	{keyProduce, "Produce", 3, 13, 3, 9, false, "to partitions that are led here: POLICY_VIOLATION"},
	{keyFetch, "Fetch", 11, 18, 4, 12, true, "of partitions that are led here: the follower to read from"},
	{keyListOffsets, "ListOffsets", 1, 11, 1, 6, true, "of partitions that are led here: answered"},
	{keySASLHandshake, "SaslHandshake", 1, 1, 1, kmsgNever, false, "version 0 is not passed on"},
	{keyApiVersions, "ApiVersions", 0, 4, 0, 3, false, "the broker's answer, with the versions of this table"},
	{keyDeleteRecords, "DeleteRecords", 0, 2, 0, 2, false, "of partitions that are led here: POLICY_VIOLATION"},
	{keyOffsetForEpoch, "OffsetForLeaderEpoch", 0, 4, 0, 4, true, "of partitions that are led here: answered"},
	{keyAlterReplicaLogDirs, "AlterReplicaLogDirs", 1, 0, kmsgNever, 2, false, "not offered; it would be another broker's folders"},
	{keyDescribeLogDirs, "DescribeLogDirs", 1, 5, 1, 2, false, "no folders"},
}

// kmsgNever is above every version.
const kmsgNever = 1 << 14

// kindOf finds a kind; false: it is passed on.
func kindOf(key int16) (kind, bool) {
	for _, k := range kinds {
		if k.key == key {
			return k, true
		}
	}
	return kind{}, false
}

// answers says whether a version is understood.
func (k kind) answers(version int16) bool { return version >= k.accepted && version <= k.max }

// request is an empty one.
func (k kind) request(version int16) kmsg.Request {
	req := kmsg.RequestForKey(k.key)
	req.SetVersion(version)
	return req
}

// versions narrows the broker's answer to ApiVersions to what is understood here.
func versions(resp *kmsg.ApiVersionsResponse) {
	kept := resp.ApiKeys[:0]
	for _, a := range resp.ApiKeys {
		if k, ok := kindOf(a.ApiKey); ok {
			a.MinVersion, a.MaxVersion = max(a.MinVersion, k.min), min(a.MaxVersion, k.max)
			if a.MaxVersion < a.MinVersion {
				continue
			}
		}
		kept = append(kept, a)
	}
	resp.ApiKeys = kept
}
