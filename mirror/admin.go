package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// StateReader is the part of a statemachine.StateStore that Admin needs: every StateStore has it.
type StateReader interface {
	Load(ctx context.Context, each func(statemachine.Entry) error) error
}

// TopicLookup is the part of a Destination that Admin needs: every Destination has it.
type TopicLookup interface {
	ClusterID(ctx context.Context) (string, error)
	Topic(ctx context.Context, name string) (Topic, error)
}

// AdminConfig is what an Admin is made of. Mirror, Control and States must be set. States and Destination are read only.
type AdminConfig struct {
	Mirror  string
	Control Control
	States  StateReader
	// Destination may be nil in a process that has none: topics are then known by the desired state and by what other processes reported.
	Destination TopicLookup
	// DestinationAssumed says that Destination is the cluster that keeps the desired state. It is asked as the destination as long as no process of the mirror has reported another
	// one; then verbs are about that one, and topics are those that were reported. That it does not know a topic which was reported does not count either.
	DestinationAssumed bool
	// OpenSource opens the source from a mirror's settings; the Admin closes it again. nil: no verb asks a source. Only Create, Start, and an AlterConfig of topic filters or of the
	// connection do, and all three do without an answer. An error that is an *Error with InvalidConfig to errors.Is says that these settings can never work: Create and AlterConfig refuse
	// them.
	OpenSource func(ctx context.Context, settings Settings) (Source, error)
	// Operator is who uses the verbs, for the history.
	Operator Operator
	// Strict asks for an Intent wherever something is opened for clients, discarded or deleted: Stop, Delete, Failback, Start where it is given consents or adopts a topic, and Start and
	// AlterConfig where topics are excluded that are stopped by that. It needs a Reason, and the Plan of a dry run or the DestinationClusterID. A dry run needs none.
	// Where nobody says the destination's cluster id, the moment of the mirror's creation tells its plans from those for other stores; without both a plan is not enough.
	Strict bool
	// SourceClusterID and DestinationClusterID pin the two sides: verbs are refused when they find other clusters. "" pins nothing.
	SourceClusterID      string
	DestinationClusterID string
	// DestinationBootstrap is how the destination is reached, to be shown beside its id. "" shows nothing.
	DestinationBootstrap string
}

// Admin has the verbs of one mirror. A verb checks, then records what is wanted in the Control; success means recorded. A Mirror, in this process or another one,
// follows. None of them needs a source, so each works while the source is dead. Safe for concurrent use.
//
// Verbs about topics return one result for each topic, in the order of the request; what is refused is refused alone. A name given twice is handled twice, and the second
// time changes nothing. The error is nil only if every topic succeeded: it is the first topic's error, or that of the whole request, and then nothing was recorded and
// there are no results for topics. Errors of the request are *Error; others are the Control's, the store's, or the context's end.
//
// Every verb may be refused with InvalidRequest because of its Intent: the clusters found are not those that the caller, the settings or the AdminConfig name, or what would
// be done is not what Intent.Plan says. Nothing is written then. DryRun does all that the verb does, except that nothing is written: what cannot be recorded is refused by it
// too. Only whether the storage answers, and whether this user may write there, is not known before.
type Admin struct {
	cfg AdminConfig
	// embedded: the verbs of a Mirror that runs in this process and has its Source from Go. Its mirror exists because it runs, unless it was deleted. One that opens its source
	// from settings exists once somebody has created it with them.
	embedded bool
	borrowed Source // of an embedded one whose Source was given in Go; not closed
	runs     bool   // the verbs of a Mirror that runs in this process
	now      func() time.Time
	pulses   *pulses
}

// NewAdmin returns the verbs of the mirror of that name; whether that mirror exists is seen by each verb. Errors: *Error with InvalidRequest for a name that
// statemachine.CheckMirrorName refuses, and for a field that is missing.
func NewAdmin(cfg AdminConfig) (*Admin, error) {
	if err := statemachine.CheckMirrorName(cfg.Mirror); err != nil {
		return nil, &Error{Code: InvalidRequest, Mirror: cfg.Mirror, Partition: -1, Message: "not a mirror name", Err: err}
	}
	if cfg.Control == nil || cfg.States == nil {
		return nil, &Error{Code: InvalidRequest, Mirror: cfg.Mirror, Partition: -1, Message: "an Admin needs a Control and a StateReader"}
	}
	cfg.Operator = cfg.Operator.complete()
	return &Admin{cfg: cfg, now: time.Now, pulses: &pulses{}}, nil
}

// newAdmin returns the verbs of a Mirror with this Config; the name was checked.
func newAdmin(c *Config) *Admin {
	return &Admin{
		cfg: AdminConfig{
			Mirror: c.Name, Control: c.Control, States: c.Store, Destination: c.Destination, OpenSource: c.OpenSource, SourceClusterID: c.SourceClusterID,
			Operator: Operator{}.complete(),
		},
		embedded: c.OpenSource == nil, borrowed: c.Source, runs: true, now: time.Now, pulses: &pulses{},
	}
}

// complete fills what is not said from the process.
func (o Operator) complete() Operator {
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	if o.User == "" {
		if u, err := user.Current(); err == nil {
			o.User = u.Username
		} else {
			o.User = strconv.Itoa(os.Getuid()) // nobody has given this number a name
		}
	}
	if o.Client == "" && len(os.Args) > 0 {
		o.Client = filepath.Base(os.Args[0])
	}
	return o
}

// askBound is the longest time that a verb asks a destination for its cluster id or for one topic, or a source, before it goes on without the answer.
const askBound = 5 * time.Second

// call is one use of a verb, from the look at what there is to the write.
type call struct {
	*Admin
	verb   string
	dryRun bool
	intent Intent
	begun  time.Time
	// request is what makes two calls the same, for the plan. The Intent and DryRun are no part of it.
	request []string

	known    ControlState // when the call began
	settings Settings     // of the mirror as they are, or as Create gives them
	reports  Reports
	behind   map[string]time.Duration // by how much clocks of owners are behind the one here, where their reports were translated
	deaf     error                    // why the reports cannot be read, nil if they were

	stored []statemachine.Entry // of this mirror, where look has looked

	sourceID      string        // as it said itself just now, "" if it was not asked
	destinationID string        // as it said itself just now, or as a process reported it
	destinationBy string        // who says so
	elsewhere     bool          // Destination is not the destination: a process reported another one
	who           bool          // askDestination was here
	wasted        time.Duration // how long questions to the destination took that it did not answer
	planned       Clusters      // that a failback's plan names
	failback      *Failback     // what a start with consents, or a failback, begins
	born          string        // when the mirror was created, "" if that is not recorded
	warnings      []string
	notes         []string
}

// begin reads what is known before anything is asked.
func (a *Admin) begin(ctx context.Context, verb string, dryRun bool, intent Intent, request ...any) (*call, error) {
	c := &call{Admin: a, verb: verb, dryRun: dryRun, intent: intent, begun: a.now()}
	for _, r := range request {
		if names, ok := r.([]string); ok {
			c.request = append(c.request, fmt.Sprintf("%q", names)) // none and nil are the same
		} else {
			c.request = append(c.request, fmt.Sprintf("%v", r))
		}
	}
	if fault := intent.fault(); fault != "" {
		return c, c.refuse(InvalidRequest, "", "%s; nothing has changed", fault)
	}
	var err error
	if c.known, err = a.cfg.Control.Read(ctx); err != nil {
		return c, a.controlFailed("reading the desired state", err)
	}
	if entry, ok := c.known.Mirror(a.cfg.Mirror); ok {
		c.settings = entry.Settings
	}
	if c.reports, c.behind, err = a.hear(ctx); err != nil {
		if ctx.Err() != nil {
			return c, fmt.Errorf("mirror %s: reading reports, nothing has changed: %w", a.cfg.Mirror, ctx.Err())
		}
		c.reports, c.deaf = Reports{}, err // they only help: a verb must not fail for want of them
		c.notes = append(c.notes, deafNote+err.Error())
	}
	c.skip()
	return c, nil
}

// skip says which reports on this mirror cannot be read. Without one of a process nothing is known of processes; others are left out alone.
func (c *call) skip() {
	var left []string
	for _, u := range c.reports.Unread {
		switch {
		case u.Mirror == c.cfg.Mirror && u.Node:
			c.reports, c.behind, c.deaf = Reports{}, nil, u.Err
			c.notes = append(c.notes, deafNote+u.Err.Error())
			return
		case u.Mirror == c.cfg.Mirror:
			left = append(left, u.Err.Error())
		}
	}
	if len(left) > 0 {
		c.notes = append(c.notes, "some of what processes said cannot be read: "+few(left))
	}
}

// deafNote begins the note on reports that cannot be read.
const deafNote = "reports cannot be read, so nothing is known here of what processes said last: "

// askDestination learns the destination's cluster id. Only where there is nobody to ask, or no answer, it is what a process of this mirror reported last, and a note says how
// long ago, unless the process is heard of now: the destination may be another one since. A destination that does not answer stops no verb by that.
func (c *call) askDestination(ctx context.Context) error {
	if c.who {
		return nil
	}
	c.who = true
	why := "no destination can be asked here"
	if c.cfg.Destination != nil {
		id, err := ask(ctx, c, c.cfg.Destination.ClusterID)
		if ctx.Err() != nil {
			return fmt.Errorf("mirror %s: asking the destination for its cluster id, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
		}
		if err == nil && id != "" {
			c.destinationID, c.destinationBy = id, "the destination itself"
			if n := c.newestNode(); c.cfg.DestinationAssumed && n != nil && n.DestinationID != id {
				c.elsewhere, c.destinationID, c.destinationBy = true, n.DestinationID, fmt.Sprintf("process %s, %s,", n.name(), n.age(c.begun))
				if !n.alive(c.begun) {
					c.notes = append(c.notes, fmt.Sprintf("the destination is %s, as process %s said it, %s; the desired state is kept in another cluster, %s", n.DestinationID, n.name(), n.age(c.begun), id))
				}
			}
			return nil
		}
		why = "the destination did not say it"
		if err != nil {
			why += ": " + err.Error()
		}
	}
	if newest := c.newestNode(); newest != nil {
		c.destinationID, c.destinationBy = newest.DestinationID, fmt.Sprintf("process %s, %s,", newest.name(), newest.age(c.begun))
		if c.cfg.Destination == nil && newest.alive(c.begun) {
			return nil // who runs and writes there says it now
		}
		c.notes = append(c.notes, fmt.Sprintf("the destination's cluster id is as process %s said it, %s: %s", newest.name(), newest.age(c.begun), why))
	}
	return nil
}

// newestNode is the newest report of a process of this mirror that says which cluster it writes to; nil: there is none.
func (c *call) newestNode() (newest *NodeReport) {
	if c.verb == verbCreate {
		return nil // what was said of an earlier mirror of that name does not count for this one
	}
	entry, _ := c.known.Mirror(c.cfg.Mirror)
	for i, n := range c.reports.Nodes {
		if n.Mirror == c.cfg.Mirror && n.DestinationID != "" && !n.Seen.Before(entry.Created) && (newest == nil || n.Seen.After(newest.Seen)) {
			newest = &c.reports.Nodes[i]
		}
	}
	return newest
}

// ask puts one question to the destination. All that it does not answer may take askBound together, so a verb waits for a silent one once, however many topics it is about.
func ask[T any](ctx context.Context, c *call, question func(context.Context) (T, error)) (answer T, err error) {
	left := askBound - c.wasted
	if left <= 0 {
		return answer, fmt.Errorf("the destination has not answered for %s", askBound)
	}
	bounded, stop := context.WithTimeout(ctx, left)
	defer stop()
	began := time.Now()
	if answer, err = question(bounded); err != nil && !errors.Is(err, ErrUnknownTopic) {
		c.wasted += time.Since(began)
	}
	return answer, err
}

// askSource opens the mirror's source, learns its cluster id and lets f ask more, all within askBound. canAsk is false where there is no source to ask.
func (c *call) askSource(ctx context.Context, f func(ctx context.Context, source Source) error) (canAsk bool, err error) {
	if c.borrowed == nil && c.cfg.OpenSource == nil {
		return false, nil
	}
	ctx, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	source := c.borrowed
	if source == nil {
		if source, err = c.cfg.OpenSource(ctx, c.settings); err != nil {
			if c.settings.Effective(bootstrapSetting) == "" {
				err = errNoAddress // whoever opens it may say so at any length
			}
			return true, err
		}
		defer func() { _ = source.Close() }() // what it said stands, however its connections end
	}
	info, err := source.Cluster(ctx)
	if err != nil {
		return true, err
	}
	c.sourceID = info.ID
	return true, f(ctx, source)
}

// errNoAddress: a mirror whose process has its Source from Go need not say where that is, and then no verb elsewhere can ask it.
var errNoAddress = errors.New("the mirror's settings have no bootstrap.servers, so only its own process can ask the source; record it with AlterConfig, as by the line bootstrap.servers=HOST:PORT")

// neverOpens refuses settings with which no source can ever be opened. nil: err says nothing of that kind.
func (a *Admin) neverOpens(err error) error {
	if !errors.Is(err, &Error{Code: InvalidConfig}) {
		return nil
	}
	return a.failed(InvalidConfig, "", err, "no source can be opened with these settings; nothing has changed")
}

// thePlan is who names the clusters of a failback.
const thePlan = "the plan"

// find puts together which clusters the mirror is between, and refuses when somebody named others.
func (c *call) find(s *ControlState) (Clusters, error) {
	entry, there := s.Mirror(c.cfg.Mirror)
	settings := c.settings
	if there && c.verb != verbAlter {
		settings = entry.Settings
	}
	type claim struct{ who, id string }
	sources := []claim{
		{"the source itself", c.sourceID},
		{"the desired state", entry.SourceClusterID},
		{"setting " + sourceClusterIDSetting, settings[sourceClusterIDSetting]},
		{"this process's configuration", c.cfg.SourceClusterID},
		{thePlan, c.planned.SourceID},
		{"the caller", c.intent.SourceClusterID},
	}
	destinations := []claim{
		{c.destinationBy, c.destinationID},
		{"setting " + destinationClusterIDSetting, settings[destinationClusterIDSetting]},
		{"this process's configuration", c.cfg.DestinationClusterID},
		{thePlan, c.planned.DestinationID},
		{"the caller", c.intent.DestinationClusterID},
	}
	agree := func(side string, claims []claim) (string, error) {
		claims = slices.DeleteFunc(claims, func(c claim) bool { return c.id == "" })
		for _, x := range claims {
			if x.id != claims[0].id {
				return "", c.refuse(InvalidRequest, "", "%s cluster ids differ: %s has %s, %s names %s; correct the one that is wrong. Nothing has changed",
					side, claims[0].who, claims[0].id, x.who, x.id)
			}
		}
		if len(claims) == 0 || claims[0].who == "the caller" || claims[0].who == thePlan {
			return "", nil // what only the caller and his plan say is not known
		}
		return claims[0].id, nil
	}
	found := Clusters{SourceBootstrap: settings.shown(bootstrapSetting), DestinationBootstrap: c.cfg.DestinationBootstrap}
	if c.elsewhere {
		found.DestinationBootstrap = "" // that of the cluster with the desired state
	}
	var err error
	if found.SourceID, err = agree("source", sources); err != nil {
		return found, err
	}
	if found.DestinationID, err = agree("destination", destinations); err != nil {
		return found, err
	}
	return found, nil
}

// unchecked are notes on what the caller named and nobody could confirm.
func (c *call) unchecked(found Clusters) []string {
	var notes []string
	if id := cmp.Or(c.intent.SourceClusterID, c.planned.SourceID); id != "" && found.SourceID == "" {
		notes = append(notes, "the source's cluster id is not known yet, so it was not compared with "+id)
	}
	if id := cmp.Or(c.intent.DestinationClusterID, c.planned.DestinationID); id != "" && found.DestinationID == "" {
		notes = append(notes, "the destination's cluster id is not known here, so it was not compared with "+id)
	}
	return notes
}

// strict refuses what opens, discards or deletes without saying why and where (AdminConfig.Strict).
func (c *call) strict(what string, found Clusters) error {
	switch {
	case !c.cfg.Strict || c.dryRun:
		return nil
	case c.intent.Reason == "":
		return c.refuse(InvalidRequest, "", "%s needs a reason (Intent.Reason); nothing has changed", what)
	case c.intent.Plan == "" && c.intent.DestinationClusterID == "":
		return c.refuse(InvalidRequest, "", "%s needs the plan of a dry run (Intent.Plan) or the destination's cluster id (Intent.DestinationClusterID); nothing has changed", what)
	case found.DestinationID == "" && c.born == "":
		return c.refuse(InvalidRequest, "", "%s cannot be confirmed: neither the destination's cluster id nor the moment of the mirror's creation is known here, so a plan fits any store; "+
			"name the cluster (AdminConfig.DestinationClusterID or setting %s). Nothing has changed", what, destinationClusterIDSetting)
	case c.intent.Plan == "" && found.DestinationID == "":
		return c.refuse(InvalidRequest, "", "%s in destination %s cannot be confirmed: its cluster id is not known here; make a dry run and give its plan. Nothing has changed",
			what, c.intent.DestinationClusterID)
	}
	return nil
}

// exists returns the mirror's entry. Whoever runs a mirror that is described in Go has created it by that, so an embedded Admin gets a new one. Errors: UnknownClusterMirror.
func (c *call) exists(s *ControlState) (MirrorEntry, error) {
	entry, ok := s.Mirror(c.cfg.Mirror)
	if ok {
		return entry, nil
	}
	if d, deleted := s.DeletedMirror(c.cfg.Mirror); deleted {
		return entry, c.refuse(UnknownClusterMirror, "", "the mirror was deleted at %s; Create makes it again", stamp(d.At))
	}
	if !c.embedded {
		return entry, c.refuse(UnknownClusterMirror, "", "there is no such mirror; check the name, List shows all, Create makes it")
	}
	return MirrorEntry{Name: c.cfg.Mirror, SourceClusterID: c.cfg.SourceClusterID, Created: c.begun}, nil
}

// historyTopics is how many topics an entry of the history names: it is one record, and storage bounds those. A stop of a hundred thousand topics must not fail for its entry.
const historyTopics = 1000

// outcome is what a decision adds to the result besides the topics.
type outcome struct {
	changed bool     // of the mirror itself
	detail  string   // for the history
	plan    []string // what is decided besides the topics
	notes   []string
}

// commit lets decide work on the newest desired state and writes what it decided in one step, with the entry for the history.
func (c *call) commit(ctx context.Context, decide func(s *ControlState, r *Result) (outcome, error)) (Result, error) {
	blank := Result{Verb: c.verb, Mirror: c.cfg.Mirror, DryRun: c.dryRun}
	var r Result
	var refusal error
	change := func(s *ControlState) error {
		r, refusal = blank, nil // a second call begins anew
		r.Warnings, r.Notes = slices.Clone(c.warnings), slices.Clone(c.notes)
		if refusal = c.decide(s, &r, decide); refusal != nil {
			r = blank
		}
		return refusal
	}
	var err error
	if c.dryRun {
		var s ControlState
		if s, err = c.cfg.Control.Read(ctx); err == nil {
			before := s.Clone()
			if err = change(&s); err == nil {
				err = rehearse(before, s)
			}
		}
	} else {
		err = c.cfg.Control.Update(ctx, change)
	}
	switch {
	case err == nil:
		for _, t := range r.Topics {
			if t.Err != nil {
				return r, t.Err
			}
		}
		return r, nil
	case refusal != nil:
		return blank, refusal
	case errors.Is(err, keyedlog.ErrOutcomeUnknown), ctx.Err() != nil && !c.dryRun && !errors.Is(err, keyedlog.ErrNothingWritten):
		return blank, fmt.Errorf("mirror %s: it is not known whether the desired state was recorded; look at it, or use the verb again: %w", c.cfg.Mirror, err)
	}
	return blank, c.controlFailed("recording the desired state", err)
}

// controlFailed is an error of the Control before anything was written.
func (a *Admin) controlFailed(what string, err error) error {
	if errors.Is(err, keyedlog.ErrDenied) {
		return &Error{Code: ClusterMirrorAuthorizationFailed, Mirror: a.cfg.Mirror, Partition: -1, Message: "this user may not do this; nothing has changed", Err: err}
	}
	if errors.Is(err, errRecordTooLarge) {
		return a.failed(InvalidRequest, "", err, "it cannot be recorded; nothing has changed")
	}
	return fmt.Errorf("mirror %s: %s failed, nothing has changed: %w", a.cfg.Mirror, what, err)
}

func (c *call) decide(s *ControlState, r *Result, decide func(*ControlState, *Result) (outcome, error)) error {
	var err error
	if r.Clusters, err = c.find(s); err != nil {
		return err
	}
	c.born = ""
	if entry, recorded := s.Mirror(c.cfg.Mirror); recorded && !entry.Created.IsZero() {
		c.born = entry.Created.UTC().Format(time.RFC3339Nano)
	}
	r.Notes = append(r.Notes, c.unchecked(r.Clusters)...)
	o, err := decide(s, r)
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, o.notes...)
	if err := c.confirm(s, r, o); err != nil {
		return err
	}
	var changed []string
	succeeded := o.changed
	for _, t := range r.Topics {
		succeeded = succeeded || t.Err == nil
		if t.Changed && !slices.Contains(changed, t.Topic) {
			changed = append(changed, t.Topic)
		}
	}
	if _, ok := s.Mirror(c.cfg.Mirror); !ok && c.embedded && succeeded && c.verb != verbDelete {
		if entry, err := c.exists(s); err == nil {
			s.SetMirror(entry)
		}
	}
	if len(changed) > 0 || o.changed {
		o.detail = strings.TrimSpace(c.intent.detail + " " + o.detail)
		if more := len(changed) - historyTopics; more > 0 {
			changed, o.detail = changed[:historyTopics], strings.TrimSpace(fmt.Sprintf("%s and %d more topics", o.detail, more))
		}
		s.Note = &HistoryEntry{
			Time: c.begun, Verb: c.verb, Mirror: c.cfg.Mirror, Topics: changed, Who: c.cfg.Operator, Reason: c.intent.Reason, Plan: r.Plan, Detail: o.detail,
		}
	}
	return nil
}

// confirm names what would be done, and refuses when a plan is given that says something else. Nothing that moves by itself is in it: no offsets, states, ages or versions.
func (c *call) confirm(s *ControlState, r *Result, o outcome) error {
	decisions := slices.Clone(o.plan)
	for _, t := range r.Topics {
		wish, _ := s.Topic(t.Topic) // consents and requests to recover are used up by the mirror; those that are given are in the request
		decisions = append(decisions, t.Topic, errorCode(t.Err).String(), fmt.Sprint(t.Changed), wish.MirrorName, wish.AdoptedFrom)
	}
	clusters := []string{r.Clusters.SourceID, r.Clusters.DestinationID}
	if r.Clusters.DestinationID == "" {
		clusters = append(clusters, c.born) // else a plan fits every store that has a mirror and topics of the same names
	}
	r.Plan = planHash(append([]string{c.verb, c.cfg.Mirror}, c.request...), clusters, decisions)
	if c.intent.Plan == "" || c.intent.Plan == r.Plan {
		return nil
	}
	if !o.changed && sameRequest(c.intent.Plan, r.Plan) && !slices.ContainsFunc(r.Topics, func(t TopicResult) bool { return t.Changed || t.Err != nil }) {
		return nil // the verb is repeated, and all that the plan was for is so already
	}
	var now []string
	for _, t := range r.Topics {
		if t.Changed || t.Err != nil {
			now = append(now, fmt.Sprintf("%s %s", t.Topic, cmp.Or(strings.TrimPrefix(errorCode(t.Err).String(), OK.String()), "changes")))
		}
	}
	return c.refuse(InvalidRequest, "", "plan %s does not fit any more: %s (now %s, plan %s: %s); make a dry run again. Nothing has changed",
		c.intent.Plan, planDifference(c.intent.Plan, r.Plan), r.Clusters, r.Plan, cmp.Or(few(now), "no topic changes"))
}

func errorCode(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return OK
}

// few is the first few of many names.
func few(words []string) string {
	return fewOf(words, len(words))
}

// fewOf is few, of all of which only some are named.
func fewOf(words []string, all int) string {
	const most = 5
	named := words[:min(len(words), most)]
	s := strings.Join(named, ", ")
	if all > len(named) {
		s += fmt.Sprintf(" and %d more", all-len(named))
	}
	return s
}

func (a *Admin) refuse(code Code, topic, format string, args ...any) error {
	return &Error{Code: code, Mirror: a.cfg.Mirror, Topic: topic, Partition: -1, Message: fmt.Sprintf(format, args...)}
}

func (a *Admin) failed(code Code, topic string, err error, message string) error {
	return &Error{Code: code, Mirror: a.cfg.Mirror, Topic: topic, Partition: -1, Message: message, Err: err}
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return " (" + message + ")"
}

// History returns what was done to this mirror, oldest first, as far as the Control keeps it; also of a mirror that was deleted.
func (a *Admin) History(ctx context.Context) ([]HistoryEntry, error) {
	all, err := a.cfg.Control.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: reading the history: %w", a.cfg.Mirror, err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(e HistoryEntry) bool { return e.Mirror != a.cfg.Mirror }), nil
}
