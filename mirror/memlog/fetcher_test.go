package memlog_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func fetcher(t testing.TB, c *memlog.Cluster, o mirror.FetchOptions) mirror.Fetcher {
	t.Helper()
	f, err := c.OpenFetcher(t.Context(), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func at(offset int64) mirror.FetchPosition {
	return mirror.FetchPosition{TopicPartition: orders, Offset: offset, LeaderEpoch: -1, LastEpoch: -1}
}

func fetch(t testing.TB, f mirror.Fetcher) []mirror.FetchedPartition {
	t.Helper()
	reply, err := f.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// one fetches and expects an answer for one partition.
func one(t testing.TB, f mirror.Fetcher) mirror.FetchedPartition {
	t.Helper()
	reply := fetch(t, f)
	if len(reply) != 1 {
		t.Fatalf("%d partitions in the reply, not 1", len(reply))
	}
	return reply[0]
}

func bases(b []byte) []int64 {
	var all []int64
	for info := range mirror.Batches(b) {
		all = append(all, info.Base)
	}
	return all
}

func code(t testing.TB, err error, want mirror.SourceCode) {
	t.Helper()
	var s *mirror.SourceError
	if !errors.As(err, &s) || s.Code != want {
		t.Errorf("error %v (%T), not a SourceError with code %d", err, err, want)
	}
}

func TestFetchReturnsWholeBatchesOfTheLog(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	produce(t, c, "a", "b")
	produce(t, c, "c")
	f := fetcher(t, c, mirror.FetchOptions{})
	f.Want(at(0))
	p := one(t, f)
	raw, _ := c.RawLog("orders", 0)
	if p.Err != nil || string(p.Records) != string(raw) || p.HighWatermark != 3 || p.LastStable != 3 || p.LogStart != 0 || p.Offset != 0 || p.LeaderEpoch != -1 {
		t.Errorf("reply %+v", p)
	}
	p.Records[65] ^= 1 // the caller's
	if again, _ := c.RawLog("orders", 0); string(again) != string(raw) {
		t.Error("the reply's bytes are the log's")
	}
	f.Want(at(1))
	if p := one(t, f); !slices.Equal(bases(p.Records), []int64{0, 2}) {
		t.Errorf("fetch inside a batch returned %v", bases(p.Records))
	}
}

func TestFetchWaitsUntilThereIsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		f := fetcher(t, c, mirror.FetchOptions{MaxWait: time.Hour})
		f.Want(at(0))
		began := time.Now()
		go func() {
			time.Sleep(7 * time.Second)
			c.Produce(t.Context(), "orders", 0, records("a")...)
		}()
		if p := one(t, f); len(p.Records) == 0 || time.Since(began) != 7*time.Second {
			t.Errorf("reply with %d bytes after %s", len(p.Records), time.Since(began))
		}
	})
}

func TestFetchAnswersAfterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		f := fetcher(t, c, mirror.FetchOptions{})
		f.Want(at(0))
		began := time.Now()
		// A partition that is new in the session is answered once, empty; then only what is new (KIP-227).
		if p := one(t, f); len(p.Records) > 0 || p.HighWatermark != 0 || time.Since(began) != 500*time.Millisecond {
			t.Errorf("reply %+v after %s", p, time.Since(began))
		}
		if reply := fetch(t, f); len(reply) > 0 || time.Since(began) != time.Second {
			t.Errorf("reply %+v after %s", reply, time.Since(began))
		}
	})
}

func TestFetchWaitsForMinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		produce(t, c, "a")
		f := fetcher(t, c, mirror.FetchOptions{MinBytes: 150, MaxWait: time.Hour})
		f.Want(at(0))
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			c.Produce(t.Context(), "orders", 0, records("a")...)
			time.Sleep(time.Second)
			c.Produce(t.Context(), "orders", 0, records("a")...)
		}()
		if p := one(t, f); !slices.Equal(bases(p.Records), []int64{0, 1, 2}) || time.Since(began) != 2*time.Second {
			t.Errorf("batches %v after %s", bases(p.Records), time.Since(began))
		}
	})
}

func TestFetchTellsOfAChangedLogStartWithoutData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		produce(t, c, "a", "b", "c")
		f := fetcher(t, c, mirror.FetchOptions{MaxWait: time.Hour})
		f.Want(at(0))
		one(t, f)
		f.Want(at(3))
		go func() {
			time.Sleep(time.Second)
			c.DeleteRecords(t.Context(), "orders", 0, 2)
		}()
		if p := one(t, f); p.LogStart != 2 || len(p.Records) > 0 {
			t.Errorf("reply %+v", p)
		}
	})
}

func TestFetchIsLimitedByTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{Replicas: 2})
		produce(t, c, "a")
		c.HoldReplica("orders", 0, 1)
		produce(t, c, "b")
		f := fetcher(t, c, mirror.FetchOptions{})
		f.Want(at(0))
		if p := one(t, f); !slices.Equal(bases(p.Records), []int64{0}) || p.HighWatermark != 1 {
			t.Errorf("batches %v, high watermark %d", bases(p.Records), p.HighWatermark)
		}
		f.Want(at(1))
		go func() {
			time.Sleep(100 * time.Millisecond)
			c.ReleaseReplica("orders", 0, 1)
		}()
		if p := one(t, f); !slices.Equal(bases(p.Records), []int64{1}) {
			t.Errorf("batches %v after the release", bases(p.Records))
		}
	})
}

func TestFetchLimits(t *testing.T) {
	c := memlog.New(memlog.Config{})
	defer c.Close()
	c.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 3})
	value := make([]byte, 1000) // a batch is a little more
	for p := range int32(3) {
		for range 4 {
			if _, err := c.Produce(t.Context(), "orders", p, memlog.Record{Value: value}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(f mirror.Fetcher) {
		for p := range int32(3) {
			w := at(0)
			w.Partition = p
			f.Want(w)
		}
	}
	sizes := func(reply []mirror.FetchedPartition) map[int32]int {
		n := map[int32]int{}
		for _, p := range reply {
			if len(p.Records) > 0 {
				n[p.Partition] = len(bases(p.Records))
			}
		}
		return n
	}
	f := fetcher(t, c, mirror.FetchOptions{PartitionMaxBytes: 2500})
	want(f)
	if n := sizes(fetch(t, f)); n[0] != 2 || n[1] != 2 || n[2] != 2 {
		t.Errorf("batches by partition %v, not 2 each", n)
	}
	f = fetcher(t, c, mirror.FetchOptions{MaxBytes: 5500})
	want(f)
	if n := sizes(fetch(t, f)); n[0] != 4 || n[1] != 1 || n[2] != 0 {
		t.Errorf("batches by partition %v, not 4, 1, 0", n)
	}
	// The first batch goes out whole whatever the limit, and the next reply begins with others.
	f = fetcher(t, c, mirror.FetchOptions{MaxBytes: 1})
	want(f)
	for p := range int32(3) {
		if n := sizes(fetch(t, f)); len(n) != 1 || n[p] != 1 {
			t.Errorf("batches by partition %v, not 1 of partition %d", n, p)
		}
	}
	f = fetcher(t, c, mirror.FetchOptions{PartitionMaxBytes: 1})
	w := at(0)
	w.MaxBytes = 2500
	f.Want(w)
	if n := sizes(fetch(t, f)); n[0] != 2 {
		t.Errorf("batches by partition %v: MaxBytes of the position is for 2", n)
	}
}

func TestF10ReplyCutInsideABatch(t *testing.T) {
	c, _ := source(t, memlog.Config{CutReplies: true})
	produce(t, c, "a")
	produce(t, c, "b")
	raw, _ := c.RawLog("orders", 0)
	f := fetcher(t, c, mirror.FetchOptions{PartitionMaxBytes: int32(len(raw) - 5)})
	f.Want(at(0))
	if p := one(t, f); string(p.Records) != string(raw[:len(raw)-5]) {
		t.Errorf("%d bytes, not %d", len(p.Records), len(raw)-5)
	}
}

func TestFetchErrors(t *testing.T) {
	c, topic := source(t, memlog.Config{Brokers: 2})
	produce(t, c, "a", "b")
	if err := c.DeleteRecords(t.Context(), "orders", 0, 1); err != nil {
		t.Fatal(err)
	}
	c.ElectLeader("orders", 0)
	led, err := c.ElectLeader("orders", 0)
	if err != nil || led.Leader != 1 || led.LeaderEpoch != 2 {
		t.Fatalf("leader %+v, %v", led, err)
	}
	for name, wrong := range map[string]struct {
		change func(*mirror.FetchPosition)
		want   mirror.SourceCode
		hint   bool
	}{
		"below the log start":      {func(p *mirror.FetchPosition) { p.Offset = 0 }, mirror.SourceOffsetRange, false},
		"above the log end":        {func(p *mirror.FetchPosition) { p.Offset = 3 }, mirror.SourceOffsetRange, false},
		"old leader epoch":         {func(p *mirror.FetchPosition) { p.LeaderEpoch = 1 }, mirror.SourceFencedEpoch, true},
		"leader epoch not known":   {func(p *mirror.FetchPosition) { p.LeaderEpoch = 3 }, mirror.SourceUnknownEpoch, true},
		"unknown topic":            {func(p *mirror.FetchPosition) { p.Topic = "other" }, mirror.SourceUnknownTopic, false},
		"unknown partition":        {func(p *mirror.FetchPosition) { p.Partition = 1 }, mirror.SourceUnknownTopic, false},
		"another topic id":         {func(p *mirror.FetchPosition) { p.TopicID = mirror.TopicID{1} }, mirror.SourceTopicIDChanged, false},
		"last epoch beyond latest": {func(p *mirror.FetchPosition) { p.LastEpoch = 5 }, mirror.SourceOffsetRange, false},
	} {
		w := at(1)
		w.TopicID = topic.ID
		wrong.change(&w)
		f := fetcher(t, c, mirror.FetchOptions{})
		f.Want(w)
		p := one(t, f)
		t.Log(name, p.Err)
		code(t, p.Err, wrong.want)
		if len(p.Records) > 0 {
			t.Errorf("%s: records beside an error", name)
		}
		if got := p.CurrentLeader != nil && *p.CurrentLeader == led; got != wrong.hint {
			t.Errorf("%s: current leader %+v", name, p.CurrentLeader)
		}
	}
	f, err := c.OpenFetcher(t.Context(), 2, mirror.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Want(at(1))
	p := one(t, f)
	code(t, p.Err, mirror.SourceNotLeader)
	if p.CurrentLeader == nil || *p.CurrentLeader != led || p.LeaderEndpoint == nil || p.LeaderEndpoint.ID != 1 {
		t.Errorf("hints %+v %+v", p.CurrentLeader, p.LeaderEndpoint)
	}
}

func TestF35FetchTellsTheDivergingEpoch(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	produce(t, c, "a")
	produce(t, c, "b")
	produce(t, c, "c")
	if _, err := c.ElectUnclean("orders", 0, 1); err != nil { // epoch 1 begins at 1
		t.Fatal(err)
	}
	produce(t, c, "B")
	produce(t, c, "C")
	f := fetcher(t, c, mirror.FetchOptions{})
	w := at(3)
	w.LeaderEpoch, w.LastEpoch = 1, 0
	f.Want(w)
	p := one(t, f)
	if p.Err != nil || p.Diverging == nil || *p.Diverging != (mirror.EpochEnd{Epoch: 0, End: 1}) || len(p.Records) > 0 {
		t.Errorf("reply %+v, diverging %+v", p, p.Diverging)
	}
	w.Offset = 1
	f.Want(w)
	if p := one(t, f); p.Diverging != nil || !slices.Equal(bases(p.Records), []int64{1, 2}) {
		t.Errorf("reply %+v after the cut", p)
	}
	if got := values(t, c, memlog.ReadUncommitted); !slices.Equal(got, []string{"0=a", "1=B", "2=C"}) {
		t.Errorf("log %v", got)
	}
}

func TestFetchEndsWithItsContextWithCloseAndWithTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		for name, end := range map[string]func(f mirror.Fetcher, cancel func()){
			"context": func(f mirror.Fetcher, cancel func()) { cancel() },
			"close":   func(f mirror.Fetcher, cancel func()) { f.Close() },
			"broker": func(f mirror.Fetcher, cancel func()) {
				c.StopBroker(1)
				c.StartBroker(1)
				c.SetUnreachable(true)
			},
		} {
			t.Log(name)
			ends(t, c, end)
			c.SetUnreachable(false)
		}
		t.Log("cluster")
		ends(t, c, func(mirror.Fetcher, func()) { c.Close() })
	})
}

func ends(t *testing.T, c *memlog.Cluster, end func(mirror.Fetcher, func())) {
	t.Helper()
	f := fetcher(t, c, mirror.FetchOptions{MaxWait: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.Want(at(0))
	done := make(chan error, 1)
	go func() {
		_, err := f.Fetch(ctx)
		done <- err
	}()
	synctest.Wait()
	began := time.Now()
	end(f, cancel)
	if err := <-done; err == nil || time.Since(began) > 0 {
		t.Errorf("fetch ended with %v after %s", err, time.Since(began))
	}
}

func TestForgottenPartitionIsNotFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := source(t, memlog.Config{})
		f := fetcher(t, c, mirror.FetchOptions{})
		f.Want(at(0))
		f.Forget(orders)
		produce(t, c, "a")
		if reply := fetch(t, f); len(reply) > 0 {
			t.Errorf("reply %+v", reply)
		}
	})
}

func TestF28FetchOfARecreatedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, old := source(t, memlog.Config{})
		produce(t, c, "a")
		f := fetcher(t, c, mirror.FetchOptions{MaxWait: time.Hour})
		w := at(1)
		w.TopicID = old.ID
		f.Want(w)
		go func() {
			time.Sleep(time.Second)
			c.RecreateTopic("orders", 1)
		}()
		p := one(t, f)
		var s *mirror.SourceError
		if !errors.As(p.Err, &s) || s.Code != mirror.SourceTopicIDChanged && s.Code != mirror.SourceUnknownTopic {
			t.Errorf("error %v while the topic is recreated", p.Err)
		}
		f.Want(w)
		p = one(t, f)
		code(t, p.Err, mirror.SourceTopicIDChanged)
	})
}

// TestF86RemoteStorage: a fetch of what is in remote storage gets neither records nor an error until they are there; beside it others get theirs.
func TestF86RemoteStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memlog.New(memlog.Config{})
		defer c.Close()
		if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: orders.Topic, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := c.Produce(t.Context(), orders.Topic, 0, memlog.Record{Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SetRemote(orders.Topic, 0, 5, 0); err == nil {
			t.Error("more than the log has is in remote storage")
		}
		if err := c.SetRemote(orders.Topic, 0, 2, time.Second); err != nil {
			t.Fatal(err)
		}
		if got, err := c.LocalStarts(t.Context(), []mirror.TopicPartition{orders}); err != nil || got[orders] != 2 {
			t.Errorf("its own disks begin at %v, %v", got, err)
		}
		f := fetcher(t, c, mirror.FetchOptions{MaxWait: 10 * time.Millisecond})
		f.Want(at(0))
		if got := fetch(t, f); len(got) != 1 || got[0].Err != nil || len(got[0].Records) > 0 || got[0].HighWatermark != 4 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Second) // virtual
		if got := fetch(t, f); len(got) != 1 || len(got[0].Records) == 0 {
			t.Errorf("%+v", got)
		}
		f.Want(at(2))
		if got := fetch(t, f); len(got) != 1 || len(got[0].Records) == 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestF79FetchQuota: what fetchers get is kept to the quota by empty replies that ask for a pause.
func TestF79FetchQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memlog.New(memlog.Config{})
		defer c.Close()
		if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: orders.Topic, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := c.Produce(t.Context(), orders.Topic, 0, memlog.Record{Value: make([]byte, 10_000)}); err != nil {
				t.Fatal(err)
			}
		}
		c.SetFetchQuota(10_000)
		f := fetcher(t, c, mirror.FetchOptions{PartitionMaxBytes: 1, MaxWait: time.Second})
		next, pauses, began := int64(0), time.Duration(0), time.Now()
		for next < 20 {
			f.Want(at(next))
			got, err := f.Fetch(t.Context())
			pauses += f.(mirror.ThrottleTeller).Throttled()
			if errors.Is(err, mirror.ErrNoAnswer) {
				continue
			}
			if err != nil || len(got) != 1 || len(got[0].Records) == 0 {
				t.Fatalf("%+v %v", got, err)
			}
			next++
		}
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second || pauses < 18*time.Second || pauses > 21*time.Second {
			t.Errorf("200 kB at 10 kB/s took %s, with pauses of %s", took, pauses)
		}
	})
}
