package main

import (
	"fmt"
	"slices"
	"strings"
)

// The systems that a cell measures side by side.
const (
	raw         = "raw"         // a bare fetcher: everything is fetched, every checksum verified, nothing kept. It is the limit, and stands first in each round
	memlogged   = "memlog"      // a mirror into memlog, which discards batches after its checks, as the bare fetcher does
	memlogKept  = "memlog-kept" // a mirror into memlog, which keeps everything: memory for the whole topic is part of the cost
	kafka       = "kafka"       // a mirror into a Kafka cluster: a stock broker follows
	copier      = "copier"      // a plain copier of records over franz-go: a consumer and a producer
	mirrorMaker = "mm2"         // MirrorMaker 2
	idle        = "idle"        // of -idle: mirrors of topics in which nothing happens
)

// groups are what the last part of a cell's name stands for.
var groups = map[string][]string{
	"memlog": {raw, memlogged, memlogKept},
	"kafka":  {raw, memlogged, kafka, copier},
	"all":    {raw, memlogged, memlogKept, kafka, copier, mirrorMaker},
	"lag":    {memlogged, kafka, copier}, // each of them beside a bare fetcher
}

// cell is one set of data and the systems that copy it. Its name says all of it: record sizes, codec, partitions, group of systems.
type cell struct {
	records    []int // bytes of a record; of two sizes each round has both
	codec      string
	partitions int32
	group      string
	quick      bool
}

// cells are the twelve. Each value of each dimension is in one of them; goals are judged from the first three.
var cells = []cell{
	{[]int{1024}, "none", 8, "all", true},
	{[]int{100, 10240}, "none", 8, "memlog", true},
	{[]int{1024}, "none", 8, "lag", true},
	{[]int{1024}, "none", 1, "kafka", false},
	{[]int{1024}, "none", 64, "kafka", false},
	{[]int{1024}, "none", 1000, "kafka", false},
	{[]int{1024}, "lz4", 8, "all", false},
	{[]int{1024}, "zstd", 8, "all", false},
	{[]int{100}, "lz4", 64, "kafka", false},
	{[]int{100}, "none", 1, "all", false},
	{[]int{10240}, "zstd", 64, "kafka", false},
	{[]int{1024}, "lz4", 64, "lag", false},
}

func (c cell) name() string {
	var sizes []string
	for _, n := range c.records {
		sizes = append(sizes, sizeName(n))
	}
	return fmt.Sprintf("%s-%s-%d-%s", strings.Join(sizes, "+"), c.codec, c.partitions, c.group)
}

func (c cell) systems() []string { return groups[c.group] }

func (c cell) lag() bool { return c.group == "lag" }

func sizeName(n int) string {
	if n >= 1024 {
		return fmt.Sprintf("%dKiB", n/1024)
	}
	return fmt.Sprintf("%dB", n)
}

// chosen are the cells that the flags ask for: those named, else the quick ones, else all.
func chosen(names string, quick bool) ([]cell, error) {
	if names == "" {
		return slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return quick && !c.quick }), nil
	}
	var out []cell
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(cells, func(c cell) bool { return c.name() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no cell %q; -list shows them", name)
		}
		out = append(out, cells[i])
	}
	return out, nil
}
