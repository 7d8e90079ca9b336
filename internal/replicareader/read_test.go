package replicareader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

func wantReason(t *testing.T, err error, reason Reason) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != reason {
		t.Fatalf("%v (%T), want an *Error: %s", err, err, reason)
	}
	return e
}

func TestReadGivesWholeBatches(t *testing.T) {
	for _, version := range []int16{4, 11, 15, 17, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			b := newBrokers(t)
			b.fetchVersion = version
			o := b.target("orders", 3)
			one, two, three := data(10, 0, 5, 100), data(15, 0, 1, 5000), data(20, 2, 3, 300)
			b.put(1, o, one, two, three)
			b.put(2, o)
			r := New(b)
			for _, tt := range []struct {
				from int64
				max  int
				want []byte
			}{
				{10, 1 << 20, joined(one, two, three)},
				{14, 1 << 20, joined(one, two, three)}, // inside the first
				{15, 1 << 20, joined(two, three)},
				{16, 1 << 20, three}, // in a hole
				{19, 1, three},
				{10, 1, one},
				{10, 0, one},
				{10, -5, one},
				{10, len(one) + len(two) - 1, one},
				{10, len(one) + len(two), joined(one, two)},
				{15, 10, two}, // larger than max: whole
				{23, 1 << 20, nil},
			} {
				got, err := r.Read(t.Context(), 1, o, tt.from, tt.max)
				if err != nil || !bytes.Equal(got, tt.want) {
					t.Errorf("Read(%d, %d) = %d bytes, %v, want %d", tt.from, tt.max, len(got), err, len(tt.want))
				}
			}
			if got, err := r.Read(t.Context(), 2, o, 0, 100); err != nil || got != nil {
				t.Errorf("an empty copy: %v %v", got, err)
			}
		})
	}
}

// TestReadFailsLoudlyWhereItsReplicaIDCannotBeTold: silence would be a consumer's view, which ends at the high watermark.
func TestReadFailsLoudlyWhereItsReplicaIDCannotBeTold(t *testing.T) {
	for _, version := range []int16{12, 13, 14} {
		b := newBrokers(t)
		b.fetchVersion = version
		o := b.target("orders", 0)
		b.put(1, o, data(10, 0, 5, 100))
		_, err := New(b).Read(t.Context(), 1, o, 10, 100)
		wantReason(t, err, Unreachable)
	}
}

func TestReadNamesWhatACopyLacks(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	b.put(1, o, data(10, 0, 5, 100), data(15, 0, 5, 100)).start = 12
	b.put(4, o, data(0, 0, 1, 1)).code = kerr.KafkaStorageError.Code
	b.put(5, o, data(0, 0, 1, 1)).code = kerr.TopicAuthorizationFailed.Code
	b.put(6, o, data(0, 0, 1, 1)).code = kerr.UnknownServerError.Code
	r := New(b)
	for from, want := range map[int64]RangeError{9: {1, o, 9, 12, 20}, 11: {1, o, 11, 12, 20}, 21: {1, o, 21, 12, 20}} {
		_, err := r.Read(t.Context(), 1, o, from, 100)
		var e *RangeError
		if !errors.As(err, &e) || *e != want {
			t.Errorf("from %d: %v, want %v", from, err, &want)
		}
		t.Log(err)
	}
	if got, err := r.Read(t.Context(), 1, o, 12, 1); err != nil || len(got) == 0 {
		t.Errorf("the batch that contains the log start: %v", err)
	}
	old := o
	old.ID = statemachine.TopicID{1: 1}
	for _, tt := range []struct {
		broker int32
		target Target
		reason Reason
		err    error
	}{
		{3, o, NotReplica, kerr.NotLeaderForPartition}, {1, b.target("orders", 9), UnknownTopic, kerr.UnknownTopicID}, {1, old, UnknownTopic, kerr.UnknownTopicID},
		{4, o, Offline, kerr.KafkaStorageError}, {5, o, NoAccess, kerr.TopicAuthorizationFailed}, {6, o, Refused, kerr.UnknownServerError},
	} {
		_, err := r.Read(t.Context(), tt.broker, tt.target, 0, 100)
		e := wantReason(t, err, tt.reason)
		if !errors.Is(err, tt.err) || e.Broker != tt.broker || e.Target != tt.target {
			t.Errorf("%+v", e)
		}
		t.Log(err)
	}
}

func TestReadThatIsOutOfRangeOfACopyThatWent(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	c := b.put(1, o, data(10, 0, 5, 100))
	for nth := 2; nth <= 3; nth++ { // what asks for the start, for the end
		c.code, b.requests = 0, nil
		b.spoil = func(_ int32, _ kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
			if len(b.requests) == nth-1 {
				c.code = kerr.NotLeaderForPartition.Code
			}
			return resp, nil
		}
		_, err := New(b).Read(t.Context(), 1, o, 5, 1000)
		if wantReason(t, err, NotReplica); len(b.requests) != nth {
			t.Errorf("%d requests, want %d", len(b.requests), nth)
		}
	}
}

// spoilFetch makes one function out of what a hostile or ill broker does to the answer of a Fetch of one partition.
func spoilFetch(f func(n int, resp *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition)) func(int32, kmsg.Request, kmsg.Response) (kmsg.Response, error) {
	n := 0
	return func(_ int32, _ kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
		if fetch, ok := resp.(*kmsg.FetchResponse); ok {
			n++
			f(n, fetch, &fetch.Topics[0].Partitions[0])
		}
		return resp, nil
	}
}

func TestReadAsksAgainForACutBatch(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	one := data(0, 0, 1, 5000)
	b.put(1, o, one)
	for _, cut := range []int{1, 8, 12, 17, 61, 4000} {
		b.requests = nil
		b.spoil = spoilFetch(func(n int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			if n == 1 {
				p.RecordBatches = p.RecordBatches[:cut]
			}
		})
		got, err := New(b).Read(t.Context(), 1, o, 0, 4000)
		if err != nil || !bytes.Equal(got, one) {
			t.Errorf("cut to %d: %d bytes, %v", cut, len(got), err)
		}
		if again := b.requests[1].(*kmsg.FetchRequest); len(b.requests) != 2 || int(again.MaxBytes) < len(one) || again.Topics[0].Partitions[0].PartitionMaxBytes != again.MaxBytes {
			t.Errorf("cut to %d: asked again for %d bytes", cut, again.MaxBytes)
		}
	}
	b.requests = nil
	b.spoil = spoilFetch(func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
		p.RecordBatches = p.RecordBatches[:3000]
	})
	_, err := New(b).Read(t.Context(), 1, o, 0, 4000)
	wantReason(t, err, BadAnswer)
	if len(b.requests) > attempts {
		t.Errorf("%d requests", len(b.requests))
	}
}

func TestReadRefusesHostileAnswers(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	one, two := data(10, 0, 5, 100), data(15, 0, 5, 100)
	b.put(1, o, one, two)
	r := New(b)
	for name, tt := range map[string]struct {
		spoil  func(n int, resp *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition)
		reason Reason
	}{
		"no topic":          {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) { r.Topics = nil }, BadAnswer},
		"no partition":      {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) { r.Topics[0].Partitions = nil }, BadAnswer},
		"another partition": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) { p.Partition = 7 }, BadAnswer},
		"another topic":     {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) { r.Topics[0].TopicID[3] = 9 }, BadAnswer},
		"twice": {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
			r.Topics = append(r.Topics, r.Topics[0])
		}, BadAnswer},
		"three times": {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
			r.Topics = append(r.Topics, r.Topics[0], r.Topics[0])
		}, BadAnswer},
		"a batch below": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches = data(3, 0, 5, 100)
		}, BadAnswer},
		"a batch twice": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches = joined(one, one)
		}, BadAnswer},
		"a base offset below 0": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches = data(-5, 0, 50, 100)
		}, Damaged},
		"out of range, but it is in": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = 1 }, BadAnswer},
		"sent elsewhere": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches, p.PreferredReadReplica = nil, 2
		}, Refused},
		"an error for the whole": {func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
			r.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		}, NoAccess},
		"a damaged batch": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[90] ^= 1 }, Damaged},
		"an old format":   {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[16] = 1 }, Damaged},
		"a length below 0": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches[8] = 0xff
		}, Damaged},
		"a length of 2 GiB": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			copy(p.RecordBatches[8:], []byte{0x7f, 0xff, 0xff, 0xff})
		}, Damaged},
		"a length of 1 GiB": {func(_ int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
			copy(p.RecordBatches[8:], []byte{0x40, 0, 0, 0})
		}, BadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			b.requests, b.spoil = nil, spoilFetch(tt.spoil)
			got, err := r.Read(t.Context(), 1, o, 10, 1000)
			wantReason(t, err, tt.reason)
			if got != nil || b.count(kmsg.Fetch) > attempts {
				t.Errorf("%d bytes, %d requests", len(got), b.count(kmsg.Fetch))
			}
			t.Log(err)
		})
	}
	b.spoil = func(_ int32, req kmsg.Request, _ kmsg.Response) (kmsg.Response, error) {
		return kmsg.NewPtrMetadataResponse(), nil
	}
	_, err := r.Read(t.Context(), 1, o, 10, 1000)
	wantReason(t, err, BadAnswer)
	boom := errors.New("boom")
	b.spoil = func(int32, kmsg.Request, kmsg.Response) (kmsg.Response, error) { return nil, boom }
	_, err = r.Read(t.Context(), 1, o, 10, 1000)
	if wantReason(t, err, Unreachable); !errors.Is(err, boom) {
		t.Error(err)
	}
}

func TestReadHealsDamageInTransitAndStopsBeforeDamageOnDisk(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	one, two := data(10, 0, 5, 100), data(15, 0, 5, 100)
	b.put(1, o, one, two)
	b.spoil = spoilFetch(func(n int, _ *kmsg.FetchResponse, p *kmsg.FetchResponseTopicPartition) {
		if n < attempts {
			p.RecordBatches[90] ^= 1
		}
	})
	if got, err := New(b).Read(t.Context(), 1, o, 10, 1000); err != nil || !bytes.Equal(got, joined(one, two)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b.spoil = nil
	two[90] ^= 1
	if got, err := New(b).Read(t.Context(), 1, o, 10, 1000); err != nil || !bytes.Equal(got, one) {
		t.Errorf("before the damage: %d bytes, %v", len(got), err)
	}
	_, err := New(b).Read(t.Context(), 1, o, 15, 1000)
	if wantReason(t, err, Damaged); !errors.Is(err, batch.ErrCorrupt) {
		t.Error(err)
	}
}

func TestReadFindsALogThatMovedMeanwhile(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	c := b.put(1, o, data(10, 0, 5, 100))
	all := append(c.batches, data(15, 0, 5, 100))
	b.spoil = func(_ int32, req kmsg.Request, resp kmsg.Response) (kmsg.Response, error) {
		if req.Key() == kmsg.Fetch.Int16() {
			c.batches, c.end = all, 20 // the copy grows after the Fetch that was out of range
		}
		return resp, nil
	}
	if got, err := New(b).Read(t.Context(), 1, o, 16, 1000); err != nil || !bytes.Equal(got, all[1]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestReadWaitsForAQuotaAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBrokers(t)
		o := b.target("orders", 0)
		one := data(10, 0, 5, 100)
		b.put(1, o, one)
		b.spoil = spoilFetch(func(n int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
			if n <= 2 {
				r.Topics, r.ThrottleMillis = nil, 700
			}
		})
		began := time.Now()
		if got, err := New(b).Read(t.Context(), 1, o, 10, 1000); err != nil || !bytes.Equal(got, one) || time.Since(began) != 1400*time.Millisecond {
			t.Errorf("%d bytes, %v, after %s", len(got), err, time.Since(began))
		}
		b.spoil = spoilFetch(func(_ int, r *kmsg.FetchResponse, _ *kmsg.FetchResponseTopicPartition) {
			r.Topics, r.ThrottleMillis = nil, 1<<31-1
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		b.requests = nil
		_, err := New(b).Read(ctx, 1, o, 10, 1000)
		if wantReason(t, err, Unreachable); !errors.Is(err, context.DeadlineExceeded) || len(b.requests) != 3 {
			t.Errorf("%v after %d requests", err, len(b.requests))
		}
		t.Log(err)
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	b.put(1, o, data(10, 0, 5, 100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := New(b).Read(ctx, 1, o, 10, 1000)
	if wantReason(t, err, Unreachable); !errors.Is(err, context.Canceled) || len(b.requests) > 0 {
		t.Error(err)
	}
}

// TestReadStepByStepIsTheCopy reads random copies with random limits and joins the pieces.
func TestReadStepByStepIsTheCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBrokers(t)
		o := b.target("orders", 0)
		c := randomCopy(t, b, o)
		r := New(b)
		var got []byte
		for at := c.start; ; {
			max := rapid.IntRange(-1, 3000).Draw(t, "max")
			part, err := r.Read(context.Background(), 1, o, at, max)
			if err != nil {
				t.Fatal(err)
			}
			if len(part) == 0 {
				break
			}
			got = append(got, part...)
			count := 0
			for h := range batch.All(part) {
				at = h.NextOffset()
				count++
			}
			if len(part) > max && count != 1 {
				t.Fatalf("%d batches of %d bytes when at most %d were asked for", count, len(part), max)
			}
		}
		var want []byte
		for _, raw := range c.batches {
			if h, _, _ := batch.Next(raw); h.LastOffset() >= c.start {
				want = append(want, raw...)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
	})
}

// randomCopy gives broker 1 a copy with epochs that jump, holes, batches that compaction emptied, a log start that may lie inside a batch and an end behind the last batch.
func randomCopy(t *rapid.T, b *brokers, o Target) *copyModel {
	base, epoch := rapid.Int64Range(0, 1000).Draw(t, "first offset"), rapid.Int32Range(-1, 5).Draw(t, "first epoch")
	var batches [][]byte
	for range rapid.IntRange(0, 60).Draw(t, "batches") {
		if rapid.IntRange(0, 4).Draw(t, "epoch changes") == 0 {
			epoch += rapid.SampledFrom([]int32{1, 1, 2, 1000}).Draw(t, "epoch step")
		}
		if rapid.IntRange(0, 5).Draw(t, "hole") == 0 {
			base += rapid.SampledFrom([]int64{1, 7, 1000, 1 << 40}).Draw(t, "hole size")
		}
		n := rapid.IntRange(0, 5).Draw(t, "records")
		raw := batch.AppendData(nil, batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, ProducerID: 5, LastOffsetDelta: 3, BaseTimestamp: 1, MaxTimestamp: 1}) // emptied by compaction
		if n > 0 {
			raw = data(base, epoch, n, rapid.SampledFrom([]int{10, 10, 800, 5000}).Draw(t, "size"))
		}
		batches = append(batches, raw)
		h, _, _ := batch.Next(raw)
		base = h.NextOffset()
	}
	c := b.put(1, o, batches...)
	if len(batches) == 0 {
		c.start, c.end = base, base
	}
	c.end += rapid.SampledFrom([]int64{0, 0, 1, 500}).Draw(t, "hole at the end")
	if rapid.Bool().Draw(t, "raise start") && len(batches) > 0 {
		h, _, _ := batch.Next(batches[rapid.IntRange(0, len(batches)-1).Draw(t, "start's batch")])
		c.start = rapid.Int64Range(h.BaseOffset, h.NextOffset()).Draw(t, "start")
	}
	return c
}
