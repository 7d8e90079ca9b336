package statemachine

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestDecision2SourceIsKeptInTheState: whom a log was copied from survives a restart (F-28, F-33), in tagged fields that a reader of the KIP page's layout skips.
func TestDecision2SourceIsKeptInTheState(t *testing.T) {
	s := PartitionState{State: Mirroring, LeaderEpoch: 4, StateEpoch: 2, PreviousState: Unknown, Episode: 3, SourceClusterID: "A", SourceTopicID: TopicID{1, 2, 3}}
	b := AppendPartitionState(nil, s)
	const want = "0000" + "02" + "00000004" + "00000002" + "00" + "0000" + "10" + "03" + "0004" + "00000003" + "0102" + "0241" + "0210" + "01020300000000000000000000000000"
	if hex.EncodeToString(b) != want {
		t.Fatalf("%x, not %s", b, want)
	}
	got, err := DecodePartitionState(b)
	if err != nil || got != s {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range [][2]string{{"0241", "0341"}, {"0210", "0211"}} {
		broken := bytes.Replace(b, unhex(t, bad[0]), unhex(t, bad[1]), 1)
		if got, err := DecodePartitionState(broken); err == nil {
			t.Errorf("%x was read as %+v", broken, got)
		}
	}
}
