package kraft

import (
	"context"
	"time"
)

// pause waits some milliseconds, or for the context's end.
func pause(ctx context.Context, milliseconds int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return nil
	}
}
