package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/internal/secret"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// What is looked at before and while the destination is reached for the first time.

// missingFiles is a *FileError with the files that settings name, or refer to, and that are not there or must not be read. Every connection would meet them, and say so only when its time is up.
// They may be there in a moment, as where secrets are mounted anew.
func (f *File) missingFiles() error {
	settings := f.now().settings
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		look := func(path string) {
			if err := readable(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				errs = append(errs, &kafkaconfig.Error{Setting: name, Problem: "the file cannot be read", Err: err, Advice: "correct the path, or its permissions for this process's user"})
			}
		}
		if strings.HasSuffix(name, ".location") && !secret.HasReference(settings[name]) {
			look(strings.TrimSpace(settings[name]))
		}
		_, _ = secret.Replace(settings[name], func(provider, path, key string) (string, error) {
			switch provider {
			case "file":
				look(path)
			case "directory":
				look(filepath.Join(path, key))
			}
			return "", nil
		})
	}
	if len(errs) > 0 {
		return &FileError{f.path, errs}
	}
	return nil
}

func readable(path string) error {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// silence is after how long it is said that no broker has answered: whoever waits for a node to start looks at its log then.
const silence = 5 * time.Second

// tellSilence says once that nobody answers, unless stop is called before.
func tellSilence(logger *slog.Logger, seeds []string) (stop func() bool) {
	return time.AfterFunc(silence, func() {
		logger.Warn("no broker has answered yet: see that the address is right, that the cluster runs, and that the node's file has the security it wants", bootstrapServers, strings.Join(seeds, ","), "for", silence)
	}).Stop
}

// clusterID asks the brokers of bootstrap.servers which cluster they are.
func (f *File) clusterID(ctx context.Context) (id string, err error) {
	err = f.asking(func(client *kadm.Client) error {
		cluster, err := client.BrokerMetadata(ctx)
		id = cluster.Cluster
		return err
	})
	return id, err
}

func (f *File) asking(ask func(*kadm.Client) error) error {
	connection := f.connections[""]
	client, err := kgo.NewClient(append(connection.Options(), kgo.SeedBrokers(connection.Seeds()...))...)
	if err != nil {
		return err
	}
	defer client.Close()
	return ask(kadm.NewClient(client))
}

// recordTopics are two of the topics of states and wishes: the others are made with them.
var recordTopics = []string{"__mirror_control", "__mirror_state"}

// enoughBrokers says whether the topics of states and wishes can be made: each copy of them needs a broker. It has nothing to say where they are there, or nobody can say.
func (f *File) enoughBrokers(ctx context.Context) (findings []kraft.Finding) {
	p := f.now()
	_ = f.asking(func(client *kadm.Client) error {
		topics, err := client.ListTopicsWithInternal(ctx, recordTopics...)
		if err != nil || !slices.ContainsFunc(recordTopics, func(name string) bool { return !topics.Has(name) }) {
			return err
		}
		cluster, err := client.BrokerMetadata(ctx)
		if err != nil {
			return err
		}
		alive := 0
		for _, b := range cluster.Brokers {
			if b.NodeID != p.id && !slices.Contains(p.kraft.Peers, b.NodeID) {
				alive++
			}
		}
		copies := int(p.options.StateReplicationFactor)
		finding := kraft.Finding{Kind: kraft.AboutBrokers, What: fmt.Sprintf("%d alive are enough for %d copies of the topics __mirror_*, which the first start makes (%s)", alive, copies, stateCopies)}
		if alive < copies {
			finding.Severity, finding.What = kraft.Blocks, fmt.Sprintf("the topics __mirror_* are not there yet, and %s is %d while %d brokers are alive: they cannot be created", stateCopies, copies, alive)
			finding.Do = fmt.Sprintf("start the others, or set %s=%d in the node's file, knowing that the state of all mirrors lies there", stateCopies, max(1, alive))
		}
		findings = append(findings, finding)
		return nil
	})
	return findings
}

const stateCopies = "mirror.state.topic.replication.factor"
