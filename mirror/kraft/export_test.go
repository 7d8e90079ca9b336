package kraft

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
)

// Intercept has f stand around every request that a process sends to controllers and brokers: it calls send, or not, and may say something else than send did. Requests are sent
// concurrently.
func (c *Config) Intercept(f func(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error)) {
	c.intercept = f
}

// DirectoryID is the log directory that a process registers.
var DirectoryID = directoryID

// HighestTested are the feature levels that were tried. A test that changes them puts them back.
var HighestTested = highestTested

// InterBrokerListener is what Join registers among these brokers.
func (c *Config) InterBrokerListener(brokers []clustermetadata.Broker) (string, int16, error) {
	return c.interBrokerListener(brokers)
}
