package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// GiveUpConfig says which node is given up, and why.
type GiveUpConfig struct {
	// Kraft is the gone node's configuration (File.Kraft). Remember need not be set, Folder and Listen are not used.
	Kraft kraft.Config
	// Records is the log of states and wishes in the destination cluster (File.Records).
	Records keyedlog.Log
	// Topics are those that are opened; nil: everything that the node led.
	Topics []string
	// Reason is one line for the history, and Operator who does it. GiveUp needs a reason.
	Reason   string
	Operator mirror.Operator
}

// GiveUpPlan is what GiveUp would do now.
type GiveUpPlan struct {
	NodeID     int32
	ClusterID  string
	Partitions []GivenUp
	// Name names exactly this plan, by what it would do and not by the words of what is in the way: it is what GiveUp wants as consent. Where something has changed since, a new plan has another name.
	Name string
	// Wanted are the topics, by mirror, that GiveUp has recorded as wanted stopped: a node that comes back stops them. nil in a plan, and where nothing was recorded.
	Wanted map[string][]string
}

// GivenUp is one partition of a plan, or of what was done.
type GivenUp struct {
	kraft.Forced
	// Mirror is the mirror that it is in; "" if none is known, and then it is left alone.
	Mirror string
	// State is its recorded state before, Recorded the last mirror epoch that is to be found by a failback afterwards; nil: none.
	State    statemachine.State
	Recorded *statemachine.LastMirrorEpoch
	// Clients says that clients wrote this log before the node led it, in a failback that has not come to its cut: what they wrote is not mirrored, and is not recorded as that.
	Clients bool
	// Notes are what is particular about it, one sentence each.
	Notes []string
}

// ErrNotThePlan: what would be done is not what the plan says that was consented to. Where it is the error of one partition, that was not opened; GiveUpPlan.Wanted says what was recorded before.
var ErrNotThePlan = errors.New("node: the plan is another one by now: look at it, and consent to it")

// PlanGiveUp says what GiveUp would do, and changes nothing. It fails while a process lives under the node id: its topics are stopped through it.
func PlanGiveUp(ctx context.Context, cfg GiveUpConfig) (GiveUpPlan, error) {
	g, err := givingUp(ctx, cfg)
	if err != nil {
		return GiveUpPlan{}, err
	}
	return g.plan(ctx)
}

// GiveUp is a forced failover of what a node led that is gone for good, in one call that needs the destination cluster only: no source, no node. Where any process can be started under the node
// id, start it instead and stop its topics: that gives every guarantee of a stop, this does not (kraft.Force says which are missing).
//
// consent is the Name of a plan. In this order: the node's registration is watched for a session; the topics are wanted stopped (mirror.Admin.Stop, with Reason in the history), so a node that comes back
// does not take them again; each partition is recorded as STOPPING with its last mirror epoch and offset, so that a failback cuts nothing that was mirrored; its longest copy is elected; it is recorded as
// STOPPED. The error joins those of the partitions, which are in the result too: one that is Opened and has an error is open to clients, and is finished by another plan and GiveUp when its replicas are in
// sync. Where topics are wanted stopped by then and not all of their partitions are open, the error says so, and how to take it back. Two thirds of the time that ctx leaves, or a minute, are for opening.
func GiveUp(ctx context.Context, cfg GiveUpConfig, consent string) (GiveUpPlan, error) {
	if strings.TrimSpace(cfg.Reason) == "" {
		return GiveUpPlan{}, errors.New("node: giving a node up needs a reason, for the history")
	}
	g, err := givingUp(ctx, cfg)
	if err != nil {
		return GiveUpPlan{}, err
	}
	plan, err := g.plan(ctx)
	if err != nil {
		return plan, err
	}
	if consent != plan.Name {
		return plan, fmt.Errorf("%w (consented to %q, it is %q)", ErrNotThePlan, consent, plan.Name)
	}
	return g.do(ctx, plan)
}

// giveUp is one give-up.
type giveUp struct {
	cfg     GiveUpConfig
	control mirror.Control
	store   statemachine.StateStore
	wanted  mirror.ControlState
	entries map[statemachine.Key]statemachine.Entry

	mu       sync.Mutex
	sessions map[string]statemachine.Session // by owner
}

func givingUp(ctx context.Context, cfg GiveUpConfig) (*giveUp, error) {
	if cfg.Records == nil {
		return nil, errors.New("node.GiveUpConfig: Records is not set")
	}
	cfg.Kraft.Remember = cfg.Records
	g := &giveUp{cfg: cfg, control: mirror.NewControl(cfg.Records), store: keyedlog.NewStateStore(cfg.Records), sessions: map[string]statemachine.Session{}}
	var err error
	if g.wanted, err = g.control.Read(ctx); err != nil {
		return nil, fmt.Errorf("node: reading what is wanted of the mirrors: %w", err)
	}
	return g, g.load(ctx)
}

// load reads the states.
func (g *giveUp) load(ctx context.Context) error {
	g.entries = map[statemachine.Key]statemachine.Entry{}
	err := g.store.Load(ctx, func(e statemachine.Entry) error {
		g.entries[e.Key] = e
		return nil
	})
	if err != nil {
		return fmt.Errorf("node: reading states: %w", err)
	}
	return nil
}

// entry is what is recorded of a partition: in the mirror that is to have the topic, or where nobody says that in one that has not stopped it. false: no mirror is known.
func (g *giveUp) entry(f kraft.Forced) (statemachine.Entry, bool) {
	if w, ok := g.wanted.Topic(f.Partition.Topic); ok {
		if name, _, err := w.Wish(); err == nil {
			k := statemachine.Key{Mirror: name, TopicID: f.TopicID, Partition: f.Partition.Partition}
			if e, ok := g.entries[k]; ok {
				return e, true
			}
			return statemachine.NewEntry(k), true
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(g.entries), statemachine.Key.Compare) {
		if e := g.entries[k]; k.TopicID == f.TopicID && k.Partition == f.Partition.Partition && e.State.State != statemachine.Stopped {
			return e, true
		}
	}
	return statemachine.Entry{}, false
}

func (g *giveUp) plan(ctx context.Context) (GiveUpPlan, error) {
	forced, err := kraft.PlanForce(ctx, g.cfg.Kraft, g.cfg.Topics)
	if err != nil {
		return GiveUpPlan{}, err
	}
	remains, err := kraft.Left(ctx, g.cfg.Kraft)
	if err != nil {
		return GiveUpPlan{}, err
	}
	p := GiveUpPlan{NodeID: g.cfg.Kraft.NodeID, ClusterID: remains.ClusterID}
	sum := sha256.New()
	fmt.Fprintln(sum, p.NodeID, p.ClusterID)
	for _, f := range forced {
		x := g.judge(f)
		p.Partitions = append(p.Partitions, x)
		x.sum(sum)
	}
	p.Name = fmt.Sprintf("%x", sum.Sum(nil)[:6])
	return p, nil
}

// sum writes what is to be done with a partition. Of one that is refused only that counts: what is in the way has words, and times and ports in them, and nothing is done with it.
func (x *GivenUp) sum(to io.Writer) {
	fmt.Fprintln(to, x.Partition, x.TopicID, x.Mirror, x.State, x.Err != nil)
	if x.Err != nil {
		return
	}
	fmt.Fprintln(to, x.Leader, x.Epoch, x.End, x.Again, x.Aborted, slices.Sorted(slices.Values(x.Unasked)), x.Clients, x.Recorded != nil)
	for _, broker := range slices.Sorted(maps.Keys(x.Lacking)) {
		fmt.Fprintln(to, broker, x.Lacking[broker])
	}
	if x.Recorded != nil {
		fmt.Fprintf(to, "%+v\n", *x.Recorded)
	}
}

// judge adds to a partition what is recorded of it, and what will be.
func (g *giveUp) judge(f kraft.Forced) GivenUp {
	x := GivenUp{Forced: f, State: statemachine.Unknown}
	e, ok := g.entry(f)
	if !ok {
		if x.Err == nil {
			x.Err = fmt.Errorf("node: no mirror is known of topic %s: whose last mirror epoch is to be recorded? kraft.Force opens it without", f.Partition.Topic)
		}
		return x
	}
	x.Mirror, x.State = e.Key.Mirror, e.State.State
	x.Recorded, x.Clients = g.lastMirrorEpoch(e, f)
	note := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case x.Clients:
		note("clients wrote it before the node took it over, and nothing was cut since: where an earlier mirror ended is what counts; transactions of clients that were open then are aborted")
	case x.Recorded == nil:
	case x.Recorded.SourceClusterID == "":
		note("the source's cluster id is not recorded: a failback finds no last mirror epoch, and compares the logs instead")
	case x.Recorded.Offset > f.End:
		note("the mirror had ended at %d, and the longest copy ends at %d: [%d, %d) is lost here unless brokers that do not answer have it", x.Recorded.Offset, f.End, f.End, x.Recorded.Offset)
	}
	if len(f.Unasked) > 0 {
		note("brokers %v do not answer: records that only they have are given up", f.Unasked)
	}
	return x
}

// lastMirrorEpoch is what a failback is to find of a partition: as the stop of a living mirror records it (spec decision 5, decision 19). clients: the log is theirs, and what an earlier episode recorded counts.
func (g *giveUp) lastMirrorEpoch(e statemachine.Entry, f kraft.Forced) (lme *statemachine.LastMirrorEpoch, clients bool) {
	r, had := e.State, e.LME
	carried := func() *statemachine.LastMirrorEpoch {
		if had == nil {
			return nil
		}
		c := *had
		c.Episode = max(c.Episode, r.Episode)
		return &c
	}
	preparing := r.State == statemachine.Preparing || r.State == statemachine.Failed && statemachine.RetryTarget(r) == statemachine.Preparing
	switch {
	case r.FoundOpen:
		return carried(), true
	case r.State == statemachine.Stopped:
		return had, false
	case had != nil && had.Episode == r.Episode && r.State != statemachine.Unknown:
		return had, false // its own stop has recorded it; what follows in the log are the stop's markers
	case had != nil && preparing && !r.Mirrored && had.Episode < r.Episode && f.End > had.Offset:
		return carried(), true // this episode has mirrored nothing yet: what lies beyond the end of the last one is clients'
	}
	lme = &statemachine.LastMirrorEpoch{Epoch: f.Epoch, Offset: f.End, SourceClusterID: r.SourceClusterID, SourceTopicID: r.SourceTopicID, Episode: episode(e)}
	if lme.SourceClusterID == "" {
		if o, ok := g.wanted.Origin(e.Key.Mirror, f.Partition.Topic); ok {
			lme.SourceClusterID = o.SourceClusterID
		}
	}
	if had != nil && lme.SourceClusterID == "" {
		lme.SourceClusterID = had.SourceClusterID
	}
	return lme, false
}

// episode is that of a stop: one whose state was deleted, and its last mirror epoch kept, is over.
func episode(e statemachine.Entry) int32 {
	if e.LME != nil && e.State.State == statemachine.Unknown {
		return min(e.LME.Episode, math.MaxInt32-1) + 1
	}
	return e.State.Episode
}

// do carries a plan out.
func (g *giveUp) do(ctx context.Context, plan GiveUpPlan) (GiveUpPlan, error) {
	topics := map[string][]string{} // by mirror
	var all []string
	for _, x := range plan.Partitions {
		if x.Err == nil && !slices.Contains(topics[x.Mirror], x.Partition.Topic) {
			topics[x.Mirror] = append(topics[x.Mirror], x.Partition.Topic)
			all = append(all, x.Partition.Topic)
		}
	}
	if len(all) == 0 {
		return plan, plan.err()
	}
	// Once the first partition is about to be opened: until then nothing is recorded.
	recordWishes := sync.OnceValue(func() error {
		for _, name := range slices.Sorted(maps.Keys(topics)) {
			if err := g.stop(ctx, name, topics[name]); err != nil {
				return err
			}
			if plan.Wanted == nil {
				plan.Wanted = map[string][]string{}
			}
			plan.Wanted[name] = topics[name]
		}
		return nil
	})
	defer g.close()
	planned := map[mirror.TopicPartition]*GivenUp{}
	for i := range plan.Partitions {
		planned[plan.Partitions[i].Partition] = &plan.Partitions[i]
	}
	forcing, stop := context.WithTimeout(ctx, forceBound(ctx))
	defer stop()
	forced, err := kraft.Force(forcing, g.cfg.Kraft, all, func(ctx context.Context, f kraft.Forced) error {
		x := planned[f.Partition]
		switch {
		case x == nil || x.Err != nil:
			return fmt.Errorf("it is not in the plan: %w", ErrNotThePlan)
		case x.End != f.End || x.Epoch != f.Epoch || x.TopicID != f.TopicID:
			return fmt.Errorf("its copies end at %d in epoch %d by now: %w", f.End, f.Epoch, ErrNotThePlan)
		}
		if err := recordWishes(); err != nil {
			return err
		}
		return g.stopping(ctx, f)
	})
	if forced == nil {
		return plan, err // before anything was recorded
	}
	for _, f := range forced {
		if x := planned[f.Partition]; x != nil && x.Err == nil {
			x.Forced = f
		}
	}
	err = nil
	if slices.ContainsFunc(plan.Partitions, func(x GivenUp) bool { return x.Opened }) {
		err = errors.Join(recordWishes(), g.finish(ctx, &plan)) // an earlier Force may have opened all, and recorded nothing
	}
	return plan, errors.Join(err, plan.err(), plan.notOpened())
}

// notOpened says which wishes are recorded of topics that are not open, or not all of them; nil: none.
func (p GiveUpPlan) notOpened() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(p.Wanted)) {
		topics := slices.DeleteFunc(slices.Clone(p.Wanted[name]), func(topic string) bool {
			return !slices.ContainsFunc(p.Partitions, func(x GivenUp) bool { return x.Partition.Topic == topic && !x.Opened && !x.Led })
		})
		if len(topics) > 0 {
			all = append(all, fmt.Errorf("node: recorded is that these topics of mirror %s are wanted stopped, and not all of their partitions are open: %s. A node that comes back under the id %d stops them. "+
				"Give it up again to go on; to take it back, start the topics (kafka-mirror --start --mirror %s --topics %s)", name, shortList(topics), p.NodeID, name, strings.Join(topics, ",")))
		}
	}
	return errors.Join(all...)
}

// forceBound is how long opening may take: it waits for replicas to come in sync, which a dead broker does not, and what was opened is to be recorded all the same.
func forceBound(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) * 2 / 3
	}
	return time.Minute
}

// err joins what went wrong with partitions.
func (p GiveUpPlan) err() error {
	var all []error
	for _, x := range p.Partitions {
		all = append(all, x.Err)
	}
	return errors.Join(all...)
}

// stop records that the topics are wanted stopped. A mirror that was deleted has no wishes any more, and of a topic that is in no mirror there are none: what is recorded of their states is enough.
func (g *giveUp) stop(ctx context.Context, name string, topics []string) error {
	admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: name, Control: g.control, States: g.store, Operator: g.cfg.Operator})
	if err != nil {
		return err
	}
	gone := func(err error) bool {
		var e *mirror.Error
		return errors.As(err, &e) && (e.Code == mirror.TopicNotInClusterMirror || e.Code == mirror.UnknownClusterMirror)
	}
	result, err := admin.Stop(ctx, topics, mirror.StopOptions{Partial: true, Intent: mirror.Intent{Reason: g.cfg.Reason}})
	if len(result.Topics) == 0 && err != nil && !gone(err) {
		return fmt.Errorf("node: recording that the topics of mirror %s are to be stopped: %w", name, err)
	}
	for _, t := range result.Topics {
		if t.Err != nil && !gone(t.Err) {
			return fmt.Errorf("node: recording that topic %s of mirror %s is to be stopped: %w", t.Topic, name, t.Err)
		}
	}
	return nil
}

// session writes in the name of the owner of a partition: that of its mirror, unless its record says another one. Its process cannot write any more then, if it should live.
func (g *giveUp) session(ctx context.Context, e statemachine.Entry) (statemachine.Session, error) {
	owner := cmp.Or(e.Owner, e.Key.Mirror)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.sessions[owner]; ok {
		return s, nil
	}
	s, err := g.store.Open(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("node: opening the states of %s: %w", owner, err)
	}
	g.sessions[owner] = s
	return s, nil
}

func (g *giveUp) close() {
	for _, s := range g.sessions {
		_ = s.Close()
	}
}

// stopping records where the mirror ended, before anything is opened.
func (g *giveUp) stopping(ctx context.Context, f kraft.Forced) error {
	e, ok := g.entry(f)
	if !ok {
		return errors.New("no mirror is known of it")
	}
	lme, _ := g.lastMirrorEpoch(e, f)
	next := e.State
	if next.State != statemachine.Stopped {
		var err error
		if next, err = statemachine.Move(next, statemachine.Stopping); err != nil {
			return err
		}
	}
	if lme != nil {
		next.Episode = max(next.Episode, lme.Episode)
	}
	return g.write(ctx, e, next, lme)
}

func (g *giveUp) write(ctx context.Context, e statemachine.Entry, next statemachine.PartitionState, lme *statemachine.LastMirrorEpoch) error {
	s, err := g.session(ctx, e)
	if err != nil {
		return err
	}
	results, err := s.Write(ctx, []statemachine.Write{{Key: e.Key, ExpectedStateEpoch: e.State.StateEpoch, LeaderEpoch: -1, State: &next, LME: lme}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return fmt.Errorf("node: recording that %v is %s: %w", e.Key, next.State, err)
	}
	return nil
}

// byForce is the reason that stands at a partition which was opened without its mirror.
const byForce = "opened by force, without its mirror process: transactions that the mirror had open were aborted, no MIRROR_PID_RESET was written"

// finish records what this call has opened, or gone on with, as STOPPED, and adds it to the history.
func (g *giveUp) finish(ctx context.Context, plan *GiveUpPlan) error {
	if err := g.load(ctx); err != nil {
		return err
	}
	var failed []error
	opened := map[string][]string{} // topics, by mirror
	count := map[string]int{}
	for i := range plan.Partitions {
		x := &plan.Partitions[i]
		if !x.Opened {
			continue
		}
		if count[x.Mirror]++; !slices.Contains(opened[x.Mirror], x.Partition.Topic) {
			opened[x.Mirror] = append(opened[x.Mirror], x.Partition.Topic)
		}
		e, ok := g.entry(x.Forced)
		if !ok || e.State.State == statemachine.Stopped {
			continue
		}
		if e.State.State != statemachine.Stopping { // an earlier Force has opened it, and nobody recorded it
			if err := g.stopping(ctx, x.Forced); err != nil {
				failed = append(failed, err)
				continue
			}
			if err := g.load(ctx); err != nil {
				return err
			}
			e, _ = g.entry(x.Forced)
		}
		next, err := statemachine.Move(e.State, statemachine.Stopped)
		if err == nil {
			next.ErrorMessage = byForce
			err = g.write(ctx, e, next, nil)
		}
		failed = append(failed, err)
	}
	for _, name := range slices.Sorted(maps.Keys(opened)) {
		failed = append(failed, g.control.Update(ctx, func(s *mirror.ControlState) error {
			s.Note = &mirror.HistoryEntry{Time: time.Now(), Verb: "give up", Mirror: name, Topics: opened[name], Who: completed(g.cfg.Operator), Reason: g.cfg.Reason, Plan: plan.Name,
				Detail: fmt.Sprintf("node %d is given up: %d partitions were opened by force", plan.NodeID, count[name])}
			return nil
		}))
	}
	return errors.Join(failed...)
}

// String is for people, several lines: of a plan what would be done, of what was done what came of it.
func (p GiveUpPlan) String() string {
	var b strings.Builder
	done := slices.ContainsFunc(p.Partitions, func(x GivenUp) bool { return x.Opened })
	fmt.Fprintf(&b, "node %d of cluster %s is given up: forced failover of %d partitions\n", p.NodeID, cmp.Or(p.ClusterID, "(no broker tells its id)"), len(p.Partitions))
	for _, x := range p.Partitions {
		fmt.Fprintf(&b, "  %s-%d", x.Partition.Topic, x.Partition.Partition)
		if x.Mirror != "" {
			fmt.Fprintf(&b, " (mirror %s, %s)", x.Mirror, x.State)
		}
		switch {
		case x.Err != nil && !x.Opened && x.Led:
			fmt.Fprintf(&b, ": OPEN, broker %d leads it; nothing was done with it: %v\n", x.Leader, x.Err)
			continue
		case x.Err != nil && !x.Opened:
			fmt.Fprintf(&b, ": NOT OPENED: %v\n", x.Err)
			continue
		case x.Opened:
			fmt.Fprintf(&b, ": broker %d leads it, the mirror ended at %d in epoch %d", x.Leader, x.End, x.Epoch)
		case x.Again:
			fmt.Fprintf(&b, ": open and not finished, broker %d was elected, the mirror ended at %d in epoch %d", x.Leader, x.End, x.Epoch)
		default:
			fmt.Fprintf(&b, ": broker %d would be elected, the mirror ended at %d in epoch %d", x.Leader, x.End, x.Epoch)
		}
		switch {
		case x.Aborted < 0:
			b.WriteString("; whether transactions are open is not known")
		case x.Opened:
			fmt.Fprintf(&b, "; %d transactions were aborted", x.Aborted)
		default:
			fmt.Fprintf(&b, "; %d open transactions would be aborted", x.Aborted)
		}
		for _, id := range slices.Sorted(maps.Keys(x.Lacking)) {
			fmt.Fprintf(&b, "; broker %d has it up to %d and copies the rest", id, x.Lacking[id])
		}
		b.WriteByte('\n')
		for _, n := range x.Notes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
		if x.Err != nil {
			fmt.Fprintf(&b, "    NOT FINISHED: %v\n", x.Err)
		}
	}
	if done {
		return b.String()
	}
	b.WriteString("what a forced failover does not keep of what a stop promises:\n" +
		"  clients may write from the election on, before the open transactions are aborted\n" +
		"  no MIRROR_PID_RESET is written: a mirror further down the chain takes this log's producers for the source's\n" +
		"  records that only brokers have which do not answer are given up\n" +
		"where any process can be started under the node id, start it and stop its topics instead\n")
	fmt.Fprintf(&b, "plan %s\n", p.Name)
	return b.String()
}
