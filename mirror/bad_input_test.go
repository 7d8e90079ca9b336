package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// badSource counts what is asked and lets the source fail as fail says.
func badSource(m *pair, q *requests, fail func(memlog.Call) error) {
	m.a.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
		if strings.HasPrefix(c.Operation, "Client.") {
			return nil
		}
		q.count(c)
		return fail(c)
	}})
}

func TestBadSourcesSaySoAndAreNotFlooded(t *testing.T) {
	refusal := func(code mirror.SourceCode, text, advice string) func(memlog.Call) error {
		return func(memlog.Call) error {
			return &mirror.SourceError{Code: code, Operation: "metadata", Err: errors.New(text), Advice: advice}
		}
	}
	for _, c := range []struct {
		name  string
		fail  func(memlog.Call) error
		words []string
	}{
		{"wrong address", refusal(mirror.SourceUnreachable, "dial tcp 192.0.2.1:9092: connection refused", "check the address"), []string{"connection refused", "check the address"}},
		{"wrong credentials", refusal(mirror.SourceAuthentication, "SASL authentication failed", "check user and password"), []string{"SASL authentication failed", "check user and password"}},
		{"older than supported", refusal(mirror.SourceUnsupported, "broker is too old", "Kafka 2.1 or newer is needed"), []string{"too old", "2.1 or newer"}},
	} {
		t.Run(c.name+" at the start", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, q := newPair(t, 1), &requests{}
				m.a.fill("t", 0, 3)
				badSource(m, q, c.fail)
				m.start("t")
				time.Sleep(10 * time.Minute)
				q.bounded(t)
				s := m.Status()
				if len(s.Topics) != 1 || s.Topics[0].Err == nil {
					t.Fatal(show(s))
				}
				expectWords(t, s.Topics[0].Err.Error(), c.words...)
				var typed *mirror.SourceError
				if !errors.As(s.Topics[0].Err, &typed) {
					t.Errorf("%T", s.Topics[0].Err)
				}
				told := 0
				for _, e := range eventsOf[mirror.TopicTrouble](m.running) {
					if e.Err != nil {
						told++
					}
				}
				expect(t, "told", told, 1)
				badSource(m, q, func(memlog.Call) error { return nil })
				m.inStepAndSame() // by itself
			})
		})
		t.Run(c.name+" while running, many partitions", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, q := newPair(t, 20), &requests{}
				for p := range int32(20) {
					m.a.fill("t", p, 3)
				}
				m.start("t")
				m.inStepAndSame()
				badSource(m, q, c.fail)
				m.a.fill("t", 0, 3)
				time.Sleep(10 * time.Minute)
				q.bounded(t)
				p := m.one("t", 0)
				expectWords(t, p.Reason, c.words...)
				if p.LagOffsets == 0 || p.LagUnknown.IsZero() {
					t.Errorf("lag %d, unknown since %s", p.LagOffsets, p.LagUnknown)
				}
				expectWords(t, m.Snapshot().SourceError+" ", c.words[0])
				badSource(m, q, func(memlog.Call) error { return nil })
				m.inStepAndSame()
			})
		})
	}
	t.Run("unknown topic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, q := newPair(t, 1), &requests{}
			badSource(m, q, func(memlog.Call) error { return nil })
			m.start("nowhere")
			time.Sleep(10 * time.Minute)
			q.bounded(t)
			err := m.Status().Topics[0].Err
			if !errors.Is(err, mirror.ErrUnknownTopic) {
				t.Fatal(err)
			}
			expectWords(t, err.Error(), `unknown topic "nowhere"`, "check the name")
			if _, err := m.b.Topic(t.Context(), "nowhere"); !errors.Is(err, mirror.ErrUnknownTopic) {
				t.Errorf("it was created at the destination: %v", err)
			}
			m.a.local("nowhere", 1)
			m.a.fill("nowhere", 0, 1)
			m.untilInStep()
		})
	})
	t.Run("a damaged batch for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, q := newPair(t, 1), &requests{}
			m.a.fill("t", 0, 3)
			hooks := flipAt(0, 2, func() bool { return true })
			hooks.Before = func(_ context.Context, c memlog.Call) error { q.count(c); return nil }
			m.a.SetHooks(hooks)
			m.start("t")
			time.Sleep(10 * time.Minute)
			p := m.untilFailed("t", 0, "CRC at 2")
			expect(t, "end", p.End, 2)
			if p.RetryAttempt == statemachine.NonRetryable {
				t.Error("not tried again")
			}
			// The partition's own tries follow the retry policy, 1 s doubling to 300 s; each looks at the source and fetches the batch four times.
			attempts := len(eventsOf[mirror.RetryScheduled](m.running))
			if n := q.total(); attempts > 11 || n > 10*attempts+10 {
				t.Errorf("%d attempts, %d requests: %v", attempts, n, q.n)
			}
		})
	})
}

func TestOpenRefusesAConfigThatCannotWork(t *testing.T) {
	a := newSide(t, memlog.Config{})
	cfg := mirror.Config{Name: "x.stopped", CallBound: -1, Loss: 9, Owner: "report/x"}
	_, err := mirror.Open(t.Context(), cfg)
	if err == nil {
		t.Fatal("accepted")
	}
	expectWords(t, err.Error(), "x.stopped", "exactly one of Config.Source and Config.OpenSource", "Destination is not set", "Store is not set", "Sink is not set", "CallBound is negative", "loss policy 9 is none of", `owner "report/x" begins with`)
	for name, spoil := range map[string]func(*mirror.Config){
		"Sink": func(c *mirror.Config) { c.Sink = nil }, "Source": func(c *mirror.Config) { c.Source = nil }, "Store": func(c *mirror.Config) { c.Store = nil },
	} {
		cfg := config("m", a.Cluster, a)
		spoil(&cfg)
		if _, err := mirror.Open(t.Context(), cfg); err == nil {
			t.Errorf("without %s: accepted", name)
		}
	}
}
