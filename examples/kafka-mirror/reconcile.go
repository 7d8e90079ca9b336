package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/reconcile"
	"github.com/clustermirror/clustermirror/mirror/verify"
)

// reconcile lists what the old source has and the copy does not, after a failover. It reads both clusters as a consumer does, and needs no process of the mirror.
func (p *program) reconcile(ctx context.Context, a *mirror.Admin) error {
	both, err := p.openBoth(ctx, a, "the old source, which has to be back for this")
	if err != nil {
		return err
	}
	defer both.close()
	d, source, here := both.described, both.source, both.here
	report := reconcile.Report{Mirror: p.mirror, SourceClusterID: both.sourceID, DestinationClusterID: d.Clusters.DestinationID, Taken: time.Now(), Partitions: []reconcile.PartitionReport{}}
	if d.StatesError != "" {
		return &passingError{fmt.Errorf("where the mirror ended is not known, so nothing can be listed: the state store does not answer: %s", d.StatesError)}
	}
	topics, err := p.chosen(&d)
	if err != nil {
		return err
	}
	var failed error
	for _, t := range topics {
		if len(t.Partitions) == 0 {
			fmt.Fprintf(p.complaints, "%s: nothing is listed: no process has reported its partitions\n", mirror.OneLine(t.Topic))
		}
		for _, q := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: q.Partition}
			lmo, known := q.LMO.Value()
			if !known {
				fmt.Fprintf(p.complaints, "%s-%d: nothing is listed: no last mirror offset is recorded, so no mirror into it has been stopped\n", mirror.OneLine(tp.Topic), tp.Partition)
				continue
			}
			at := reconcile.Position{LME: mirror.Unknown, LMO: lmo}
			if lme, known := q.LME.Value(); known {
				at.LME = int32(lme)
			}
			list, err := p.reconcilePartition(ctx, source, here, tp, at)
			report.Partitions = append(report.Partitions, list)
			if err != nil {
				p.complain(err)
				failed = err
			}
		}
	}
	if len(report.Partitions) == 0 {
		return refusal("nothing is listed of any partition: that says nothing about what the source has")
	}
	if p.json {
		err = p.asJSON(report)
	} else {
		say(p.out, report.String())
	}
	if err == nil && failed != nil {
		err = &endedError{status: exitStatus(failed)}
	}
	return err
}

// chosen are the topics that are asked for, or all of the mirror.
func (p *program) chosen(d *mirror.Description) (topics []mirror.DescribedTopic, err error) {
	wanted := split(p.topics)
	for _, t := range d.Topics {
		if len(wanted) == 0 || slices.Contains(wanted, t.Topic) {
			topics = append(topics, t)
		}
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(topics, func(t mirror.DescribedTopic) bool { return t.Topic == name }) {
			return nil, usage("--topics %s: no topic of mirror %s; --describe shows them", name, p.mirror)
		}
	}
	return topics, nil
}

// bothClusters are the clusters of a mirror, for a verb that reads logs of both.
type bothClusters struct {
	described    mirror.Description
	source, here mirror.Source
	sourceID     string
}

func (b *bothClusters) close() {
	for _, s := range []mirror.Source{b.source, b.here} {
		if s != nil {
			s.Close()
		}
	}
}

// openBoth connects to both, and refuses another cluster at the source's address. who is the source, for whoever finds that it does not answer.
func (p *program) openBoth(ctx context.Context, a *mirror.Admin, who string) (_ *bothClusters, err error) {
	if p.place.topics == nil {
		return nil, usage("--%s reads both clusters: use --bootstrap-server HOST:PORT, not --store", p.verb)
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	both := &bothClusters{}
	defer func() {
		if err != nil {
			both.close()
		}
	}()
	if both.described, err = a.Describe(bounded); err != nil {
		return nil, err
	}
	state, err := mirror.NewControl(p.place.records).Read(bounded)
	if err != nil {
		return nil, err
	}
	entry, _ := state.Mirror(p.mirror)
	if both.source, err = kafkasource.Open(ctx, entry.Settings); err != nil {
		return nil, err
	}
	if both.here, err = kafkasource.Open(ctx, p.place.connection); err != nil {
		return nil, usage("--command-config %s: %v", p.commandConfig, err)
	}
	cluster, err := both.source.Cluster(bounded)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	if both.sourceID = cluster.ID; both.described.Clusters.SourceID != "" && cluster.ID != both.described.Clusters.SourceID {
		return nil, refusal(fmt.Sprintf("the cluster at the source's address is %s, and the mirror's source was %s: nothing is compared", cluster.ID, both.described.Clusters.SourceID))
	}
	return both, nil
}

// reconcilePartition is one partition of it. Only the first questions are bounded by --timeout: logs are read.
func (p *program) reconcilePartition(ctx context.Context, source, here mirror.Source, tp mirror.TopicPartition, at reconcile.Position) (reconcile.PartitionReport, error) {
	there, copied := verify.SourceSide(source, tp, verify.SourceOptions{}), verify.SourceSide(here, tp, verify.SourceOptions{})
	defer there.Close()
	defer copied.Close()
	return reconcile.Partition(ctx, there, copied, at, reconcile.Options{EndOfEpoch: func(ctx context.Context, epoch int32) (mirror.EpochEnd, error) {
		return source.EndOffsetForEpoch(ctx, tp, mirror.Unknown, epoch)
	}})
}
