package kraft

import "context"

// turn is a lock that is waited for no longer than a context lasts: for what does requests while it is held.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. Every take that returned nil, and every tryTake that said yes, is ended by one release.
func (t turn) take(ctx context.Context) error {
	if t.tryTake() {
		return nil
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryTake takes it if nobody has it.
func (t turn) tryTake() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) release() { <-t }
