package replicareader

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
)

func TestEpochsAreThoseOfAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBrokers(t)
		o := b.target("orders", 0)
		c := randomCopy(t, b, o)
		start, end := c.start, c.end
		if rapid.Bool().Draw(t, "part") {
			start = rapid.Int64Range(c.start, c.end).Draw(t, "from")
			end = rapid.Int64Range(start, c.end).Draw(t, "to")
		}
		got, err := New(b).Epochs(context.Background(), 1, o, start, end)
		if err != nil {
			t.Fatal(err)
		}
		want := scanned(c.batches, start, end)
		if !slices.Equal(got, want) {
			t.Fatalf("epochs of [%d,%d): %v, a scan gives %v", start, end, got, want)
		}
		if n, bound := b.count(kmsg.Fetch), (len(want)+2)*(bits.Len64(uint64(end-start))+2); n > bound {
			t.Fatalf("%d reads for %d epochs in %d offsets, want at most %d", n, len(want), end-start, bound)
		}
	})
}

func TestEpochsOfALargeCopyCostFewReads(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	var batches [][]byte
	for i := range 20000 {
		epoch := int32(3)
		if i >= 12345 {
			epoch = 9
		}
		batches = append(batches, data(int64(i), epoch, 1, 10))
	}
	c := b.put(1, o, batches...)
	got, err := New(b).Epochs(t.Context(), 1, o, 0, c.end)
	if err != nil {
		t.Fatal(err)
	}
	wantEpochs(t, got, logtrunc.Entry{Epoch: 3, Start: 0}, logtrunc.Entry{Epoch: 9, Start: 12345})
	if n := b.count(kmsg.Fetch); n > 16 {
		t.Errorf("%d reads", n)
	}
	b.requests = nil
	if got, err := New(b).Epochs(t.Context(), 1, o, 12400, c.end); err != nil || len(got) != 1 || b.count(kmsg.Fetch) != 2 {
		t.Errorf("one epoch: %v, %v, %d reads", got, err, b.count(kmsg.Fetch))
	}
}

func TestEpochsEdges(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	b.put(1, o, data(10, 4, 10, 10), data(20, 5, 10, 10), data(30, -1, 1, 10)).start = 15
	b.put(2, o, data(0, -1, 5, 10), data(5, -1, 5, 10), data(10, 0, 5, 10))
	r := New(b)
	for _, tt := range []struct {
		broker     int32
		start, end int64
		want       []logtrunc.Entry
	}{
		{1, 15, 15, nil},
		{1, 15, 3, nil},
		{1, 15, 20, []logtrunc.Entry{{Epoch: 4, Start: 10}}},
		{1, 15, 21, []logtrunc.Entry{{Epoch: 4, Start: 10}, {Epoch: 5, Start: 20}}},
		{1, 29, 30, []logtrunc.Entry{{Epoch: 5, Start: 20}}},
		{2, 0, 10, nil}, // a batch without epoch is no entry
		{2, 0, 15, []logtrunc.Entry{{Epoch: 0, Start: 10}}},
	} {
		got, err := r.Epochs(t.Context(), tt.broker, o, tt.start, tt.end)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("broker %d [%d,%d): %v, %v, want %v", tt.broker, tt.start, tt.end, got, err, tt.want)
		}
	}
	_, err := r.Epochs(t.Context(), 1, o, 15, 31)
	wantReason(t, err, Changed)
	t.Log(err)
	_, err = r.Epochs(t.Context(), 3, o, 15, 31)
	wantReason(t, err, NotReplica)
}

func TestEpochsNoticeACutCopy(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	var batches [][]byte
	for i := range 64 {
		batches = append(batches, data(int64(i), int32(i/16), 1, 5000))
	}
	c := b.put(1, o, batches...)
	reads := 0
	b.spoil = func(_ int32, _ kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
		if reads++; reads == 3 {
			c.batches, c.end = c.batches[:10], 64 // gone, with the end still told
		}
		return resp, nil
	}
	_, err := New(b).Epochs(t.Context(), 1, o, 0, 64)
	wantReason(t, err, Changed)
	t.Log(err)
}

func TestEpochsEndWithAFailedRead(t *testing.T) {
	boom := errors.New("boom")
	for n := 1; ; n++ {
		b := newBrokers(t)
		o := b.target("orders", 0)
		var batches [][]byte
		for i := range 64 {
			batches = append(batches, data(int64(i), int32(i/16), 1, 5000))
		}
		b.put(1, o, batches...)
		b.spoil = func(_ int32, _ kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
			if len(b.requests) == n {
				return nil, boom
			}
			return resp, nil
		}
		got, err := New(b).Epochs(t.Context(), 1, o, 0, 64)
		if err == nil {
			if wantEpochs(t, got, scanned(batches, 0, 64)...); n < 10 {
				t.Errorf("only %d reads", n-1)
			}
			return
		}
		if wantReason(t, err, Unreachable); !errors.Is(err, boom) || got != nil || len(b.requests) != n {
			t.Errorf("read %d: %v, %v after %d requests", n, got, err, len(b.requests))
		}
	}
}

func TestEpochsThatFallAreNotBelieved(t *testing.T) {
	for _, size := range []int{10, 5000} { // seen in one look, and in several
		b := newBrokers(t)
		o := b.target("orders", 0)
		c := b.put(1, o, data(0, 3, 1, size), data(1, 5, 1, size), data(2, 4, 1, size), data(3, 6, 1, size))
		_, err := New(b).Epochs(t.Context(), 1, o, 0, c.end)
		wantReason(t, err, Changed)
	}
}

func TestBisectionTakesWhatALookGivesFreely(t *testing.T) {
	looks := 0
	b := bisection{look: func(int64) ([]batch.Header, error) { looks++; return nil, nil }}
	low := []batch.Header{{BaseOffset: 0, LeaderEpoch: 1}, {BaseOffset: 1, LeaderEpoch: 4}, {BaseOffset: 2, LeaderEpoch: 4}, {BaseOffset: 3, LeaderEpoch: 5}}
	if err := b.all(low, 4); err != nil || looks != 0 {
		t.Errorf("%v, %d looks", err, looks)
	}
	wantEpochs(t, b.cache.Entries(), logtrunc.Entry{Epoch: 1, Start: 0}, logtrunc.Entry{Epoch: 4, Start: 1}, logtrunc.Entry{Epoch: 5, Start: 3})
}
