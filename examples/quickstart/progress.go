package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// progress prints one line a second, and one when done says so.
func progress(ctx context.Context, m *mirror.Mirror, what string, done func(mirror.Status) bool) error {
	line := time.NewTicker(time.Second)
	defer line.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		s := m.Status()
		if done(s) {
			fmt.Printf("%s\n  → %s\n\n", progressLine(s), what)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-line.C:
			fmt.Println(progressLine(s))
		case <-look.C:
		}
	}
}

// progressLine is all topics of a mirror in one line.
func progressLine(s mirror.Status) string {
	var parts []string
	for _, t := range s.Topics {
		parts = append(parts, topicProgress(t))
	}
	return "  " + strings.Join(parts, "  |  ")
}

func topicProgress(t mirror.TopicStatus) string {
	if t.Err != nil {
		return fmt.Sprintf("%s: %v", t.Topic, t.Err)
	}
	var copied, lag int64
	states := map[string]int{}
	behind, reason := "", ""
	for _, p := range t.Partitions {
		copied += p.End - p.Start
		lag += max(0, p.LagOffsets)
		states[p.State.String()]++
		if p.LagOffsets == mirror.Unknown {
			behind = "unknown"
		}
		if p.Reason != "" && reason == "" {
			reason = ": " + p.Reason
		}
	}
	if behind == "" {
		behind = fmt.Sprint(lag)
	}
	var names []string
	for name, n := range states {
		names = append(names, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(names)
	return fmt.Sprintf("%s: %s, %d offsets here, lag %s%s", t.Topic, strings.Join(names, ", "), copied, behind, reason)
}

func inStep(p mirror.PartitionStatus) bool {
	return p.State == statemachine.Mirroring && p.LagOffsets == 0
}

func unmeasured(p mirror.PartitionStatus) bool { return p.LagOffsets == mirror.Unknown }

// everyPartition says whether all partitions of the story are there and ok.
func everyPartition(ok func(mirror.PartitionStatus) bool) func(mirror.Status) bool {
	return func(s mirror.Status) bool {
		n := 0
		for _, t := range s.Topics {
			for _, p := range t.Partitions {
				if ok(p) {
					n++
				}
			}
		}
		return n == partitions
	}
}

func at(s mirror.Status, topic string, partition int32) mirror.PartitionStatus {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return mirror.PartitionStatus{End: mirror.Unknown}
}
