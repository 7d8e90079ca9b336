package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// mostSilent is how many brokers may leave one call without an answer before it gives up: each costs a bound, and whoever is locked out of all of them is not to try all of them.
const mostSilent = 5

// anyBroker asks what every broker can answer, the brokers in turn. One that did not answer is not asked again by this call.
type anyBroker struct {
	client *Client
	ids    []int32 // the next one first
	silent int
	last   error
}

func (c *Client) anyBroker(ctx context.Context) (*anyBroker, error) {
	ids, err := c.cluster.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	return &anyBroker{client: c, ids: slices.Clone(ids), last: errors.New("the cluster has no broker that could be asked")}, nil
}

// askAny sends a request to one broker after the other until one answers. It may have reached those that did not, so it is for what may be done twice.
func askAny[R any](ctx context.Context, a *anyBroker, request func() kmsg.Request) (none R, err error) {
	for len(a.ids) > 0 && a.silent < mostSilent {
		id := a.ids[0]
		resp, err := ask[R](ctx, a.client, id, request())
		a.ids = a.ids[1:]
		if err == nil {
			a.ids = append(a.ids, id)
			return resp, nil
		}
		a.silent++
		a.last = fmt.Errorf("asking broker %d: %w", id, err)
		if ctx.Err() != nil {
			break
		}
	}
	return none, a.last
}

// refusal is a broker's error with its own words, nil for code 0. Words that say what the code says already are left out (Kafka: Errors.message() is what a broker says that has no others), and
// those that go with a right on the cluster that is missing: they are Java's description of the request.
func refusal(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || message == nil || err == kerr.ClusterAuthorizationFailed {
		return err
	}
	if words := strings.ToLower(strings.Trim(*message, " .")); strings.Contains(strings.ToLower(err.Error()), words) { // no words, too
		return err
	}
	return fmt.Errorf("%w (%s)", err, *message)
}

// Codes of a broker that has answered and does not know what became of the change, and those of a topic's settings themselves: one that it does not know, a value that it does not take, or a
// policy of the cluster (Kafka: ConfigurationControlManager, AlterConfigPolicy).
var (
	notKnownCodes = []int16{kerr.UnknownServerError.Code, kerr.RequestTimedOut.Code, kerr.NetworkException.Code}
	settingCodes  = []int16{kerr.InvalidConfig.Code, kerr.InvalidRequest.Code, kerr.PolicyViolation.Code}
)

// refused is Refused, unless a broker that was asked before and did not answer may have carried the change out.
func (a *anyBroker) refused(code int16, err error) error {
	if a.silent > 0 {
		return err
	}
	return Refused(code, err)
}

// Refused makes of the refusal of a change, err with Kafka's code for it, a *mirror.RefusedError if it says for certain that nothing was changed.
func Refused(code int16, err error) error {
	if err == nil || slices.Contains(notKnownCodes, code) {
		return err
	}
	return &mirror.RefusedError{Setting: slices.Contains(settingCodes, code), Err: err}
}
