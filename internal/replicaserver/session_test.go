package replicaserver

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// inVirtualTime runs f with a server that needs no network, and a follower connected to it.
func inVirtualTime(t *testing.T, topics *fakeTopics, change func(*Config), f func(t *testing.T, s *Server, l *pipeListener, c *follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s := startOn(t, l, topics, change)
		c := l.dial(t)
		defer func() { _ = c.conn.Close() }()
		f(t, s, l, c)
	})
}

// begin makes a session over the partitions 0 to n-1 of topicA at offset 0, without waiting.
func begin(c *follower, n int) *kmsg.FetchResponse {
	req := fetchOf(17, topicA, make([]int64, n)...)
	req.SessionEpoch = 0
	return c.ask(req).(*kmsg.FetchResponse)
}

// next is the request of a session that names nothing.
func next(id, epoch int32, wait time.Duration) *kmsg.FetchRequest {
	req := fetchOf(17, topicA)
	req.Topics, req.SessionID, req.SessionEpoch, req.MaxWaitMillis = nil, id, epoch, int32(wait.Milliseconds())
	return req
}

// naming adds a partition of topicA to a request.
func naming(req *kmsg.FetchRequest, partition int32, offset int64) *kmsg.FetchRequest {
	p := fetchOf(17, topicA, offset).Topics[0]
	p.Partitions[0].Partition = partition
	req.Topics = append(req.Topics, p)
	return req
}

// in are the partitions in an answer, in its order, with the bytes of their batches.
func in(resp *kmsg.FetchResponse) string {
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s := fmt.Sprintf("%d:%d", p.Partition, len(p.RecordBatches))
			if p.ErrorCode != 0 {
				s = fmt.Sprintf("%d:code %d", p.Partition, p.ErrorCode)
			}
			out = append(out, s)
		}
	}
	return fmt.Sprint(out)
}

func topicOf(partitions int32) (*fakeTopics, []*fakeLog) {
	topics := newFakeTopics()
	var logs []*fakeLog
	for p := range partitions {
		logs = append(logs, topics.add("a", topicA, p))
	}
	return topics, logs
}

func TestAnIncrementalAnswerHoldsWhatIsNew(t *testing.T) {
	topics, logs := topicOf(3)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		full := begin(c, 3)
		if got := in(full); got != "[0:0 1:0 2:0]" || full.SessionID == 0 {
			t.Fatalf("the full answer is %s in session %d", got, full.SessionID)
		}
		epoch := int32(0)
		expect := func(req *kmsg.FetchRequest, want string) {
			t.Helper()
			epoch++
			req.SessionID, req.SessionEpoch = full.SessionID, epoch
			resp := c.ask(req).(*kmsg.FetchResponse)
			if got := in(resp); got != want || resp.ErrorCode != 0 || resp.SessionID != full.SessionID {
				t.Fatalf("request %d: the answer is %s with code %d, want %s", epoch, got, resp.ErrorCode, want)
			}
		}
		expect(next(0, 0, 0), "[]")
		logs[1].append(100)
		expect(next(0, 0, 0), "[1:100]")
		expect(next(0, 0, 0), "[1:100]") // it did not say that it has it
		expect(naming(next(0, 0, 0), 1, 1), "[]")
		logs[2].change(func() { logs[2].high = 7 })
		expect(next(0, 0, 0), "[2:0]")
		expect(next(0, 0, 0), "[]")
		logs[2].change(func() {}) // woken for nothing
		expect(next(0, 0, 0), "[]")
		logs[1].raise(1)
		expect(next(0, 0, 0), "[1:0]")
		logs[0].change(func() { logs[0].code = codeNotLeader })
		expect(next(0, 0, 0), "[0:code 6]")
		expect(next(0, 0, 0), "[0:code 6]")
		logs[0].change(func() { logs[0].code = 0 })
		expect(next(0, 0, 0), "[0:0]") // the high watermark again, after the error
		expect(next(0, 0, 0), "[]")
		expect(naming(next(0, 0, 0), 0, 0), "[]")
		anew := naming(next(0, 0, 0), 0, 0)
		anew.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
		expect(anew, "[0:0]") // who follows anew may not have heard of the high watermark
		forget := next(0, 0, 0)
		forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topicA, Partitions: []int32{0, 2}}}
		expect(forget, "[]")
		logs[0].append(100)
		expect(next(0, 0, 0), "[]")
		if n := logs[0].subscribers(); n != 0 {
			t.Errorf("a forgotten partition still has %d subscribers", n)
		}
	})
}

func TestIdlePartitionsAreNotAsked(t *testing.T) {
	topics, logs := topicOf(500)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		id := begin(c, 500).SessionID
		count := func() (n int) {
			for _, l := range logs {
				_, m := l.lastAsked()
				n += m
			}
			return n
		}
		before := count()
		for i := range int32(10) {
			logs[i].append(100)
			c.ask(next(id, i+1, 0))
		}
		// Each that was sent batches is asked again by the next requests, as it was not named since: 1 + 2 + … + 10.
		if n := count() - before; n != 55 {
			t.Errorf("partitions were asked %d times, want 55", n)
		}
	})
}

func TestNamedPartitionsAreToldTheirPosition(t *testing.T) {
	topics, logs := topicOf(3)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		for _, l := range logs {
			l.append(100)
		}
		id := begin(c, 3).SessionID
		// No room is left for the second and the third, but their positions count.
		req := naming(naming(next(id, 1, 0), 1, 1), 2, 1)
		req.MaxBytes = 1
		if got := in(c.ask(req).(*kmsg.FetchResponse)); got != "[0:100]" {
			t.Fatalf("the answer is %s", got)
		}
		for p := 1; p <= 2; p++ {
			if q, _ := logs[p].lastAsked(); q.Offset != 1 || q.BrokerEpoch != 77 || q.Broker != 1 {
				t.Errorf("partition %d was last asked %+v", p, q)
			}
		}
	})
}

func TestSessionsThatAreNotThere(t *testing.T) {
	topics, logs := topicOf(2)
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, l *pipeListener, c *follower) {
		code := func(c *follower, req *kmsg.FetchRequest) int16 {
			t.Helper()
			resp := c.ask(req).(*kmsg.FetchResponse)
			if resp.ErrorCode != 0 && (resp.SessionID != 0 || len(resp.Topics) != 0) {
				t.Errorf("an answer with code %d has more in it: %+v", resp.ErrorCode, resp)
			}
			return resp.ErrorCode
		}
		if got := code(c, next(5, 1, 0)); got != codeSessionNotFound {
			t.Errorf("no session: code %d", got)
		}
		id := begin(c, 2).SessionID
		if got := code(c, next(id, 2, 0)); got != codeInvalidSessionEpoch {
			t.Errorf("wrong epoch: code %d", got)
		}
		if got := code(c, next(id, 1, 0)); got != 0 {
			t.Errorf("right epoch after a wrong one: code %d", got)
		}
		if got := code(c, next(id+1, 2, 0)); got != codeSessionNotFound {
			t.Errorf("wrong id: code %d", got)
		}
		stranger := next(id, 2, 0)
		stranger.ReplicaState.ID = 2
		if got := code(c, stranger); got != codeSessionNotFound {
			t.Errorf("another broker: code %d", got)
		}
		// From another connection the session is not to be had, but its broker can end it.
		other := l.dial(t)
		defer func() { _ = other.conn.Close() }()
		if got := code(other, next(id, 2, 0)); got != codeSessionNotFound {
			t.Errorf("another connection: code %d", got)
		}
		foreign := fetchOf(17, topicA, 0)
		foreign.SessionID, foreign.SessionEpoch, foreign.ReplicaState.ID = id, -1, 2
		other.ask(foreign)
		if got := code(c, next(id, 2, 0)); got != 0 {
			t.Errorf("another broker ended the session: code %d", got)
		}
		again := fetchOf(17, topicA, 0)
		again.SessionID, again.SessionEpoch = id, 0
		if resp := other.ask(again).(*kmsg.FetchResponse); resp.SessionID == 0 || resp.SessionID == id {
			t.Errorf("the new session has the id %d, the old one %d", resp.SessionID, id)
		}
		if got := code(c, next(id, 3, 0)); got != codeSessionNotFound {
			t.Errorf("ended by a new one: code %d", got)
		}
		// An empty session is closed.
		id = begin(c, 1).SessionID
		forget := next(id, 1, 0)
		forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topicA, Partitions: []int32{0}}}
		if resp := c.ask(forget).(*kmsg.FetchResponse); resp.SessionID != 0 || resp.ErrorCode != 0 {
			t.Errorf("an empty session is answered %+v", resp)
		}
		// What a connection had goes with it.
		begin(c, 2)
		if n := logs[1].subscribers(); n != 1 {
			t.Fatalf("%d subscribers", n)
		}
		_ = c.conn.Close()
		synctest.Wait()
		if n := logs[1].subscribers(); n != 0 {
			t.Errorf("%d subscribers after the connection ended", n)
		}
		if n := len(s.sessions.byID); n != 1 {
			t.Errorf("%d sessions are left, want the other connection's", n)
		}
	})
}

func TestSessionEpochsBeginAgain(t *testing.T) {
	topics, _ := topicOf(1)
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, _ *pipeListener, c *follower) {
		id := begin(c, 1).SessionID
		s.sessions.byID[id].epoch = 1<<31 - 1
		for _, epoch := range []int32{1<<31 - 1, 1, 2} {
			if resp := c.ask(next(id, epoch, 0)).(*kmsg.FetchResponse); resp.ErrorCode != 0 {
				t.Errorf("epoch %d: code %d", epoch, resp.ErrorCode)
			}
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	topics, logs := topicOf(1)
	var most int
	change := func(c *Config) {
		c.MaxSessions, c.SessionEviction = 2, time.Minute
		c.Observer.Sessions = func(n int) { most = max(most, n) }
	}
	inVirtualTime(t, topics, change, func(t *testing.T, _ *Server, l *pipeListener, c *follower) {
		first := begin(c, 1).SessionID
		time.Sleep(30 * time.Second)
		var others []*follower
		for range 2 {
			o := l.dial(t)
			defer func() { _ = o.conn.Close() }()
			others = append(others, o)
		}
		second := begin(others[0], 1).SessionID
		if resp := begin(others[1], 1); resp.SessionID != 0 || resp.ErrorCode != 0 || in(resp) != "[0:0]" {
			t.Errorf("where there is no place for a session: %+v", resp)
		}
		synctest.Wait()
		if n := logs[0].subscribers(); n != 2 {
			t.Errorf("%d subscribers, want those of two sessions", n)
		}
		time.Sleep(31 * time.Second)
		if resp := c.ask(next(first, 1, 0)).(*kmsg.FetchResponse); resp.ErrorCode != 0 {
			t.Fatalf("code %d", resp.ErrorCode)
		}
		time.Sleep(30 * time.Second) // the second was not used for a minute, the first was
		if id := begin(others[1], 1).SessionID; id == 0 {
			t.Error("the longest unused session did not give way")
		}
		if code := others[0].ask(next(second, 1, 0)).(*kmsg.FetchResponse).ErrorCode; code != codeSessionNotFound {
			t.Errorf("the session that gave way answers code %d", code)
		}
		if code := c.ask(next(first, 2, 0)).(*kmsg.FetchResponse).ErrorCode; code != 0 {
			t.Errorf("a session that was used lately answers code %d", code)
		}
		if most != 2 {
			t.Errorf("%d sessions at most, want 2", most)
		}
		if n := logs[0].subscribers(); n != 2 {
			t.Errorf("%d subscribers", n)
		}
	})
}

func TestBusyPartitionsTakeTurns(t *testing.T) {
	topics, logs := topicOf(4)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		for _, l := range logs[:3] {
			for range 5 {
				l.append(1000)
			}
		}
		req := fetchOf(17, topicA, 0, 0, 0, 0)
		req.SessionEpoch, req.MaxBytes = 0, 1500
		full := c.ask(req).(*kmsg.FetchResponse)
		if got := in(full); got != "[0:1000 1:0 2:0 3:0]" {
			t.Fatalf("the full answer is %s", got)
		}
		at := []int64{1, 0, 0, 0}
		last := 0
		var turns []int
		for i := range int32(11) {
			req := naming(next(full.SessionID, i+1, 0), int32(last), at[last])
			req.MaxBytes = 1500
			if i == 3 {
				logs[3].append(1000) // the newest waits for its turn
			}
			resp := c.ask(req).(*kmsg.FetchResponse)
			for _, p := range resp.Topics[0].Partitions {
				if len(p.RecordBatches) > 0 {
					last = int(p.Partition)
					at[last] += int64(len(p.RecordBatches) / 1000)
					turns = append(turns, last)
				}
			}
		}
		if want := []int{1, 2, 0, 1, 2, 0, 3, 1, 2, 0, 1}; !slices.Equal(turns, want) {
			t.Errorf("turns %v, want %v", turns, want)
		}
	})
}

func TestLimitsOfBytes(t *testing.T) {
	topics, logs := topicOf(3)
	for _, l := range logs {
		for range 4 {
			l.append(1000)
		}
	}
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		for _, k := range []struct {
			max, partitionMax int32
			want              string
		}{
			{10_000, 2500, "[0:2000 1:2000 2:2000]"},
			{10_000, 100, "[0:1000 1:0 2:0]"}, // only the very first batch may be above a limit
			{100, 10_000, "[0:1000 1:0 2:0]"},
			{0, 0, "[0:1000 1:0 2:0]"},
			{-5, -5, "[0:1000 1:0 2:0]"},
			{5500, 10_000, "[0:4000 1:1000 2:0]"},
			{1 << 30, 1 << 30, "[0:4000 1:4000 2:4000]"},
		} {
			req := fetchOf(17, topicA, 0, 0, 0)
			req.MaxBytes = k.max
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = k.partitionMax
			}
			if got := in(c.ask(req).(*kmsg.FetchResponse)); got != k.want {
				t.Errorf("limits %d and %d: %s, want %s", k.max, k.partitionMax, got, k.want)
			}
		}
	})
	inVirtualTime(t, topics, func(c *Config) { c.MaxResponseBytes = 5500 }, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		if got := in(c.ask(fetchOf(17, topicA, 0, 0, 0)).(*kmsg.FetchResponse)); got != "[0:4000 1:1000 2:0]" {
			t.Errorf("the server's own limit: %s", got)
		}
	})
}

func TestUnknownPartitions(t *testing.T) {
	topics, _ := topicOf(1)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		full := begin(c, 2)
		if got := in(full); got != "[0:0 1:code 100]" {
			t.Fatalf("%s", got)
		}
		stranger := fetchOf(17, statemachine.TopicID{0xff}, 0)
		if got := in(c.ask(stranger).(*kmsg.FetchResponse)); got != "[0:code 100]" {
			t.Errorf("%s", got)
		}
		topics.add("a", topicA, 1).append(70)
		if got := in(c.ask(next(full.SessionID, 1, 0)).(*kmsg.FetchResponse)); got != "[1:70]" {
			t.Errorf("a partition that is led now: %s", got)
		}
	})
}

func TestTooManyPartitionsInASession(t *testing.T) {
	topics := newFakeTopics()
	inVirtualTime(t, topics, nil, func(t *testing.T, s *Server, _ *pipeListener, c *follower) {
		req := fetchOf(17, topicA, make([]int64, maxPartitions+1)...)
		req.SessionEpoch = 0
		if _, err := c.try(req); err == nil {
			t.Error("it was answered")
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := len(s.sessions.byID); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}
