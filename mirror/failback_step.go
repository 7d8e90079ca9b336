package mirror

import (
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// passNoReturn says whether the log of a partition that is being prepared may be cut or written now. Where it is part of a failback, that this begins is recorded first, for all of its topics: so
// AbortFailback, which records in the same place that they are given back, comes either before every cut or behind the point of no return, whatever crashes.
func (r *runner) passNoReturn() error {
	if r.state() != statemachine.Preparing {
		return nil
	}
	if err := r.recordNoReturn(); err != nil {
		return &notPassed{err}
	}
	return nil
}

// notPassed is why a log may not be changed.
type notPassed struct{ error }

func (e *notPassed) Unwrap() error { return e.error }

func (r *runner) recordNoReturn() error {
	m, topic := r.m, r.tp.Topic
	m.following.mu.Lock()
	known := m.following.state // nobody changes what it holds
	m.following.mu.Unlock()
	if err := known.mayChange(m.cfg.Name, topic); err != nil {
		return err
	}
	if f, ok := known.failbackOf(m.cfg.Name, topic); !ok || f.Step == FailbackCopying {
		return nil
	}
	ctx, stop := r.bounded()
	defer stop()
	var refusal error
	err := m.wish(ctx, func(s *ControlState) error {
		if refusal = s.mayChange(m.cfg.Name, topic); refusal != nil {
			return refusal
		}
		s.passNoReturn(m.cfg.Name, topic, time.Now())
		return nil
	})
	if err != nil && refusal == nil {
		return fmt.Errorf("that the failback begins to change logs could not be recorded, so none is changed: %w", err)
	}
	return refusal
}

// mayChange refuses where a topic is not to be mirrored any more.
func (s *ControlState) mayChange(mirror, topic string) error {
	w, ok := s.Topic(topic)
	owner, _, err := w.Wish()
	if !ok || err != nil || owner != mirror || stopped(w.MirrorName) {
		return fmt.Errorf("topic %s is not to be mirrored any more; nothing was changed", topic)
	}
	return nil
}
