package kafkametadata

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeBrokers are brokers 1, 2 and 3, whose answers a test makes.
type fakeBrokers struct {
	answer func(broker int32, req kmsg.Request) (kmsg.Response, error)
	none   error // the cluster cannot be asked for its brokers

	mu    sync.Mutex
	asked []int32 // in the order in which they were
}

var errSilent = errors.New("no answer")

func (f *fakeBrokers) Brokers(context.Context) ([]int32, error) { return []int32{1, 2, 3}, f.none }

func (f *fakeBrokers) Ask(_ context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, broker)
	return f.answer(broker, req)
}

func (f *fakeBrokers) client() *Client { return New(f, time.Second) }

func (f *fakeBrokers) wantAsked(t *testing.T, brokers ...int32) {
	t.Helper()
	if !slices.Equal(f.asked, brokers) {
		t.Errorf("brokers %v were asked, not %v", f.asked, brokers)
	}
}

// TestAnyBroker: a broker that does not answer is passed over for the rest of the call, a call gives up after some of them, and when its context ends.
func TestAnyBroker(t *testing.T) {
	f := &fakeBrokers{answer: func(broker int32, req kmsg.Request) (kmsg.Response, error) {
		if broker == 1 {
			return nil, errSilent
		}
		return req.ResponseKind(), nil
	}}
	brokers, err := f.client().anyBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := func() kmsg.Request { return kmsg.NewPtrMetadataRequest() }
	for range 3 {
		if _, err := askAny[*kmsg.MetadataResponse](t.Context(), brokers, request); err != nil {
			t.Fatal(err)
		}
	}
	f.wantAsked(t, 1, 2, 3, 2)

	brokers.ids = []int32{1, 1, 1, 1, 1, 1, 1, 1, 2}
	f.asked = nil
	if _, err := askAny[*kmsg.MetadataResponse](t.Context(), brokers, request); !errors.Is(err, errSilent) {
		t.Errorf("%v", err)
	}
	if len(f.asked) != mostSilent-1 { // one was before
		t.Errorf("%d brokers were asked", len(f.asked))
	}

	ended, stop := context.WithCancel(t.Context())
	stop()
	brokers.ids, brokers.silent, f.asked = []int32{1, 2}, 0, nil
	if _, err := askAny[*kmsg.MetadataResponse](ended, brokers, request); !errors.Is(err, errSilent) {
		t.Errorf("%v", err)
	}
	f.wantAsked(t, 1)
	if _, err := askAny[*kmsg.MetadataResponse](t.Context(), &anyBroker{client: f.client(), last: errSilent}, request); !errors.Is(err, errSilent) {
		t.Errorf("no broker at all: %v", err)
	}
}

// TestRefusal: a broker's own words stand behind its error.
func TestRefusal(t *testing.T) {
	if err := refusal(0, kmsg.StringPtr("fine")); err != nil {
		t.Error(err)
	}
	if err := refusal(kerr.ClusterAuthorizationFailed.Code, kmsg.StringPtr("Request(processor=0, …)")); err != kerr.ClusterAuthorizationFailed {
		t.Error(err)
	}
	for _, words := range []string{"", " ", "Topic authorization failed.", "topic authorization failed"} {
		if err := refusal(kerr.TopicAuthorizationFailed.Code, &words); err != kerr.TopicAuthorizationFailed {
			t.Errorf("%q: %v", words, err)
		}
	}
	if err := refusal(kerr.PolicyViolation.Code, nil); err != kerr.PolicyViolation {
		t.Error(err)
	}
	if err := refusal(kerr.PolicyViolation.Code, kmsg.StringPtr("not on fridays")); !errors.Is(err, kerr.PolicyViolation) || err.Error() != kerr.PolicyViolation.Error()+" (not on fridays)" {
		t.Error(err)
	}
}
