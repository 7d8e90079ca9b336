package kraft

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// limited is a pretended cluster with a topic whose limit its broker says is message.
func limited(t *testing.T, message *int, asked *int) (*pretended, *sync.Mutex) {
	f := pretend(t)
	var mu sync.Mutex
	f.answer = func(req kmsg.Request) (kmsg.Response, error) {
		q, ok := req.(*kmsg.DescribeConfigsRequest)
		if !ok {
			t.Errorf("asked %T", req)
			return nil, errors.New("not now")
		}
		mu.Lock()
		defer mu.Unlock()
		*asked++
		resp := kmsg.NewPtrDescribeConfigsResponse()
		for _, r := range q.Resources {
			a := kmsg.NewDescribeConfigsResponseResource()
			a.ResourceName = r.ResourceName
			for name, n := range map[string]int{maxMessage: *message, segmentBytes: 1 << 30} {
				c, v := kmsg.NewDescribeConfigsResponseResourceConfig(), strconv.Itoa(n)
				c.Name, c.Value = name, &v
				a.Configs = append(a.Configs, c)
			}
			resp.Resources = append(resp.Resources, a)
		}
		return resp, nil
	}
	f.topic("orders", 1)
	return f, &mu
}

// TestLimitIsAskedAgainAfterARefusal: what a broker said before it had applied a raised setting holds a batch up once only.
func TestLimitIsAskedAgainAfterARefusal(t *testing.T) {
	message, asked := 100_000, 0
	f, mu := limited(t, &message, &asked)
	f.broker(1, 10, false)
	f.seen()
	l := &Log{d: f.d, tp: mirror.TopicPartition{Topic: "orders"}}
	if err := l.fits(t.Context(), 50_000, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.fits(t.Context(), 200_000, 0); !errors.Is(err, mirror.ErrBatchTooLarge) || !strings.Contains(err.Error(), "max.message.bytes is 100000") {
		t.Fatalf("a batch above the limit: %v", err)
	}
	if asked != 2 {
		t.Errorf("the limit was asked for %d times, want once for each batch: the second is above what was known", asked)
	}
	mu.Lock()
	message = 300_000 // the broker has applied it now; no change is told any more
	mu.Unlock()
	if err := l.fits(t.Context(), 200_000, 0); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
	if err := l.fits(t.Context(), 200_000, 0); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	// What the topic itself is set to is in the metadata: no broker is believed about it.
	f.setting("orders", maxMessage, "150000")
	f.seen()
	if err := l.fits(t.Context(), 200_000, 0); !errors.Is(err, mirror.ErrBatchTooLarge) || !strings.Contains(err.Error(), "is 150000") {
		t.Errorf("after the topic's own limit was lowered: %v", err)
	}
}

// TestLimitIsNotKeptOverAChange: an answer to a question from before a change is not kept.
func TestLimitIsNotKeptOverAChange(t *testing.T) {
	message, asked := 100_000, 0
	f, _ := limited(t, &message, &asked)
	f.broker(1, 10, false)
	f.seen()
	answer := f.answer
	f.answer = func(req kmsg.Request) (kmsg.Response, error) {
		resp, err := answer(req)
		f.d.limits.forget("orders") // a change comes while the answer is on its way
		return resp, err
	}
	for range 2 {
		if _, _, err := f.d.limit(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times: an answer from before the change was kept", asked)
	}
}

// TestLimitsAreAskedTogether: a thousand partitions that come at the same time need few requests, and with no broker alive the error says so.
func TestLimitsAreAskedTogether(t *testing.T) {
	message, asked := 100_000, 0
	f, _ := limited(t, &message, &asked)
	f.seen()
	if _, _, err := f.d.limit(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "no stock broker is alive") || strings.Contains(err.Error(), "%!w") {
		t.Errorf("without a broker: %v", err)
	}
	f.broker(1, 10, false)
	f.seen()
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			if _, _, err := f.d.limit(t.Context(), "orders-"+strconv.Itoa(i%100)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if asked > 50 {
		t.Errorf("%d requests for 100 topics", asked)
	}
}
