package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	soon     atomic.Bool // a look at groups is about to be made because of partitions whose mirroring has begun
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
	s.m.spawn(s.groups.resettleLoop)
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

// firstLookAfter is how long partitions whose mirroring has begun wait for others: one look is made for all of them.
const firstLookAfter = time.Second

// begun has groups looked at soon: of a partition whose mirroring has just begun nobody knows where groups go on, and the source may die before the next refresh.
func (s *syncing) begun(r *runner) {
	r.coreMu.Lock()
	record := r.core.Status().Record
	r.coreMu.Unlock()
	if s.m.looks.over(r.tp, record.Episode, record.SourceTopicID) || s.soon.Swap(true) {
		return
	}
	s.m.spawn(func() {
		on := s.m.pause(s.m.ctx, firstLookAfter)
		s.soon.Store(false)
		if !on {
			return
		}
		select {
		case s.parts[0].kick <- struct{}{}:
		default: // it is still at the look before
		}
	})
}

// forget drops what is in memory of a mirror that was deleted: one that is made later under its name begins with nothing.
func (s *syncing) forget() {
	for _, p := range s.parts {
		p.forget()
	}
	s.groups.forget()
	s.rules.forget()
}

func (s *syncing) status() MetadataStatus {
	return MetadataStatus{Groups: s.parts[0].now(), Configs: s.parts[1].now(), ACLs: s.parts[2].now(), FollowedGroups: s.groups.status()}
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

	mu      sync.Mutex
	life    int // counts what was forgotten
	status  SyncStatus
	left    found // what status.Skipped says
	trouble troubleTelling
	skips   map[string]*skipTelling // by who; "" is the part itself, which is off
	rest    int                     // refreshes without a look
	resting Settings                // that the rest goes by
}

func (p *syncPart) now() SyncStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Skipped = slices.Clone(s.Skipped)
	return s
}

// forget drops what is known of a mirror that was deleted.
func (p *syncPart) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life++
	p.status, p.left, p.trouble, p.skips, p.rest, p.resting = SyncStatus{}, nil, troubleTelling{}, nil, 0, nil
}

// offRefreshes is at how many refreshes one look is made of a part that one side cannot: it may have learned it. When the mirror's settings change, the next refresh looks.
const offRefreshes = 10

func (p *syncPart) run() {
	for {
		select {
		case <-p.m.ctx.Done():
			return
		case <-p.kick:
		}
		if p.m.lease.over() != nil {
			return
		}
		settings := p.m.settingsNow()
		life, rests := p.begins(settings)
		if rests {
			continue
		}
		left, err := p.look(p.m.ctx)
		if p.m.ctx.Err() != nil {
			return
		}
		p.note(life, settings, left, err)
	}
}

// begins says whether this refresh is one of a rest, and which life of the part the look is of.
func (p *syncPart) begins(settings Settings) (life int, rests bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maps.Equal(settings, p.resting) {
		p.rest = 0
	}
	if p.rest > 0 {
		p.rest--
		return p.life, true
	}
	return p.life, false
}

// note takes the outcome of a look into the status, and tells what is new in it. A look that failed as a whole says nothing of what it did not come to: that stands as it was.
func (p *syncPart) note(life int, settings Settings, left found, err error) {
	now := time.Now()
	var off notFollowed
	p.mu.Lock()
	if life != p.life {
		p.mu.Unlock()
		return
	}
	lines := maps.Clone(left)
	switch {
	case errors.As(err, &off):
		p.status.Off, p.status.Err = string(off), nil
		p.left, p.rest, p.resting = left, offRefreshes-1, settings
		if lines == nil {
			lines = found{}
		}
		lines[""] = string(off)
	case err != nil:
		p.status.Off, p.status.Err = "", err
		both := maps.Clone(p.left)
		if both == nil {
			both = found{}
		}
		maps.Copy(both, left)
		p.left = both
	default:
		p.status.Off, p.status.Err, p.status.At = "", nil, now
		p.left = left
	}
	p.status.Skipped = make([]string, 0, len(p.left))
	for _, who := range slices.Sorted(maps.Keys(p.left)) {
		p.status.Skipped = append(p.status.Skipped, who+": "+p.left[who])
	}
	trouble := p.status.Err
	tellTrouble := p.trouble.news(trouble, now)
	news := p.newSkips(lines, err == nil || off != "", now)
	p.mu.Unlock()
	whole := p.m.meta(TopicPartition{Partition: Unknown})
	if tellTrouble {
		p.m.emit(SyncTrouble{EventMeta: whole, Part: p.name, Err: trouble})
	}
	for _, reason := range news {
		p.m.emit(SyncSkipped{EventMeta: whole, Part: p.name, Reason: reason})
	}
}

// newSkips are the lines that are to be told of. whole: lines are all that there is, so who is not in them is not left alone any more. With p.mu held.
func (p *syncPart) newSkips(lines found, whole bool, now time.Time) (news []string) {
	if p.skips == nil {
		p.skips = map[string]*skipTelling{}
	}
	for _, who := range slices.Sorted(maps.Keys(lines)) {
		t := p.skips[who]
		if t == nil {
			t = &skipTelling{}
			p.skips[who] = t
		}
		if t.news(lines[who], now) {
			reason := lines[who]
			if who != "" {
				reason = who + ": " + reason
			}
			news = append(news, reason)
		}
	}
	if whole {
		maps.DeleteFunc(p.skips, func(_ string, t *skipTelling) bool { return now.Sub(t.seen) >= troubleGap })
	}
	return news
}

// skipTelling decides when something that is left alone is told of: when it is left alone for the first time, and again when it was not for troubleGap. Other words for it are told when troubleGap has
// gone by since it was told last, and they are the same at two looks: words that change with each try (a port, a number) are no news.
type skipTelling struct {
	told, words string
	at, seen    time.Time // told, and left alone, last
}

func (t *skipTelling) news(words string, now time.Time) bool {
	last := t.words
	t.words, t.seen = words, now
	if t.told != "" && (words == t.told || words != last || now.Sub(t.at) < troubleGap) {
		return false
	}
	t.told, t.at = words, now
	return true
}

// troubleTelling decides when trouble of a whole part is told of. Its beginning is told at once, and so is its end, each once in troubleGap: of trouble that comes and goes in between nothing is told,
// and when the gap is over it is told how it stands. Other words are told as skipTelling tells them.
type troubleTelling struct {
	trouble      telling
	words        string
	began, ended time.Time // when that was told last
}

func (t *troubleTelling) news(err error, now time.Time) bool {
	last := t.words
	t.words = ""
	if err != nil {
		t.words = err.Error()
	}
	in, was := err != nil, t.trouble.told != ""
	switch {
	case in && was && t.words != last:
		return false
	case in && !was && !t.began.IsZero() && now.Sub(t.began) < troubleGap:
		return false
	case !in && was && !t.ended.IsZero() && now.Sub(t.ended) < troubleGap:
		return false
	}
	if !t.trouble.news(err) {
		return false
	}
	if !in {
		t.ended = now
	} else if !was {
		t.began = now
	}
	return true
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
