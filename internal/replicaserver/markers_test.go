package replicaserver

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestNothingIsMarked: a coordinator leaves out a partition that is led here, asks again about one that is held or not known, and a stranger learns nothing.
func TestNothingIsMarked(t *testing.T) {
	topics, logs := topicOf(2)
	logs[1].code = codeNotLeader // held
	var stranger atomic.Bool
	f := dial(t, start(t, topics, func(c *Config) { c.Allowed = func(string) bool { return !stranger.Load() } }))
	for version := int16(1); version <= 2; version++ {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = version
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID = 7
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "a", Partitions: []int32{0, 1}}, {Topic: "unknown", Partitions: []int32{0}}}
		req.Markers = append(req.Markers, m)
		for _, is := range []bool{false, true} {
			stranger.Store(is)
			var codes []int16
			for _, m := range f.ask(req).(*kmsg.WriteTxnMarkersResponse).Markers {
				for _, t := range m.Topics {
					for _, p := range t.Partitions {
						codes = append(codes, p.ErrorCode)
					}
				}
			}
			want := []int16{codeUnsupportedForFormat, codeNotLeader, codeUnknownTopicOrPartition}
			if is {
				want = []int16{codeClusterAuthorizationFailed, codeClusterAuthorizationFailed, codeClusterAuthorizationFailed}
			}
			if !slices.Equal(codes, want) {
				t.Errorf("version %d, stranger %v: %v, want %v", version, is, codes, want)
			}
		}
	}
}
