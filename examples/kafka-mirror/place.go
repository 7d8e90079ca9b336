package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/properties"
)

// place is where the desired state is.
type place struct {
	name    string // for people
	records keyedlog.Log
	topics  mirror.TopicLookup // nil: nobody to ask about the destination
	admin   *kadm.Client       // of the cluster that topics is
	client  *kgo.Client        // admin's
	copies  int16              // that topics of the desired state are made with there
	// connection reaches the cluster that topics is.
	connection mirror.Settings
	close      func()
}

// openPlace connects, or opens the folder. Only --create begins a desired state in a folder: another verb on a mistyped path must not show an empty one.
func (p *program) openPlace(ctx context.Context) (place, error) {
	if p.store != "" {
		_, err := os.Stat(filepath.Join(p.store, "log"))
		if errors.Is(err, os.ErrNotExist) && p.verb == "preflight" && p.mirrorConfig != "" {
			return place{name: p.store, close: func() {}}, nil // it comes before the beginning
		}
		if errors.Is(err, os.ErrNotExist) && (p.verb != "create" || p.dryRun) {
			return place{}, usage("--store %s: no desired state is there; correct the path (--create, without --dry-run, begins one)", p.store)
		}
		records, err := filestore.Open(p.store, filestore.Options{LockWait: p.timeout})
		if err != nil {
			return place{}, err
		}
		return place{name: p.store, records: records, close: func() { records.Close() }}, nil
	}
	settings := mirror.Settings{}
	if p.commandConfig != "" {
		var err error
		if settings, err = p.readSettings("--command-config", p.commandConfig); err != nil {
			return place{}, err
		}
	}
	if _, err := kafkaconfig.Parse(map[string]string{kafkaconfig.Bootstrap: p.bootstrap}); err != nil {
		return place{}, usage("--bootstrap-server: %v", err)
	}
	if err := settings.Check(mirror.NodeSetting, mirror.ConnectionSetting); err != nil {
		return place{}, usage("--command-config %s: %v", p.commandConfig, err)
	}
	node, err := mirror.NodeOptionsFrom(settings)
	if err != nil {
		return place{}, err
	}
	settings[kafkaconfig.Bootstrap] = p.bootstrap
	connection, err := kafkaconfig.Parse(settings)
	if err != nil {
		return place{}, usage("--command-config %s: %v", p.commandConfig, err)
	}
	records, err := kafkastore.Open(ctx, kafkastore.Config{
		Seeds: connection.Seeds, ClientOptions: connection.Options, StatePartitions: node.StatePartitions, ReplicationFactor: node.StateReplicationFactor, Bound: p.timeout,
		Notice: func(err error) { fmt.Fprintln(p.complaints, "warning: "+err.Error()) },
	})
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return place{}, fmt.Errorf("--bootstrap-server %s: %w; check user, password and sasl.mechanism in --command-config", p.bootstrap, err)
	case exitStatus(err) == 3:
		return place{}, fmt.Errorf("--bootstrap-server %s: %w; see that the address is right, that the cluster runs, and that --command-config has the security it wants", p.bootstrap, err)
	case err != nil:
		return place{}, err
	}
	client, err := kgo.NewClient(append(connection.Options, kgo.SeedBrokers(connection.Seeds...))...)
	if err != nil {
		records.Close()
		return place{}, fmt.Errorf("--bootstrap-server %s: %w", p.bootstrap, err)
	}
	admin := kadm.NewClient(client)
	return place{name: p.bootstrap, records: records, topics: cluster{admin}, admin: admin, client: client, copies: node.StateReplicationFactor, connection: settings, close: func() { client.Close(); records.Close() }}, nil
}

// readSettings reads a properties file, and says what is doubtful about it.
func (p *program) readSettings(option, path string) (mirror.Settings, error) {
	settings, err := properties.Load(path)
	if err != nil {
		return nil, usage("%s: %v", option, err)
	}
	warnings, err := properties.Check(path)
	for _, w := range warnings {
		fmt.Fprintln(p.complaints, "warning: "+w.String())
	}
	return settings, err
}

// cluster is a Kafka cluster as the destination, only looked at.
type cluster struct{ admin *kadm.Client }

func (c cluster) ClusterID(ctx context.Context) (string, error) {
	m, err := c.admin.BrokerMetadata(ctx)
	return m.Cluster, err
}

func (c cluster) TopicNames(ctx context.Context) ([]string, error) {
	topics, err := c.admin.ListTopics(ctx) // without internal ones
	return topics.Names(), err
}

func (c cluster) Topic(ctx context.Context, name string) (mirror.Topic, error) {
	all, err := c.admin.ListTopicsWithInternal(ctx, name)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return mirror.Topic{}, &undescribedError{name, err}
	}
	if err != nil {
		return mirror.Topic{}, err
	}
	t := all[name]
	if errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
		return mirror.Topic{}, fmt.Errorf("%w %q", mirror.ErrUnknownTopic, name)
	}
	return mirror.Topic{Name: name, ID: mirror.TopicID(t.ID), Partitions: int32(len(t.Partitions)), Internal: t.IsInternal}, t.Err
}

// undescribedError: this user may not see a topic of the destination, so it is not known whether it is there.
type undescribedError struct {
	topic string
	err   error
}

func (e *undescribedError) Error() string {
	return fmt.Sprintf("no right to Describe topic %s; if the role is meant to have it: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME "+
		"--operation Describe --topic %s", e.topic, e.topic)
}

func (e *undescribedError) Unwrap() error { return e.err }
