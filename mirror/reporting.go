package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// reportGap is the shortest time between two reports: a start of a thousand partitions changes states for seconds, and nobody looks that often.
const reportGap = time.Second

// reportInterval is how often a process says at least that it lives; more often where it refreshes more often. Whoever hears nothing for three times as long, and no less than silentAfter, takes it for dead.
const reportInterval = 5 * time.Second

// reporting tells other processes, through the Control, how this mirror and its partitions are: at changes of state and at every refresh. What it tells outlives it.
// Nothing waits for it.
type reporting struct {
	m        *Mirror
	reporter Reporter
	told     toldReports
	earlier  earlierReports
	trouble  string // that was told of last

	torn     *TornTransactions // of the last look, nil: nothing is to be looked at
	tornEnds int64             // the sum of the copies' ends then
	tornAt   time.Time

	kept      *KeptPlan // nil: none
	keptLooks int       // at what is around the records, when that was made

	forgotten bool // the mirror was deleted, and so were its reports
	host      string
}

func (g *reporting) run() {
	g.host, _ = os.Hostname()
	tick := time.NewTicker(g.m.reportInterval())
	defer tick.Stop()
	defer func() {
		if g.reporter != nil {
			g.reporter.Close()
		}
	}()
	for {
		changed := g.m.changed()
		err := g.report()
		g.tell(err)
		if errors.Is(err, statemachine.ErrFenced) {
			return // another process of this owner reports now; the state store says the rest
		}
		if !g.m.pause(g.m.ctx, reportGap) {
			return
		}
		select {
		case <-g.m.ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// tell makes an event of trouble with reports, once.
func (g *reporting) tell(err error) {
	now := ""
	if err != nil && g.m.ctx.Err() == nil {
		now = err.Error()
	}
	if now == g.trouble || g.m.ctx.Err() != nil {
		return
	}
	g.trouble = now
	if err != nil {
		err = fmt.Errorf("other processes cannot see how this mirror is: %w", err)
	}
	g.m.emit(TopicTrouble{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Err: err})
}

func (g *reporting) report() error {
	if err := g.m.lease.hold(); err != nil {
		return fmt.Errorf("%w: %w", statemachine.ErrFenced, err)
	}
	ctx, stop := context.WithTimeout(g.m.ctx, g.m.cfg.CallBound)
	defer stop()
	if g.reporter == nil {
		r, err := g.m.cfg.Control.OpenReporter(ctx, g.m.cfg.Owner)
		if err != nil {
			return err
		}
		g.reporter, g.told = r, toldReports{}
		g.earlier = g.readEarlier(ctx)
	}
	if g.m.following.gone() {
		if g.forgotten {
			return nil
		}
		err := g.reporter.Forget(ctx, g.m.cfg.Name)
		g.forgotten, g.told = err == nil, toldReports{}
		return err
	}
	g.forgotten = false
	node, partitions := g.m.reports(g.host)
	for i := range partitions {
		g.earlier.complete(&partitions[i])
	}
	node.Torn = g.lookForTorn(ctx, &node, partitions)
	node.Kept = g.keep(&node, partitions)
	fresh := g.told.due(&node, partitions)
	if err := g.reporter.Report(ctx, node, fresh); err != nil {
		return err
	}
	g.told.note(fresh)
	return g.m.answering.record(ctx, g.reporter)
}

// lookAgain is how often a process looks for torn transactions again while its copies grow, at most.
const lookAgain = 30 * time.Second

// lookForTorn says which transactions a stop would tear apart: whoever stops from elsewhere cannot read the copies. While the source answers nothing is torn that does not mend itself, so nothing is read
// then; while it does not, copies stand still and one look is enough.
func (g *reporting) lookForTorn(ctx context.Context, node *NodeReport, partitions []PartitionReport) *TornTransactions {
	ends, open, silent := int64(0), false, node.SourceError != ""
	for i := range partitions {
		p := &partitions[i]
		ends += p.DestinationEnd
		open = open || p.OpenTransactions > 0
		silent = silent || p.State != statemachine.Stopped && !p.Live
	}
	switch {
	case !open || !silent:
		g.torn = nil
	case g.torn == nil || ends != g.tornEnds && node.Seen.Sub(g.tornAt) >= lookAgain:
		g.torn, g.tornEnds, g.tornAt = nil, ends, node.Seen
		if look := g.m.lookAtTransactions(ctx, g.m.partitions()); look != nil {
			t := look.torn(0)
			if len(t.Transactions) > 0 {
				cut, _ := look.cut(func(TopicPartition) bool { return true }, cutBounds{})
				t.Cut = &cut
			}
			g.torn = &t
		}
	}
	return g.torn
}

// earlierReports are what an earlier process of this owner reported last, by topic and partition.
type earlierReports map[TopicPartition]PartitionReport

// readEarlier reads them. What cannot be read is not known any more: nothing depends on it.
func (g *reporting) readEarlier(ctx context.Context) earlierReports {
	found := earlierReports{}
	all, err := g.m.cfg.Control.Reports(ctx)
	if err != nil {
		return found
	}
	for _, n := range all.Nodes {
		if n.Mirror == g.m.cfg.Name {
			g.m.failovers.remember(n.Failovers) // of whichever owner: the next failover is this process's
			g.m.verifying.remember(n.Verification)
			g.remember(n.Kept)
		}
	}
	for _, p := range all.Partitions {
		if p.Mirror == g.m.cfg.Name && p.Owner == g.m.cfg.Owner && !p.SourceSeen.IsZero() {
			found[TopicPartition{p.Topic, p.Partition}] = p
		}
	}
	return found
}

// complete keeps in a report where the source ended when it was seen last, by whichever process: a restart while the source is dead must not take away what a person needs then.
func (e earlierReports) complete(p *PartitionReport) {
	tp := TopicPartition{p.Topic, p.Partition}
	was, ok := e[tp]
	switch {
	case !ok:
	case was.TopicID != p.TopicID || !p.SourceSeen.IsZero():
		delete(e, tp) // it is another topic, or this process knows for itself
	default:
		p.SourceEnd, p.SourceSeen, p.InStep = was.SourceEnd, was.SourceSeen, was.InStep
	}
}

// reportInterval is how often this process reports at least.
func (m *Mirror) reportInterval() time.Duration { return min(reportInterval, m.cfg.RefreshInterval) }

// A report is one record, and a storage takes records of some size only: what must be said has to fit. Status has all of it.
const (
	maxTroubles = 100
	maxSkipped  = 20
	maxWords    = 2000 // bytes of one reason
)

func shorten(words string) string {
	if len(words) <= maxWords {
		return words
	}
	return strings.ToValidUTF8(words[:maxWords], "") + " …"
}

// reports is the status in the form in which other processes get it.
func (m *Mirror) reports(host string) (NodeReport, []PartitionReport) {
	s := m.Status()
	node := NodeReport{
		Owner: m.cfg.Owner, Mirror: m.cfg.Name, Host: host, PID: os.Getpid(), Opened: m.opened, Seen: s.Taken, Interval: m.reportInterval(), Refresh: m.cfg.RefreshInterval, DestinationID: s.DestinationClusterID,
		SourceError: cmp.Or(m.link.troubled(), m.desk.troubled(), m.desk.unasked()), GroupsSeen: s.Metadata.Groups.At,
		Node: m.cfg.Node, Version: m.cfg.Version, Groups: s.Metadata.Groups.report(), Settings: s.Metadata.Configs.report(), AccessRules: s.Metadata.ACLs.report(),
	}
	node.Failovers, node.Verification = s.Failovers, s.Verification
	measured := max(endsAfter, 2*m.fetchWait()) // how old the newest answer about a partition that is fetched may be
	var partitions []PartitionReport
	troubles := 0
	for _, t := range s.Topics {
		if t.Err != nil {
			troubles++
			if troubles <= maxTroubles {
				node.Trouble = append(node.Trouble, t.Topic+": "+shorten(t.Err.Error()))
			}
		}
		if len(t.SplitBrain) > 0 {
			troubles++
			if troubles <= maxTroubles {
				node.Trouble = append(node.Trouble, shorten(fmt.Sprintf("split brain of topic %s: %s", t.Topic, splitBrainWords(t.SplitBrain))))
			}
		}
		for _, p := range t.Partitions {
			node.OffsetBytes = max(node.OffsetBytes, math.Round(p.OffsetBytes))
			r := PartitionReport{
				Mirror: p.Mirror, Topic: p.Topic, Partition: p.Partition, TopicID: p.TopicID, Owner: m.cfg.Owner, State: p.State, Reason: shorten(p.Reason), RetryAttempt: p.RetryAttempt,
				SourceEnd: p.SourceEnd, SourceSeen: p.SourceSeen, DestinationStart: p.Start, DestinationEnd: p.Replicated, LostFrom: p.LostFrom, LostTo: p.LostTo, At: s.Taken,
				OpenTransactions: len(p.InFlight), left: p.Halted, Live: !p.Halted && p.State == statemachine.Mirroring && p.LagUnknown.IsZero() && s.Taken.Sub(p.SourceSeen) <= measured,
			}
			for i, x := range p.InFlight {
				if i == 0 || x.FirstOffset < r.OpenFrom {
					r.OpenFrom = x.FirstOffset
				}
			}
			if p.LagTime != Unknown {
				r.InStep = s.Taken.Add(-p.LagTime)
			}
			partitions = append(partitions, r)
		}
	}
	if troubles > maxTroubles {
		node.Trouble = append(node.Trouble, fmt.Sprintf("and %d topics more", troubles-maxTroubles))
	}
	return node, partitions
}

// report is how a part of metadata sync stands, in the form in which other processes get it.
func (s *SyncStatus) report() *SyncReport {
	r := &SyncReport{Off: shorten(s.Off), At: s.At}
	if s.Err != nil {
		r.Error = shorten(s.Err.Error())
	}
	for i, line := range s.Skipped {
		if i == maxSkipped {
			r.Skipped = append(r.Skipped, fmt.Sprintf("and %d more", len(s.Skipped)-i))
			break
		}
		r.Skipped = append(r.Skipped, shorten(line))
	}
	return r
}
