package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/statemachine"
)

// wholeSets refuses to stop a part of a topic set, unless that is what was asked for. before and after are the desired state around the change. A mirror whose sets cannot be
// read can be stopped all the same.
func (c *call) wholeSets(before, after *ControlState, partial bool) (notes []string, err error) {
	entry, _ := after.Mirror(c.cfg.Mirror)
	sets, err := entry.Settings.TopicSets()
	if err != nil {
		return []string{"its topic sets cannot be read, so it is not known whether one is torn: " + err.Error()}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		var fresh, rest []string
		for _, topic := range c.members(after, nil) {
			if !sets[name].Matches(topic) {
				continue
			}
			now, _ := after.Topic(topic)
			was, _ := before.Topic(topic)
			switch {
			case !stopped(now):
				rest = append(rest, topic)
			case !stopped(was):
				fresh = append(fresh, topic)
			}
		}
		if len(fresh) == 0 || len(rest) == 0 {
			continue
		}
		torn := fmt.Sprintf("%s of topic set %q would be stopped without %s", strings.Join(fresh, ", "), name, strings.Join(rest, ", "))
		if !partial {
			return nil, c.refuse(InvalidRequest, "", "%s; stop the whole set, or say that a part is meant (Partial). Nothing has changed", torn)
		}
		notes = append(notes, strings.Replace(torn, "would be", "is", 1)+": they belong together")
	}
	return notes, nil
}

func stopped(w TopicWish) bool {
	_, want, err := w.Wish()
	return err == nil && want == statemachine.WantStopped
}
