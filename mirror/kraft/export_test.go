package kraft

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Intercept has f stand around every request that a process sends to controllers and brokers: it calls send, or not, and may say something else than send did. Requests are sent
// concurrently.
func (c *Config) Intercept(f func(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error)) {
	c.intercept = f
}
