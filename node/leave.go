package node

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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// LeaveHow is how a node id leaves a cluster.
type LeaveHow uint8

// The ways.
const (
	// LeaveReport changes nothing: it says what there is of the node, and what the others would do.
	LeaveReport LeaveHow = iota
	// LeaveClean ends the registration of a node whose process has ended and that has no partition any more, and puts back what is late. It refuses otherwise.
	LeaveClean
	// LeaveNow is the kill switch (kraft.Unregister): the node's partitions have no leader, nothing becomes writable, starting the node again undoes it. It refuses nothing, and needs the controllers only.
	LeaveNow
	// LeavePurge is LeaveClean, and then deletes the topics in which states, wishes and history are kept. It refuses while another node is registered in the cluster.
	LeavePurge
)

func (h LeaveHow) String() string {
	return [...]string{"report", "leave", "leave now", "leave and purge"}[h]
}

// LeaveConfig says which node leaves, and how.
type LeaveConfig struct {
	// Kraft is the node's configuration (File.Kraft). Remember need not be set, Folder and Listen are not used.
	Kraft kraft.Config
	// Records is the log of states and wishes in the destination cluster (File.Records). LeaveNow needs none.
	Records keyedlog.Log
	// Open opens such a log; for LeaveNow alone, which opens it when the node is unregistered, for the history. nil: there is no entry.
	Open func(context.Context) (Records, error)
	How  LeaveHow
	// ClusterID is the consent to everything but LeaveReport: the id of the cluster that is meant.
	ClusterID string
	// Reason is one line for the history, and Operator who does it. Everything but LeaveReport needs a reason.
	Reason   string
	Operator mirror.Operator
	// Client reaches the destination's brokers as somebody who may delete the topics; for LeavePurge alone. The caller closes it.
	Client *kgo.Client
}

// Leaving is what there was of a node, and what leaving did or would do.
type Leaving struct {
	How LeaveHow
	kraft.Remains
	Done bool // what How says was done
	// Mirrored are the topics that are wanted mirrored or paused still, and LastEpochs how many partitions have a last mirror epoch recorded: what a purge costs.
	Mirrored   []string
	LastEpochs int
	Purged     []string // topics that were deleted
	// Unrecorded is why the history does not have it, although it was done; nil: it has.
	Unrecorded error
}

// ErrStays: the node cannot leave as things are, or nobody has consented. Nothing was changed, but what a clean leave has put back.
var ErrStays = errors.New("node: it does not leave")

// Leave ends what a cluster has of a node id, in the way that cfg.How says. It needs the destination cluster only, LeaveNow its controllers only. The result tells what there was, also beside an error.
func Leave(ctx context.Context, cfg LeaveConfig) (Leaving, error) {
	l := Leaving{How: cfg.How}
	switch {
	case cfg.How != LeaveReport && strings.TrimSpace(cfg.Reason) == "":
		return l, errors.New("node: leaving needs a reason, for the history")
	case cfg.How == LeaveNow:
		return l, l.now(ctx, cfg)
	case cfg.Records == nil:
		return l, errors.New("node.LeaveConfig: Records is not set")
	}
	cfg.Kraft.Remember = cfg.Records
	var err error
	if l.Remains, err = kraft.Left(ctx, cfg.Kraft); err != nil {
		return l, err
	}
	l.InternalTopics = slices.DeleteFunc(l.InternalTopics, func(topic string) bool { return !slices.Contains(kafkastore.Topics(), topic) }) // others may only be called so
	if err := l.count(ctx, cfg.Records); err != nil {
		return l, err
	}
	if cfg.How == LeaveReport {
		l.Done = true
		return l, nil
	}
	if err := l.meant(cfg.ClusterID); err != nil {
		return l, err
	}
	if cfg.How == LeavePurge {
		switch {
		case cfg.Client == nil:
			return l, errors.New("node.LeaveConfig: Client is not set: a purge deletes topics")
		case len(l.Others) > 0:
			return l, fmt.Errorf("%w: nodes %v are registered in this cluster, and keep their states in the same topics; have them leave first", ErrStays, l.Others)
		case len(l.Mirrored) > 0:
			return l, fmt.Errorf("%w: topics are wanted mirrored still (%s); stop them, or delete their mirrors, first", ErrStays, shortList(l.Mirrored))
		}
	}
	if _, err := kraft.Depart(ctx, cfg.Kraft); err != nil {
		return l, fmt.Errorf("%w: %w", ErrStays, err)
	}
	l.Unrecorded = l.record(ctx, cfg, cfg.Records)
	if cfg.How == LeavePurge {
		if err := l.purge(ctx, cfg.Client); err != nil {
			return l, err
		}
	}
	l.Done = true
	return l, nil
}

// now is the kill switch. The history comes afterwards: where the brokers are away it must not hold anything up.
func (l *Leaving) now(ctx context.Context, cfg LeaveConfig) (err error) {
	if l.Remains, err = kraft.PlanUnregister(ctx, cfg.Kraft); err != nil {
		return err
	}
	if err := l.meant(cfg.ClusterID); err != nil {
		return err
	}
	if l.Remains, err = kraft.Unregister(ctx, cfg.Kraft); err != nil {
		return err
	}
	l.Done = true
	bounded, stop := context.WithTimeout(ctx, recordBound)
	defer stop()
	switch {
	case cfg.Open != nil:
		records, err := cfg.Open(bounded)
		if err != nil {
			l.Unrecorded = err
			return nil
		}
		defer records.Close()
		l.Unrecorded = l.record(bounded, cfg, records)
	case cfg.Records != nil:
		l.Unrecorded = l.record(bounded, cfg, cfg.Records)
	}
	return nil
}

// recordBound is how long the kill switch tries to write into the history.
const recordBound = 15 * time.Second

// meant compares the cluster that is meant with this one.
func (l *Leaving) meant(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it needs the id of the cluster that is meant, which is %s", ErrStays, l.ClusterID)
	case id != l.ClusterID && (l.ClusterID != "" || l.How != LeaveNow): // where nobody tells it, the kill switch works all the same
		return fmt.Errorf("%w: cluster %s is meant, and this is %q", ErrStays, id, l.ClusterID)
	}
	return nil
}

// record writes into the history of each mirror that there is that the node has left, and once where there is none.
func (l *Leaving) record(ctx context.Context, cfg LeaveConfig, records keyedlog.Log) error {
	control := mirror.NewControl(records)
	state, err := control.Read(ctx)
	if err != nil {
		return fmt.Errorf("node: reading what mirrors there are: %w", err)
	}
	names := []string{""}
	if len(state.Mirrors) > 0 {
		names = names[:0]
	}
	for _, m := range state.Mirrors {
		names = append(names, m.Name)
	}
	for _, name := range names {
		err := control.Update(ctx, func(s *mirror.ControlState) error {
			s.Note = &mirror.HistoryEntry{Time: time.Now(), Verb: cfg.How.String(), Mirror: name, Who: completed(cfg.Operator), Reason: cfg.Reason,
				Detail: fmt.Sprintf("node %d has left cluster %s: it was %s, with %d partitions", l.NodeID, l.ClusterID, l.Registration, len(l.Partitions))}
			return nil
		})
		if err != nil {
			return fmt.Errorf("node: writing into the history: %w", err)
		}
	}
	return nil
}

// completed fills in who uses a process, as mirror.NewAdmin does it.
func completed(o mirror.Operator) mirror.Operator {
	if host, err := os.Hostname(); err == nil {
		o.Host = cmp.Or(o.Host, host)
	}
	if o.User == "" {
		o.User = strconv.Itoa(os.Getuid())
		if u, err := user.Current(); err == nil {
			o.User = u.Username
		}
	}
	o.Client = cmp.Or(o.Client, filepath.Base(os.Args[0]))
	return o
}

// count finds what a purge would cost.
func (l *Leaving) count(ctx context.Context, records keyedlog.Log) error {
	state, err := mirror.NewControl(records).Read(ctx)
	if err != nil {
		return fmt.Errorf("node: reading what is wanted of the mirrors: %w", err)
	}
	for _, w := range state.Topics {
		if _, want, err := w.Wish(); err != nil || want != statemachine.WantStopped {
			l.Mirrored = append(l.Mirrored, w.Topic)
		}
	}
	err = keyedlog.NewStateStore(records).Load(ctx, func(e statemachine.Entry) error {
		if e.LME != nil {
			l.LastEpochs++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node: reading states: %w", err)
	}
	return nil
}

// purge deletes the topics in which states, wishes and history are kept.
func (l *Leaving) purge(ctx context.Context, client *kgo.Client) error {
	if len(l.InternalTopics) == 0 {
		return nil
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 15_000
	for _, topic := range l.InternalTopics {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, topic)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("node: deleting %s: %w; the node has left", strings.Join(l.InternalTopics, ", "), err)
	}
	var failed []error
	for _, t := range resp.Topics {
		name := ""
		if t.Topic != nil {
			name = *t.Topic
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			failed = append(failed, fmt.Errorf("node: deleting topic %s: %w; the node has left", name, err))
			continue
		}
		l.Purged = append(l.Purged, name)
	}
	slices.Sort(l.Purged)
	return errors.Join(failed...)
}

// String is for people, several lines: what there was, and what was done, or would be.
func (l Leaving) String() string {
	var b strings.Builder
	b.WriteString(l.Remains.String())
	switch {
	case l.How == LeaveReport:
		if n := len(l.Partitions); n > 0 || l.Registration == kraft.RegisteredAlive {
			b.WriteString("leave: refused while its process is alive or it has partitions; stop its topics and end it first\n")
		} else {
			b.WriteString("leave: ends the registration; what stays are " + l.Stays() + "\n")
		}
		b.WriteString("leave now: " + indented(l.IfUnregistered()))
		fmt.Fprintf(&b, "purge, after a clean leave: %s", indented(l.cost()))
	case !l.Done:
		fmt.Fprintf(&b, "%s: not done\n", l.How)
	case l.How == LeaveNow:
		b.WriteString("done: " + indented(l.IfUnregistered()))
	default:
		b.WriteString("done: the node has left; what stays are " + l.stays() + "\n")
		if l.How == LeavePurge {
			fmt.Fprintf(&b, "deleted: %s\n", strings.Join(l.Purged, ", "))
		}
	}
	if l.Unrecorded != nil {
		fmt.Fprintf(&b, "the history does not have it: %v\n", l.Unrecorded)
	}
	return b.String()
}

// stays is Stays after what was deleted.
func (l Leaving) stays() string {
	left := l.Remains
	left.InternalTopics = slices.DeleteFunc(slices.Clone(left.InternalTopics), func(topic string) bool { return slices.Contains(l.Purged, topic) })
	return left.Stays()
}

// cost is what a purge takes away.
func (l Leaving) cost() string {
	return fmt.Sprintf("deletes %s: mirrors and their settings, the history, and the last mirror epochs of %d partitions. Without these a failback to an old source copies everything again, and what mirrors wrote of groups, settings "+
		"and access rules is theirs no more\n", strings.Join(l.InternalTopics, ", "), l.LastEpochs)
}

// indented is a text of several lines under its first one.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

func shortList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
