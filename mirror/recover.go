package mirror

import (
	"context"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// Recover tries failed partitions of these topics again now, also those that are not retried by themselves: after a person has mended what the reason named (KIP-1279's
// Recover, spec §1.10). Partitions that have not failed are left alone, and nothing is dropped by it: what needs consent needs it afterwards too. It acts on this
// process's partitions; what comes of it is seen in Status. Per topic: TopicNotInClusterMirror.
func (m *Mirror) Recover(_ context.Context, topics []string) ([]TopicResult, error) {
	if err := m.admin.checkRequest(topics); err != nil {
		return nil, err
	}
	results := make([]TopicResult, 0, len(topics))
	var first error
	for _, name := range topics {
		m.mu.Lock()
		t := m.topics[name]
		var runners []*runner
		if t != nil {
			runners = append(runners, t.partitions...)
		}
		m.mu.Unlock()
		res := TopicResult{Topic: name, Changed: t != nil}
		if t == nil {
			res.Err = m.admin.refuse(TopicNotInClusterMirror, name, "the topic is in no mirror of this process")
			if first == nil {
				first = res.Err
			}
		}
		results = append(results, res)
		for _, r := range runners {
			r.send(partition.Event{Kind: partition.Recover})
		}
	}
	m.poke()
	return results, first
}
