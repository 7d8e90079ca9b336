package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF28AnEndIsAboutOneTopic(t *testing.T) {
	ours, earlier := statemachine.TopicID{1}, statemachine.TopicID{2}
	for _, c := range []struct {
		of   statemachine.TopicID
		want bool
	}{{ours, true}, {earlier, false}, {statemachine.TopicID{}, true}} {
		if got := IsAbout(statemachine.LastMirrorEpoch{Epoch: 1, Offset: 6, SourceClusterID: "B", SourceTopicID: c.of}, ours); got != c.want {
			t.Errorf("an end about topic %v: %v, want %v", c.of, got, c.want)
		}
	}
}
