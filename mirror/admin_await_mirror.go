package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// AwaitRun waits until a process that runs the mirror is heard of, and returns the description that says so. One of its own takes a mirror up within seconds of its creation. progress, if not nil, is
// called on the caller's goroutine with the first description and with each that says something else, ages aside. Errors: as Describe, and the context's end; the description is the last one also then.
func (a *Admin) AwaitRun(ctx context.Context, progress func(Description)) (d Description, err error) {
	var told []string
	err = a.untilDone(ctx, func() (bool, error) {
		now, err := a.Describe(ctx)
		if err != nil {
			return false, err
		}
		d = now
		if words := d.words(); progress != nil && (told == nil || !slices.Equal(words, told)) {
			told = append([]string{}, words...)
			progress(d)
		}
		return d.Alive, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("mirror %s: no process that runs it is heard of: %w", a.cfg.Mirror, err)
	}
	return d, err
}

// AwaitDeleted waits, after Delete, until the process that has the mirror's states has taken them out; purge: the last mirror epochs too. progress, if not nil, is called on the caller's goroutine with
// how many are left, at first and when that changes. Errors: the state store's; the context's end.
func (a *Admin) AwaitDeleted(ctx context.Context, purge bool, progress func(left int)) error {
	last := -1
	err := a.untilDone(ctx, func() (bool, error) {
		left := 0
		if err := a.cfg.States.Load(ctx, func(e statemachine.Entry) error {
			if e.Key.Mirror == a.cfg.Mirror && (e.State.State != statemachine.Unknown || purge && e.LME != nil) {
				left++
			}
			return nil
		}); err != nil {
			return false, err
		}
		if left != last && progress != nil {
			progress(left)
		}
		last = left
		return left == 0, nil
	})
	if err != nil {
		err = fmt.Errorf("mirror %s: %s still kept by the process that has them: %w", a.cfg.Mirror, plural(max(last, 0), "state", "states"), err)
	}
	return err
}

// untilDone asks again and again until it is said to be done, or fails for another reason than the end of ctx.
func (a *Admin) untilDone(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
