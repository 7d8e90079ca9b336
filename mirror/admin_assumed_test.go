package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestAnAssumedDestinationOverrulesNobody: the cluster that keeps the desired state has none of the topics. Whether the processes write to it or to another one, what was recorded
// and reported of their topics counts.
func TestAnAssumedDestinationOverrulesNobody(t *testing.T) {
	for _, id := range []string{"here", "there"} {
		world := func(state statemachine.State, wish string) (*Admin, Control) {
			w, c := &adminWorld{}, controlWith(t, wishOf("t", wish))
			w.has("m", "t", state)
			w.topics = nil
			report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: id}, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o", State: state, At: planTime})
			return w.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.DestinationAssumed, cfg.DestinationBootstrap = true, "here:9092" }), c
		}
		a, _ := world(statemachine.Mirroring, "m.stopped")
		for _, abandon := range []bool{true, false} {
			_, err := a.Delete(bg, DeleteOptions{Abandon: abandon})
			wantCode(t, "delete", err, InvalidClusterMirrorState, "partition 0 is MIRRORING")
		}
		a, c := world(statemachine.Mirroring, "m")
		r, err := a.Pause(bg, []string{"t"}, PauseOptions{Intent: Intent{DestinationClusterID: id}})
		wantResult(t, "pause", one(t, r, err), OK, true)
		if got := nameOf(t, c, "t"); got != "m.paused" {
			t.Errorf("mirror.name %q", got)
		}
		bootstrap := map[string]string{"here": "here:9092", "there": ""}[id]
		if r.Clusters.DestinationID != id || r.Clusters.DestinationBootstrap != bootstrap {
			t.Errorf("%+v", r.Clusters)
		}
		for _, ago := range []time.Duration{0, time.Hour} { // who runs and says where it writes needs no word on it
			report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime.Add(-ago), DestinationID: id})
			a.pulses = &pulses{} // somebody who has not seen the report before
			d, err := a.Describe(bg)
			if told := strings.Contains(strings.Join(d.Notes, "\n"), "kept in another cluster, here"); err != nil || d.Clusters != r.Clusters || told != (id == "there" && ago > 0) ||
				len(d.Topics[0].Partitions) != 1 {
				t.Errorf("%s: %v %+v %q", id, err, d.Clusters, d.Notes)
			}
		}
		a, _ = world(statemachine.Stopped, "m.stopped")
		if _, err := a.Delete(bg, DeleteOptions{}); err != nil {
			t.Errorf("delete of what is stopped: %v", err)
		}
	}
}

// TestAnotherClusterLetsGoOfNothing: that the cluster with the desired state lacks a topic is no reason to let go of its partitions elsewhere.
func TestAnotherClusterLetsGoOfNothing(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("m", "gone", statemachine.Mirroring)
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: "there"})
	a := w.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.DestinationAssumed = true })
	_, err := a.Delete(bg, DeleteOptions{Abandon: true})
	wantCode(t, "delete", err, InvalidClusterMirrorState, "MIRRORING")
}
