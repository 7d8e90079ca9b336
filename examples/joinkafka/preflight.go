package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// lookedAt is the destination as its clients see it: a Source reads any cluster.
type lookedAt struct{ *kafkasource.Source }

func (l lookedAt) ClusterID(ctx context.Context) (string, error) {
	info, err := l.Cluster(ctx)
	return info.ID, err
}

func (l lookedAt) Topic(ctx context.Context, name string) (mirror.Topic, error) {
	found, err := l.Topics(ctx, name)
	switch {
	case err != nil:
		return mirror.Topic{}, err
	case len(found) == 0:
		return mirror.Topic{}, fmt.Errorf("%w %q", mirror.ErrUnknownTopic, name)
	}
	return found[0].Topic, found[0].Err
}

// errStandsInTheWay: what does was printed.
var errStandsInTheWay = errors.New("something stands in the way; nothing was changed")

// preflight looks whether the destination can be joined, and whether the topics can be mirrored into it.
func preflight(ctx context.Context, out io.Writer, o options) error {
	records, err := kafkastore.Open(ctx, kafkastore.Config{Seeds: o.state, ReplicationFactor: int16(o.replicas)}) // which writes nothing
	if err != nil {
		return err
	}
	defer records.Close()
	config := o.config()
	config.Remember = records
	joining, err := kraft.Preflight(ctx, config)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "JOINING  the destination's controllers and brokers\n%s\n", joining)
	source, err := kafkasource.New(kafkasource.Config{Seeds: o.source})
	if err != nil {
		return err
	}
	defer source.Close()
	destination, err := kafkasource.New(kafkasource.Config{Seeds: o.state})
	if err != nil {
		return err
	}
	defer destination.Close()
	mirroring := mirror.Preflight(ctx, mirror.PreflightConfig{Mirror: o.name, Topics: o.topics, Source: source, Destination: lookedAt{destination}})
	fmt.Fprint(out, mirroring)
	few := false
	if info, err := destination.Cluster(ctx); err == nil && len(info.Brokers) < o.replicas {
		few = true
		fmt.Fprintf(out, "\nblocks  destination: it has %d of the %d brokers that copies need (-replicas): topics cannot be made, neither those of the desired state nor mirrored ones\n        → add -replicas %d, "+
			"knowing that nothing is left of what lies on a broker that is lost\n", len(info.Brokers), o.replicas, len(info.Brokers))
	}
	if few || joining.Err() != nil || mirroring.Err() != nil {
		return errStandsInTheWay
	}
	return nil
}
