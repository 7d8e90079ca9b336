package clustermetadata

import "fmt"

// The records' types that are understood here (Kafka: MetadataRecordType).
const (
	registerBroker           = 0
	unregisterBroker         = 1
	topicRecord              = 2
	partitionRecord          = 3
	configRecord             = 4
	partitionChange          = 5
	fenceBroker              = 7
	unfenceBroker            = 8
	removeTopic              = 9
	userScramCredential      = 11
	featureLevel             = 12
	producerIDs              = 15
	brokerRegistrationChange = 17
	removeUserScram          = 22
	beginTransaction         = 23
	endTransaction           = 24
	abortTransaction         = 25
	registerController       = 27
	clearELR                 = 28
	unregisterController     = 29
)

// types are the records' names in Kafka, and the newest version of each in Apache Kafka 4.4.0.
var types = map[int]struct {
	name   string
	newest int
}{
	registerBroker:           {"RegisterBrokerRecord", 4},
	unregisterBroker:         {"UnregisterBrokerRecord", 0},
	topicRecord:              {"TopicRecord", 0},
	partitionRecord:          {"PartitionRecord", 2},
	configRecord:             {"ConfigRecord", 0},
	partitionChange:          {"PartitionChangeRecord", 2},
	fenceBroker:              {"FenceBrokerRecord", 0},
	unfenceBroker:            {"UnfenceBrokerRecord", 0},
	removeTopic:              {"RemoveTopicRecord", 0},
	userScramCredential:      {"UserScramCredentialRecord", 0},
	featureLevel:             {"FeatureLevelRecord", 0},
	producerIDs:              {"ProducerIdsRecord", 0},
	brokerRegistrationChange: {"BrokerRegistrationChangeRecord", 3},
	removeUserScram:          {"RemoveUserScramCredentialRecord", 0},
	beginTransaction:         {"BeginTransactionRecord", 0},
	endTransaction:           {"EndTransactionRecord", 0},
	abortTransaction:         {"AbortTransactionRecord", 0},
	registerController:       {"RegisterControllerRecord", 0},
	clearELR:                 {"ClearElrRecord", 0},
	unregisterController:     {"UnregisterControllerRecord", 0},
}

func typeName(kind int) string {
	if t, ok := types[kind]; ok {
		return fmt.Sprintf("%s (type %d)", t.name, kind)
	}
	return fmt.Sprintf("record type %d", kind)
}

// record is one record of the metadata log; the reader stands at its body.
type record struct {
	reader
	offset        int64
	kind, version int // kind -1: not read
}

// open reads a record's frame (Kafka: MetadataRecordSerde): frame version, type, version.
func open(value []byte, offset int64) *record {
	r := &record{reader: reader{b: value}, offset: offset, kind: -1}
	switch frame := r.uvarint(); {
	case r.why != "":
	case frame != 1:
		r.fail("its frame version is not 1")
	default:
		kind, version := r.uvarint(), r.uvarint()
		if r.why == "" {
			r.kind, r.version = kind, version
		}
	}
	return r
}

// known says whether the record's type is understood here; the others are left out whatever is in them.
func (r *record) known() bool {
	_, ok := types[r.kind]
	return ok
}

// err is what is wrong with the record, nil if nothing is.
//
// A record in a version newer than is known is read as the newest known one, and has to come out even: so it is with one that only has more tagged fields. Any other new field moves
// what comes after it, and that cannot be told from damage.
func (r *record) err() error {
	if r.why == "" {
		return nil
	}
	e := &RecordError{Offset: r.offset, Type: r.kind, Version: r.version, Newest: r.version, Reason: r.why}
	if t, ok := types[r.kind]; ok {
		e.Newest = t.newest
	}
	return e
}
