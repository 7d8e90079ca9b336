package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// order is what a measured process is told. Each run of a system is a process of its own, so that CPU, memory and allocations are that run's alone.
type order struct {
	System      string
	Topic       string
	Partitions  int32
	Records     int64 // in the topic, over all partitions
	Batches     int64
	Bytes       int64
	Codec       string
	AtMost      time.Duration // a run that takes longer is measured up to there
	Lag         bool          // follow the topic and tell how late batches are, until told to stop
	Profile     string        // prefix of the files for profiles of CPU and allocations; empty: none
	Source      place
	Destination place
	Link        longLink // to the source
	Idle        []string // topics of an idle process
	Mirrors     int      // that it runs
}

// place is a cluster as a measured process needs to know it.
type place struct {
	Bootstrap   []string
	Controllers []string
	PIDs        []int    // of the brokers
	Folders     []string // with the brokers' logs
}

func placeOf(t *program, c *kafkatest.Cluster) place {
	p := place{Bootstrap: c.Bootstrap(), Controllers: c.ControllerAddresses()}
	for _, id := range c.Brokers() {
		p.PIDs, p.Folders = append(p.PIDs, brokerPID(t, c, id)), append(p.Folders, c.DataDir(id))
	}
	return p
}

// run is one measured run: what was copied between its first byte and its last one, and what that took.
type run struct {
	RecordBytes    int     `json:"record_bytes"`
	System         string  `json:"system"`
	Round          int     `json:"round"`
	Bytes          int64   `json:"bytes"` // as the source has them: compressed
	Batches        int64   `json:"batches"`
	Records        int64   `json:"records"`
	Seconds        float64 `json:"seconds"`
	ClientCPU      float64 `json:"client_cpu_seconds"`
	SourceCPU      float64 `json:"source_broker_cpu_seconds"`
	DestinationCPU float64 `json:"destination_broker_cpu_seconds"`
	PeakBytes      int64   `json:"peak_resident_bytes"`
	Allocations    int64   `json:"allocations"` // -1: unknown
	Load           string  `json:"load"`
	Warnings       int     `json:"warnings,omitempty"` // of the mirror: failed partitions and the like
	FirstWarning   string  `json:"first_warning,omitempty"`
}

func (r run) rate() float64           { return float64(r.Bytes) / 1e6 / r.Seconds }
func (r run) gigabytes() float64      { return float64(r.Bytes) / 1e9 }
func (r run) cpuPerGB() float64       { return r.ClientCPU / r.gigabytes() }
func (r run) sourcePerGB() float64    { return r.SourceCPU / r.gigabytes() }
func (r run) brokerPerGB() float64    { return r.DestinationCPU / r.gigabytes() }
func (r run) peakMiB() float64        { return mib(r.PeakBytes) }
func (r run) allocsPerBatch() float64 { return float64(r.Allocations) / float64(r.Batches) }

// meter reads what a run has used so far.
type meter struct {
	client func() (time.Duration, error) // CPU
	o      *order
	own    bool // this process is measured: its allocations count
}

type reading struct {
	at                          time.Time
	client, source, destination time.Duration
	allocations                 int64
}

func (m *meter) read() (r reading, err error) {
	if m.own {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		r.allocations = int64(stats.Mallocs)
	}
	var errs [3]error
	r.client, errs[0] = m.client()
	r.source, errs[1] = processTime(m.o.Source.PIDs...)
	r.destination, errs[2] = processTime(m.o.Destination.PIDs...)
	r.at = time.Now()
	return r, errors.Join(errs[:]...)
}

// measure waits for the first record (or for warm, when not nil, to say that the system has warmed up) and measures from there to the last one, or for AtMost. have counts records.
func (m *meter) measure(ctx context.Context, every time.Duration, have func() (int64, error), warm func(have int64) bool) (run, error) {
	var began reading
	var first, now int64
	tick := time.NewTicker(every)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case <-ctx.Done():
			return run{}, ctx.Err()
		case <-deadline:
			return run{}, fmt.Errorf("%s: %d of %d records after 3 minutes", m.o.System, now, m.o.Records)
		case <-tick.C:
		}
		var err error
		if now, err = have(); err != nil {
			return run{}, err
		}
		if began.at.IsZero() {
			if now > 0 && (warm == nil || warm(now)) {
				if began, err = m.read(); err != nil {
					return run{}, err
				}
				first = now
			}
			continue
		}
		if now < m.o.Records && (m.o.AtMost == 0 || time.Since(began.at) < m.o.AtMost) {
			continue
		}
		ended, err := m.read()
		if err != nil {
			return run{}, err
		}
		if now == first {
			return run{}, fmt.Errorf("%s: everything was there at once", m.o.System)
		}
		part := float64(now-first) / float64(m.o.Records)
		r := run{
			System: m.o.System, Records: now - first, Bytes: int64(part * float64(m.o.Bytes)), Batches: int64(part * float64(m.o.Batches)), Seconds: ended.at.Sub(began.at).Seconds(),
			ClientCPU: (ended.client - began.client).Seconds(), SourceCPU: (ended.source - began.source).Seconds(), DestinationCPU: (ended.destination - began.destination).Seconds(),
			Allocations: -1,
		}
		if m.own {
			r.Allocations = ended.allocations - began.allocations
		}
		return r, nil
	}
}

// child starts this program with an order.
func child(ctx context.Context, o order) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-order", string(b))
	cmd.Stderr = os.Stderr
	return cmd, nil
}
