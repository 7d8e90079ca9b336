package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// syncing is metadata sync (spec §6): groups, topic settings and access rules of the source are followed at every refresh. The parts run beside each other, each in a goroutine of its own and
// one look at a time, so that one that hangs or fails stops no other. Nothing of it runs for a topic that is paused or stopped, and none of it for a source that does not answer.
type syncing struct {
	m        *Mirror
	groups   *groupSync
	settings *settingSync
	rules    *ruleSync
	parts    []*syncPart
	remember remembering
}

func newSyncing(m *Mirror) *syncing {
	s := &syncing{m: m, groups: newGroupSync(m), settings: &settingSync{m: m}, rules: &ruleSync{m: m}, remember: remembering{m: m, q: newGathering[rememberItem]()}}
	for _, p := range []*syncPart{{name: "groups", look: s.groups.look}, {name: "topic settings", look: s.settings.look}, {name: "access rules", look: s.rules.look}} {
		p.m, p.kick = m, make(chan struct{}, 1)
		s.parts = append(s.parts, p)
	}
	return s
}

func (s *syncing) start() {
	s.m.spawn(s.remember.run)
	s.m.spawn(s.groups.settleLoop)
	for _, p := range s.parts {
		s.m.spawn(p.run)
	}
}

// refreshed has every part look: the source has just answered.
func (s *syncing) refreshed() {
	for _, p := range s.parts {
		select {
		case p.kick <- struct{}{}:
		default: // it is still at the look before
		}
	}
}

func (s *syncing) status() MetadataStatus {
	return MetadataStatus{Groups: s.parts[0].now(), Configs: s.parts[1].now(), ACLs: s.parts[2].now(), FollowedGroups: s.groups.statuses()}
}

// notFollowed is why a part is not done at all.
type notFollowed string

func (e notFollowed) Error() string { return string(e) }

// found is what a look left alone: in one word or a few who → why. It is the caller's.
type found map[string]string

// syncPart is one part of metadata sync.
type syncPart struct {
	m    *Mirror
	name string
	// look looks once and writes what has to be written. What it left alone is in left, also beside an error, which says that all of the look was hindered.
	look func(ctx context.Context) (left found, err error)
	kick chan struct{} // capacity 1

	mu     sync.Mutex
	status SyncStatus
	told   telling
}

func (p *syncPart) now() SyncStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Skipped = slices.Clone(s.Skipped)
	return s
}

// offRefreshes is at how many refreshes one look is made of a part that one side cannot: it may have learned it.
const offRefreshes = 10

func (p *syncPart) run() {
	rest := 0
	for {
		select {
		case <-p.m.ctx.Done():
			return
		case <-p.kick:
		}
		if p.m.lease.over() != nil {
			return
		}
		if rest > 0 {
			rest--
			continue
		}
		left, err := p.look(p.m.ctx)
		if p.m.ctx.Err() != nil {
			return
		}
		p.note(left, err)
		if errors.As(err, new(notFollowed)) {
			rest = offRefreshes - 1
		}
	}
}

// note takes the outcome of a look into the status, and tells what is new in it.
func (p *syncPart) note(left found, err error) {
	now := time.Now()
	var off notFollowed
	skipped := make([]string, 0, len(left))
	for _, who := range slices.Sorted(maps.Keys(left)) {
		skipped = append(skipped, who+": "+left[who])
	}
	p.mu.Lock()
	was := p.status
	p.status.Skipped = skipped
	switch {
	case errors.As(err, &off):
		p.status.Off, p.status.Err = string(off), nil
	case err != nil:
		p.status.Off, p.status.Err = "", err
	default:
		p.status.Off, p.status.Err, p.status.At = "", nil, now
	}
	next := p.status
	tell := p.told.news(next.Err)
	p.mu.Unlock()
	whole := p.m.meta(TopicPartition{Partition: Unknown})
	if tell {
		p.m.emit(SyncTrouble{EventMeta: whole, Part: p.name, Err: next.Err})
	}
	if next.Off != was.Off && next.Off != "" {
		p.m.emit(SyncSkipped{EventMeta: whole, Part: p.name, Reason: next.Off})
	}
	for _, line := range skipped {
		if !slices.Contains(was.Skipped, line) {
			p.m.emit(SyncSkipped{EventMeta: whole, Part: p.name, Reason: line})
		}
	}
}

// bounded is one call within CallBound.
func bounded[T any](ctx context.Context, m *Mirror, call func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, m.cfg.CallBound)
	defer stop()
	return call(ctx)
}

// sourceAbility is the source's, and an error that is ErrUnsupported if it has none. What a mirror opens itself is looked at when it is open.
func sourceAbility[T any](ctx context.Context, m *Mirror) (ability T, err error) {
	source := m.cfg.Source
	if m.reopening != nil {
		if source, err = bounded(ctx, m, m.reopening.get); err != nil {
			return ability, err
		}
	}
	ability, ok := source.(T)
	if !ok {
		return ability, ErrUnsupported
	}
	return ability, nil
}

// abilities are those of both sides for one part; what.
func abilities[R, W any](ctx context.Context, m *Mirror, what string) (reader R, writer W, err error) {
	writer, ok := m.cfg.Destination.(W)
	if !ok {
		return reader, writer, notFollowed("this destination takes no " + what)
	}
	reader, err = sourceAbility[R](ctx, m)
	return reader, writer, unsupported(err, what)
}

// unsupported makes of a source that cannot a part that is not followed.
func unsupported(err error, what string) error {
	if errors.Is(err, ErrUnsupported) {
		return notFollowed(fmt.Sprintf("this source does not tell its %s", what))
	}
	return err
}

// settingsNow are the mirror's settings as they were followed last.
func (m *Mirror) settingsNow() Settings {
	m.following.mu.Lock()
	defer m.following.mu.Unlock()
	entry, _ := m.following.state.Mirror(m.cfg.Name)
	return entry.Settings
}
