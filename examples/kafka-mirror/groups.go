package main

import (
	"context"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// followed are the groups of one mirror. What is not known is null.
type followed struct {
	MirrorName        string
	Taken, GroupsSeen *time.Time
	Groups            []followedGroup
	Notes             []string
}

type followedGroup struct {
	Group, Kind string
	Active      bool       // it had members at the destination
	Recorded    *time.Time // when it was so
	Partitions  []followedPartition
}

type followedPartition struct {
	TopicName                       string
	PartitionIndex                  int32
	SourceOffset, DestinationOffset mirror.Number
	WrittenOffset                   mirror.Number // what the mirror wrote at the destination last
	Behind, Skips                   mirror.Number // offsets that it reads again, or does not read, if it goes on where the destination has it
	Reason                          string        // why it is not where the source has it
	Stopped                         bool          // it was followed until the stop
}

// groups shows where the groups of a mirror are. It asks no process of the mirror, and no source.
func (p *program) groups(ctx context.Context, a *mirror.Admin) error {
	d, err := a.Describe(ctx)
	if err != nil {
		return err
	}
	if !p.json {
		say(p.out, d.GroupTable())
		return nil
	}
	shown := followed{MirrorName: d.Mirror, Taken: known(d.Taken), GroupsSeen: known(d.GroupsSeen), Groups: []followedGroup{}, Notes: said(d.Notes)}
	stopped := map[mirror.TopicPartition]bool{}
	for _, t := range d.Topics {
		for _, q := range t.Partitions {
			stopped[mirror.TopicPartition{Topic: t.Topic, Partition: q.Partition}] = q.State == statemachine.Stopped.String()
		}
	}
	for _, g := range d.Groups {
		x := followedGroup{Group: g.Group, Kind: g.Kind.String(), Active: g.Active, Recorded: known(g.Seen), Partitions: []followedPartition{}}
		for _, q := range g.Partitions {
			x.Partitions = append(x.Partitions, followedPartition{
				q.Topic, q.Partition, mirror.KnownNumber(q.Source), mirror.KnownNumber(q.Here), mirror.KnownNumber(q.Written), q.Behind(), q.Skips(), inOwnWords(q.Skipped), stopped[q.TopicPartition],
			})
		}
		shown.Groups = append(shown.Groups, x)
	}
	return p.asJSON(shown)
}

// known is a moment, or nil for one that never was.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
