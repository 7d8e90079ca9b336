package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// TransactionLister is an optional ability of a Source: it tells which transactional ids its coordinators know.
type TransactionLister interface {
	// TransactionalIDs are those that this connection's user may describe, in any order. An error with ErrUnsupported in it: the source tells no such thing.
	TransactionalIDs(ctx context.Context) ([]TransactionalID, error)
}

// TransactionalID is a transactional producer, as its coordinator knows it.
type TransactionalID struct {
	Name       string `json:"name"`
	ProducerID int64  `json:"producerId"`
	State      string `json:"state"` // as Kafka writes it: "Ongoing", "PrepareCommit", "CompleteCommit", "Empty" …
}

// InTransaction says that the state is one of a transaction that has not ended.
func (t TransactionalID) InTransaction() bool {
	return !slices.Contains([]string{"Empty", "CompleteCommit", "CompleteAbort", "Dead"}, t.State)
}

// ProducerIDTeller is an optional ability of a Destination: it gives out producer ids, and tells from where on. It is cheap.
type ProducerIDTeller interface {
	// NextProducerID is the lowest producer id that the cluster has not given out. Brokers may hold ids below it that no client has yet: what ProducerIDSettler is about.
	NextProducerID(ctx context.Context) (int64, error)
}

// Surroundings are what a process has gathered around the records of its mirror: what a person has to know before a failover, and cannot ask for any more when the source is gone. Each part says when
// it was seen; what was never seen, and what one side cannot tell, is zero. It is plain data.
type Surroundings struct {
	TransactionalIDs TransactionalIDs `json:"transactionalIds,omitzero"` // at the source
	NotMirrored      SeenNames        `json:"notMirrored,omitzero"`      // topics of the source that no mirror of the destination has, internal ones aside
	MissingRights    SeenNames        `json:"missingRights,omitzero"`    // that the mirror needs at the destination, and its user there lacks: one line for each kind of right
	NextProducerID   SeenNumber       `json:"nextProducerId,omitzero"`   // ProducerIDTeller.NextProducerID of the destination
	NotFollowed      []string         `json:"notFollowed,omitempty"`     // parts of metadata sync that are not done, and why: one line each
}

// TransactionalIDs are the transactional producers of a source.
type TransactionalIDs struct {
	Count int               `json:"count"`
	Open  int               `json:"open"`          // those of them that are in a transaction
	IDs   []TransactionalID `json:"ids,omitempty"` // those in a transaction first, then by name: at most 50
	Seen  time.Time         `json:"seen,omitzero"`
	Error string            `json:"error,omitempty"` // why the last look was none
}

// SeenNames are names that were seen at one moment.
type SeenNames struct {
	Count int       `json:"count"`
	Names []string  `json:"names,omitempty"` // sorted, at most 20 of them
	Seen  time.Time `json:"seen,omitzero"`
	Error string    `json:"error,omitempty"` // why the last look was none
}

// SeenNumber is a number that was seen at one moment.
type SeenNumber struct {
	Number Number    `json:"number"`
	Seen   time.Time `json:"seen,omitzero"`
}

// What is kept is small: it is in each report of the process.
const (
	mostTransactionalIDs = 50
	mostSeenNames        = 20
	seenWords            = 300 // bytes of one name, or of one reason
)

func seenWord(words string) string {
	words = validText(words)
	if len(words) <= seenWords {
		return words
	}
	return strings.ToValidUTF8(words[:seenWords], "") + "…"
}

func seenNames(names []string, at time.Time) SeenNames {
	slices.Sort(names)
	s := SeenNames{Count: len(names), Seen: storedTime(at)}
	for _, name := range names[:min(len(names), mostSeenNames)] {
		s.Names = append(s.Names, seenWord(name))
	}
	return s
}

// clone is a deep copy.
func (s Surroundings) clone() Surroundings {
	s.TransactionalIDs.IDs = slices.Clone(s.TransactionalIDs.IDs)
	s.NotMirrored.Names, s.MissingRights.Names, s.NotFollowed = slices.Clone(s.NotMirrored.Names), slices.Clone(s.MissingRights.Names), slices.Clone(s.NotFollowed)
	return s
}

// surveying gathers the Surroundings: at every refresh, in a goroutine of its own, so that nothing waits for it.
type surveying struct {
	m    *Mirror
	kick chan bool // capacity 1: whether the source has just answered

	rest int // refreshes without a look at what seldom changes; of the goroutine

	mu    sync.Mutex
	seen  Surroundings
	looks int // that have come to their end
}

// refreshed has it look. answered: the source has just answered, and is asked too.
func (g *surveying) refreshed(answered bool) {
	select {
	case g.kick <- answered:
	default: // it is still at the look before
	}
}

// looked is how many looks have come to their end.
func (g *surveying) looked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looks
}

func (g *surveying) now() Surroundings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.clone()
}

// remember takes in what an earlier process of this mirror has seen, where this one has seen nothing yet.
func (g *surveying) remember(s Surroundings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen.TransactionalIDs.Seen.IsZero() {
		g.seen.TransactionalIDs = s.TransactionalIDs
	}
	if g.seen.NotMirrored.Seen.IsZero() {
		g.seen.NotMirrored = s.NotMirrored
	}
	if g.seen.MissingRights.Seen.IsZero() {
		g.seen.MissingRights = s.MissingRights
	}
	if g.seen.NextProducerID.Seen.IsZero() {
		g.seen.NextProducerID = s.NextProducerID
	}
}

func (g *surveying) run() {
	for {
		select {
		case <-g.m.ctx.Done():
			return
		case answered := <-g.kick:
			if g.m.lease.over() != nil {
				return
			}
			g.look(g.m.ctx, answered)
		}
	}
}

func (g *surveying) look(ctx context.Context, answered bool) {
	note := func(change func(s *Surroundings)) {
		g.mu.Lock()
		defer g.mu.Unlock()
		change(&g.seen)
	}
	if teller, ok := g.m.cfg.Destination.(ProducerIDTeller); ok {
		if next, err := bounded(ctx, g.m, teller.NextProducerID); err == nil {
			note(func(s *Surroundings) { s.NextProducerID = SeenNumber{KnownNumber(next), storedTime(time.Now())} })
		}
	}
	if !answered {
		return
	}
	defer note(func(*Surroundings) { g.looks++ })
	ids, err := g.transactionalIDs(ctx)
	note(func(s *Surroundings) {
		if err == nil {
			s.TransactionalIDs = ids
		} else if !errors.Is(err, ErrUnsupported) {
			s.TransactionalIDs.Error = seenWord(err.Error())
		}
	})
	if g.rest > 0 {
		g.rest--
		return
	}
	g.rest = offRefreshes - 1
	names, err := g.notMirrored(ctx)
	note(func(s *Surroundings) {
		if err == nil {
			s.NotMirrored = seenNames(names, time.Now())
		} else {
			s.NotMirrored.Error = seenWord(err.Error())
		}
	})
	if rights, looked := g.missingRights(ctx, g.m.memberTopics()); looked {
		note(func(s *Surroundings) { s.MissingRights = seenNames(rights, time.Now()) })
	}
}

func (g *surveying) transactionalIDs(ctx context.Context) (seen TransactionalIDs, err error) {
	lister, err := sourceAbility[TransactionLister](ctx, g.m)
	if err != nil {
		return seen, err
	}
	all, err := bounded(ctx, g.m, lister.TransactionalIDs)
	if err != nil {
		return seen, err
	}
	slices.SortFunc(all, func(a, b TransactionalID) int {
		if open := a.InTransaction(); open != b.InTransaction() {
			if open {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	seen = TransactionalIDs{Count: len(all), Seen: storedTime(time.Now())}
	for i, x := range all {
		if x.InTransaction() {
			seen.Open++
		}
		if i < mostTransactionalIDs {
			x.Name = seenWord(x.Name)
			seen.IDs = append(seen.IDs, x)
		}
	}
	return seen, nil
}

// notMirrored are the topics of the source that no mirror of the destination has.
func (g *surveying) notMirrored(ctx context.Context) (names []string, err error) {
	topics, err := bounded(ctx, g.m, func(ctx context.Context) ([]SourceTopic, error) { return g.m.cfg.Source.Topics(ctx) })
	if err != nil {
		return nil, err
	}
	g.m.following.mu.Lock()
	defer g.m.following.mu.Unlock()
	for _, t := range topics {
		if c, caution := CautionOf(t.Name); t.Internal || caution && c.Never {
			continue
		}
		if _, known := g.m.following.state.Topic(t.Name); !known {
			names = append(names, t.Name)
		}
	}
	return names, nil
}

// missingRights are those that the mirror needs at the destination for these topics, as Preflight looks for them. looked is false where nobody can say.
func (g *surveying) missingRights(ctx context.Context, topics []string) (lines []string, looked bool) {
	if _, ok := g.m.cfg.Destination.(RightsChecker); !ok {
		return nil, false
	}
	settings := g.m.settingsNow()
	p := &preflight{cfg: PreflightConfig{Settings: settings, Destination: g.m.cfg.Destination, Bound: g.m.cfg.CallBound, DestinationPrincipal: "User:MIRROR"}}
	p.rules, _ = settings.ACLRules() // settings that cannot be read are told of elsewhere
	p.report.Topics = topics
	for _, group := range g.m.syncing.groups.status() {
		p.report.Groups = append(p.report.Groups, group.Group)
	}
	p.rights(ctx, AtDestination)
	for _, f := range p.report.Findings {
		if f.Severity != FindingFine {
			lines = append(lines, strings.TrimPrefix(f.found(), fmt.Sprintf("%s, %s: ", AtDestination, AboutRights)))
		}
	}
	return lines, ctx.Err() == nil
}

// notFollowed are the parts of metadata sync, groups aside, that are not done.
func (s *MetadataStatus) notFollowed() (lines []string) {
	for _, part := range []struct {
		name string
		SyncStatus
	}{{"topic settings", s.Configs}, {"access rules", s.ACLs}} {
		if part.Off != "" {
			lines = append(lines, seenWord(part.name+" ("+OneLine(part.Off)+")"))
		}
	}
	return lines
}

// neverMirrored is what no mirror follows (README.md, What is mirrored and what is not).
const neverMirrored = "quotas, users and their passwords, delegation tokens"

// lines say what has to be known before a failover, at most one line for each part. highest is the highest producer id in the copies, now is when the lines are read.
func (s *Surroundings) lines(highest Number, now time.Time) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	seen := func(what string, at time.Time) string { return what + " " + ageAt(at, now) }
	if t := &s.TransactionalIDs; !t.Seen.IsZero() && t.Count > 0 {
		var open []string
		for _, x := range t.IDs {
			if x.InTransaction() {
				open = append(open, x.Name)
			}
		}
		in := "none in a transaction"
		if t.Open > 0 {
			in = fmt.Sprintf("%d in a transaction (%s)", t.Open, few(open))
		}
		say("TRANSACTIONAL IDS at the source: %d, %s, %s; their producers begin anew at the destination", t.Count, in, seen("seen", t.Seen))
	} else if t.Seen.IsZero() && t.Error != "" {
		say("TRANSACTIONAL IDS at the source: unknown: %s", t.Error)
	}
	if top, has := highest.Value(); has {
		next, known := s.NextProducerID.Number.Value()
		at := seen("measured", s.NextProducerID.Seen)
		switch {
		case !known:
		case next > top:
			say("PRODUCER IDS: up to %d in the copies, from %d on at the destination, %s: none is given out twice", top, next, at)
		default:
			say("PRODUCER IDS OVERLAP: up to %d in the copies, from %d on at the destination, %s; the stop opens nothing before the destination is above them", top, next, at)
		}
	}
	var not []string
	if n := &s.NotMirrored; !n.Seen.IsZero() && n.Count > 0 {
		not = append(not, fmt.Sprintf("%s of the source (%s), %s", plural(n.Count, "topic", "topics"), fewOf(n.Names, n.Count), seen("seen", n.Seen)))
	}
	not = append(not, s.NotFollowed...)
	say("NOT MIRRORED: %s", strings.Join(append(not, neverMirrored), "; "))
	if r := &s.MissingRights; !r.Seen.IsZero() && r.Count > 0 {
		say("RIGHTS MISSING at the destination, %s; preflight has the commands: %s", seen("looked at", r.Seen), strings.Join(r.Names, "; "))
	}
	return lines
}

// transactionalID is whose a producer id is, "" if that is not known.
func (s *Surroundings) transactionalID(producer int64) string {
	for _, x := range s.TransactionalIDs.IDs {
		if x.ProducerID == producer {
			return x.Name
		}
	}
	return ""
}
