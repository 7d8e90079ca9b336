package kafkasource

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// FuzzFetchAnswer: of whatever answer a broker gives to a fetch, only what was asked for is passed on, each with the position that was asked, an error without records, and
// records without an error, verbatim.
func FuzzFetchAnswer(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "kafka", "recorded", "*.fetch"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded answers: %v", err)
	}
	var known []mirror.TopicID
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		resp := kmsg.NewPtrFetchResponse()
		if resp.Version = 18; resp.ReadFrom(b) != nil || len(resp.Topics) != 1 {
			f.Fatalf("%s is no answer of version 18", file)
		}
		known = append(known, resp.Topics[0].TopicID)
		f.Add(b, int16(18))
		resp.SessionID, resp.Topics[0].Partitions[0].CurrentLeader.LeaderID, resp.Topics[0].Partitions[0].PreferredReadReplica = 7, 3, 2
		resp.Topics[0].Topic = "t"
		resp.Brokers = []kmsg.FetchResponseBroker{{NodeID: 3, Host: "h", Port: 1}}
		for version := int16(4); version <= 18; version++ {
			resp.Version = version
			f.Add(resp.AppendTo(nil), version)
		}
		resp.Topics[0].Partitions[0].ErrorCode = 6
		f.Add(resp.AppendTo(nil), int16(18))
	}
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		if version < 4 || version > 18 {
			return
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		if resp.ReadFrom(b) != nil {
			return // the client refuses it
		}
		s := &Source{brokers: map[int32]mirror.Broker{}, leaders: map[mirror.TopicPartition]leader{}, limits: map[int32]int32{}}
		var out []mirror.FetchedPartition
		asked := map[mirror.TopicPartition]mirror.FetchPosition{}
		fuzzbound.Run(t, len(b), func() {
			fe := &fetcher{source: s, session: newSession()}
			for i, id := range known {
				at := mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: string(rune('t' + i))}, TopicID: id, Offset: int64(i), LeaderEpoch: int32(i)}
				if version < 13 {
					at.TopicID = mirror.TopicID{}
				}
				fe.session.want(at)
				asked[at.TopicPartition] = at
			}
			_ = fe.session.build(1000)
			out = fe.take(resp, fe.session.lost)
		})
		for _, p := range out {
			at, was := asked[p.TopicPartition]
			if !was || p.Offset != at.Offset || p.LeaderEpoch != at.LeaderEpoch {
				t.Fatalf("%+v was asked as %+v", p, at)
			}
			if p.Err != nil && (p.Records != nil || p.HighWatermark != -1 || p.LogStart != -1 || p.LastStable != -1) {
				t.Fatalf("an error with offsets or records: %+v", p)
			}
			verbatim := slices.ContainsFunc(resp.Topics, func(rt kmsg.FetchResponseTopic) bool {
				return slices.ContainsFunc(rt.Partitions, func(rp kmsg.FetchResponseTopicPartition) bool {
					return rp.ErrorCode == 0 && rp.HighWatermark == p.HighWatermark && bytes.Equal(rp.RecordBatches, p.Records)
				})
			})
			if p.Err == nil && !verbatim {
				t.Fatalf("no partition of the answer has what is passed on: %+v", p)
			}
		}
	})
}

// FuzzMirrorRecords reads any record of the topics in which the source keeps what it mirrors itself, and then its tombstone: what cannot be read is named, what can be is there,
// and behind the tombstone nothing is left.
func FuzzMirrorRecords(f *testing.F) {
	k := statemachine.Key{Mirror: "m", TopicID: statemachine.TopicID{1}, Partition: 3}
	f.Add(statemachine.AppendKey(nil, statemachine.PartitionStateType, k), statemachine.AppendPartitionState(nil, statemachine.PartitionState{State: statemachine.Mirroring, SourceClusterID: "c"}))
	f.Add(statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, k), statemachine.AppendLastMirrorEpoch(nil, statemachine.LastMirrorEpoch{Epoch: 3, Offset: 9, SourceClusterID: "c"}))
	f.Add([]byte("\x00\x46\x00\x01m\x00\x01t"), []byte(`{"version":1,"sourceClusterId":"c","upstream":["d"]}`))
	f.Add([]byte("\x00\x46\x00\x01m\x00\x09t"), []byte(`{}`))
	f.Add([]byte{0, 2, 255, 255}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		value = append([]byte{}, value...) // nil is a tombstone
		var states stateRecords
		var origins originRecords
		record := topicreader.Record{Topic: stateTopic, Key: key, Value: value}
		fuzzbound.Run(t, len(key)+len(value), func() {
			states = stateRecords{places: make(map[place]map[string]*mirrored), unreadable: make(map[string]error)}
			origins = originRecords{origins: make(map[originKey]origin), unreadable: make(map[string]error)}
			states.apply(record)
			origins.apply(record)
		})
		if typ, k, err := statemachine.DecodeKey(key); err == nil {
			at := place{k.TopicID, k.Partition}
			m := states.places[at][k.Mirror]
			if m == nil || len(states.unreadable) > 0 {
				t.Fatalf("%v is not there: %v", k, states.unreadable)
			}
			best, bestErr := states.greatest(at, "c")
			seen := 0
			eachErr := states.each(at, func(string, *statemachine.PartitionState) { seen++ })
			if typ == statemachine.PartitionStateType && (best != nil || bestErr != nil || (eachErr == nil) != (seen == 1)) {
				t.Fatalf("a state: %v, %v, %d, %v", best, bestErr, seen, eachErr)
			}
			if typ == statemachine.LastMirrorEpochsType && (seen > 0 || eachErr != nil || bestErr != m.lmeErr || best != nil && best.SourceClusterID != "c") {
				t.Fatalf("an end: %v, %v, %d, %v", best, bestErr, seen, eachErr)
			}
		}
		if about, ok, err := mirror.DecodeTopicOrigin(key, value); ok || err != nil {
			o := origins.origins[originKey{about.Mirror, about.Topic}]
			if err == nil && (o.err != nil || o.SourceClusterID != about.SourceClusterID) || err != nil && len(origins.unreadable) == 0 && len(origins.origins) != 1 {
				t.Fatalf("%+v (%v) is there as %+v, unreadable %v", about, err, o, origins.unreadable)
			}
		}
		record.Value = nil
		states.apply(record)
		origins.apply(record)
		if len(states.places)+len(states.unreadable)+len(origins.origins)+len(origins.unreadable) > 0 {
			t.Fatalf("behind the tombstone: %v, %v, %v, %v", states.places, states.unreadable, origins.origins, origins.unreadable)
		}
	})
}
