package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// following is what a mirror does about its desired state besides the wishes for its topics: it exists there, follows its settings, answers requests to recover, says
// where its topics come from, and buries the records of a mirror that was deleted.
type following struct {
	m *Mirror

	buried DeletedMirror     // whose state records were taken out; of the reconcile loop
	left   map[string]string // topics of which nothing is left here → the mirror that has them; of the refresh loop

	mu    sync.Mutex
	state ControlState // as it was followed last
}

// gone says that the mirror was deleted, as far as this process has heard.
func (f *following) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, gone := f.state.DeletedMirror(f.m.cfg.Name)
	return gone
}

// settle takes care of what a deletion has left, before anything is done for a mirror of that name that was created since. true: there is no mirror now.
func (f *following) settle(ctx context.Context, s *ControlState) (gone bool, err error) {
	f.mu.Lock()
	f.state = *s // a copy of its own already, that is only read from here on
	f.mu.Unlock()
	d, ok := s.unburied(f.m.cfg.Name)
	if !ok {
		return false, nil
	}
	if f.buried != d && !f.m.dropTopics() {
		return false, errors.New("a topic of the deleted mirror is being set up just now; its records are taken out after that")
	}
	if err := f.bury(ctx, d); err != nil {
		return false, err
	}
	if _, exists := s.Mirror(d.Name); !exists {
		return true, nil // the note stays: it says why there is no such mirror
	}
	err = f.m.wish(ctx, func(s *ControlState) error {
		if now, ok := s.unburied(d.Name); ok && now == d {
			s.Deleted = slices.DeleteFunc(s.Deleted, func(other DeletedMirror) bool { return other == d })
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("taking the note of a deleted mirror out of the desired state: %w", err)
	}
	return false, nil
}

// follow takes in one version of the desired state. It may write to it.
func (f *following) follow(ctx context.Context, s *ControlState) error {
	name := f.m.cfg.Name
	entry, exists := s.Mirror(name)
	if r := f.m.reopening; r != nil && exists && r.use(entry.Settings) {
		f.m.desk.forget()
		f.m.desk.forgetWho()
		f.m.link.reconnect()
	}
	f.m.desk.expect(entry.SourceClusterID, entry.Settings)
	tuned := f.m.tune(entry.Settings)
	if !exists && f.m.reopening != nil {
		return f.nobody(s) // its connection has to be created with it
	}
	settings := entry.Settings
	source, origins := f.m.desk.learned()
	if exists && (source == "" || entry.SourceClusterID != "") && !slices.ContainsFunc(origins, func(o TopicOrigin) bool { return f.news(s, o) }) {
		return tuned
	}
	err := f.m.wish(ctx, func(s *ControlState) error {
		if _, gone := s.DeletedMirror(name); gone {
			return nil
		}
		entry, exists := s.Mirror(name)
		if !exists && f.m.reopening != nil {
			return nil
		}
		if !exists {
			// Whoever runs a mirror that is described in Go has created it by that.
			entry = MirrorEntry{Name: name, Created: f.m.opened}
		}
		// What was learned over another connection says nothing about this one.
		if entry.SourceClusterID == "" && (f.m.reopening == nil || !ReconnectNeeded(settings, entry.Settings)) {
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
	return tuned
}

// nobody says that there is no such mirror, and which there are: the name may be mistyped.
func (f *following) nobody(s *ControlState) error {
	var names []string
	for _, m := range s.Mirrors {
		names = append(names, m.Name)
	}
	others := "there is none at all"
	if len(names) > 0 {
		others = "there are " + strings.Join(names[:min(len(names), 20)], ", ")
	}
	return fmt.Errorf("nobody has created mirror %s; %s", f.m.cfg.Name, others)
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
	return !ok || !had.sameSource(o)
}

// discover follows the patterns of the mirror's settings: topics of the source that match are mirrored unless some mirror has them, in whatever state; topics of this mirror that
// are excluded now are stopped, also without a source (spec §6, Discovery; §1.5).
func (f *following) discover(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, f.m.cfg.CallBound)
	defer stop()
	f.mu.Lock()
	state := f.state // nobody changes what it holds
	f.mu.Unlock()
	entry, exists := state.Mirror(f.m.cfg.Name)
	if !exists {
		return
	}
	filter, err := entry.Settings.TopicFilter()
	if err != nil {
		f.m.controlTrouble(fmt.Errorf("the patterns of mirror %s: %w", entry.Name, err))
		return
	}
	var names []string
	if !filter.FindsNothing() {
		names = f.m.desk.list(ctx)
	}
	state = state.Clone()
	if len(f.wishes(&state, names)) == 0 {
		return
	}
	var found []WishRecorded
	err = f.m.wish(ctx, func(s *ControlState) error {
		found = f.wishes(s, names)
		if len(found) > 0 {
			s.Note = f.note(found)
		}
		return nil
	})
	if err != nil {
		f.m.controlTrouble(fmt.Errorf("recording what the patterns of mirror %s say: %w", entry.Name, err))
		return
	}
	for _, e := range found {
		f.m.emit(e)
	}
}

// wishes changes what is wanted as the patterns say, and returns what it changed.
func (f *following) wishes(s *ControlState, names []string) (found []WishRecorded) {
	entry, exists := s.Mirror(f.m.cfg.Name)
	if !exists {
		return nil
	}
	filter, err := entry.Settings.TopicFilter()
	if err != nil {
		return nil
	}
	record := func(topic string, want statemachine.Desired, reason string) {
		found = append(found, WishRecorded{f.m.meta(TopicPartition{Topic: topic, Partition: Unknown}), want, reason})
	}
	for _, w := range slices.Clone(s.Topics) {
		if mirror, want, err := w.Wish(); err == nil && mirror == entry.Name && want != statemachine.WantStopped && filter.Excludes(w.Topic) {
			w.MirrorName, w.DrainUntil, w.Cut = statemachine.MirrorNameValue(mirror, statemachine.WantStopped), time.Time{}, CutWish{}
			s.Set(w)
			record(w.Topic, statemachine.WantStopped, "it matches mirror.topics.exclude")
		}
	}
	for _, topic := range names {
		if _, known := s.Topic(topic); !known && filter.Matches(topic) && checkTopicName(topic) == nil {
			s.Set(TopicWish{Topic: topic, MirrorName: statemachine.MirrorNameValue(entry.Name, statemachine.WantMirroring)})
			record(topic, statemachine.WantMirroring, cautioned("the source has it, and it matches mirror.topics.include", topic))
		}
	}
	return found
}

func (f *following) note(found []WishRecorded) *HistoryEntry {
	n := &HistoryEntry{Time: time.Now(), Verb: verbFollow, Mirror: f.m.cfg.Name, Who: Operator{}.complete()}
	for _, e := range found {
		n.Topics = append(n.Topics, e.Topic)
	}
	slices.Sort(n.Topics)
	return n
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
	f.m.desk.forgetWho() // a mirror of that name that is created later may read from another cluster
	f.m.syncing.forget()
	f.m.stateChanged()
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

// wish changes the desired state. A process that was held up does so only when it knows that the mirror is still its own.
func (m *Mirror) wish(ctx context.Context, change func(*ControlState) error) error {
	if err := m.lease.hold(); err != nil {
		return err
	}
	return m.cfg.Control.Update(ctx, change)
}

// persist changes the desired state, and tries until that is done.
func (m *Mirror) persist(tp TopicPartition, trouble string, change func(*ControlState)) {
	m.spawn(func() {
		for wait, told := time.Second, false; ; wait = min(2*wait, time.Minute) {
			ctx, stop := context.WithTimeout(m.ctx, m.cfg.CallBound)
			err := m.wish(ctx, func(s *ControlState) error {
				change(s)
				return nil
			})
			stop()
			if err == nil || m.ctx.Err() != nil || errors.Is(err, ErrFenced) {
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
