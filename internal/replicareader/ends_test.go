package replicareader

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

func TestEndsOfManyInFewRequests(t *testing.T) {
	b := newBrokers(t)
	var targets []Target
	want := map[Target]Ends{}
	for i := range 2*batchTargets + 1 {
		o := b.target(fmt.Sprintf("topic-%d", i%7), int32(i/7))
		c := b.put(1, o, data(int64(i), 0, 5, 10))
		c.stable -= int64(i % 3)
		targets = append(targets, o)
		want[o] = Ends{Start: int64(i), End: int64(i + 5), LastStable: int64(i + 5 - i%3)}
	}
	got, err := New(b).Ends(t.Context(), 1, append(targets, targets[0], targets[5])) // some twice
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	for o, e := range want {
		if got[o] != e {
			t.Errorf("%s: %+v, want %+v", o, got[o], e)
		}
	}
	if l, f := b.count(kmsg.ListOffsets), b.count(kmsg.Fetch); l != 6 || f != 3 {
		t.Errorf("%d ListOffsets, %d Fetches", l, f)
	}
	if got, err := New(b).Ends(t.Context(), 1, nil); err != nil || len(got) != 0 {
		t.Errorf("no targets: %v, %v", got, err)
	}
}

func TestEndsOfOneBadPartitionHarmNoOther(t *testing.T) {
	for _, version := range []int16{11, 18} {
		b := newBrokers(t)
		b.fetchVersion = version
		good, elsewhere, broken := b.target("good", 0), b.target("elsewhere", 0), b.target("good", 1)
		refused, unstable := b.target("refused", 0), b.target("unstable", 0)
		b.put(1, good, data(3, 0, 4, 10)).start = 4
		b.put(2, elsewhere, data(3, 0, 4, 10))
		b.put(1, broken, data(3, 0, 4, 10)).code = kerr.KafkaStorageError.Code
		b.put(1, refused, data(3, 0, 4, 10)).code = kerr.TopicAuthorizationFailed.Code
		b.put(1, unstable, data(3, 0, 4, 10)).stable = -1
		missing := b.target("missing", 0)
		got, err := New(b).Ends(t.Context(), 1, []Target{broken, missing, good, elsewhere, refused, unstable})
		if err != nil {
			t.Fatal(err)
		}
		if want := (Ends{Start: 4, End: 7, LastStable: 7}); got[good] != want {
			t.Errorf("good: %+v", got[good])
		}
		if want := (Ends{Start: 3, End: 7, LastStable: -1}); got[unstable] != want {
			t.Errorf("unstable: %+v", got[unstable])
		}
		for o, reason := range map[Target]Reason{broken: Offline, missing: UnknownTopic, elsewhere: NotReplica, refused: NoAccess} {
			if e := wantReason(t, got[o].Err, reason); e.Target != o || e.Broker != 1 || got[o].LastStable != -1 {
				t.Errorf("%s: %+v", o, got[o])
			}
		}
	}
}

func TestEndsKeepTheLastStableOffsetWithinTheCopy(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	c := b.put(1, o, data(3, 0, 4, 10))
	for stable, want := range map[int64]int64{-1: -1, 0: 3, 2: 3, 3: 3, 5: 5, 7: 7, 8: 7} { // 8: the copy grew after its end was told
		c.stable = stable
		got, err := New(b).Ends(t.Context(), 1, []Target{o})
		if err != nil || got[o] != (Ends{Start: 3, End: 7, LastStable: want}) {
			t.Errorf("%d: %+v, %v", stable, got[o], err)
		}
	}
}

func TestEndsWithoutALastStableOffset(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	b.put(1, o, data(3, 0, 4, 10))
	want := Ends{Start: 3, End: 7, LastStable: -1}
	b.spoil = spoilFetch(func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
		r.Topics, r.ThrottleMillis = nil, 1000
	})
	if got, err := New(b).Ends(t.Context(), 1, []Target{o}); err != nil || got[o] != want {
		t.Errorf("over the quota: %+v, %v", got[o], err)
	}
	b.spoil = spoilFetch(func(_ int, r *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
		p.ErrorCode = kerr.TopicAuthorizationFailed.Code
	})
	if got, err := New(b).Ends(t.Context(), 1, []Target{o}); err != nil || got[o] != want {
		t.Errorf("without READ: %+v, %v", got[o], err)
	}
	b.spoil = spoilFetch(func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
		r.ErrorCode = kerr.UnknownServerError.Code
	})
	got, err := New(b).Ends(t.Context(), 1, []Target{o})
	if wantReason(t, err, Refused); got[o] != want {
		t.Errorf("refused: %+v", got[o])
	}
}

func TestEndsSeeATopicCreatedAgain(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	b.put(1, o, data(3, 0, 4, 10))
	old := o
	old.ID = statemachine.TopicID{1: 1}
	got, err := New(b).Ends(t.Context(), 1, []Target{old, o})
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, got[old].Err, UnknownTopic)
	if want := (Ends{Start: 3, End: 7, LastStable: 7}); got[o] != want {
		t.Errorf("%+v", got[o])
	}
}

func TestEndsRefuseHostileAnswers(t *testing.T) {
	b := newBrokers(t)
	o, other := b.target("orders", 0), b.target("orders", 1)
	b.put(1, o, data(3, 0, 4, 10))
	b.put(1, other, data(3, 0, 4, 10))
	type partitions = []kmsg.ListOffsetsResponseTopicPartition
	for name, tt := range map[string]struct {
		spoil  func(timestamp int64, ps partitions) partitions
		reason Reason
	}{
		"lacks it":           {func(_ int64, ps partitions) partitions { return ps[1:] }, BadAnswer},
		"twice":              {func(_ int64, ps partitions) partitions { return append(ps, ps[0]) }, BadAnswer},
		"three times":        {func(_ int64, ps partitions) partitions { return append(ps, ps[0], ps[0]) }, BadAnswer},
		"negative":           {func(_ int64, ps partitions) partitions { ps[0].Offset = -1; return ps }, BadAnswer},
		"start above end":    {func(ts int64, ps partitions) partitions { ps[0].Offset += 100 * (-1 - ts); return ps }, Changed},
		"refused at the end": {func(ts int64, ps partitions) partitions { ps[0].ErrorCode = int16(6 * (2 + ts)); return ps }, NotReplica},
	} {
		b.spoil = func(_ int32, req kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
			if l, ok := resp.(*kmsg.ListOffsetsResponse); ok {
				l.Topics[0].Partitions = tt.spoil(req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp, l.Topics[0].Partitions)
			}
			return resp, nil
		}
		got, err := New(b).Ends(t.Context(), 1, []Target{o, other})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantReason(t, got[o].Err, tt.reason)
		if want := (Ends{Start: 3, End: 7, LastStable: 7}); got[other] != want {
			t.Errorf("%s: the other one: %+v", name, got[other])
		}
		t.Logf("%s: %v", name, got[o].Err)
	}
}

func TestEndsOfAFailedRequest(t *testing.T) {
	boom := errors.New("boom")
	for n := 1; n <= 6; n++ { // requests of two parts: start, end, stable, start, end, stable
		b := newBrokers(t)
		var targets []Target
		for i := range batchTargets + 1 {
			o := b.target("orders", int32(i))
			b.put(1, o, data(3, 0, 4, 10))
			targets = append(targets, o)
		}
		b.spoil = func(_ int32, _ kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
			if len(b.requests) == n {
				return nil, boom
			}
			return resp, nil
		}
		got, err := New(b).Ends(t.Context(), 1, targets)
		if wantReason(t, err, Unreachable); !errors.Is(err, boom) || len(got) != len(targets) {
			t.Errorf("request %d: %v, %d entries", n, err, len(got))
		}
		broken, unstable, whole := 0, 0, 0
		for _, o := range targets {
			switch e := got[o]; {
			case errors.Is(e.Err, boom):
				broken++
			case e == Ends{Start: 3, End: 7, LastStable: -1}:
				unstable++
			case e == Ends{Start: 3, End: 7, LastStable: 7}:
				whole++
			default:
				t.Errorf("request %d: %s: %+v", n, o, e)
			}
		}
		want := [][]int{{batchTargets, 0, 1}, {batchTargets, 0, 1}, {0, batchTargets, 1}, {1, 0, batchTargets}, {1, 0, batchTargets}, {0, 1, batchTargets}}[n-1]
		if part := []int{broken, unstable, whole}; !slices.Equal(part, want) {
			t.Errorf("request %d: broken, unstable, whole: %v, want %v", n, part, want)
		}
	}
}
