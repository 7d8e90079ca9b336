package mirror

import "sync"

// firstLooks says which partitions' groups were looked at since their mirroring began, as far as the desired state that was followed last has it.
type firstLooks struct {
	m *Mirror

	mu       sync.Mutex
	decoded  bool
	version  int64 // of the desired state that episodes is of
	episodes map[string]groupEpisodes
}

// over is true where groups are not followed at all: no look is waited for.
func (f *firstLooks) over(tp TopicPartition, episode int32) bool {
	if _, ok := f.m.cfg.Destination.(GroupWriter); !ok {
		return true
	}
	f.m.following.mu.Lock()
	state := f.m.following.state
	f.m.following.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.decoded || f.version != state.Version {
		f.episodes, f.version, f.decoded = f.m.syncing.groups.episodes(&state), state.Version, true
	}
	return f.episodes[tp.Topic].over(tp.Partition, episode)
}
