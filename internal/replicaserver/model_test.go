package replicaserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/statemachine"
)

// sessionModel drives a server as a follower's fetcher does, while the partitions change.
type sessionModel struct {
	topics   *fakeTopics
	server   *Server
	listener *pipeListener
	follower *follower
	handler  handler
	logs     map[partitionKey]*fakeLog // what there is
	copies   map[partitionKey]*replica // what the follower follows
	keys     []partitionKey
}

// fetch is one round. ignore says of which partitions the follower cannot use batches, an error or a diverging epoch: it goes on asking the same without naming it.
func (m *sessionModel) fetch(t *rapid.T, wait int32, ignore func(partitionKey) bool) (answered int) {
	m.handler.maxWait = wait
	want := map[partitionKey]told{}
	for k, c := range m.copies {
		if !c.resting {
			want[k] = c.told()
		}
	}
	if len(want) == 0 && len(m.handler.session) == 0 {
		return 0
	}
	resp, err := m.follower.try(m.handler.build(want))
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	got, err := m.handler.handle(resp.(*kmsg.FetchResponse))
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range got {
		if ignore != nil && ignore(k) && (len(p.RecordBatches) > 0 || p.ErrorCode != 0 || p.DivergingEpoch.EndOffset >= 0) {
			continue
		}
		l := m.logs[k]
		if l == nil {
			l = newFakeLog()
		}
		if err := m.copies[k].take(p, l); err != nil {
			t.Fatalf("%v: %v", k, err)
		}
	}
	if m.handler.epoch == 0 {
		return len(got) + 1 // something was wrong with the session: that is no rest
	}
	return len(got)
}

func (m *sessionModel) reconnect(t testing.TB) {
	_ = m.follower.conn.Close()
	m.follower = m.listener.dial(t)
	m.handler.failed()
}

func TestSessionsShowWhatFullFetchesShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) { checkSessions(t, rt) })
	})
}

// inBubble is a test in virtual time, whose deadline must not be asked for.
type inBubble struct{ *testing.T }

func checkSessions(t *testing.T, rt *rapid.T) {
	m := &sessionModel{topics: newFakeTopics(), listener: newPipeListener(), logs: map[partitionKey]*fakeLog{}, copies: map[partitionKey]*replica{}}
	var err error
	if m.server, err = New(Config{
		Listener: m.listener, NodeID: 9999, Topics: m.topics, Allowed: func(string) bool { return true }, Logger: quiet, MaxSessions: rapid.IntRange(1, 2).Draw(rt, "max sessions"),
		SessionEviction: 5 * time.Second,
	}); err != nil {
		rt.Fatal(err)
	}
	defer func() {
		if err := m.server.Close(context.Background()); err != nil {
			rt.Fatal(err)
		}
		for k, l := range m.logs {
			if n := l.subscribers(); n != 0 {
				rt.Fatalf("%v has %d subscribers when the server is closed", k, n)
			}
		}
	}()
	m.follower = m.listener.dial(t)
	defer func() { _ = m.follower.conn.Close() }()
	other := m.listener.dial(t) // another follower, which may take the last place for a session
	defer func() { _ = other.conn.Close() }()
	m.handler.maxBytes = int32(rapid.SampledFrom([]int{1, 300, 1000, 10 << 20}).Draw(rt, "max bytes"))
	for topic := range byte(2) {
		for p := range int32(3) {
			m.keys = append(m.keys, partitionKey{statemachine.TopicID{topic + 1}, p})
		}
	}
	was := map[partitionKey]*fakeLog{} // no longer led; when it is again, it is another Partition with the same log and a later leader epoch
	lead := func(k partitionKey) {
		if m.logs[k] == nil {
			l := m.topics.add("t", k.topic, k.partition)
			if old := was[k]; old != nil {
				l.change(func() { l.batches, l.start, l.high, l.epoch = old.batches, old.start, old.high, old.epoch+1 })
			}
			m.logs[k] = l
		}
	}
	follow := func(k partitionKey) {
		if m.copies[k] == nil {
			m.copies[k] = &replica{}
		}
	}
	for _, k := range m.keys[:4] {
		lead(k)
		follow(k)
	}
	key := rapid.SampledFrom(m.keys)
	on := func(rt *rapid.T, do func(l *fakeLog)) {
		if l := m.logs[key.Draw(rt, "partition")]; l != nil {
			do(l)
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"append": func(rt *rapid.T) { on(rt, func(l *fakeLog) { l.append(rapid.IntRange(61, 700).Draw(rt, "size")) }) },
		"truncate": func(rt *rapid.T) {
			on(rt, func(l *fakeLog) {
				back := rapid.Int64Range(0, 5).Draw(rt, "back")
				l.truncate(max(l.start, l.end()-back))
			})
		},
		"raise": func(rt *rapid.T) {
			on(rt, func(l *fakeLog) { l.raise(l.start + rapid.Int64Range(0, 3).Draw(rt, "by")) })
		},
		"cool": func(rt *rapid.T) {
			on(rt, func(l *fakeLog) { l.change(func() { l.cold = l.start + rapid.Int64Range(0, 10).Draw(rt, "cold") }) })
		},
		"read back otherwise": func(rt *rapid.T) {
			on(rt, func(l *fakeLog) {
				takes, fails := time.Duration(rapid.IntRange(0, 1000).Draw(rt, "takes"))*time.Millisecond, rapid.Bool().Draw(rt, "fails")
				l.change(func() {
					l.readBack = func(ctx context.Context) error {
						select {
						case <-time.After(takes):
						case <-ctx.Done():
						}
						if fails {
							return errors.New("the source does not answer")
						}
						return ctx.Err()
					}
				})
			})
		},
		"gate": func(rt *rapid.T) {
			on(rt, func(l *fakeLog) { l.change(func() { l.code = codeNotLeader - l.code }) })
		},
		"stop leading": func(rt *rapid.T) {
			k := key.Draw(rt, "partition")
			if l := m.logs[k]; l != nil {
				m.topics.remove(k.topic, k.partition)
				delete(m.logs, k)
				was[k] = l
				l.change(func() { l.code = codeNotLeader })
			}
		},
		"lead": func(rt *rapid.T) {
			k := key.Draw(rt, "partition")
			lead(k)
			if c := m.copies[k]; c != nil {
				c.epoch = m.logs[k].epoch
			}
		},
		"follow":   func(rt *rapid.T) { follow(key.Draw(rt, "partition")) },
		"unfollow": func(rt *rapid.T) { delete(m.copies, key.Draw(rt, "partition")) },
		"rested": func(rt *rapid.T) {
			if c := m.copies[key.Draw(rt, "partition")]; c != nil {
				c.resting = false
			}
		},
		"fetch": func(rt *rapid.T) {
			m.fetch(rt, int32(rapid.SampledFrom([]int{0, 500}).Draw(rt, "wait")), nil)
		},
		"fetch and ignore": func(rt *rapid.T) {
			ignored := rapid.SliceOfDistinct(key, func(k partitionKey) partitionKey { return k }).Draw(rt, "ignored")
			m.fetch(rt, 500, func(k partitionKey) bool { return slices.Contains(ignored, k) })
		},
		"lose the answer": func(*rapid.T) { m.reconnect(t) },
		"lose the session": func(rt *rapid.T) {
			if rapid.Bool().Draw(rt, "by the wrong epoch") {
				m.handler.epoch += 1 << 20
			} else {
				m.handler.id++
			}
		},
		"another session": func(*rapid.T) {
			req := fetchOf(18, statemachine.TopicID{1}, 0)
			req.SessionEpoch, req.ReplicaState.ID = 0, 2
			if _, err := other.try(req); err != nil {
				rt.Fatal(err)
			}
		},
		"time passes": func(*rapid.T) { time.Sleep(10 * time.Second) },
	})
	// Everything gets well, and then the copies must become what the logs are, and then there must be nothing more to say.
	for k, l := range m.logs {
		l.change(func() { l.code, l.readBack = 0, nil })
		if c := m.copies[k]; c != nil {
			c.resting = false
		}
	}
	for k := range m.copies {
		if m.logs[k] == nil {
			delete(m.copies, k)
		}
	}
	quietRounds := 0
	for round := 0; quietRounds < 3; round++ {
		if round > 1000 {
			rt.Fatal("the server has something new after 1000 fetches")
		}
		for _, c := range m.copies {
			c.resting = false
		}
		if m.fetch(rt, 500, nil) == 0 {
			quietRounds++
		} else {
			quietRounds = 0
		}
		if len(m.copies) == 0 || m.handler.epoch == 0 && round > 200 { // without a session every answer is full
			break
		}
	}
	for k, c := range m.copies {
		if how := c.differs(m.logs[k]); how != "" {
			rt.Fatalf("%v: %s", k, how)
		}
	}
}
