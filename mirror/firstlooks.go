package mirror

import (
	"fmt"
	"sync"
)

// firstLooks says which partitions' groups were looked at since their mirroring began, as far as the desired state that was followed last has it.
type firstLooks struct {
	m *Mirror

	mu       sync.Mutex
	decoded  bool
	version  int64 // of the desired state that episodes is of
	episodes map[string]groupEpisodes
	nothing  bool // no group is followed
}

// over is groupEpisodes.over. It is true where groups are not followed at all: no look is waited for.
func (f *firstLooks) over(tp TopicPartition, episode int32, id TopicID) bool {
	if _, ok := f.m.cfg.Destination.(GroupWriter); !ok {
		return true
	}
	f.m.following.mu.Lock()
	state := f.m.following.state
	f.m.following.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.decoded || f.version != state.Version {
		f.episodes, f.version, f.decoded = state.groupEpisodes(f.m.cfg.Name), state.Version, true
		entry, _ := state.Mirror(f.m.cfg.Name)
		f.nothing = entry.followsNoGroup()
	}
	return f.nothing || f.episodes[tp.Topic].over(tp.Partition, episode, id)
}

// followsNoGroup says that the mirror's settings exclude every group.
func (e MirrorEntry) followsNoGroup() bool {
	filter, err := e.Settings.GroupFilter()
	return err == nil && filter.nothing()
}

// groupEpisodes are what is recorded of the first looks at the groups of a mirror's topics, by topic. What cannot be read counts as looked at: nobody's group is taken over because of it.
func (s *ControlState) groupEpisodes(mirror string) map[string]groupEpisodes {
	all := map[string]groupEpisodes{}
	for _, p := range s.provenanceOfKind(mirror, groupEpisodesProvenance) {
		e, _, err := decodeGroupEpisodes(p)
		e.Unread = err != nil
		all[p.Name] = e
	}
	return all
}

// unlookedWords say of partitions (TOPIC-NUMBER) that are to be stopped that nobody knows where groups go on. all: they are all that are to be stopped.
func unlookedWords(partitions []string, all bool) string {
	of := ""
	if !all {
		of = " of " + few(partitions)
	}
	return fmt.Sprintf("NEVER LOOKED AT%s: where groups go on is not known; they start by auto.offset.reset", of)
}
