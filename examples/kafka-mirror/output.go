package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/node"
)

// errDeclined: the operator was asked and did not say yes.
var errDeclined = errors.New("not confirmed; nothing has changed")

// shownError is the error of a topic, which the result has shown already.
type shownError struct{ error }

func (e *shownError) Unwrap() error { return e.error }

// exitStatus is told in the package's text.
func exitStatus(err error) int {
	var e *mirror.Error
	var ended *endedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.status
	case errors.Is(err, node.ErrThrownOut):
		return 7
	case errors.As(err, new(*passingError)):
		return 3
	case errors.As(err, new(*node.FileError)):
		return 2
	case errors.As(err, new(*shownError)), errors.Is(err, errDeclined), errors.As(err, new(refusal)), errors.Is(err, node.ErrStays):
		return 1
	case errors.As(err, &e):
		switch e.Code {
		case mirror.InvalidRequest, mirror.InvalidConfig, mirror.InvalidRegularExpression, mirror.ClusterMirrorAuthorizationFailed:
			return 2
		}
		return 1
	case errors.As(err, new(usageError)), errors.As(err, new(*mirror.SettingError)), kafkaconfig.Find(err) != nil, errors.As(err, new(*kafkastore.AccessError)),
		errors.As(err, new(*kafkastore.TopicError)), errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return 2
	}
	return 3
}

// inFlags are the library's names of what the operator has to do, and this program's.
var inFlags = strings.NewReplacer("Intent.Reason", "--reason", "Intent.Plan", "--plan", "Intent.DestinationClusterID", "--destination-cluster-id", "(Partial)", "(--partial)",
	"(Config.ReplicationFactor)", "in --command-config", "List shows", "--list shows", "Create makes", "--create makes", "Describe shows", "--describe shows", "watch Describe", "watch --describe",
	"Resume goes", "--resume goes", "Start begins it again", "--start begins it again (what clients wrote since the stop is given up only after consent: --failback)", "Start begins", "--start begins", "(LowerFence)", "(--lower-fence)", " LowerFence ends that", " --lower-fence ends that", " LowerFence takes it", " --lower-fence takes it", "until LowerFence:", "until --lower-fence:",
	"Stop is accepted from every state", "try again when it is (--stop, which opens the topic for clients, is possible now)",
	"(Promote waits for their transactions), or stop with policy abort", "(--promote waits for their transactions), or stop with --torn abort", "say that it may (CutReaders), or stop with policy abort", "say that it may (--cut-readers), or stop with --torn abort", "Stop it", "--stop it", "Stop the", "--stop the", "then Recover", "then --recover", "Stop their", "--stop their", "delete with Abandon", "--delete with --abandon",
	"Mirror.PlanFailback compares it, or a start without consents, which then changes nothing", "a dry run of --failback compares it",
	"Mirror.PlanFailback compares the logs, or a start without consents, which then changes nothing", "a dry run of --failback compares the logs")

// plainer are what the library says of a topic, and what somebody at a terminal can do with.
var plainer = []struct {
	said *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`: no process has reported it: mirror: unknown topic "[^"]*"`), `: no process has taken it up; --describe says whether one runs`},
	{regexp.MustCompile(`the destination could not look the topic up; try again when it answers: no right`), `the destination does not say whether it has the topic: no right`},
	{regexp.MustCompile(`wait longer, or plan fewer topics at a time: .*context deadline exceeded$`), `wait longer (--timeout), or plan fewer topics at a time`},
	{regexp.MustCompile(`record it with AlterConfig\b`), `record it with --alter --mirror-config FILE`},
	{regexp.MustCompile(`\bAlterConfig\b`), `--alter`}, // AlterConfigs is Kafka's name of a right
	{regexp.MustCompile(`the topic is in no mirror(: check the name, --describe shows those that are in one, --start adds one)?`),
		`the topic is in no mirror: check the name, --describe shows those that are in one, --start adds one`},
	{regexp.MustCompile(`the topic is wanted as \S+; Stop it first`), `the topic is not stopped; --stop it, and delete when it is STOPPED`},
}

// inOwnWords is a text of the library, for somebody who has only this command. Whatever is printed of the library's goes through it, in documents too; once more changes nothing.
func inOwnWords(text string) string {
	for _, x := range plainer {
		text = x.said.ReplaceAllString(text, x.to)
	}
	return inFlags.Replace(text)
}

// say prints texts of the library.
func say(to io.Writer, texts ...string) {
	fmt.Fprint(to, inOwnWords(strings.Join(texts, "")))
}

// said are lines of the library for a document, where none is an empty list.
func said(lines []string) []string {
	own := make([]string, len(lines))
	for i, line := range lines {
		own[i] = inOwnWords(line)
	}
	return own
}

func oneLine(err error) string {
	return inOwnWords(mirror.OneLine(strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// asJSON prints one document.
func (p *program) asJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// resultJSON is a mirror.Result whose errors are words.
type resultJSON struct {
	Verb, Mirror     string
	DryRun           bool
	Clusters         mirror.Clusters
	Topics           []topicJSON
	Settings         []mirror.SettingChange `json:",omitempty"`
	Plan             string
	Warnings         []string
	Notes            []string
	TornTransactions []mirror.TornTransaction `json:",omitempty"` // what a stop tears apart
	Cut              *mirror.ConsistentCut    `json:",omitempty"` // what a stop with --torn consistent-cut gives up
	GroupPlaces      []mirror.PlanGroupPlace  `json:",omitempty"` // where groups go on after a stop, of a dry run
	FailbackPlan     json.RawMessage          `json:",omitempty"` // what a failback gives up
	Waited           *waitedJSON              `json:",omitempty"` // what came of --wait
	Verification     *mirror.Verification     `json:",omitempty"` // of a failback that was waited for
	Error            *errorJSON               `json:",omitempty"` // of the whole request
}

type topicJSON struct {
	Topic          string
	Changed, Opens bool
	Unfinished     string     `json:",omitempty"`
	Error          *errorJSON `json:",omitempty"`
}

type errorJSON struct{ Code, Message string }

func wordsOf(err error) *errorJSON {
	if err == nil {
		return nil
	}
	w := &errorJSON{Message: oneLine(err)}
	var e *mirror.Error
	if errors.As(err, &e) {
		w.Code = e.Code.String()
	}
	return w
}

// showPlan shows a dry run before consent to it is asked for.
func (p *program) showPlan(ctx context.Context, r mirror.Result) {
	to := p.out
	if p.json {
		to = p.complaints
	}
	if p.toGiveUp != nil {
		p.showFailback(to)
		fmt.Fprintln(to)
		return
	}
	say(to, strings.Replace(r.String(), "\ndry run of "+r.Verb, "\nwhat will be done: "+r.Verb, 1)) // this is no dry run: only what comes first in it
	p.showPartitions(ctx, to, r)
}

// described is what is known of the topics that would be opened. No topics: of none is anything to be shown.
func (p *program) described(ctx context.Context, r mirror.Result) (d mirror.Description, topics []string, err error) {
	for _, t := range r.Topics {
		if t.Changed {
			topics = append(topics, t.Topic)
		}
	}
	if p.about == nil || len(topics) == 0 {
		return d, nil, nil
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	d, err = p.about(bounded)
	return d, topics, err
}

// showPartitions shows how far the copies are of topics that would be opened, and the groups that read them. Nothing else depends on it, so what is not known of them is only said.
func (p *program) showPartitions(ctx context.Context, to io.Writer, r mirror.Result) {
	d, topics, err := p.described(ctx, r)
	if len(topics) == 0 {
		return
	}
	if err != nil {
		fmt.Fprintln(to, "how far the copies are is not known: "+oneLine(err))
		return
	}
	say(to, "\n", d.Partitions(topics...))
	if groups := d.GroupsOf(topics...); groups != "" {
		say(to, "\n", groups)
	}
	if before := d.BeforeStop(topics...); before != "" {
		say(to, "\n", before)
	}
	if !p.dryRun {
		fmt.Fprintln(to) // what was done follows
	}
}

// showResult shows what a verb did, without what its plan has shown, and returns its error.
func (p *program) showResult(r mirror.Result, err error, planned bool) error {
	if p.toGiveUp != nil && r.Plan != "" {
		r.Plan = p.toGiveUp.Hash()
	}
	whole := err
	if len(r.Topics) > 0 && err != nil {
		whole, err = nil, &shownError{err}
	}
	switch {
	case p.json:
		j := resultJSON{Verb: r.Verb, Mirror: r.Mirror, DryRun: r.DryRun, Clusters: r.Clusters, Settings: r.Settings, Topics: []topicJSON{}, Plan: r.Plan, Warnings: said(r.Warnings),
			Notes: said(r.Notes), TornTransactions: r.TornTransactions, Cut: r.Cut, GroupPlaces: p.groupPlaces, FailbackPlan: p.planJSON(), Waited: p.waited, Verification: p.verified, Error: wordsOf(whole)}
		for _, t := range r.Topics {
			j.Topics = append(j.Topics, topicJSON{t.Topic, t.Changed, t.Opens, inOwnWords(t.Unfinished), wordsOf(t.Err)})
		}
		return errors.Join(err, p.asJSON(j))
	case whole == nil:
		if !r.DryRun {
			r.Plan = ""
		} else if p.toGiveUp != nil {
			p.showFailback(p.out)
			fmt.Fprintln(p.out)
		}
		if planned {
			r.Notes = nil
		}
		text := r.String()
		if planned {
			text = strings.Replace(text, mirror.OneLine(r.Clusters.String())+"\n", "", 1)
		}
		say(p.out, text)
	}
	return err
}

// described has the names of KIP-1279's DescribeClusterMirrors response (spec §1.3), and behind them what else is known. What is not known is null, where the KIP has a number that
// stands for it; AuthorizedOperations is the KIP's number for what was not asked.
type described struct {
	ErrorCode                                    mirror.Code
	ErrorMessage                                 *string
	MirrorName, SourceBootstrap, SourceClusterId string
	AuthorizedOperations                         int32
	Topics                                       []describedTopic
	*describedBesides
}

// describedBesides is what the KIP's response does not have; nil of a mirror that could not be described.
type describedBesides struct {
	DestinationClusterId, Head string
	Protection                 mirror.Protection
	Partial, Alive             bool
	Taken, Created             time.Time
	Settings                   map[string]string
	Nodes                      []mirror.DescribedNode
	Notes                      []string
}

type describedTopic struct {
	TopicName  string
	Partitions []describedPartition
	Wanted     string // the value of mirror.name
}

type describedPartition struct {
	PartitionIndex                                                     int32
	StateValue                                                         string
	ErrorMessage                                                       *string
	RetryAttempt                                                       int16
	SourceOffset, DestinationOffset, LastMirrorEpoch, LastMirrorOffset mirror.Number
	Lag                                                                mirror.Number
	LagAtLeast                                                         bool // more by now, nobody measures it
	SourceSeen, Reported                                               *time.Time
}

// notAsked is the KIP's value of AuthorizedOperations where nobody asked for them.
const notAsked = -1 << 31

// words is a text, or nil if there is none.
func words(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (p *program) showDescriptions(all []mirror.Description) error {
	shown := []described{}
	for i, d := range all {
		if !p.json {
			head, rest, _ := strings.Cut(brief(d).String(), "\n")
			if x := d.Protection(); x.Verdict == mirror.NotProtected { // of the other verdicts the head says what there is to say
				head += "\nNOT PROTECTED, how far its copy is cannot be known: " + mirror.OneLine(strings.Join(x.Reasons, "; "))
			}
			say(p.out, strings.Repeat("\n", min(i, 1)), head, "\n", rest)
			continue
		}
		x := described{
			MirrorName: d.Mirror, SourceBootstrap: d.Clusters.SourceBootstrap, SourceClusterId: d.Clusters.SourceID, AuthorizedOperations: notAsked, Topics: []describedTopic{},
			describedBesides: &describedBesides{
				DestinationClusterId: d.Clusters.DestinationID, Head: inOwnWords(d.Head), Protection: protection(d), Partial: d.Partial, Alive: d.Alive, Taken: d.Taken, Created: d.Created, Settings: d.Settings,
				Nodes: nodes(d), Notes: said(d.Notes),
			},
		}
		for _, t := range d.Topics {
			topic := describedTopic{TopicName: t.Topic, Partitions: []describedPartition{}, Wanted: t.MirrorName}
			for _, q := range t.Partitions {
				topic.Partitions = append(topic.Partitions, describedPartition{
					q.Partition, q.State, words(inOwnWords(q.Reason)), q.RetryAttempt, q.SourceEnd, q.DestinationEnd, q.LME, q.LMO, q.Lag.Offsets, q.Lag.AtLeast, known(q.SourceSeen), known(q.Reported),
				})
			}
			x.Topics = append(x.Topics, topic)
		}
		shown = append(shown, x)
	}
	if p.json {
		if err := p.asJSON(map[string]any{"Mirrors": shown}); err != nil {
			return err
		}
	}
	return unprotected(all)
}

// protection is the verdict for the document: no reasons are none there, and not null.
func protection(d mirror.Description) mirror.Protection {
	x := d.Protection()
	x.Reasons = said(x.Reasons)
	return x
}

// nodes are the processes for the document.
func nodes(d mirror.Description) []mirror.DescribedNode {
	own := append([]mirror.DescribedNode{}, d.Nodes...)
	for i := range own {
		own[i].SourceError = inOwnWords(own[i].SourceError)
		if own[i].Trouble != nil {
			own[i].Trouble = said(own[i].Trouble)
		}
	}
	return own
}

// unprotected is the exit status of --describe: the worst of all mirrors.
func unprotected(all []mirror.Description) error {
	partial := false
	for _, d := range all {
		switch d.Protection().Verdict {
		case mirror.NotProtected:
			return &endedError{status: 5}
		case mirror.PartiallyFailedOver:
			partial = true
		}
	}
	if partial {
		return &endedError{status: 6}
	}
	return nil
}

// brief is a description for a terminal: a row of the table of nodes has the beginning of what is wrong with the source, the rest is below it, and what befalls several topics alike is told once.
func brief(d mirror.Description) mirror.Description {
	const most = 40
	d.Nodes = slices.Clone(d.Nodes)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		var troubles []string
		if why := []rune(n.SourceError); len(why) > most {
			troubles = append(troubles, "source: "+strings.TrimPrefix(n.SourceError, "source: "))
			n.SourceError = string(why[:most]) + "…"
		}
		topics := map[string][]string{}
		for _, line := range n.Trouble {
			topic, why, _ := strings.Cut(line, ": ")
			topics[why] = append(topics[why], topic)
		}
		for _, line := range n.Trouble {
			_, why, _ := strings.Cut(line, ": ")
			switch names := topics[why]; {
			case len(names) == 1:
				troubles = append(troubles, line)
			case len(names) > 1:
				const shown = 3
				who := strings.Join(names[:min(len(names), shown)], ", ")
				if len(names) > shown {
					who += fmt.Sprintf(" and %d more topics", len(names)-shown)
				}
				troubles = append(troubles, who+": "+why)
				topics[why] = nil
			}
		}
		n.Trouble = troubles
	}
	return d
}

// showSettings shows which settings there are, by who has them.
func (p *program) showSettings(all []mirror.SettingDefinition) error {
	if p.json {
		return p.asJSON(map[string]any{"Settings": all})
	}
	for i, level := range []struct {
		mirror.SettingLevel
		title string
	}{
		{mirror.MirrorSetting, "Of a mirror (--mirror-config of --create and --alter):"},
		{mirror.ConnectionSetting, "Of a mirror's connection to the source, and in --command-config of the one to the destination:"},
		{mirror.NodeSetting, "Of a process that runs mirrors; in --command-config those of the topics of the desired state:"},
	} {
		fmt.Fprintln(p.out, strings.Repeat("\n", min(i, 1))+level.title)
		w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tDEFAULT\tWHAT IT IS")
		below := ""
		for _, s := range all {
			if s.Level == level.SettingLevel {
				what, _, _ := strings.Cut(s.Doc, ". ")
				value := cmp.Or(s.Default, "-")
				if len(value) > 30 {
					below += fmt.Sprintf("default of %s: %s\n", s.Name, value)
					value = "see below"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, value, strings.TrimSuffix(what, "."))
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprint(p.out, below)
	}
	return nil
}

// listed has the names of KIP-1279's ListClusterMirrors response (spec §1.2), and behind them what else is known.
type listed struct {
	MirrorName, SourceBootstrap, SourceClusterId string
	TopicCount                                   int
	TopicNames                                   []string
	Stopped                                      int
}

func (p *program) showList(list []mirror.ListedMirror) error {
	if p.json {
		shown := []listed{}
		for _, m := range list {
			shown = append(shown, listed{m.Name, m.SourceBootstrap, m.SourceClusterID, m.TopicCount, append([]string{}, m.TopicNames...), m.Stopped})
		}
		return p.asJSON(map[string]any{"Mirrors": shown})
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tTOPICS\tSTOPPED\tSOURCE")
	for _, m := range list {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", m.Name, m.TopicCount, m.Stopped, mirror.OneLine(m.SourceBootstrap))
	}
	return w.Flush()
}

func (p *program) showHistory(entries []mirror.HistoryEntry) error {
	if p.json {
		return p.asJSON(map[string]any{"History": append([]mirror.HistoryEntry{}, entries...)})
	}
	for _, e := range entries {
		line := fmt.Sprintf("%d  %s  %s  by %s at %s (%s)", e.Number, e.Time.UTC().Format("2006-01-02 15:04:05 UTC"), strings.TrimSpace(e.Verb+" "+strings.Join(e.Topics, ",")), e.Who.User, e.Who.Host, e.Who.Client)
		for _, x := range [][2]string{{"reason", e.Reason}, {"plan", e.Plan}, {"", e.Detail}} {
			if x[1] != "" {
				line += "  " + strings.TrimSpace(x[0]+" "+x[1])
			}
		}
		fmt.Fprintln(p.out, mirror.OneLine(line)) // nobody's words make an entry of their own
	}
	return nil
}
