package node

import (
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestLastMirrorEpochOfAGivenUpPartition: what a failback is to find, by what is recorded of a partition whose copies end at 100 in epoch 7.
func TestLastMirrorEpochOfAGivenUpPartition(t *testing.T) {
	f := kraft.Forced{Partition: mirror.TopicPartition{Topic: "orders"}, Epoch: 7, End: 100}
	state := func(s statemachine.State, episode int32) statemachine.PartitionState {
		r := statemachine.NewPartitionState()
		r.State, r.Episode, r.SourceClusterID, r.SourceTopicID = s, episode, "east", statemachine.TopicID{15: 1}
		return r
	}
	recorded := func(epoch int32, offset int64, episode int32) *statemachine.LastMirrorEpoch {
		return &statemachine.LastMirrorEpoch{Epoch: epoch, Offset: offset, SourceClusterID: "east", SourceTopicID: statemachine.TopicID{15: 1}, Episode: episode}
	}
	open, failed := state(statemachine.Preparing, 3), statemachine.Fail(state(statemachine.Preparing, 3), "x", false)
	open.FoundOpen = true
	for _, x := range []struct {
		name    string
		state   statemachine.PartitionState
		had     *statemachine.LastMirrorEpoch
		want    *statemachine.LastMirrorEpoch
		clients bool
	}{
		{"mirroring", state(statemachine.Mirroring, 2), nil, recorded(7, 100, 2), false},
		{"mirroring again, after a stop", state(statemachine.Mirroring, 3), recorded(4, 50, 2), recorded(7, 100, 3), false},
		{"paused", state(statemachine.Paused, 1), nil, recorded(7, 100, 1), false},
		{"its own stop had come to the record, and markers follow", state(statemachine.Stopping, 2), recorded(7, 97, 2), recorded(7, 97, 2), false},
		{"stopped before, and led again by nobody's doing", state(statemachine.Stopped, 2), recorded(6, 90, 2), recorded(6, 90, 2), false},
		{"a failback that has cut nothing", open, recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"the first failback, that has cut nothing", open, nil, nil, true},
		{"a new start with clients' records, in the middle of its first step", state(statemachine.Preparing, 3), recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"the same, failed", failed, recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"a new start after the cut", state(statemachine.Preparing, 3), recorded(7, 120, 2), recorded(7, 100, 3), false},
	} {
		g := &giveUp{}
		got, clients := g.lastMirrorEpoch(statemachine.Entry{Key: statemachine.Key{Mirror: "m"}, State: x.state, LME: x.had}, f)
		if clients != x.clients || (got == nil) != (x.want == nil) || got != nil && *got != *x.want {
			t.Errorf("%s: %+v (clients' %v), want %+v", x.name, got, clients, x.want)
		}
	}

	// Nothing is recorded but the origin; or the state was deleted, and what an earlier episode recorded was kept.
	g := &giveUp{wanted: mirror.ControlState{Origins: []mirror.TopicOrigin{{Mirror: "m", Topic: "orders", SourceClusterID: "west"}}}}
	e := statemachine.NewEntry(statemachine.Key{Mirror: "m"})
	if got, _ := g.lastMirrorEpoch(e, f); got == nil || *got != (statemachine.LastMirrorEpoch{Epoch: 7, Offset: 100, SourceClusterID: "west"}) {
		t.Errorf("%+v", got)
	}
	e.LME = recorded(4, 50, 2)
	if got, _ := g.lastMirrorEpoch(e, f); got == nil || got.Episode != 3 || got.Offset != 100 || got.SourceClusterID != "west" {
		t.Errorf("%+v", got)
	}
}
