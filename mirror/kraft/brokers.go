package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
)

// brokers is how the stock brokers are asked for what the cluster keeps beside its logs. Mirror processes answer no such request.
type brokers struct{ d *Destination }

var _ kafkametadata.Cluster = brokers{}

var errNoLiveBroker = errors.New("kraft: no broker of the cluster is alive that could be asked; start one")

// Brokers are those that are not fenced, by the metadata that this process follows.
func (b brokers) Brokers(context.Context) ([]int32, error) {
	ids := b.d.liveBrokers()
	if len(ids) == 0 {
		return nil, errNoLiveBroker
	}
	return ids, nil
}

// Ask sends one request to one broker. One that is fenced is not waited for, and a mirror process is not asked. The error does not say which broker it was: Cluster's callers know.
func (b brokers) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	if !slices.Contains(b.d.liveBrokers(), broker) {
		return nil, fmt.Errorf("it is not alive, or a mirror process: %v are the brokers that can be asked", b.d.liveBrokers())
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	if changes(req) {
		req = fenced{req, b.d.membership.inSession, refuse}
	}
	resp, err := b.d.aside.Broker(ctx, broker, req)
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return resp, err
}

// fenced is a request that may be sent only in this process's session. kgo connects, and sends anew what a connection lost, while guarded waits for the answer; it asks for the version when it is
// about to write, and does not write when the context has ended by then.
type fenced struct {
	kmsg.Request
	may    func() error
	refuse context.CancelCauseFunc
}

// MaxVersion is the newest version that may be sent.
func (f fenced) MaxVersion() int16 {
	if err := f.may(); err != nil {
		f.refuse(err)
	}
	return f.Request.MaxVersion()
}
