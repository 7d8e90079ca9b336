package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"

	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// disks are the .log files of the story's topics as they lie on the disks of a cluster, whether its brokers run or not: by partition and broker.
type disks map[string]map[int32][]byte

func (s *side) disks() disks {
	d := disks{}
	for _, t := range topics {
		for p := range t.partitions {
			on := map[int32][]byte{}
			for _, id := range s.Brokers() {
				on[id] = s.SegmentBytes(t.name, p, id)
			}
			d[partitionName(t.name, p)] = on
		}
	}
	return d
}

// longest is what the broker has that has most of a partition.
func (d disks) longest(partition string) (most []byte) {
	for _, log := range d[partition] {
		if len(log) > len(most) {
			most = log
		}
	}
	return most
}

// below is the part of a log in front of an offset.
func below(log []byte, offset int64) ([]byte, error) {
	rest, err := lives.Since(log, offset)
	return log[:len(log)-len(rest)], err
}

// batches are the bytes of a log's batches, cut by their length fields.
func batches(log []byte) (all [][]byte) {
	for len(log) >= 12 {
		size := 12 + int(binary.BigEndian.Uint32(log[8:]))
		if size > len(log) {
			break
		}
		all, log = append(all, log[:size]), log[size:]
	}
	return all
}

var written = regexp.MustCompile(`(` + orders + `|` + payments + `)-\d{6}\|`)

// idsIn are the records that are found in bytes, whatever else is in them.
func idsIn(log []byte) map[string]bool {
	ids := map[string]bool{}
	for _, found := range written.FindAll(log, -1) {
		ids[idOf(found)] = true
	}
	return ids
}

// comparison is what was compared.
type comparison struct {
	partitions, brokers, batches int
	bytes                        int64
}

func (c comparison) String() string {
	return fmt.Sprintf("%d partitions on %d disks, %d batches, %d bytes", c.partitions, c.brokers, c.batches, c.bytes)
}

// sameUpTo compares each partition on every disk of one cluster with that of another one, in front of an offset.
func sameUpTo(copied, source disks, ends map[string]int64) (c comparison, err error) {
	for _, t := range topics {
		for p := range t.partitions {
			name := partitionName(t.name, p)
			want, err := below(source.longest(name), ends[name])
			if err != nil {
				return c, fmt.Errorf("%s: %w", name, err)
			}
			if len(want) == 0 {
				return c, fmt.Errorf("%s: there is nothing to compare in front of offset %d", name, ends[name])
			}
			c.partitions++
			c.batches, c.bytes = c.batches+len(batches(want)), c.bytes+int64(len(want))
			c.brokers = len(copied[name])
			for id, log := range copied[name] {
				got, err := below(log, ends[name])
				if err != nil {
					return c, fmt.Errorf("%s on broker %d: %w", name, id, err)
				}
				if d := lives.Difference(got, want); d != "" {
					return c, fmt.Errorf("%s on broker %d: %s", name, id, d)
				}
			}
		}
	}
	return c, nil
}

// sameBeginning compares each partition on every disk of both clusters: one has all of it, the other one begins with it. That is what a switch leaves: only where clients write now is more.
func sameBeginning(whole, more disks) (c comparison, err error) {
	for _, t := range topics {
		for p := range t.partitions {
			name := partitionName(t.name, p)
			want := whole.longest(name)
			c.partitions++
			c.batches, c.bytes = c.batches+len(batches(want)), c.bytes+int64(len(want))
			c.brokers = len(whole[name]) + len(more[name])
			for id, log := range whole[name] {
				if d := lives.Difference(log, want); d != "" || len(want) == 0 {
					return c, fmt.Errorf("%s on broker %d: %s", name, id, d)
				}
			}
			for id, log := range more[name] {
				if !bytes.HasPrefix(log, want) {
					return c, fmt.Errorf("%s on broker %d of the other cluster: %s", name, id, lives.Difference(log[:min(len(log), len(want))], want))
				}
				if rest := more.longest(name); !bytes.Equal(log, rest) {
					return c, fmt.Errorf("%s on broker %d is not what other brokers of its cluster have: %s", name, id, lives.Difference(log, rest))
				}
			}
		}
	}
	return c, nil
}
