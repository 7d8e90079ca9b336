package replicaserver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// after does f after a time, and returns how long the request took and its answer.
func after(c *follower, d time.Duration, f func(), req *kmsg.FetchRequest) (time.Duration, *kmsg.FetchResponse) {
	c.t.Helper()
	started := time.Now()
	go func() {
		time.Sleep(d)
		f()
	}()
	resp := c.ask(req).(*kmsg.FetchResponse)
	return time.Since(started), resp
}

// appendUnconfirmed appends 100 bytes; the high watermark stays, so only bytes can end a wait.
func (l *fakeLog) appendUnconfirmed() {
	l.change(func() { l.batches = append(l.batches, fakeBatch{l.end(), l.epoch, makeBatch(l.end(), l.epoch, 100)}) })
}

func TestAFetchWaitsUntilThereIsSomething(t *testing.T) {
	const wait = 500 * time.Millisecond
	for name, k := range map[string]struct {
		do       func(*fakeLog)
		minBytes int32
		took     time.Duration
		want     string
	}{
		"nothing":             {func(*fakeLog) {}, 1, wait, "[]"},
		"batches":             {func(l *fakeLog) { l.append(100) }, 1, wait / 2, "[1:100]"},
		"woken for nothing":   {func(l *fakeLog) { l.change(func() {}) }, 1, wait, "[]"},
		"too few bytes":       {(*fakeLog).appendUnconfirmed, 200, wait, "[1:100]"},
		"an error":            {func(l *fakeLog) { l.change(func() { l.code = codeNotLeader }) }, 1 << 20, wait / 2, "[1:code 6]"},
		"a higher start":      {func(l *fakeLog) { l.change(func() { l.start = 0; l.high = 3 }) }, 1 << 20, wait / 2, "[1:0]"},
		"another epoch":       {func(l *fakeLog) { l.truncate(0) }, 1 << 20, wait, "[]"},
		"no bytes are needed": {func(*fakeLog) {}, 0, 0, "[]"},
	} {
		topics, logs := topicOf(2)
		inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
			req := next(begin(c, 2).SessionID, 1, wait)
			req.MinBytes = k.minBytes
			took, resp := after(c, wait/2, func() { k.do(logs[1]) }, req)
			if took != k.took || in(resp) != k.want {
				t.Errorf("%s: %s after %v, want %s after %v", name, in(resp), took, k.want, k.took)
			}
			synctest.Wait()
			time.Sleep(wait)
		})
	}
}

func TestAFetchGathersMinBytes(t *testing.T) {
	topics, logs := topicOf(2)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		id := begin(c, 2).SessionID
		req := next(id, 1, time.Second)
		req.MinBytes = 250
		started := time.Now()
		go func() {
			for _, p := range []int{0, 0, 1} { // what grows is not counted twice
				time.Sleep(100 * time.Millisecond)
				logs[p].appendUnconfirmed()
			}
		}()
		resp := c.ask(req).(*kmsg.FetchResponse)
		if took := time.Since(started); took != 300*time.Millisecond || in(resp) != "[0:200 1:100]" {
			t.Errorf("%s after %v", in(resp), took)
		}
	})
}

func TestAFullAnswerDoesNotWait(t *testing.T) {
	topics, logs := topicOf(2)
	logs[0].append(1000)
	logs[1].append(1000)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		req := fetchOf(17, topicA, 0, 0)
		req.MinBytes, req.MaxBytes, req.MaxWaitMillis = 5000, 1500, 500
		if took, resp := after(c, 0, func() {}, req); took != 0 || in(resp) != "[0:1000 1:0]" {
			t.Errorf("%s after %v", in(resp), took)
		}
	})
}

func TestADivergingFollowerDoesNotWait(t *testing.T) {
	topics, logs := topicOf(1)
	for range 3 {
		logs[0].append(100)
	}
	logs[0].truncate(2)
	logs[0].append(100)
	logs[0].append(100)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		req := fetchOf(18, topicA, 3)
		req.MaxWaitMillis = 500
		req.Topics[0].Partitions[0].LastFetchedEpoch = 0
		started := time.Now()
		p := c.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if time.Since(started) != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 2 || len(p.RecordBatches) != 0 || p.ErrorCode != 0 {
			t.Errorf("after %v: %+v", time.Since(started), p)
		}
		req = fetchOf(18, topicA, 4)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
		p = c.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != codeFencedLeaderEpoch || p.CurrentLeader.LeaderID != 9999 || p.CurrentLeader.LeaderEpoch != 1 {
			t.Errorf("with an old leader epoch: %+v", p)
		}
	})
}

func TestTheWaitIsBounded(t *testing.T) {
	topics, _ := topicOf(1)
	inVirtualTime(t, topics, func(c *Config) { c.MaxWait = 3 * time.Second }, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		req := fetchOf(17, topicA, 0)
		req.MaxWaitMillis = 1<<31 - 1
		if took, _ := after(c, 0, func() {}, req); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestCloseEndsWaits(t *testing.T) {
	topics, logs := topicOf(2)
	logs[1].append(100)
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, l *pipeListener, c *follower) {
		logs[1].change(func() {
			logs[1].cold = 5
			logs[1].readBack = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		idle := l.dial(t)
		defer func() { _ = idle.conn.Close() }()
		id := begin(c, 2).SessionID
		done := make(chan error, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			done <- s.Close(context.Background())
		}()
		started := time.Now()
		if resp := c.ask(next(id, 1, 20*time.Second)).(*kmsg.FetchResponse); in(resp) != "[]" || time.Since(started) != 100*time.Millisecond {
			t.Errorf("%s after %v", in(resp), time.Since(started))
		}
		if err := <-done; err != nil || time.Since(started) != 100*time.Millisecond {
			t.Errorf("Close: %v after %v", err, time.Since(started))
		}
		if _, err := c.try(next(id, 2, 0)); err == nil {
			t.Error("a closed server answers")
		}
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

func TestCloseDoesNotWaitForWhoDoesNotRead(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(100_000)
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, _ *pipeListener, c *follower) {
		if _, err := c.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, fetchOf(17, topicA, 0), 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the answer is being sent
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		started := time.Now()
		if err := s.Close(ctx); err != nil || time.Since(started) != time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(started))
		}
	})
}

func TestBatchesAreReadBack(t *testing.T) {
	topics, logs := topicOf(2)
	for range 4 {
		logs[0].append(1000)
	}
	logs[0].cold = 3
	slow := func(ctx context.Context) error {
		select {
		case <-time.After(2 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	logs[0].readBack = slow
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		started := time.Now()
		full := begin(c, 2)
		if in(full) != "[0:0 1:0]" || time.Since(started) != 0 {
			t.Fatalf("%s after %v", in(full), time.Since(started))
		}
		// While one partition is read back, the other's batches are not held up.
		took, resp := after(c, 300*time.Millisecond, func() { logs[1].append(100) }, next(full.SessionID, 1, 500*time.Millisecond))
		if took != 300*time.Millisecond || in(resp) != "[1:100]" {
			t.Errorf("%s after %v", in(resp), took)
		}
		took, resp = after(c, 0, func() {}, naming(next(full.SessionID, 2, 500*time.Millisecond), 1, 1))
		if took != 500*time.Millisecond || in(resp) != "[]" {
			t.Errorf("%s after %v", in(resp), took)
		}
		took, resp = after(c, 0, func() {}, next(full.SessionID, 3, 5*time.Second))
		if took != 1200*time.Millisecond || in(resp) != "[0:4000]" {
			t.Errorf("%s after %v", in(resp), took)
		}
		if _, n := logs[0].lastAsked(); logs[0].backs != 1 || n > 4 {
			t.Errorf("read back %d times, asked %d times", logs[0].backs, n)
		}
		// From memory again.
		if resp := c.ask(naming(next(full.SessionID, 4, 0), 0, 3)).(*kmsg.FetchResponse); in(resp) != "[0:1000]" {
			t.Errorf("%s", in(resp))
		}
	})
	// Without a session there is nothing to keep what was read for, so the answer waits for it.
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		req := fetchOf(17, topicA, 0, 1)
		req.MaxWaitMillis = 500
		if took, resp := after(c, 0, func() {}, req); took != 2*time.Second || in(resp) != "[0:4000 1:0]" {
			t.Errorf("%s after %v", in(resp), took)
		}
		logs[0].change(func() { logs[0].readBack = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } })
		if took, resp := after(c, 0, func() {}, req); took != 500*time.Millisecond+sessionlessGrace || in(resp) != "[0:0 1:0]" {
			t.Errorf("%s after %v", in(resp), took)
		}
	})
}

func TestReadingBackThatFails(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(1000)
	logs[0].cold = 1
	fails := true
	logs[0].readBack = func(ctx context.Context) error {
		if fails {
			<-ctx.Done()
			return errors.New("the source does not answer")
		}
		return nil
	}
	var told error
	change := func(c *Config) {
		c.ReadBackBound = 3 * time.Second
		c.Observer.ReadBack = func(_ time.Duration, _ int, err error) { told = err }
	}
	inVirtualTime(t, topics, change, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		id := begin(c, 1).SessionID
		took, resp := after(c, 0, func() {}, next(id, 1, 10*time.Second))
		if took != 3*time.Second || in(resp) != "[0:code 56]" || told == nil {
			t.Errorf("%s after %v, told %v", in(resp), took, told)
		}
		fails = false
		if took, resp = after(c, 0, func() {}, next(id, 2, 10*time.Second)); took != 0 || in(resp) != "[0:0]" { // it is well again
			t.Errorf("%s after %v", in(resp), took)
		}
		if took, resp = after(c, 0, func() {}, next(id, 3, 10*time.Second)); took != 0 || in(resp) != "[0:1000]" || told != nil {
			t.Errorf("%s after %v, told %v", in(resp), took, told)
		}
	})
}

func TestWhatWasReadUnderAnotherLeaderEpochIsDropped(t *testing.T) {
	topics, logs := topicOf(1)
	for range 3 {
		logs[0].append(1000)
	}
	logs[0].cold = 3
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		id := begin(c, 1).SessionID
		synctest.Wait() // until it was read back
		logs[0].truncate(1)
		logs[0].append(500)
		got := "[]"
		for epoch := int32(1); epoch <= 3 && got != "[0:1500]"; epoch++ { // the other high watermark does not wait for the reading
			got = in(c.ask(next(id, epoch, time.Second)).(*kmsg.FetchResponse))
		}
		if got != "[0:1500]" || logs[0].backs != 2 {
			t.Errorf("%s, read back %d times", got, logs[0].backs)
		}
	})
}

func TestReadingBackEndsWithItsReason(t *testing.T) {
	topics, logs := topicOf(2)
	ended := 0
	logs[0].append(1000)
	logs[0].cold = 1
	logs[0].readBack = func(ctx context.Context) error {
		<-ctx.Done()
		ended++
		return ctx.Err()
	}
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		id := begin(c, 2).SessionID
		synctest.Wait() // until the reading has begun
		for i, change := range []func(*kmsg.FetchRequest){
			func(req *kmsg.FetchRequest) { naming(req, 0, 1) },
			func(req *kmsg.FetchRequest) { naming(req, 0, 0) },
			func(req *kmsg.FetchRequest) {
				req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topicA, Partitions: []int32{0}}}
			},
		} {
			req := next(id, int32(i+1), 0)
			change(req)
			c.ask(req)
			synctest.Wait()
			// The first ends as the follower is elsewhere, the second begins, and ends as the partition is not followed any more.
			if want := []int{1, 1, 2}[i]; ended != want {
				t.Errorf("request %d: %d readings ended, want %d", i+1, ended, want)
			}
		}
	})
}

func TestReadingBackIsBounded(t *testing.T) {
	topics, logs := topicOf(30)
	var now, most atomic.Int32
	for _, l := range logs {
		l.append(1000)
		l.cold = 1
		l.readBack = func(ctx context.Context) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		begin(c, 30)
		synctest.Wait()
		if n := now.Load(); n != readBacksAtOnce {
			t.Errorf("%d readings at a time for one session, want %d", n, readBacksAtOnce)
		}
	})
	most.Store(0)
	inVirtualTime(t, topics, func(c *Config) { c.MaxReadBacks = 5 }, func(t *testing.T, _ *Server, l *pipeListener, c *follower) {
		other := l.dial(t)
		done := make(chan struct{})
		for _, f := range []*follower{c, other} {
			go func() {
				defer func() { done <- struct{}{} }()
				id := begin(f, 30).SessionID
				at := map[int32]bool{}
				req := next(id, 1, time.Second)
				for epoch := int32(1); len(at) < 30; epoch++ {
					req.SessionEpoch = epoch
					resp := f.ask(req).(*kmsg.FetchResponse)
					req = next(id, 1, time.Second)
					for _, rt := range resp.Topics {
						for _, p := range rt.Partitions {
							if p.ErrorCode != 0 || epoch > 200 {
								t.Errorf("request %d: %s", epoch, in(resp))
								return
							}
							if len(p.RecordBatches) > 0 {
								at[p.Partition] = true
								naming(req, p.Partition, 1)
							}
						}
					}
				}
			}()
		}
		<-done
		<-done
		_ = other.conn.Close()
		if n := most.Load(); n != 5 {
			t.Errorf("%d readings at a time in the server, want 5", n)
		}
	})
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		req := fetchOf(17, topicA, make([]int64, 30)...)
		req.SessionEpoch, req.MaxBytes = 0, 3<<20
		c.ask(req)
		synctest.Wait()
		if n := now.Load(); n != 3 {
			t.Errorf("%d readings of a mebibyte at a time, want 3 within MaxBytes", n)
		}
	})
}

// TestABrokerThatFetchesIsHeardOfWhateverItsPartitionsSee: a partition that nothing happens to is not asked again in a session; the broker's fetches are seen all the same.
func TestABrokerThatFetchesIsHeardOfWhateverItsPartitionsSee(t *testing.T) {
	topics, logs := topicOf(2)
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, _ *pipeListener, c *follower) {
		broker := begin(c, 2)
		_, asked := logs[1].lastAsked()
		for i := range int32(60) {
			c.ask(next(broker.SessionID, i+1, 500*time.Millisecond))
		}
		if _, n := logs[1].lastAsked(); n > asked+1 {
			t.Errorf("a partition that nothing happens to was asked %d times", n)
		}
		replica := next(0, 0, 0).ReplicaState.ID
		if silent := time.Since(s.LastFetch(replica)); silent > time.Second {
			t.Errorf("broker %d has been silent for %s", replica, silent)
		}
		time.Sleep(time.Minute)
		if silent := time.Since(s.LastFetch(replica)); silent < time.Minute {
			t.Errorf("broker %d does not ask any more, and has been silent for %s", replica, silent)
		}
		if !s.LastFetch(replica + 1).IsZero() {
			t.Error("a broker that never came was heard of")
		}
	})
}
