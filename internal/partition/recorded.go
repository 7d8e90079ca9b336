package partition

import "github.com/clustermirror/clustermirror/statemachine"

// IsAbout says whether an end that the source recorded for our cluster is about this topic of ours, and not about an earlier one of the same name: what its records say of epochs and offsets
// says nothing of another topic's, though epochs and offsets may be the same (F-28). An end that names no topic (the page's layout) is believed.
func IsAbout(end statemachine.LastMirrorEpoch, topic statemachine.TopicID) bool {
	return end.SourceTopicID == (statemachine.TopicID{}) || end.SourceTopicID == topic
}
