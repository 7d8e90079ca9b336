package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// run is one mirror of the node: it is opened, opened again where that fails, and closed.
type run struct {
	n    *Node
	name string

	mu      sync.Mutex
	mirror  *mirror.Mirror
	problem string
}

// openAgain is the pause after a mirror that could not be opened, or that another process took, at first and at most.
const openAgain, openAgainMost = time.Second, 30 * time.Second

// fencedLook is how often an open mirror is asked whether it still is one.
const fencedLook = 5 * time.Second

// follow keeps the mirror open until ctx ends.
func (r *run) follow(ctx context.Context) {
	wait := openAgain
	for {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > openAgainMost {
			wait = openAgain
		}
		r.trouble(err)
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, openAgainMost)
	}
}

// once opens the mirror and stays until it is of no use any more, or ctx ends.
func (r *run) once(ctx context.Context) error {
	if err := r.another(ctx); err != nil {
		return err
	}
	c := mirror.Config{
		Name: r.name, Node: r.n.cfg.Name, Version: r.n.cfg.Version, OpenSource: r.n.cfg.OpenSource, Destination: r.n.destination, Store: keyedlog.NewStateStore(r.n.records), Control: r.n.control,
		Sink: r.n.cfg.Sink, SharedRate: r.n.rate, Verifier: verify.Verifier{}, Logger: r.n.cfg.Logger, OnEvent: func(e mirror.Event) {
			r.n.collector.Observe(e)
			r.n.page.Observe(e)
			r.n.cfg.OnEvent(e)
		},
	}
	r.n.cfg.Options.Apply(&c)
	m, err := mirror.Open(ctx, c)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.mirror, r.problem = m, ""
	r.mu.Unlock()
	r.n.cfg.Logger.Info("mirror runs", "mirror", r.name)
	defer func() {
		r.mu.Lock()
		r.mirror = nil
		r.mu.Unlock()
		if err := m.Close(); err != nil {
			r.n.cfg.Logger.Warn("mirror ended", "mirror", r.name, "error", err)
		}
	}()
	for pause(ctx, fencedLook) {
		if fenced := m.Status().Fenced; fenced != nil {
			return fmt.Errorf("another process has taken this mirror: %w", fenced)
		}
	}
	if why := context.Cause(ctx); !errors.Is(why, ErrThrownOut) && !errors.Is(why, ErrLost) { // else no step can come to its end
		r.drain(m)
	}
	return nil
}

// another is an error while a node of another name has the mirror: its partitions are led there, and opening the mirror here would only take its name away.
func (r *run) another(ctx context.Context) error {
	bounded, stop := context.WithTimeout(ctx, readBound)
	defer stop()
	reports, err := r.n.control.Reports(bounded)
	var broken *mirror.ControlRecordError
	switch {
	case errors.As(err, &broken) && !errors.Is(err, mirror.ErrNewerRecord): // what reports say decides nothing that cannot be found out otherwise: no topic stands still because one cannot be read
		r.n.cfg.Logger.Warn("whether another node has the mirror is not known", "mirror", r.name, "error", err)
		return nil
	case err != nil:
		return err
	}
	i := slices.IndexFunc(reports.Nodes, func(n mirror.NodeReport) bool {
		return n.Mirror == r.name && n.Node != "" && n.Node != r.n.cfg.Name
	})
	if i < 0 {
		return nil
	}
	other := reports.Nodes[i]
	state, err := r.n.control.Read(bounded)
	if err != nil {
		return err
	}
	held := map[string]bool{} // topics that are not stopped, wanted or not: a node that died young has reported none of them
	for _, w := range state.Topics {
		if name, want, err := w.Wish(); err == nil && name == r.name && want != statemachine.WantStopped {
			held[w.Topic] = true
		}
	}
	for _, p := range reports.Partitions {
		if p.Mirror == r.name && p.State != statemachine.Stopped && p.State != statemachine.Unknown {
			held[p.Topic] = true
		}
	}
	if len(held) == 0 && r.n.silent(other) {
		return nil // nothing is left of it
	}
	return fmt.Errorf("node %s has it (%d topics; last heard of at %s, on host %s): start a process under that node id, or say in mirror.names of each node which one runs it",
		other.Node, len(held), other.Seen.UTC().Format("2006-01-02 15:04:05 UTC"), other.Host)
}

// drain waits until no partition is in the middle of a step.
func (r *run) drain(m *mirror.Mirror) {
	ctx, stop := context.WithDeadline(context.Background(), r.n.drainBy())
	defer stop()
	_ = m.Await(ctx, func(s mirror.Status) bool {
		if s.Fenced != nil {
			return true
		}
		for _, t := range s.Topics {
			for _, p := range t.Partitions {
				if !p.Halted && (p.State == statemachine.Stopping || p.State == statemachine.Pausing) {
					return false
				}
			}
		}
		return true
	})
}

func (r *run) trouble(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	fresh := r.problem != err.Error()
	r.problem = err.Error()
	r.mu.Unlock()
	if fresh {
		r.n.cfg.Logger.Error("mirror does not run", "mirror", r.name, "error", err)
	}
}

// status is the mirror for people, and what it says of itself if it is open.
func (r *run) status() (MirrorStatus, *mirror.Status) {
	r.mu.Lock()
	m, problem := r.mirror, r.problem
	r.mu.Unlock()
	s := MirrorStatus{Name: r.name, Problem: problem}
	if m == nil {
		if s.Problem == "" {
			s.Problem = beingOpened
		}
		return s, nil
	}
	look := m.Status()
	s.Running = true
	if look.Fenced != nil {
		s.Problem = look.Fenced.Error()
	}
	for _, t := range look.Topics {
		for _, p := range t.Partitions {
			s.Partitions++
			if p.State == statemachine.Failed {
				s.Failed++
			}
		}
	}
	return s, &look
}
