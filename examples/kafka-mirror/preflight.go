package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/statemachine"
)

// looked is a Kafka cluster as the destination, with what can be read of it: a Source reads the same of any cluster.
type looked struct {
	mirror.TopicLookup
	mirror.GroupReader
	mirror.ACLReader
	mirror.RightsChecker
}

// preflight looks at both clusters with the settings that the mirror has, or would have with --mirror-config. Rights are those of the users of this run: the one of the mirror's settings at the
// source, the one of --command-config at the destination.
func (p *program) preflight(ctx context.Context, given mirror.Settings) error {
	cfg := mirror.PreflightConfig{Mirror: p.mirror, Topics: split(p.topics), OpenSource: kafkasource.Open, Bound: p.timeout}
	there := false
	if p.place.records != nil {
		bounded, stop := context.WithTimeout(ctx, p.timeout)
		state, err := mirror.NewControl(p.place.records).Read(bounded)
		stop()
		if err != nil {
			return err
		}
		var entry mirror.MirrorEntry
		entry, there = state.Mirror(p.mirror)
		cfg.Settings, cfg.SourceClusterID = maps.Clone(entry.Settings), entry.SourceClusterID
		for _, w := range state.Topics {
			if owner, want, err := w.Wish(); err == nil && owner == p.mirror && want != statemachine.WantStopped && !slices.Contains(cfg.Topics, w.Topic) {
				cfg.Topics = append(cfg.Topics, w.Topic)
			}
		}
	}
	if !there && p.mirrorConfig == "" {
		return usage("mirror %s is not created yet: add --mirror-config FILE, with the settings that it will have", p.mirror)
	}
	given, err := given.Canonical()
	if err != nil {
		return usage("--mirror-config %s: %v", p.mirrorConfig, err)
	}
	if cfg.Settings == nil {
		cfg.Settings = mirror.Settings{}
	}
	maps.Copy(cfg.Settings, given)
	if p.place.topics != nil {
		config, err := kafkasource.FromSettings(p.place.connection)
		if err != nil {
			return usage("--command-config %s: %v", p.commandConfig, err)
		}
		reader, err := kafkasource.New(config)
		if err != nil {
			return fmt.Errorf("--bootstrap-server %s: %w", p.bootstrap, err)
		}
		defer reader.Close()
		cfg.Destination = looked{p.place.topics, reader, reader, reader}
	}
	report := mirror.Preflight(ctx, cfg)
	if p.place.admin != nil {
		report.Findings = append(report.Findings, p.enoughBrokers(ctx)...)
	}
	if p.json {
		if err := p.asJSON(report); err != nil {
			return err
		}
	} else {
		say(p.out, report.String())
	}
	if err := report.Err(); err != nil {
		return &shownError{err}
	}
	return nil
}

// stateTopics are two of the topics of the desired state: the first record makes them, and the others are made like them.
var stateTopics = []string{"__mirror_control", "__mirror_state"}

// enoughBrokers says whether the topics of the desired state can be made: each copy of them needs a broker. Where they are there, or nobody can say, it is silent: then --create is, or says more.
func (p *program) enoughBrokers(ctx context.Context) []mirror.Finding {
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	found, err := p.place.admin.ListTopicsWithInternal(bounded, stateTopics...)
	if err != nil {
		return nil
	}
	missing := slices.ContainsFunc(stateTopics, func(name string) bool { return !found.Has(name) })
	cluster, err := p.place.admin.BrokerMetadata(bounded)
	if brokers := len(cluster.Brokers); err == nil && missing && brokers > 0 {
		f := mirror.Finding{Kind: mirror.AboutTopics, Severity: mirror.FindingFine, Side: mirror.AtDestination, Names: stateTopics,
			What: "1 broker is enough for one copy of the topics of the desired state, which --create makes"}
		if brokers > 1 {
			f.What = fmt.Sprintf("%d brokers are enough for copies of the topics of the desired state, which --create makes: %d", brokers, p.place.copies)
		}
		if brokers < int(p.place.copies) {
			f.Severity, f.What = mirror.FindingBlocks, fmt.Sprintf("it has %d of the %d brokers that the copies of the topics of the desired state need", brokers, p.place.copies)
			f.Do = fmt.Sprintf("lower that, knowing that the state of all mirrors lies there: the line mirror.state.topic.replication.factor=%d in the file of --command-config", brokers)
		}
		return []mirror.Finding{f}
	}
	return nil
}
