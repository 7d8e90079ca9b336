package kraft

import (
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestForgettingAnOldTopicKeepsTheNewOne: whoever tidies up has looked before, and meanwhile a topic of the same name may have come to be.
func TestForgettingAnOldTopicKeepsTheNewOne(t *testing.T) {
	r := newRemembered(keyedlog.NewMemory(), time.Second)
	two := "2"
	wanted := map[string]*string{minInSync: &two}
	for _, old := range []mirror.TopicID{{}, {1}} {
		for _, step := range []error{
			r.change(t.Context(), "t", old, func(m *memory) { m.Configs, m.Creator = wanted, 7 }),
			r.change(t.Context(), "t", mirror.TopicID{2}, func(m *memory) { m.Configs = wanted }),
			r.forget(t.Context(), "t", old),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
		m, err := r.of(t.Context(), "t", mirror.TopicID{2})
		if err != nil || m.creating() || m.Configs[minInSync] == nil || *m.Configs[minInSync] != "2" {
			t.Errorf("%+v is remembered, %v", m, err)
		}
	}
	if err := r.forget(t.Context(), "t", mirror.TopicID{2}); err != nil {
		t.Fatal(err)
	}
	if all, err := r.all(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v is remembered, %v", all, err)
	}
}
