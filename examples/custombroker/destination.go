package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// Destination is a cluster in a folder: a mirror.Destination.
//
//	cluster                     the cluster's id; this process holds the lock of the folder
//	topics/orders/topic.json    id, number of partitions, settings: the topic exists once this file does
//	topics/orders/0/            the log of partition 0
type Destination struct {
	// OnCut, if set before the first log is opened, is told of bytes that recovery dropped behind a log's last whole batch.
	OnCut func(tp mirror.TopicPartition, bytes int64)

	path string
	root directory
	id   string

	mu     sync.Mutex
	logs   map[mirror.TopicPartition]*Log
	closed bool
}

// topicFile is topic.json.
type topicFile struct {
	Name       string            `json:"name"`
	ID         mirror.TopicID    `json:"id"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
}

func (t topicFile) topic() mirror.Topic {
	return mirror.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions}
}

// OpenDestination opens the cluster in a folder, or makes one there. A folder that another process has open is refused.
func OpenDestination(path string) (*Destination, error) {
	root, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	d := &Destination{path: path, root: root, logs: map[mirror.TopicPartition]*Log{}}
	if err = root.Lock(); err == nil {
		if err = readFile(root, "cluster", &d.id); errors.Is(err, fs.ErrNotExist) {
			d.id = "custombroker-" + rand.Text()
			err = writeFile(root, "cluster", d.id)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster in %s: %w", path, err), root.Close())
	}
	return d, nil
}

// ClusterID is the id that was drawn when the folder was made.
func (d *Destination) ClusterID(ctx context.Context) (string, error) { return d.id, ctx.Err() }

// begin takes the lock for one call.
func (d *Destination) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("cluster in %s: %w", d.path, fs.ErrClosed)
	}
	return nil
}

// Topic reads topic.json. Looking makes nothing.
func (d *Destination) Topic(ctx context.Context, name string) (mirror.Topic, error) {
	if err := d.begin(ctx); err != nil {
		return mirror.Topic{}, err
	}
	defer d.mu.Unlock()
	t, err := d.read(name)
	return t.topic(), err
}

func (d *Destination) topicPath(name string) string { return filepath.Join(d.path, "topics", name) }

func (d *Destination) read(name string) (t topicFile, err error) {
	if err := checkTopicName(name); err != nil {
		return t, err
	}
	err = readFile(pathOnly(d.topicPath(name)), "topic.json", &t)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return topicFile{}, fmt.Errorf("%w %q in %s", mirror.ErrUnknownTopic, name, d.path)
	case err != nil:
		return topicFile{}, fmt.Errorf("topic %s: %w", name, err)
	case t.Name != name: // a file system that takes upper and lower case for the same
		return topicFile{}, fmt.Errorf("%w %q: its folder holds topic %q", mirror.ErrUnknownTopic, name, t.Name)
	}
	return t, nil
}

// write makes the folder if need be, and puts topic.json there.
func (d *Destination) write(t topicFile) error {
	dir, err := openDirectory(d.topicPath(t.Name))
	if err != nil {
		return err
	}
	return errors.Join(writeFile(dir, "topic.json", t), dir.Close())
}

// checkTopicName is Kafka's rule. It also keeps a name from leaving the folder.
func checkTopicName(name string) error {
	legal := len(name) > 0 && len(name) <= 249 && name != "." && name != ".."
	for _, c := range []byte(name) {
		legal = legal && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !legal {
		return fmt.Errorf("%q is no topic name: 1–249 ASCII letters, digits, '.', '_', '-', and not \".\" or \"..\"", name)
	}
	return nil
}

// CreateTopic makes a topic under the source's topic id. Its logs need nothing: a log is closed for clients from the moment it is made.
func (d *Destination) CreateTopic(ctx context.Context, spec mirror.TopicSpec) (mirror.Topic, error) {
	if err := d.begin(ctx); err != nil {
		return mirror.Topic{}, err
	}
	defer d.mu.Unlock()
	t, err := d.read(spec.Name)
	if err == nil {
		return t.topic(), fmt.Errorf("%w: %q in %s", mirror.ErrTopicExists, spec.Name, d.path)
	}
	if !errors.Is(err, mirror.ErrUnknownTopic) {
		return mirror.Topic{}, err
	}
	if spec.Partitions < 1 {
		return mirror.Topic{}, fmt.Errorf("topic %s cannot have %d partitions", spec.Name, spec.Partitions)
	}
	t = topicFile{Name: spec.Name, ID: spec.SourceID, Partitions: spec.Partitions, Configs: spec.Configs}
	if t.ID == (mirror.TopicID{}) {
		rand.Read(t.ID[:])
	}
	return t.topic(), d.write(t)
}

// GrowTopic adds partitions.
func (d *Destination) GrowTopic(ctx context.Context, name string, partitions int32) (mirror.Topic, error) {
	if err := d.begin(ctx); err != nil {
		return mirror.Topic{}, err
	}
	defer d.mu.Unlock()
	t, err := d.read(name)
	switch {
	case err != nil || partitions == t.Partitions:
		return t.topic(), err
	case partitions < t.Partitions:
		return t.topic(), fmt.Errorf("topic %s has %d partitions and cannot have %d: partitions are never removed", name, t.Partitions, partitions)
	}
	t.Partitions = partitions
	return t.topic(), d.write(t)
}

// OpenLog opens a partition's log, once.
func (d *Destination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	l, err := d.open(tp)
	if err != nil {
		return nil, err // not l: a nil *Log in a mirror.Log is not nil
	}
	return l, nil
}

func (d *Destination) open(tp mirror.TopicPartition) (*Log, error) {
	if l := d.logs[tp]; l != nil {
		return l, nil
	}
	t, err := d.read(tp.Topic)
	if err != nil {
		return nil, err
	}
	if tp.Partition < 0 || tp.Partition >= t.Partitions {
		return nil, fmt.Errorf("%w: %q has partitions 0–%d, not %d", mirror.ErrUnknownTopic, tp.Topic, t.Partitions-1, tp.Partition)
	}
	l, err := OpenLog(filepath.Join(d.topicPath(tp.Topic), strconv.Itoa(int(tp.Partition))))
	if err != nil {
		return nil, err
	}
	d.logs[tp] = l
	if l.Cut > 0 && d.OnCut != nil {
		d.OnCut(tp, l.Cut)
	}
	return l, nil
}

// RaiseLeaderEpochs raises one after the other: here a raise is one small file.
func (d *Destination) RaiseLeaderEpochs(ctx context.Context, atLeast map[mirror.TopicPartition]int32) (map[mirror.TopicPartition]int32, error) {
	are := make(map[mirror.TopicPartition]int32, len(atLeast))
	var errs []error
	for _, tp := range slices.SortedFunc(maps.Keys(atLeast), func(a, b mirror.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}) {
		err := d.begin(ctx)
		if err == nil {
			var l *Log
			l, err = d.open(tp)
			d.mu.Unlock()
			if err == nil {
				are[tp], err = l.RaiseLeaderEpoch(ctx, atLeast[tp])
			}
		}
		if err != nil {
			delete(are, tp)
			errs = append(errs, fmt.Errorf("raising the leader epoch of %s-%d to %d: %w", tp.Topic, tp.Partition, atLeast[tp], err))
		}
	}
	return are, errors.Join(errs...)
}

// Close closes the logs and lets go of the folder.
func (d *Destination) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for _, l := range d.logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, d.root.Close())...)
}
