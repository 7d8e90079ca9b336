// Package asking sends requests to a cluster of which a broker may stand still: its process is stopped, or its machine hangs. Connections to it stay open, new ones are even
// accepted, and nothing is answered, so nothing fails before the client's own timeout. That has to be long, because a broker that is far away, or collects garbage for seconds,
// is no failure. So time alone ends no request here. What is waited for in silence is asked of others too, or it is looked whether the silent one still has to be waited for.
package asking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// lookAfter is how long a broker is silent before it is looked whether another one has its place, and how often from then on. A slow answer costs one small request a second.
	lookAfter = time.Second
	// nextAfter is how long a broker is silent before the next one is asked beside it. A broker that is further away is asked beside another one for nothing, which costs little.
	nextAfter = 250 * time.Millisecond
	// mostAsked bounds how many brokers are asked at once. A client knows one twice that is a seed too, and may come to both of one that stands still, and again, before it comes to others.
	mostAsked = 5
)

// Any sends a request that any broker can answer and that may be carried out more than once, and returns the first answer. As long as there is none one broker after the other
// is asked, and none of them is given up before that. request makes the request anew for each. An error is that of all that were asked, the first one's.
func Any[R kmsg.Response](ctx context.Context, client *kgo.Client, request func() kmsg.Request) (answer R, err error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	type outcome struct {
		resp kmsg.Response
		err  error
	}
	outcomes := make(chan outcome, mostAsked)
	next := time.NewTimer(0)
	defer next.Stop()
	var first error
	for asked, failed := 0, 0; asked == 0 || failed < asked; {
		select {
		case <-next.C:
			req := request()
			go func() {
				resp, err := client.Request(ctx, req)
				outcomes <- outcome{resp, err}
			}()
			if asked++; asked < mostAsked {
				next.Reset(nextAfter)
			}
		case o := <-outcomes:
			if o.err == nil {
				return o.resp.(R), nil
			}
			if failed++; first == nil {
				first = o.err
			}
		}
	}
	return answer, first
}

// MovedError: a request was given up, because the broker that it went to was silent and another one has its place. Whether it was carried out is not known, as after every
// request without an answer.
type MovedError struct {
	Broker int32
	Waited time.Duration
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("broker %d has not answered for %s, and another one has taken its place", e.Broker, e.Waited.Round(100*time.Millisecond))
}

// Holder sends a request to the one broker that can answer it now, because it leads the partitions or coordinates what the request is about. While it is silent moved is asked
// whether another broker does so now, once a second: then the request is given up, with a *MovedError. moved must not use what the caller uses meanwhile, and ends with its
// context. held is how long the request itself tells the broker to wait.
func Holder(ctx context.Context, client *kgo.Client, broker int32, req kmsg.Request, held time.Duration, moved func(context.Context) bool) (kmsg.Response, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	sent := time.Now()
	look := time.AfterFunc(held+lookAfter, func() {
		for !moved(ctx) {
			select {
			case <-time.After(lookAfter):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
		}
		giveUp(&MovedError{broker, time.Since(sent)})
	})
	defer look.Stop()
	resp, err := client.Broker(int(broker)).Request(ctx, req)
	var gone *MovedError
	if err != nil && errors.As(context.Cause(ctx), &gone) {
		err = gone
	}
	return resp, err
}
