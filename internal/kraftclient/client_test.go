package kraftclient

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answers makes a Client whose requests are answered by answer, in order of their number, and go nowhere.
func answers(t *testing.T, controllers int, answer func(n int) (kmsg.Response, error)) (*Client, *int) {
	t.Helper()
	n := 0
	addresses := make([]string, controllers)
	for i := range addresses {
		addresses[i] = "127.0.0.1:1"
	}
	c, err := New(Config{
		Controllers: addresses, AttemptBound: time.Second, Address: func(id int32) (string, bool) { return "127.0.0.1:1", id == 1 },
		Intercept: func(context.Context, kmsg.Request, func() (kmsg.Response, error)) (kmsg.Response, error) {
			n++
			return answer(n)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &n
}

func heartbeat(code int16) *kmsg.BrokerHeartbeatResponse {
	r := kmsg.NewPtrBrokerHeartbeatResponse()
	r.ErrorCode = code
	return r
}

// TestControllerIsFound: a controller that is not the active one, and one that does not answer, make it ask the next one; the one that answered is asked first the next time. An
// error code that says something else is the caller's.
func TestControllerIsFound(t *testing.T) {
	c, n := answers(t, 3, func(n int) (kmsg.Response, error) {
		switch n {
		case 1:
			return heartbeat(kerr.NotController.Code), nil
		case 2:
			return nil, errors.New("no route")
		case 4:
			return heartbeat(kerr.StaleBrokerEpoch.Code), nil
		}
		return heartbeat(0), nil
	})
	for i, want := range []int16{0, kerr.StaleBrokerEpoch.Code, 0} {
		resp, err := c.Controller(t.Context(), kmsg.NewPtrBrokerHeartbeatRequest())
		if err != nil || resp.(*kmsg.BrokerHeartbeatResponse).ErrorCode != want {
			t.Fatalf("request %d: %v, %v", i, resp, err)
		}
		if c.active != 2 {
			t.Errorf("after request %d controller %d is asked first", i, c.active)
		}
	}
	if *n != 5 {
		t.Errorf("%d requests were sent", *n)
	}
}

// TestControllerGivesUpWithItsContext: with no active controller it asks until the context ends, and says what the last one said.
func TestControllerGivesUpWithItsContext(t *testing.T) {
	c, n := answers(t, 2, func(int) (kmsg.Response, error) { return heartbeat(kerr.NotController.Code), nil })
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	_, err := c.Controller(ctx, kmsg.NewPtrBrokerHeartbeatRequest())
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.NotController) {
		t.Errorf("%v", err)
	}
	if *n > 20 {
		t.Errorf("%d requests in 200 ms: it is busy", *n)
	}
}

// TestUnknownBrokerAndClosed: a broker that is not registered is not asked; after Close nothing is.
func TestUnknownBrokerAndClosed(t *testing.T) {
	c, n := answers(t, 1, func(int) (kmsg.Response, error) { return kmsg.NewPtrMetadataResponse(), nil })
	if _, err := c.Broker(t.Context(), 2, kmsg.NewPtrMetadataRequest()); !errors.Is(err, ErrUnknownBroker) {
		t.Errorf("%v", err)
	}
	if _, err := c.Broker(t.Context(), 1, kmsg.NewPtrMetadataRequest()); err != nil {
		t.Errorf("%v", err)
	}
	c.Close()
	if _, err := c.Broker(t.Context(), 1, kmsg.NewPtrMetadataRequest()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := c.Controller(t.Context(), kmsg.NewPtrBrokerHeartbeatRequest()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if *n != 1 {
		t.Errorf("%d requests were sent", *n)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a client without controllers was made")
	}
}
