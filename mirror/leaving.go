package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/statemachine"
)

// leave takes out this mirror's states of topics that another mirror has taken over since they were stopped here; their last mirror epochs stay (spec decision 21). The
// adopter does that with its own first states where both have one owner. What another process's name has is left to it, which is this one. It waits until the adopter has
// states of its own, which begin where these end.
func (f *following) leave(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, f.m.cfg.CallBound)
	defer stop()
	f.mu.Lock()
	state := f.state // nobody changes what it holds
	f.mu.Unlock()
	done := map[string]string{}
	var errs []error
	for _, w := range state.Topics {
		adopter, _, err := w.Wish()
		if err != nil || w.AdoptedFrom != f.m.cfg.Name || adopter == f.m.cfg.Name {
			continue
		}
		over := f.left[w.Topic] == adopter
		if !over {
			if over, err = f.leaveTopic(ctx, w.Topic, adopter); err != nil {
				errs = append(errs, fmt.Errorf("taking out the states of topic %s, which mirror %s has now: %w", w.Topic, adopter, err))
			}
		}
		if over {
			done[w.Topic] = adopter
		}
	}
	f.left = done
	return errors.Join(errs...)
}

// leaveTopic reports whether nothing is left to do for a topic.
func (f *following) leaveTopic(ctx context.Context, name, adopter string) (over bool, err error) {
	topic, err := f.m.cfg.Destination.Topic(ctx, name)
	if err != nil {
		return errors.Is(err, ErrUnknownTopic), nil // one that is gone has nothing; else it is asked again
	}
	entries, err := f.m.loading.of(ctx, topic.ID)
	if err != nil {
		return false, err
	}
	taken := map[int32]bool{}
	for _, e := range entries {
		if e.Key.Mirror == adopter && e.State.State != statemachine.Unknown {
			taken[e.Key.Partition] = true
		}
	}
	over = true
	var writes []statemachine.Write
	for _, e := range entries {
		switch {
		case e.Key.Mirror != f.m.cfg.Name || e.State == statemachine.NewPartitionState() || e.Owner != f.m.cfg.Owner:
		case taken[e.Key.Partition]:
			writes = append(writes, statemachine.Write{Key: e.Key, ExpectedStateEpoch: e.State.StateEpoch, LeaderEpoch: -1, Delete: true})
		default:
			over = false
		}
	}
	if len(writes) == 0 {
		return over, nil
	}
	results, err := f.m.session.Write(ctx, writes)
	if err != nil {
		return false, err
	}
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	return over && err == nil, err
}
