package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/mirror/properties"
	"github.com/clustermirror/clustermirror/node"
)

// refusal is what is refused as things stand, with what to do.
type refusal string

func (r refusal) Error() string { return string(r) }

// clusterBound is the longest look at a cluster, or change of it, that leave makes.
const clusterBound = time.Minute

// leave takes a node out of its cluster, in order or at once, and says what stays. The node's process is another one: leave speaks for a node whose process has ended, but for the kill switch.
func (p *program) leave(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("leave", flag.ContinueOnError)
	report := f.Bool("report", false, "")
	now := f.Bool("now", false, "")
	purge := f.Bool("purge", false, "")
	f.BoolVar(&p.yes, "yes", false, "")
	f.StringVar(&p.reason, "reason", "", "")
	f.StringVar(&p.destinationID, "destination-cluster-id", "", "")
	file, err := p.nodeFile(f, args)
	if err != nil {
		return err
	}
	how, ways := node.LeaveClean, 0
	for _, way := range []struct {
		given bool
		how   node.LeaveHow
	}{{*report, node.LeaveReport}, {*now, node.LeaveNow}, {*purge, node.LeavePurge}} {
		if way.given {
			how, ways = way.how, ways+1
		}
	}
	switch {
	case ways > 1:
		return usage("leave: give one of --report, --now and --purge")
	case how != node.LeaveReport && p.reason == "":
		return usage("leave needs --reason TEXT, for the history; with --report it shows what there is without one. Nothing has changed")
	case how != node.LeaveReport && p.yes && p.destinationID == "":
		return usage("leave: --yes needs --destination-cluster-id ID beside it, because nobody looks at the cluster then; nothing has changed")
	}
	cfg := node.LeaveConfig{Kraft: file.Kraft()}
	bounded, stop := context.WithTimeout(ctx, clusterBound)
	defer stop()
	there := node.Leaving{How: how}
	if how == node.LeaveNow { // it waits for no storage and no broker
		there.Remains, err = kraft.PlanUnregister(bounded, cfg.Kraft)
		cfg.Open = func(ctx context.Context) (node.Records, error) { return recordsOf(ctx, file) }
	} else {
		var records node.Records
		if records, err = recordsOf(bounded, file); err != nil {
			return err
		}
		defer records.Close()
		cfg.Records = records
		there, err = node.Leave(bounded, cfg)
	}
	if err != nil {
		return fmt.Errorf("%w; see that the controllers of %s run and can be reached from here, and for anything but --now its brokers", err, file.Bootstrap())
	}
	if p.destinationID != "" && there.ClusterID != "" && there.ClusterID != p.destinationID {
		return usage("leave: the cluster at %s is %s, and --destination-cluster-id names %s; correct the one that is wrong. Nothing has changed", file.Bootstrap(), there.ClusterID, p.destinationID)
	}
	if how == node.LeaveReport {
		_, err := fmt.Fprint(p.out, there)
		return err
	}
	what, err := p.showLeaving(how, there)
	if err != nil || what == "" {
		return err
	}
	if err := p.agree(ctx, what); err != nil {
		return err
	}
	cfg.How, cfg.ClusterID, cfg.Reason, cfg.Operator = how, there.ClusterID, p.reason, mirror.Operator{Client: "kafka-mirror"}
	if cfg.ClusterID == "" {
		cfg.ClusterID = p.destinationID
	}
	if how == node.LeavePurge {
		if cfg.Client, err = brokersOf(f.Lookup("config").Value.String()); err != nil {
			return err
		}
		defer cfg.Client.Close()
	}
	doing, stop := context.WithTimeout(ctx, clusterBound)
	defer stop()
	done, err := node.Leave(doing, cfg)
	switch {
	case how == node.LeaveNow && done.Done:
		fmt.Fprintf(p.out, "broker %d is unregistered\n", there.NodeID)
	case done.Done:
		fmt.Fprintf(p.out, "broker %d has left\n", there.NodeID)
	}
	if done.Unrecorded != nil {
		fmt.Fprintln(p.complaints, "warning: it is done, and the history does not have it: "+oneLine(done.Unrecorded))
	}
	if len(done.Purged) > 0 {
		fmt.Fprintf(p.out, "deleted: %s\n", strings.Join(done.Purged, ", "))
	}
	return err
}

// showLeaving shows what would be done, and returns the question for it; "": there is nothing to do. Errors: a refusal.
func (p *program) showLeaving(how node.LeaveHow, there node.Leaving) (what string, err error) {
	cluster := there.ClusterID
	if cluster == "" {
		cluster = "(nobody tells its id)"
	}
	if how == node.LeaveNow {
		fmt.Fprint(p.out, there.IfUnregistered())
		if there.Registration == kraft.NotRegistered {
			return "", nil
		}
		if there.ClusterID == "" && p.destinationID == "" {
			return "", usage("add --destination-cluster-id ID: the controllers do not tell which cluster this is. Nothing has changed")
		}
		return fmt.Sprintf("Unregister broker %d of cluster %s now", there.NodeID, cluster), nil
	}
	fmt.Fprint(p.out, there.Remains)
	switch {
	case there.Stranger:
		return "", refusal(fmt.Sprintf("broker %d is no mirror node: correct node.id. Nothing has changed", there.NodeID))
	case there.Registration == kraft.RegisteredAlive:
		return "", refusal(fmt.Sprintf("the process of broker %d is alive: end it first (SIGTERM, or systemctl stop kafka-mirror), wait for its session to end, and use leave again; "+
			"leave --now takes its place away from it. Nothing has changed", there.NodeID))
	case len(there.Partitions) > 0:
		return "", refusal(fmt.Sprintf("broker %d still has %s: start its process, --stop and --delete its mirrors, end it, and use leave again; "+
			"where it cannot be started, give-up opens them. Nothing has changed",
			there.NodeID, counted(len(there.Partitions), "partition")))
	}
	what = fmt.Sprintf("Let broker %d leave cluster %s", there.NodeID, cluster)
	if how == node.LeavePurge && len(there.InternalTopics) > 0 {
		switch {
		case len(there.Others) > 0:
			return "", refusal(fmt.Sprintf("other mirror nodes are in this cluster, and use the topics: brokers %v; leave without --purge. Nothing has changed", there.Others))
		case len(there.Mirrored) > 0:
			return "", refusal(fmt.Sprintf("topics are wanted mirrored still: %s; --stop them, or leave without --purge. Nothing has changed", names(there.Mirrored)))
		}
		fmt.Fprintf(p.out, "\nDELETED FOR GOOD: %s\n  with them go mirrors and their settings, the history of who did what, and the last mirror epochs of %s: "+
			"a failback to an old source copies everything again\n",
			strings.Join(there.InternalTopics, ", "), counted(there.LastEpochs, "partition"))
		return what + " and delete these topics for good", nil
	}
	if there.Registration == kraft.NotRegistered && len(there.Late()) == 0 {
		fmt.Fprintln(p.out, "there is nothing to do; what stays are "+there.Stays())
		return "", nil
	}
	return what, nil
}

// recordsOf opens the log of states and wishes.
func recordsOf(ctx context.Context, file *node.File) (node.Records, error) {
	records, err := file.Records(ctx)
	if err != nil {
		return nil, err // not records: a nil *Store in Records is not nil
	}
	return records, nil
}

// brokersOf is a client with the connection that a node's file has to the brokers.
func brokersOf(path string) (*kgo.Client, error) {
	all, err := properties.Load(path)
	if err != nil {
		return nil, err
	}
	settings := mirror.Settings{}
	for _, s := range mirror.SettingDefinitions() {
		if value, given := all[s.Name]; given && s.Level == mirror.ConnectionSetting {
			settings[s.Name] = value
		}
	}
	connection, err := kafkaconfig.Parse(settings)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(connection.Options, kgo.SeedBrokers(connection.Seeds...))...)
}

// agree gets the operator's consent to what was shown.
func (p *program) agree(ctx context.Context, what string) error {
	switch {
	case p.yes:
		return nil
	case p.terminal == nil:
		return usage("add --destination-cluster-id ID and --yes, because there is no terminal to ask at; nothing has changed")
	}
	return p.ask(ctx, what)
}
