// Package talk is what the chaos test and its mirror's processes say to each other, as JSON. Tests only.
package talk

import (
	"encoding/json"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Setup is a process's only argument.
type Setup struct {
	Dir, States, Dropped, Events string
	Seeds                        []string
	Mirror                       string
}

// Order is what a process is to do.
type Order struct {
	Do        string          // status, start, startover, recover, pause, resume, plan, failover, produce, limit, close
	Topics    []string        `json:",omitempty"`
	Topic     string          `json:",omitempty"`
	Partition int32           `json:",omitempty"`
	Plan      json.RawMessage `json:",omitempty"`
	Batch     []byte          `json:",omitempty"`
	Bytes     uint64          `json:",omitempty"` // of the largest file, 0: no limit
}

// Answer is what came of it.
type Answer struct {
	Err        string
	Fenced     string
	Partitions []mirror.PartitionStatus
	Troubles   map[string]string // by topic
	Plan       json.RawMessage
	Text       string
	Results    []Result
	Offset     int64
}

// Result is a mirror.FailoverResult whose error is text.
type Result struct {
	mirror.FailoverResult
	Err string
}

// Told is an event, one line of the file of events.
type Told struct {
	Time      time.Time
	Kind      string
	Topic     string
	Partition int32
	Text      string
	From, To  int64 // of what was dropped or lost, and of holes
}
