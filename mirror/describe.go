package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Description is how a mirror is, as far as its desired state, the state store and the reports of its processes say; they may be dead since. It is plain data. Numbers that
// nobody knows are unknown, and what was only reported has a time.
type Description struct {
	Mirror   string
	Taken    time.Time
	Head     string // the verdict, in one line
	Partial  bool   // some of the topics, or some of a topic set, are stopped, or to be, and the others are not
	Alive    bool   // a process of this mirror is not Silent, and its clock is not ahead
	Clusters Clusters
	Created  time.Time
	Settings Settings // as set, without defaults; a secret is "[hidden]", and behind it which references are in it
	Nodes    []DescribedNode
	Topics   []DescribedTopic // by name
	Notes    []string         // what else a person has to know, one sentence each
	// StatesError is why the states that are recorded could not be read; "": they were. Then states are as they were reported, and LME and LMO are not known.
	StatesError string `json:",omitempty"`
	// Promotion is one that is under way, as Head begins with; nil: none is.
	Promotion *Promotion `json:",omitempty"`
	// LeftFences are those that promotions have left up at the source, the newest first; Notes has a sentence for each.
	LeftFences []LeftFence `json:",omitempty"`
	// Failbacks are those that are under way; Head ends with who may write their topics then. What is known of gates here is what the state store has; of the source, that its own mirror from here was stopped when this
	// one began, up to when it has answered, and what a promotion that is under way has fenced there.
	Failbacks []Failback    `json:",omitempty"`
	Groups    []GroupStatus // that are followed, as they were recorded last, by name; of one in which nothing changes nothing new is recorded
	// GroupsSeen is when a process looked at groups on both sides last; zero: never.
	GroupsSeen time.Time
	strays     map[string]int               // how many partitions that the state store has in each state belong to no topic that is known here; without those that are done
	unread     string                       // which groups cannot be read, "" if none
	looked     map[TopicPartition]time.Time // when the process that mirrors a partition looked at groups last
	opened     map[TopicPartition]bool      // partitions that are STOPPED: their groups are not followed any more
	stopping   map[TopicPartition]bool      // the others of topics that are wanted stopped
	copies     map[TopicPartition]metadatasync.Copy
	unfollowed map[TopicPartition]bool // partitions that are not STOPPED, and whose groups were not looked at since their mirroring began; none where groups are not followed at all
	deaf       bool                    // reports cannot be read: nothing is known of processes, which does not say that there are none
	unwatched  bool                    // the silence of processes may be that of their clocks: they were not watched for long enough
}

// DescribedNode is one process that runs, or ran, the mirror.
type DescribedNode struct {
	NodeReport
	Silent     bool // it was not heard of for fifteen seconds, or for three of its intervals where those are longer
	ClockAhead bool // its report is of a moment that has not come yet here: it is not known whether it runs
	// ClockBehind is by how much its clock is behind the one here, below 0 if it is ahead, where the process was heard of in spite of its clock: moments of its reports are by the clock here then.
	ClockBehind time.Duration `json:",omitzero"`
}

// DescribedTopic is one topic of the mirror.
type DescribedTopic struct {
	Topic      string
	MirrorName string               // what is wanted: "m", "m.paused", "m.stopped"
	Partitions []DescribedPartition // by number; none: no process has taken the topic up yet, or its partitions are not known here
	Origin     *TopicOrigin         `json:",omitempty"` // where it comes from, nil if that is not recorded
	want       statemachine.Desired // of MirrorName
}

// DescribedPartition is one partition. State, Reason and RetryAttempt are the state store's where it has the partition; the rest was reported.
type DescribedPartition struct {
	Partition      int32
	State          string // KIP-1279's name
	Reason         string
	RetryAttempt   int16     // 0: not failed; statemachine.NonRetryable: a person has to act
	SourceEnd      Number    // high watermark at the source
	SourceSeen     time.Time // up to when that is known to be right
	DestinationEnd Number    // replicated end of the copy
	Reported       time.Time // up to when a process says so; zero: none has
	Lag            Lag
	LME, LMO       Number // last mirror epoch and offset of the last stop
	LostFrom       int64  // the last range lost at the source before it was copied; both 0: none
	LostTo         int64
	// OpenTransactions of the copy, which a stop aborts; OpenFrom is the first offset of the oldest.
	OpenTransactions int
	OpenFrom         Number
	Owner            string // of the report
	start            int64  // of the copy, as reported
	stored           bool   // State is the state store's
	episode          *int32 // the state store's; nil: it has none
	gate             gate
	said             string // the state that Owner reported since it began to run, "" if it did not
}

// Lag is how many offsets the copy was behind. AtLeast: more by now, nobody measures it.
type Lag struct {
	Offsets Number
	AtLeast bool
}

// String never shows a bare number for something that is not known.
func (l Lag) String() string {
	switch {
	case l.AtLeast && l.Offsets.known:
		return fmt.Sprintf("unknown, %s when last seen", l.Offsets)
	}
	return l.Offsets.String()
}

// Describe says how the mirror is. It asks the Control and the state store, and the destination only for its cluster id and for topics that no process has reported; no source,
// and no process of the mirror has to be alive. A state store or destination that does not answer is a note, and so are reports that cannot be read; the head says that too.
// Clocks of hosts differ: before it says that no process runs the mirror, it reads reports again for up to seven seconds, or half of what ctx leaves, and waits for nothing else. A process whose
// reports move is alive. An Admin remembers what it has watched, so the next Describe does not wait again.
// Errors: UnknownClusterMirror; the Control's; the context's end.
func (a *Admin) Describe(ctx context.Context) (Description, error) { return a.describe(ctx, true) }

// describe is Describe; without patience it says of silent processes what is known at once.
func (a *Admin) describe(ctx context.Context, patient bool) (Description, error) {
	c, err := a.begin(ctx, "describe", true, Intent{})
	if err != nil {
		return Description{}, err
	}
	if _, there := c.known.Mirror(a.cfg.Mirror); patient && there {
		c.listen(ctx)
	}
	entry, err := c.exists(&c.known)
	if err != nil {
		return Description{}, err
	}
	if err := c.askDestination(ctx); err != nil {
		return Description{}, err
	}
	d := Description{Mirror: a.cfg.Mirror, Taken: c.begun, Created: entry.Created, deaf: c.deaf != nil, Notes: slices.Clone(c.notes)}
	if d.Clusters, err = c.find(&c.known); err != nil {
		d.Notes = append(d.Notes, err.(*Error).Message) // to be looked at is no verb, so it is not refused
		d.Clusters = Clusters{SourceID: entry.SourceClusterID, SourceBootstrap: c.settings.shown(bootstrapSetting), DestinationID: c.destinationID, DestinationBootstrap: a.cfg.DestinationBootstrap}
	}
	topics := map[string]Topic{}
	var hidden []string
	why := ""
	for _, name := range c.members(&c.known, nil) {
		t, err := c.reported(name)
		if err != nil && a.cfg.Destination != nil {
			t, err = c.topic(ctx, name)
		}
		if ctx.Err() != nil {
			return Description{}, fmt.Errorf("mirror %s: looking up topic %q at the destination: %w", a.cfg.Mirror, name, ctx.Err())
		}
		if err == nil {
			topics[name] = t
		} else if !errors.Is(err, ErrUnknownTopic) && !errors.Is(err, c.deaf) {
			hidden, why = append(hidden, name), cmp.Or(why, err.Error())
		}
	}
	if len(hidden) > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("the destination could not look up %s: %s", few(hidden), why))
	}
	stored := map[statemachine.Key]statemachine.Entry{}
	if err := a.cfg.States.Load(ctx, func(e statemachine.Entry) error {
		if e.Key.Mirror == a.cfg.Mirror {
			stored[e.Key] = e
		}
		return nil
	}); err != nil {
		if ctx.Err() != nil {
			return Description{}, fmt.Errorf("mirror %s: reading partition states: %w", a.cfg.Mirror, ctx.Err())
		}
		d.StatesError = err.Error()
		d.Notes = append(d.Notes, "the state store does not answer, so states are as they were reported: "+d.StatesError)
	}
	d.unwatched = c.presence(&c.reports, c.deaf, c.begun).unwatched
	d.fill(&c.known, &c.reports, c.settings, topics, stored)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.ClockBehind = c.behind[n.Owner]; n.ClockBehind != 0 {
			d.Notes = append(d.Notes, n.clockNote())
		}
	}
	return d, nil
}

// clockNote says that a clock is wrong.
func (n *DescribedNode) clockNote() string {
	way, by := "behind", n.ClockBehind
	if by < 0 {
		way, by = "ahead of", -by
	}
	return fmt.Sprintf("the clock of %s is about %s %s the one here: set the one that is wrong, or what it says of ages misleads whoever does not look twice", cmp.Or(OneLine(n.Host), n.name()), span(by), way)
}

// plainReference is a reference in the value of a secret that may be shown: it says where the secret is. One with other characters may be a piece of the secret.
var plainReference = regexp.MustCompile(`\$\{(env|file|directory):[A-Za-z0-9_./:-]+\}`)

// fill puts together what is known. It asks nobody, and its only time is Taken.
func (d *Description) fill(s *ControlState, reports *Reports, settings Settings, topics map[string]Topic, stored map[statemachine.Key]statemachine.Entry) {
	d.Settings = make(Settings, len(settings))
	for name := range settings {
		d.Settings[name] = settings.shown(name)
		if d.Settings[name] == hiddenValue {
			d.Settings[name] = strings.Join(append([]string{hiddenValue}, plainReference.FindAllString(settings[name], -1)...), " ")
		}
	}
	heard := map[string]NodeReport{}
	for _, n := range reports.Nodes {
		if n.Mirror != d.Mirror {
			continue
		}
		heard[n.Owner] = n
		x := DescribedNode{NodeReport: n, Silent: d.Taken.Sub(n.Seen) > n.patience(), ClockAhead: ahead(n.Seen, d.Taken)}
		d.Alive = d.Alive || !x.Silent && !x.ClockAhead
		d.Nodes = append(d.Nodes, x)
	}
	known := map[TopicID]bool{}
	for _, t := range topics {
		known[t.ID] = true
	}
	for key, e := range stored {
		if !known[key.TopicID] && e.State.State != statemachine.Stopped && e.State.State != statemachine.Unknown {
			if d.strays == nil {
				d.strays = map[string]int{}
			}
			d.strays[e.State.State.String()]++
		}
	}
	for _, w := range s.Topics {
		mirror, want, err := w.Wish()
		if err != nil || mirror != d.Mirror {
			continue
		}
		t := DescribedTopic{Topic: w.Topic, MirrorName: w.MirrorName, want: want}
		if o, ok := s.Origin(d.Mirror, w.Topic); ok {
			t.Origin = &o
		}
		if known, ok := topics[w.Topic]; ok {
			t.Partitions = d.partitions(known, reports, heard, stored)
		}
		d.Topics = append(d.Topics, t)
	}
	if p, ok := s.Promotion(d.Mirror); ok {
		d.Promotion = &p
	}
	left, err := s.LeftFences(d.Mirror)
	for _, f := range left {
		d.Notes = append(d.Notes, f.String())
	}
	if err != nil {
		d.Notes = append(d.Notes, "a fence was left up at the source, and which one cannot be read: "+err.Error())
	}
	d.LeftFences = left
	d.Failbacks = s.underWay(d.Mirror, func(topic string) bool {
		return slices.ContainsFunc(d.Topics, func(t DescribedTopic) bool { return t.Topic == topic && !t.done() })
	})
	d.fillGroups(s, reports)
	d.Notes = append(d.Notes, denialNotes(s.denials(d.Mirror, s.stoppedNames(d.Mirror)))...)
	d.verdict(settings)
}

// partitions are those of one topic that a report, the state store or the destination knows of.
func (d *Description) partitions(topic Topic, reports *Reports, heard map[string]NodeReport, stored map[statemachine.Key]statemachine.Entry) []DescribedPartition {
	count := topic.Partitions
	for k := range stored {
		if k.TopicID == topic.ID {
			count = max(count, k.Partition+1)
		}
	}
	all := make([]DescribedPartition, count)
	for p := range all {
		x := &all[p]
		x.Partition, x.State = int32(p), statemachine.Unknown.String()
		live := false
		i, reported := slices.BinarySearchFunc(reports.Partitions, PartitionReport{Mirror: d.Mirror, Topic: topic.Name, Partition: x.Partition}, comparePartitionReports)
		if reported && reports.Partitions[i].TopicID == topic.ID {
			r := &reports.Partitions[i]
			x.State, x.Reason, x.RetryAttempt = r.State.String(), r.Reason, r.RetryAttempt
			if x.OpenTransactions = r.OpenTransactions; r.OpenTransactions > 0 {
				x.OpenFrom = KnownNumber(r.OpenFrom)
			}
			x.DestinationEnd, x.Reported, x.Owner, x.LostFrom, x.LostTo, x.start = KnownNumber(r.DestinationEnd), r.At, r.Owner, r.LostFrom, r.LostTo, r.DestinationStart
			if !r.SourceSeen.IsZero() {
				x.SourceEnd, x.SourceSeen = KnownNumber(r.SourceEnd), r.SourceSeen
			}
			if node, ok := heard[r.Owner]; ok && !r.At.Before(node.Opened) {
				x.said = x.State
			}
			// One that is live is reported again when something of it changes; up to when it holds its process says once for all of them.
			if node, ok := heard[r.Owner]; ok && r.Live && !r.At.Before(node.Opened) {
				live = true
				if node.Measured.After(r.SourceSeen) {
					x.SourceSeen = node.Measured
				}
				if node.Measured.After(r.At) {
					x.Reported = node.Measured
				}
			}
		}
		if e, ok := stored[statemachine.Key{Mirror: d.Mirror, TopicID: topic.ID, Partition: x.Partition}]; ok {
			x.stored, x.episode, x.gate = true, &e.State.Episode, gateOf(&e.State)
			if state := e.State.State.String(); state != x.State || e.State.ErrorMessage != "" {
				x.State, x.Reason = state, e.State.ErrorMessage
			}
			x.RetryAttempt = e.State.RetryAttempt
			if e.LME != nil {
				x.LME, x.LMO = KnownNumber(int64(e.LME.Epoch)), KnownNumber(e.LME.Offset)
			}
		}
		source, known := x.SourceEnd.Value()
		copied, there := x.DestinationEnd.Value()
		if known && there && x.State != statemachine.Stopped.String() {
			node, ok := heard[x.Owner]
			now := ok && !ahead(node.Seen, d.Taken) && !ahead(x.Reported, d.Taken) && d.Taken.Sub(node.Seen) <= node.patience() && node.SourceError == "" && x.State == statemachine.Mirroring.String() &&
				!x.Reported.Before(node.Opened) && (live || node.Refresh == 0 && d.Taken.Sub(x.SourceSeen) <= max(sourceSilentAfter, node.patience())) // an older process does not say what is live
			if copied <= source || x.State == statemachine.Mirroring.String() { // one that is longer than the source before it was aligned may lack anything
				x.Lag = Lag{Offsets: KnownNumber(max(0, source-copied)), AtLeast: !now}
			}
		}
	}
	return all
}

// verdict is the head line.
func (d *Description) verdict(settings Settings) {
	sets, err := settings.TopicSets()
	if err != nil {
		d.Notes = append(d.Notes, "its topic sets cannot be read: "+err.Error())
	}
	in := make(map[string]func(topic string) bool, len(sets))
	for name, filter := range sets {
		in[name] = filter.Includes
	}
	d.verdictOf(in)
}

// verdictOf is verdict where it is known what is in which topic set.
func (d *Description) verdictOf(sets map[string]func(topic string) bool) {
	var torn []string
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		if s := d.torn(" of set "+name, sets[name]); s != "" {
			torn = append(torn, s)
		}
	}
	if len(sets) == 0 {
		if s := d.torn("", func(string) bool { return true }); s != "" {
			torn = append(torn, s)
		}
	}
	d.Partial = len(torn) > 0
	groups := map[statemachine.Desired]*standing{}
	failed, partitions := 0, 0
	for _, t := range d.Topics {
		g := groups[t.want]
		if g == nil {
			g = &standing{}
			groups[t.want] = g
		}
		g.topics++
		for _, p := range t.Partitions {
			partitions++
			g.partitions++
			switch p.State {
			case statemachine.Failed.String():
				failed++
			case t.want.String():
				g.there++
			}
		}
		if len(t.Partitions) > 0 {
			continue
		}
		g.unseen++
		if t.want != statemachine.WantStopped && !d.deaf && d.trouble(t.Topic) == "" {
			d.Notes = append(d.Notes, t.Topic+": not taken up by any process yet")
		}
	}
	head := torn
	stopped := cmp.Or(groups[statemachine.WantStopped], &standing{})
	switch all := plural(len(d.Topics), "topic", "topics"); {
	case len(torn) > 0:
	case len(d.Topics) == 0:
		head = append(head, "NO TOPICS")
	case stopped.topics < len(d.Topics):
		head = append(head, inWords(groups[statemachine.WantMirroring], groups[statemachine.WantPaused], stopped))
	case stopped.done():
		head = append(head, "FAILED OVER: "+all)
	case stopped.partitions == 0:
		head = append(head, "STOP RECORDED, NOT KNOWN TO BE DONE: "+all)
	default:
		head = append(head, fmt.Sprintf("STOP RECORDED, NOT DONE: %s, %d of %s open", all, stopped.there, plural(stopped.partitions, "partition", "partitions")))
	}
	if unfinished := stopped.partitions - stopped.there; unfinished > 0 && stopped.topics < len(d.Topics) {
		head = append(head, fmt.Sprintf("%s still to be opened", plural(unfinished, "partition", "partitions")))
	}
	if stopped.unseen > 0 {
		head = append(head, plural(stopped.unseen, "stopped topic", "stopped topics")+" not known to be open")
	}
	for _, state := range slices.Sorted(maps.Keys(d.strays)) {
		head = append(head, fmt.Sprintf("%s %s of topics not known here", plural(d.strays[state], "partition", "partitions"), state))
	}
	if failed > 0 {
		head = append(head, fmt.Sprintf("%d of %s FAILED", failed, plural(partitions, "partition", "partitions")))
	}
	switch unanswered := d.unanswered(); {
	case stopped.topics == len(d.Topics):
	case d.misled():
		head = append(head, anotherCluster)
	case d.sourceless():
		head = append(head, "the source does not answer")
	case d.Alive && unanswered > 0:
		head = append(head, fmt.Sprintf("the source does not answer for %d of %s", unanswered, plural(partitions, "partition", "partitions")))
	}
	if unrun := d.unrun(); unrun != "" {
		head = append(head, unrun)
	}
	if d.Promotion != nil {
		head = append([]string{d.Promotion.line(d.Taken)}, head...)
	}
	if len(d.Failbacks) > 0 {
		head = append(head, d.writable())
	}
	d.Head = strings.Join(head, "; ")
}

// unanswered counts partitions that mirror and of which their process, which is alive, cannot measure the lag any more.
func (d *Description) unanswered() (n int) {
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			alive := slices.ContainsFunc(d.Nodes, func(n DescribedNode) bool { return n.Owner == p.Owner && !n.Silent && !n.ClockAhead })
			if alive && p.State == statemachine.Mirroring.String() && p.Lag.AtLeast {
				n++
			}
		}
	}
	return n
}

// standing is how the topics that are wanted alike are.
type standing struct {
	topics, unseen    int // unseen: no partition of it is known
	partitions, there int // there: in the state that is wanted
}

func (g *standing) done() bool { return g.unseen == 0 && g.there == g.partitions }

// inWords is how a mirror is of which not everything is to be stopped. What is only wanted is not said to be so.
func inWords(mirrored, paused, stopped *standing) string {
	var words []string
	if mirrored != nil {
		topics := plural(mirrored.topics, "topic", "topics")
		switch {
		case mirrored.done():
			words = append(words, "MIRRORING: "+topics)
		case mirrored.partitions == 0:
			words = append(words, "WANTED: "+topics+", 0 partitions mirrored")
		default:
			words = append(words, fmt.Sprintf("WANTED: %s, %d of %s mirrored", topics, mirrored.there, plural(mirrored.partitions, "partition", "partitions")))
		}
	}
	for _, g := range []struct {
		*standing
		word, undone string
	}{{paused, "PAUSED", "TO BE PAUSED"}, {stopped, "STOPPED", "TO BE OPENED"}} {
		if g.standing == nil || g.topics == 0 {
			continue
		}
		word := g.word
		if !g.done() {
			word = g.undone
		}
		if len(words) == 0 {
			words = append(words, word+": "+plural(g.topics, "topic", "topics"))
		} else {
			words = append(words, fmt.Sprintf("%d %s", g.topics, word))
		}
	}
	return strings.Join(words, ", ")
}

// trouble is the reason that a process has why it does not mirror a topic, "" if none has.
func (d *Description) trouble(topic string) string {
	for _, n := range d.Nodes {
		for _, line := range n.Trouble {
			if why, ok := strings.CutPrefix(line, topic+": "); ok {
				return why
			}
		}
	}
	return ""
}

// unrun says that no process is heard of, "" if one is.
func (d *Description) unrun() string { return d.presence().head() }

// Nobody begins a sentence that no process is known to run the mirror, or that this is not known; "" if one is heard of.
func (d Description) Nobody() string { return d.presence().sentence() }

func (d *Description) presence() presence {
	nodes := make([]NodeReport, 0, len(d.Nodes))
	for _, n := range d.Nodes {
		nodes = append(nodes, n.NodeReport)
	}
	p := presenceOf(nodes, d.deaf, d.Taken)
	p.unwatched = p.kind == unheardOf && d.unwatched
	return p
}

// sourceless says that processes run which have asked the source, and that none of them gets an answer.
func (d *Description) sourceless() bool {
	refused := false
	for _, n := range d.Nodes {
		switch {
		case n.Silent || n.ClockAhead || n.SourceError == notAskedYet:
		case n.SourceError == "":
			return false
		default:
			refused = true
		}
	}
	return refused
}

// misled says that a process found another cluster behind the source's address (F-33). It fetches nothing then, so nobody answers it either.
func (d *Description) misled() bool {
	for _, t := range d.Topics {
		if slices.ContainsFunc(t.Partitions, func(p DescribedPartition) bool {
			return p.State == statemachine.Failed.String() && strings.Contains(p.Reason, anotherCluster)
		}) {
			return true
		}
	}
	return false
}

// answered says when the source answered a process last, as far as its reports tell.
func (d *Description) answered(n DescribedNode) string {
	if n.SourceError != "" {
		return n.SourceError
	}
	if n.Silent || n.ClockAhead {
		return "unknown"
	}
	var last time.Time
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			if p.Owner == n.Owner && p.SourceSeen.After(last) && !ahead(p.SourceSeen, d.Taken) {
				last = p.SourceSeen
			}
		}
	}
	if n.Seen.Sub(last) > sourceSilentAfter { // it is not asked about partitions that are not copied
		return "no failure"
	}
	return "answered " + age(d.Taken.Sub(last))
}

// torn says which of some topics are stopped and which are not; "" if they are all the one or all the other. One that is to be stopped is not before every partition is STOPPED.
func (d *Description) torn(of string, in func(topic string) bool) string {
	const opening = "TO BE OPENED"
	by := map[string][]string{}
	n, wanted := 0, 0
	for _, t := range d.Topics {
		if !in(t.Topic) {
			continue
		}
		word := t.want.String()
		if t.want == statemachine.WantStopped {
			wanted++
			if !t.done() {
				word = opening
			}
		}
		by[word] = append(by[word], t.Topic)
		n++
	}
	stopped := len(by[statemachine.Stopped.String()])
	if stopped == n || wanted == 0 || wanted == n && stopped == 0 {
		return ""
	}
	var lists []string
	for _, word := range []string{statemachine.Stopped.String(), opening, statemachine.Mirroring.String(), statemachine.Paused.String()} {
		if names := by[word]; len(names) > 0 {
			const most = 3
			list := strings.Join(names[:min(len(names), most)], ", ")
			if len(names) > most {
				list += " …"
			}
			lists = append(lists, word+" "+list)
		}
	}
	return fmt.Sprintf("PARTIALLY FAILED OVER: %d of %s%s (%s)", stopped, plural(n, "topic", "topics"), of, strings.Join(lists, "; "))
}

// span is an age without "ago".
func span(d time.Duration) string { return strings.TrimSuffix(age(d), " ago") }

// String is the description for a person: the verdict first, then who runs the mirror, its partitions and its settings.
func (d Description) String() string {
	var t planText
	if d.Mirror == "" {
		return "no mirror is described\n"
	}
	t.line("%s", d.Head)
	t.line("mirror %s  %s", d.Mirror, stamp(d.Taken))
	t.line("%s", d.Clusters)
	if len(d.Groups) > 0 {
		t.line("%s", d.groupsLine())
	}
	if line := d.riskLine(); line != "" {
		t.line("%s", line)
		t.line("%s", predictionLine(d.Prediction(), d.Taken))
	}
	if line := d.keptLine(); line != "" {
		t.line("%s", line)
	}
	if len(d.Nodes) > 0 {
		var rows [][]string
		for _, n := range d.Nodes {
			word := "seen " + age(d.Taken.Sub(n.Seen))
			switch {
			case n.ClockAhead:
				word = n.age(d.Taken)
			case n.Silent:
				word = fmt.Sprintf("no word for %s by its clock: it is not running or cannot write", span(d.Taken.Sub(n.Seen)))
			}
			rows = append(rows, []string{n.name(), n.Host, fmt.Sprint(n.PID), stamp(n.Opened), word, d.answered(n)})
		}
		t.line("")
		t.table([]string{"NODE", "HOST", "PID", "SINCE", "HEARD OF", "SOURCE"}, rows)
		if lines := append(d.versions(), d.syncLines()...); len(lines) > 0 {
			t.line("")
			for _, line := range lines {
				t.line("%s", line)
			}
		}
	}
	var rows, notes [][]string
	for _, topic := range d.Topics {
		rows = append(rows, d.rows(topic)...)
		for _, p := range topic.Partitions {
			name := fmt.Sprintf("%s-%d", topic.Topic, p.Partition)
			if p.Reason != "" {
				notes = append(notes, []string{name, p.Reason})
			}
			switch {
			case p.RetryAttempt == statemachine.NonRetryable:
				notes = append(notes, []string{name, "it is not tried again by itself: mend what it says, then Recover"})
			case p.RetryAttempt > 0:
				notes = append(notes, []string{name, fmt.Sprintf("attempt %d has failed, it is tried again", p.RetryAttempt)})
			}
			if p.OpenTransactions > 0 {
				notes = append(notes, []string{name, p.open() + " are open; a stop aborts them"})
			}
			if p.LostTo > p.LostFrom {
				notes = append(notes, []string{name, fmt.Sprintf("[%d,%d) was gone at the source before it could be copied", p.LostFrom, p.LostTo)})
			}
		}
		if o := topic.Origin; o != nil && len(o.Upstream) > 0 {
			notes = append(notes, []string{topic.Topic, fmt.Sprintf("the source %s has it from %s", o.SourceClusterID, strings.Join(o.Upstream, ", which has it from "))})
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table(partitionColumns, rows)
	}
	if len(d.Settings) > 0 {
		t.line("")
		for _, name := range settingNames(d.Settings) {
			t.line("%s=%s", name, d.Settings[name])
		}
	}
	for _, n := range d.Nodes {
		for _, trouble := range n.Trouble {
			notes = append(notes, []string{"node " + n.name(), trouble})
		}
		if n.Verification != nil {
			for _, w := range n.Verification.Wrong {
				notes = append(notes, []string{fmt.Sprintf("%s-%d", w.Topic, w.Partition), w.words()})
			}
		}
	}
	if len(notes)+len(d.Notes) > 0 {
		t.line("")
	}
	for _, n := range notes {
		t.line("%s: %s", n[0], n[1])
	}
	for _, n := range d.Notes {
		t.line("%s", n)
	}
	return t.String()
}

// open is how many transactions are open, and from where.
func (p *DescribedPartition) open() string {
	return fmt.Sprintf("%s from offset %s", plural(p.OpenTransactions, "transaction", "transactions"), p.OpenFrom)
}

// versions says what each process runs that is heard of, where they do not run the same.
func (d *Description) versions() []string {
	var list []string
	differ := false
	first := ""
	for _, n := range d.Nodes {
		if n.Silent {
			continue
		}
		version := OneLine(cmp.Or(n.Version, "unknown"))
		first = cmp.Or(first, version)
		differ = differ || version != first
		list = append(list, n.name()+" "+version)
	}
	if !differ {
		return nil
	}
	return []string{"versions: " + strings.Join(list, ", ")}
}

// syncLines say how topic settings and access rules are followed, one line for each part and process that is heard of; groups have a line of their own, and one here when they are not followed. Of a
// process that has just begun nothing is said before its first look.
func (d *Description) syncLines() (lines []string) {
	running := 0
	for _, n := range d.Nodes {
		if !n.Silent {
			running++
		}
	}
	for _, n := range d.Nodes {
		of := ""
		if running > 1 {
			of = " of node " + n.name()
		}
		for _, part := range []struct {
			name string
			said *SyncReport
		}{{"groups", n.Groups}, {"topic settings", n.Settings}, {"access rules", n.AccessRules}} {
			begins := part.said != nil && part.said.At.IsZero() && part.said.Off == "" && part.said.Error == "" && d.Taken.Sub(n.Opened) <= 2*cmp.Or(n.Refresh, n.interval())
			if n.Silent || part.said == nil || begins || part.said == n.Groups && part.said.fine() {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s%s: %s", part.name, of, part.said.words(d.Taken)))
		}
		if v := n.Verification; v != nil && !n.Silent {
			lines = append(lines, fmt.Sprintf("verification%s: %s", of, v.words(d.Taken)))
		}
	}
	return lines
}

// fine says that a look came to its end and left nothing alone.
func (s *SyncReport) fine() bool {
	return s.Off == "" && s.Error == "" && !s.At.IsZero() && len(s.Skipped) == 0
}

// words is how the part stands, in one line.
func (s *SyncReport) words(now time.Time) string {
	looked := "never looked at"
	if !s.At.IsZero() {
		looked = "looked at " + ageAt(s.At, now)
	}
	switch {
	case s.Off != "":
		return "not followed: " + OneLine(s.Off)
	case s.Error != "":
		return fmt.Sprintf("HINDERED, %s: %s", looked, OneLine(s.Error))
	case s.At.IsZero():
		return notLookedYet
	case len(s.Skipped) > 0:
		return fmt.Sprintf("%s, and some were left alone: %s", looked, OneLine(few(s.Skipped)))
	}
	return "fine, " + looked
}

// partitionColumns are those of the table of partitions.
var partitionColumns = []string{"PARTITION", "STATE", "SOURCE END", "DESTINATION END", "LAG", "LME", "LMO"}

func (d *Description) rows(topic DescribedTopic) (rows [][]string) {
	for _, p := range topic.Partitions {
		lag := p.Lag.String()
		if p.State == statemachine.Stopped.String() {
			lag = "-"
		}
		rows = append(rows, []string{fmt.Sprintf("%s-%d", topic.Topic, p.Partition), p.State, d.seen(p.SourceEnd, p.SourceSeen), d.seen(p.DestinationEnd, p.Reported), lag, dash(p.LME), dash(p.LMO)})
	}
	return rows
}

// Partitions is the part of String about the partitions of these topics, for whoever is about to stop them: LAG is what the copy lacks if nothing more is copied. A topic of which
// no partition is known is said to be one. What CautionOf says of the topics stands below.
func (d Description) Partitions(topics ...string) string {
	var t planText
	var rows [][]string
	var unseen []string
	for _, x := range d.Topics {
		if !slices.Contains(topics, x.Topic) {
			continue
		}
		if len(x.Partitions) == 0 {
			unseen = append(unseen, x.Topic)
		}
		rows = append(rows, d.rows(x)...)
	}
	if len(rows) > 0 {
		t.table(partitionColumns, rows)
	}
	if len(unseen) > 0 {
		t.line("no partition is known of %s", few(unseen))
	}
	if notes := cautionNotes(topics); len(notes) > 0 {
		t.line("")
		for _, note := range notes {
			t.line("%s", note)
		}
	}
	return t.String()
}

func (d *Description) seen(n Number, at time.Time) string {
	if _, known := n.Value(); !known || at.IsZero() {
		return "unknown"
	}
	if ahead(at, d.Taken) {
		return fmt.Sprintf("%s, seen by a clock that is ahead", n)
	}
	return fmt.Sprintf("%s, seen %s", n, age(d.Taken.Sub(at)))
}

func dash(n Number) string {
	if _, known := n.Value(); !known {
		return "-"
	}
	return n.String()
}
