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
			if !sets[name].Includes(topic) {
				continue
			}
			now, _ := after.Topic(topic)
			was, _ := before.Topic(topic)
			switch {
			case !stopped(now.MirrorName):
				rest = append(rest, topic)
			case !stopped(was.MirrorName):
				fresh = append(fresh, topic)
			}
		}
		torn := tornSet(name, fresh, rest)
		if torn == "" {
			continue
		}
		if !partial {
			return nil, c.refuse(InvalidRequest, "", "%s; %s. Nothing has changed", torn, c.wholeSetAdvice(topicSetPrefix+name))
		}
		notes = append(notes, torn)
	}
	return notes, nil
}

// wholeSetAdvice says what else may be asked for: only a Stop can be told that a part is meant.
func (c *call) wholeSetAdvice(setting string) string {
	const first = "or Stop the part by itself first (Partial)"
	switch c.verb {
	case verbStop:
		return "stop the whole set, or say that a part is meant (Partial)"
	case verbAlter:
		return "exclude the whole set, change or unset " + setting + " in the same request, " + first
	}
	return "exclude the whole set, change or unset " + setting + " first (AlterConfig), " + first
}

// tornSet says that some topics of a set are stopped without the rest of it; "" if it stays whole.
func tornSet(name string, fresh, rest []string) string {
	if len(fresh) == 0 || len(rest) == 0 {
		return ""
	}
	return fmt.Sprintf("topic set %s belongs together: %s would be stopped without %s", name, strings.Join(fresh, ", "), strings.Join(rest, ", "))
}

func stopped(mirrorName string) bool {
	_, want, err := statemachine.ParseMirrorNameValue(mirrorName)
	return err == nil && want == statemachine.WantStopped
}

// setMembers are the topics of each topic set. Sets that cannot be read are none: verbs say so.
func setMembers(settings Settings, topics []TopicSnapshot) map[string][]string {
	sets, err := settings.TopicSets()
	if err != nil || len(sets) == 0 {
		return nil
	}
	members := make(map[string][]string, len(sets))
	for name, filter := range sets {
		for _, t := range topics {
			if filter.Includes(t.Topic) {
				members[name] = append(members[name], t.Topic)
			}
		}
		slices.Sort(members[name])
	}
	return members
}

// tornSets says which topic sets a plan stops a part of.
func tornSets(s *Snapshot, index *topicIndex, plan []PlanTopic) []string {
	var torn []string
	planned := make(map[string]bool, len(plan))
	for _, p := range plan {
		planned[p.Topic] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sets)) {
		var fresh, rest []string
		for _, topic := range s.Sets[name] {
			t, _ := index.topic(topic)
			switch {
			case stopped(t.MirrorName):
			case planned[topic]:
				fresh = append(fresh, topic)
			default:
				rest = append(rest, topic)
			}
		}
		if sentence := tornSet(name, fresh, rest); sentence != "" {
			torn = append(torn, sentence)
		}
	}
	return torn
}
