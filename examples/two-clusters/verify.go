package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

func topicOf(t topic, copies int) kafkatest.Topic {
	return kafkatest.Topic{Name: t.name, Partitions: int(t.partitions), Replication: copies}
}

// readable is a record that a new consumer can read.
type readable struct {
	id     string
	offset int64
}

// visible reads both topics as a consumer does that begins at their start and wants committed records only, by partition.
func (l *life) visible(at *side) (map[string][]readable, error) {
	ctx, stop := context.WithTimeout(l.ctx, bound)
	defer stop()
	ends, err := at.Admin().ListCommittedOffsets(ctx, orders, payments)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{}
	for _, t := range topics {
		from[t.name] = map[int32]kgo.Offset{}
		for p := range t.partitions {
			from[t.name][p] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(at.Bootstrap()...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(from), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	all, next := map[string][]readable{}, map[string]int64{}
	behind := func() bool {
		for _, t := range topics {
			for p := range t.partitions {
				if end, _ := ends.Lookup(t.name, p); next[partitionName(t.name, p)] < end.Offset {
					return true
				}
			}
		}
		return false
	}
	for behind() {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading everything at the %s: %w", at.name, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name := partitionName(r.Topic, r.Partition)
			next[name] = r.Offset + 1
			if !r.Attrs.IsControl() {
				all[name] = append(all[name], readable{idOf(r.Value), r.Offset})
			}
		})
	}
	return all, nil
}

// settled waits until all brokers of a cluster have the same files.
func (l *life) settled(at *side) error {
	return l.await("all brokers of the "+at.name+" have the same files", func() (bool, string, error) {
		for name, on := range at.disks() {
			for id, log := range on {
				if !bytes.Equal(log, on[1]) {
					return false, fmt.Sprintf("%s on broker %d", name, id), nil
				}
			}
		}
		return true, "", nil
	})
}

// wentOn: the first record that a consumer got at a cluster is the first one that can be read from where its group had been moved to.
func wentOn(first, moved map[string]int64, visible map[string][]readable) error {
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		i := slices.IndexFunc(visible[name], func(r readable) bool { return r.offset >= moved[name] })
		if i < 0 {
			return fmt.Errorf("%s: there is no record behind %d, where the group was moved to", name, moved[name])
		}
		if want := visible[name][i].offset; first[name] != want {
			return fmt.Errorf("%s: the group was moved to %d, so the next record is at %d; its consumer began at %d", name, moved[name], want, first[name])
		}
	}
	return nil
}

func (l *life) nothingTwice() error {
	if more := l.ledger.readTwice() - l.twice; more > 0 {
		return fmt.Errorf("%s read twice", count(more, "record"))
	}
	return nil
}

// keptWhatWasGivenUp: the files in the node's folder are the tails that lay on the disks of the dead east, with every acknowledged record of them, and as many offsets as the plan said.
func (l *life) keptWhatWasGivenUp() error {
	offsets := int64(0)
	kept := map[string]bool{}
	for _, t := range topics {
		for p := range t.partitions {
			name := partitionName(t.name, p)
			files, err := filepath.Glob(l.place.in("node-"+l.east.name, "dropped", t.name, fmt.Sprint(p), "*.log"))
			if err != nil || len(files) > 1 {
				return fmt.Errorf("%s: %d files, %w", name, len(files), err)
			}
			if len(files) == 0 {
				continue
			}
			var from, to int64
			if _, err := fmt.Sscanf(filepath.Base(files[0]), "%d.%d.", &from, &to); err != nil {
				return fmt.Errorf("%s: %w", files[0], err)
			}
			held, err := os.ReadFile(files[0])
			if err != nil {
				return err
			}
			tail, err := lives.Since(l.dead.longest(name), l.ends[name])
			if err != nil {
				return fmt.Errorf("%s on the disks of the dead east: %w", name, err)
			}
			// What is beyond was written by the east itself after it came back: markers of transactions that its coordinators had begun to end.
			both := min(len(held), len(tail))
			if d := lives.Difference(held[:both], tail[:both]); d != "" {
				return fmt.Errorf("%s: %s", name, d)
			}
			if later := idsIn(held[both:]); len(later) > 0 {
				return fmt.Errorf("%s: %s lay on no disk of the dead east", name, count(len(later), "record"))
			}
			offsets += to - from
			maps.Copy(kept, idsIn(held))
		}
	}
	if fmt.Sprint(offsets) != l.planned {
		return fmt.Errorf("the plan said %s offsets, and %d are kept", l.planned, offsets)
	}
	var lost []string
	for id := range l.ledger.acknowledged() {
		if l.tail[id] && !kept[id] {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("not kept: %s", some(lost))
	}
	return nil
}

func (l *life) noneSkipped(visible map[string][]readable) error {
	var skipped []string
	for _, all := range visible {
		for _, r := range all {
			if !l.ledger.hasRead(r.id) {
				skipped = append(skipped, r.id)
			}
		}
	}
	if len(skipped) > 0 {
		return fmt.Errorf("it never got %s", some(skipped))
	}
	return nil
}

// noneLost: each record that a client was told is written lies on the disk of every broker of the cluster that clients use, or is one of those that were given up.
func (l *life) noneLost(here disks) error {
	var lost []string
	found := map[string]map[int32]map[string]bool{}
	for name, on := range here {
		found[name] = map[int32]map[string]bool{}
		for broker, log := range on {
			found[name][broker] = idsIn(log)
		}
	}
	for id, at := range l.ledger.acknowledged() {
		for broker, ids := range found[partitionName(at.topic, at.partition)] {
			if !ids[id] && !l.tail[id] {
				lost = append(lost, fmt.Sprintf("%s on broker %d", id, broker))
			}
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("%s", some(lost))
	}
	return nil
}

// endedDifferently counts the acknowledged records that lie on the disks and cannot be read: their transactions were committed at the east when the copy did not get that any more. The plan of
// the failback names such transactions; nothing else may be hidden.
func (l *life) endedDifferently(visible map[string][]readable) (hidden int, err error) {
	can := map[string]bool{}
	for _, all := range visible {
		for _, r := range all {
			can[r.id] = true
		}
	}
	var wrong []string
	for id, at := range l.ledger.acknowledged() {
		if can[id] || l.tail[id] {
			continue
		}
		hidden++
		if at.topic != payments || at.side != l.east.name {
			wrong = append(wrong, id)
		}
	}
	switch {
	case len(wrong) > 0:
		return hidden, fmt.Errorf("cannot be read: %s", some(wrong))
	case !l.failoverOnly && strings.Contains(l.plan, ": committed here at ") != (hidden > 0):
		return hidden, fmt.Errorf("%s, and the plan names none, or names some for nothing", count(hidden, "such record"))
	}
	return hidden, nil
}
