package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Whether somebody runs a mirror is one rule, and this file has it: a process is heard of if its newest report was made no longer ago than its patience (NodeReport.alive). How long ago that was
// says its own clock, as long as that makes it living; clocks of two hosts differ. Where it does not, the report may have been seen here when it was new: then its moments are translated into
// those of the clock here (pulses.translate), and everything that is said of ages goes on from there.

// silentAfter is how long a process may be silent at least before it counts as not running.
const silentAfter = 3 * reportInterval

// clockLeeway is how far the clocks of two hosts may be apart before a report that is not due yet says that one of them is wrong.
const clockLeeway = 5 * time.Second

const (
	// secondLook is how long reports are watched at most before it is said that no process runs a mirror: a process that lives reports every five seconds, and is a little late when it has much to say.
	secondLook = 7 * time.Second
	// secondLookInterval is how often they are read then.
	secondLookInterval = 500 * time.Millisecond
	// clocksApart is how far clocks may be apart at most for a second look to be worth its time: hosts farther apart have other troubles first (Kerberos ends at five minutes), and of a process that
	// was heard of last an hour ago nobody has to wait for a word.
	clocksApart = 10 * time.Minute
)

// interval is how often the process reports at least.
func (n *NodeReport) interval() time.Duration { return cmp.Or(n.Interval, 30*time.Second) }

// patience is how long the process may be silent before it counts as not running.
func (n *NodeReport) patience() time.Duration { return max(silentAfter, 3*n.interval()) }

// alive says that the process is not silent, and that its clock is not ahead.
func (n *NodeReport) alive(now time.Time) bool {
	return !ahead(n.Seen, now) && now.Sub(n.Seen) <= n.patience()
}

// name is what a person calls the process.
func (n *NodeReport) name() string { return OneLine(cmp.Or(n.Node, n.Owner)) }

// age says how long ago the process reported, or that nobody can know.
func (n *NodeReport) age(now time.Time) string {
	if ahead(n.Seen, now) {
		return fmt.Sprintf("the clock of %s is %s ahead: its age is not known", cmp.Or(OneLine(n.Host), n.name()), span(n.Seen.Sub(now)))
	}
	return age(now.Sub(n.Seen))
}

// ahead says that a moment is in the future, so that the clock that gave it, or the one here, is wrong.
func ahead(moment, now time.Time) bool { return moment.Sub(now) > clockLeeway }

// presence is whether somebody runs a mirror.
type presence struct {
	kind presenceKind
	last *NodeReport // that was heard of last, a living one before others; nil: none ever was
	now  time.Time
	// unwatched: a silent process was not watched for long enough to say that its clock does not mislead.
	unwatched bool
}

type presenceKind uint8

const (
	runs      presenceKind = iota + 1 // a process is heard of
	unread                            // reports cannot be read
	never                             // no process has ever reported
	clockOff                          // the newest report is of a moment that has not come yet here: it is not known
	unheardOf                         // none is heard of any more
)

// presenceOf says it of a mirror with these reports of its processes.
func presenceOf(nodes []NodeReport, deaf bool, now time.Time) presence {
	p := presence{kind: unread, now: now}
	for i := range nodes {
		n := &nodes[i]
		if p.last == nil || n.alive(now) && !p.last.alive(now) || n.alive(now) == p.last.alive(now) && n.Seen.After(p.last.Seen) {
			p.last = n
		}
	}
	switch {
	case deaf:
	case p.last == nil:
		p.kind = never
	case p.last.alive(now):
		p.kind = runs
	case ahead(p.last.Seen, now):
		p.kind = clockOff
	default:
		p.kind = unheardOf
	}
	return p
}

// head is for a list of what is wrong; "" if a process runs.
func (p presence) head() string {
	switch p.kind {
	case unread:
		return "REPORTS CANNOT BE READ"
	case never:
		return "no process has reported yet"
	case clockOff:
		return "WHETHER A PROCESS RUNS IS NOT KNOWN: " + p.last.age(p.now)
	case unheardOf:
		return "NO PROCESS was heard of for " + span(p.now.Sub(p.last.Seen)) + p.byItsClock()
	}
	return ""
}

// sentence says the same as the beginning of one; "" if a process runs.
func (p presence) sentence() string {
	switch p.kind {
	case unread:
		return "WHETHER A PROCESS RUNS this mirror is not known (reports cannot be read)"
	case never:
		return "NO PROCESS runs this mirror (none has ever reported)"
	case clockOff:
		return "WHETHER A PROCESS RUNS this mirror is not known (" + p.last.age(p.now) + ")"
	case unheardOf:
		word := "runs"
		if p.unwatched {
			word = "is known to run"
		}
		return "NO PROCESS " + word + " this mirror (last word " + age(p.now.Sub(p.last.Seen)) + p.byItsClock() + ")"
	}
	return ""
}

func (p presence) byItsClock() string {
	if p.unwatched {
		return " by its own clock"
	}
	return ""
}

// pulses are what an Admin has seen of the reports of its mirror's processes: they move as long as a process lives, whatever its clock says. Safe for concurrent use.
type pulses struct {
	mu sync.Mutex
	of map[string]pulse // by owner
}

// pulse is the newest report of a process. Its moments but the first are by the clock here.
type pulse struct {
	seen   time.Time // by its clock
	since  time.Time // when it was seen here first
	after  time.Time // when there was an older one yet; zero: it was there at the first look
	looked time.Time // the last look
}

// take notes reports that were read by a look which began at that moment.
func (p *pulses) take(nodes []NodeReport, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]pulse{}
	}
	for _, n := range nodes {
		was, known := p.of[n.Owner]
		switch {
		case !known:
			p.of[n.Owner] = pulse{seen: n.Seen, since: began, looked: began}
		case began.Before(was.looked): // a look that took long, and may have seen what is older
		case !was.seen.Equal(n.Seen):
			p.of[n.Owner] = pulse{seen: n.Seen, since: began, after: was.looked, looked: began}
		default:
			was.looked = began
			p.of[n.Owner] = was
		}
	}
}

// since says that a process has reported since a moment by the clock here: an older report was seen then, or later.
func (p *pulses) since(owner string, moment time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[owner]
	return !x.after.IsZero() && !x.after.Before(moment)
}

// made is when a report was made by the clock here, where its own clock misleads: at the earliest of one that was seen to come, at the latest of one that was not; ok is false where that is not seen.
func (p *pulses) made(n *NodeReport, now time.Time) (moment time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[n.Owner]
	switch {
	case !x.seen.Equal(n.Seen):
	case n.Seen.After(x.since) && now.Sub(x.since) > n.patience(): // it says that it is newer than it can be, and nothing new has come
		return x.since, true
	case !n.alive(now) && !x.after.IsZero() && now.Sub(x.after) <= n.patience():
		return x.after, true
	}
	return time.Time{}, false
}

// watched says whether a process that its clock has silent, or ahead, was watched for long enough to believe it.
func (p *pulses) watched(n *NodeReport, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[n.Owner]
	return x.seen.Equal(n.Seen) && x.looked.Sub(x.since) >= min(secondLook, n.interval()+2*time.Second)
}

// translate gives the moments in the reports of processes whose clocks mislead by the clock here, and says by how much each of their clocks is behind. What it is given stays as it is.
func (p *pulses) translate(mirror string, r Reports, now time.Time) (Reports, map[string]time.Duration) {
	behind := map[string]time.Duration{}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if made, ok := p.made(n, now); ok && n.Mirror == mirror {
			behind[n.Owner] = made.Sub(n.Seen)
		}
	}
	if len(behind) == 0 {
		return r, nil
	}
	r.Nodes, r.Partitions = slices.Clone(r.Nodes), slices.Clone(r.Partitions)
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Mirror == mirror {
			n.translate(behind[n.Owner])
		}
	}
	for i := range r.Partitions {
		if x := &r.Partitions[i]; x.Mirror == mirror {
			later(behind[x.Owner], &x.SourceSeen, &x.InStep, &x.At)
		}
	}
	return r, behind
}

func (n *NodeReport) translate(by time.Duration) {
	later(by, &n.Opened, &n.Seen, &n.Measured, &n.GroupsSeen)
	for _, s := range []**SyncReport{&n.Groups, &n.Settings, &n.AccessRules} {
		if *s != nil {
			x := **s
			later(by, &x.At)
			*s = &x
		}
	}
}

func later(by time.Duration, moments ...*time.Time) {
	for _, m := range moments {
		if !m.IsZero() {
			*m = m.Add(by)
		}
	}
}

// hear reads the reports, and gives moments of this mirror's processes by the clock here where theirs mislead.
func (a *Admin) hear(ctx context.Context) (Reports, map[string]time.Duration, error) {
	began := a.now()
	r, err := a.cfg.Control.Reports(ctx)
	if err != nil {
		return Reports{}, nil, err
	}
	a.pulses.take(a.processes(&r), began)
	r, behind := a.pulses.translate(a.cfg.Mirror, r, a.now())
	return r, behind, nil
}

// processes are the reports of this mirror's.
func (a *Admin) processes(r *Reports) (nodes []NodeReport) {
	for _, n := range r.Nodes {
		if n.Mirror == a.cfg.Mirror {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// presence is whether somebody runs the mirror, by reports that hear has read.
func (a *Admin) presence(r *Reports, deaf error, now time.Time) presence {
	p := presenceOf(a.processes(r), deaf != nil, now)
	p.unwatched = p.kind == unheardOf && !a.pulses.watched(p.last, now) && now.Sub(p.last.Seen) <= clocksApart
	return p
}

// listen reads reports again, for secondLook at most and half the time that ctx has left, before it is said that nobody runs the mirror: until one of its processes that were silent, or ahead, by their
// clocks reports. There is nothing to wait for where a process is heard of, where none ever reported, where clocks would have to be farther apart than clocksApart, and where this Admin has watched for that long.
func (c *call) listen(ctx context.Context) {
	bound := secondLook + secondLookInterval
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(end)/2)
	}
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	tick := time.NewTicker(secondLookInterval)
	defer tick.Stop()
	for c.deaf == nil && c.doubtful() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, behind, err := c.hear(ctx)
		if err != nil {
			return // what was read before is as good as anything
		}
		c.reports, c.behind, c.begun = r, behind, c.now()
	}
}

// doubtful says that no process is heard of, and one may live all the same.
func (c *call) doubtful() bool {
	now := c.now()
	nodes := c.processes(&c.reports)
	return !slices.ContainsFunc(nodes, func(n NodeReport) bool { return n.alive(now) }) &&
		slices.ContainsFunc(nodes, func(n NodeReport) bool { return now.Sub(n.Seen).Abs() <= clocksApart && !c.pulses.watched(&n, now) })
}
