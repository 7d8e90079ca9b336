package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// following is what a mirror does about its desired state besides the wishes for its topics: it exists there, follows its settings, answers requests to recover, says
// where its topics come from, and buries the records of a mirror that was deleted.
type following struct {
	m *Mirror

	// Only touched by the reconcile loop.
	settings Settings
	buried   DeletedMirror // whose state records were taken out
}

// follow takes in one version of the desired state. It may write to it.
func (f *following) follow(ctx context.Context, s *ControlState) error {
	name := f.m.cfg.Name
	entry, exists := s.Mirror(name)
	if deleted, gone := s.DeletedMirror(name); gone {
		return f.bury(ctx, deleted)
	}
	f.settings = entry.Settings
	source, origins := f.m.desk.learned()
	if exists && (source == "" || entry.SourceClusterID != "") && !slices.ContainsFunc(origins, func(o TopicOrigin) bool { return f.news(s, o) }) {
		return nil
	}
	err := f.m.cfg.Control.Update(ctx, func(s *ControlState) error {
		if _, gone := s.DeletedMirror(name); gone {
			return nil
		}
		entry, exists := s.Mirror(name)
		if !exists {
			// Whoever runs a mirror that is described in Go has created it by that.
			entry = MirrorEntry{Name: name, Created: f.m.opened}
		}
		if entry.SourceClusterID == "" {
			entry.SourceClusterID = source
		}
		s.SetMirror(entry)
		for _, o := range origins {
			if f.news(s, o) {
				s.SetOrigin(o)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("recording the mirror in the desired state: %w", err)
	}
	return nil
}

// news says that an origin is not recorded yet, of a topic that is still this mirror's.
func (f *following) news(s *ControlState, o TopicOrigin) bool {
	w, ok := s.Topic(o.Topic)
	if !ok {
		return false
	}
	if mirror, _, err := w.Wish(); err != nil || mirror != o.Mirror {
		return false
	}
	had, ok := s.Origin(o.Mirror, o.Topic)
	return !ok || had.SourceClusterID != o.SourceClusterID || !slices.Equal(had.Upstream, o.Upstream)
}

// bury writes the tombstones of a deleted mirror's state records, and of its last mirror epochs where that was asked for (spec §1.4, decision 8). What another owner has is left to it.
func (f *following) bury(ctx context.Context, d DeletedMirror) error {
	if f.buried == d {
		return nil
	}
	var writes []statemachine.Write
	err := f.m.session.Load(ctx, func(e statemachine.Entry) error {
		if e.Key.Mirror == d.Name && (e.State != statemachine.NewPartitionState() || d.Purge) {
			writes = append(writes, statemachine.Write{Key: e.Key, ExpectedStateEpoch: -1, LeaderEpoch: -1, Delete: true, Purge: d.Purge})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the records of deleted mirror %s: %w", d.Name, err)
	}
	if len(writes) > 0 {
		results, err := f.m.session.Write(ctx, writes)
		if err != nil {
			return fmt.Errorf("taking out the records of deleted mirror %s: %w", d.Name, err)
		}
		for _, r := range results {
			if r.Err != nil && !errors.Is(r.Err, statemachine.ErrNotOwner) {
				return fmt.Errorf("taking out the records of deleted mirror %s: %w", d.Name, r.Err)
			}
		}
	}
	f.buried = d
	f.m.emit(MirrorDeleted{EventMeta: f.m.meta(TopicPartition{Partition: Unknown}), At: d.At, Purged: d.Purge})
	return nil
}

// recoverAsked tries a topic's failed partitions again and takes the request out of the desired state. A request that was made while no process ran is answered by the next one.
func (m *Mirror) recoverAsked(w TopicWish, runners []*runner) {
	for _, r := range runners {
		r.send(partition.Event{Kind: partition.Recover})
	}
	m.persist(TopicPartition{w.Topic, Unknown}, "a request to recover was answered and could not be taken out yet: it will be answered again", func(s *ControlState) {
		if now, ok := s.Topic(w.Topic); ok && now.Recover == w.Recover {
			now.Recover = 0
			s.Set(now)
		}
	})
}

// persist changes the desired state, and tries until that is done.
func (m *Mirror) persist(tp TopicPartition, trouble string, change func(*ControlState)) {
	m.spawn(func() {
		for wait, told := time.Second, false; ; wait = min(2*wait, time.Minute) {
			ctx, stop := context.WithTimeout(m.ctx, m.cfg.CallBound)
			err := m.cfg.Control.Update(ctx, func(s *ControlState) error {
				change(s)
				return nil
			})
			stop()
			if err == nil || m.ctx.Err() != nil {
				return
			}
			if !told {
				told = true
				m.emit(TopicTrouble{EventMeta: m.meta(tp), Err: fmt.Errorf("%s: %w", trouble, err)})
			}
			if !m.pause(m.ctx, wait) {
				return
			}
		}
	})
}
