package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// halfway is a failback from A to B's side: A was the source and came back with more than the copy had, B took over. Whatever is written for the failback (desired state, states, logs, sink) is one step,
// and at one of them, before or behind it, something happens.
type halfway struct {
	mirror.Control
	t      *testing.T
	a, b   *side
	shared map[mirror.TopicPartition][]byte // what both had at the failover
	before map[mirror.TopicPartition][]byte // of A
	common map[mirror.TopicPartition]int64
	config map[string]map[string]string // of A

	mu      sync.Mutex
	sunk    map[mirror.TopicPartition][]byte
	steps   []string
	at      int // step, from 0; below: none
	late    bool
	happens func() // at that step
	dead    atomic.Bool
}

var halved = []mirror.TopicPartition{{Topic: "t", Partition: 0}, {Topic: "t", Partition: 1}, {Topic: "u", Partition: 0}}

func newHalfway(t *testing.T) *halfway {
	h := &halfway{t: t, a: newSide(t, memlog.Config{ClusterID: "A"}), b: newSide(t, memlog.Config{ClusterID: "B"}), Control: mirror.NewMemoryControl(), at: -1,
		shared: map[mirror.TopicPartition][]byte{}, before: map[mirror.TopicPartition][]byte{}, common: map[mirror.TopicPartition]int64{}, sunk: map[mirror.TopicPartition][]byte{}, config: map[string]map[string]string{}}
	h.a.local("t", 2)
	h.a.local("u", 1)
	dr := open(t, "dr", h.a.Cluster, h.b, unheard)
	for _, tp := range halved {
		h.a.fill(tp.Topic, tp.Partition, 5)
	}
	dr.start("t", "u")
	dr.untilInStep()
	for _, tp := range halved {
		h.shared[tp] = h.a.raw(tp.Topic, tp.Partition)
	}
	h.a.SetUnreachable(true)
	h.a.fill("t", 0, 3) // nobody has copied these
	h.a.fill("u", 0, 2)
	if report, err := dr.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	for _, tp := range halved {
		h.b.fill(tp.Topic, tp.Partition, 4)
	}
	if err := h.b.SetTopicConfig("t", "retention.ms", "123456"); err != nil { // is followed as soon as the topic is a copy
		t.Fatal(err)
	}
	dr.close()
	h.a.SetUnreachable(false)
	for _, tp := range halved {
		h.before[tp], h.common[tp] = h.a.raw(tp.Topic, tp.Partition), 5
		c, err := h.a.TopicConfig(tp.Topic)
		if err != nil {
			t.Fatal(err)
		}
		h.config[tp.Topic] = c
	}
	h.a.SetHooks(memlog.Hooks{
		Before: func(_ context.Context, c memlog.Call) error { return h.logStep(c, false) },
		After:  func(_ context.Context, c memlog.Call) error { return h.logStep(c, true) },
	})
	return h
}

func (h *halfway) logStep(c memlog.Call, late bool) error {
	switch c.Operation {
	case "Log.TruncateTo", "Log.ResetTo", "Log.Append", "Log.CloseForWrites", "Log.Open", "Destination.RaiseLeaderEpochs":
		return h.step(fmt.Sprintf("%s %s-%d", c.Operation, c.Partition.Topic, c.Partition.Partition), late)
	}
	return nil
}

// step is called in front of each, and behind it.
func (h *halfway) step(what string, late bool) error {
	h.mu.Lock()
	if h.dead.Load() {
		h.mu.Unlock()
		return errDead
	}
	if !late {
		h.steps = append(h.steps, what)
	}
	var f func()
	if h.happens != nil && len(h.steps) == h.at+1 && late == h.late && h.steps[h.at] == what {
		f, h.happens = h.happens, nil
	}
	h.mu.Unlock()
	if f != nil {
		f()
	}
	if h.dead.Load() {
		return errDead
	}
	return nil
}

func (h *halfway) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	if err := h.step("desired state", false); err != nil {
		return err
	}
	if err := h.Control.Update(ctx, change); err != nil {
		return err
	}
	return h.step("desired state", true)
}

func (h *halfway) Dropped(_ context.Context, tp mirror.TopicPartition, _, _ int64, b []byte) error {
	if err := h.step("sink", false); err != nil {
		return err
	}
	h.mu.Lock()
	h.sunk[tp] = append(h.sunk[tp], b...)
	h.mu.Unlock()
	return h.step("sink", true)
}

// process opens the mirror that goes home.
func (h *halfway) process() *running {
	store := &oddStore{StateStore: h.a.StateStore(), write: func(ctx context.Context, s statemachine.Session, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
		what := "state"
		for _, w := range writes {
			what += " " + w.State.State.String()
		}
		if err := h.step(what, false); err != nil {
			return nil, err
		}
		results, err := s.Write(ctx, writes)
		if err != nil {
			return nil, err
		}
		return results, h.step(what, true)
	}}
	return open(h.t, "home", h.b.Cluster, h.a, unheard, func(c *mirror.Config) { c.Control, c.Store, c.Sink = h, store, h })
}

// operator has the verbs, and no process that could die.
func (h *halfway) operator() *mirror.Admin {
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "home", Control: h.Control, States: h.a.StateStore(), Destination: h.a.Cluster})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *halfway) abort() mirror.Result {
	r, err := h.operator().AbortFailback(h.t.Context(), nil, mirror.AbortFailbackOptions{AllTopics: true})
	if err != nil {
		h.t.Errorf("%v\n%s", err, r)
	}
	if text := r.String(); strings.Contains(text, "excluded") {
		h.t.Errorf("nobody has excluded a topic:\n%s", text)
	}
	return r
}

// lives brings a process back that died.
func (h *halfway) lives(dead *running) *running {
	dead.close()
	h.dead.Store(false)
	return h.process()
}

// line checks the first line of Describe against the gates of both clusters, and returns it.
func (h *halfway) line() string {
	h.t.Helper()
	d, err := h.operator().Describe(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	line, _, _ := strings.Cut(d.String(), "\n")
	_, claim, half := strings.Cut(line, "WRITABLE: ")
	if half != (len(d.Failbacks) > 0) {
		h.t.Errorf("%d failbacks are under way: %s", len(d.Failbacks), line)
	}
	here := 0
	for _, tp := range halved {
		if h.gate(tp) == mirror.OwnerOpen {
			here++
		}
	}
	if strings.Contains(claim, "closed here") && here > 0 {
		h.t.Errorf("%d partitions are open here: %s", here, line)
	}
	if half && strings.HasPrefix(claim, "here") || strings.HasPrefix(claim, "neither") { // nothing has fenced B
		h.t.Errorf("B is open: %s", line)
	}
	return line
}

func (h *halfway) gate(tp mirror.TopicPartition) mirror.Ownership {
	h.t.Helper()
	owner, _, err := h.a.log(tp.Topic, tp.Partition).Owner(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return owner
}

// ends waits until nothing moves any more, and checks what an abort has to leave: all as it was found, or closed copies of which what was given up is in the sink.
func (h *halfway) ends(m *running) (closed bool) {
	h.t.Helper()
	m.until("at rest", func(s mirror.Status) bool {
		return each(s, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Stopped || p.State == statemachine.Paused
		})
	})
	line := h.line()
	open := 0
	for _, tp := range halved {
		raw := h.a.raw(tp.Topic, tp.Partition)
		switch h.gate(tp) {
		case mirror.OwnerOpen:
			open++
			if !bytes.Equal(raw, h.before[tp]) {
				h.t.Errorf("%v was given back and has changed", tp)
			}
			if len(h.sunk[tp]) > 0 {
				h.t.Errorf("%v was given back, and its records are in the sink", tp)
			}
		case mirror.OwnerOurs:
			if !bytes.HasPrefix(h.b.raw(tp.Topic, tp.Partition), raw) || m.one(tp.Topic, tp.Partition).State != statemachine.Paused {
				h.t.Errorf("%v is %s, and no copy", tp, m.one(tp.Topic, tp.Partition).State)
			}
			gone := h.before[tp][len(h.shared[tp]):]
			if !bytes.HasSuffix(h.sunk[tp], gone) || len(bytes.ReplaceAll(h.sunk[tp], gone, nil)) > 0 { // a crash behind the sink has it there twice
				h.t.Errorf("%v gave up %d bytes, and the sink has %d", tp, len(gone), len(h.sunk[tp]))
			}
			if _, err := h.a.Produce(h.t.Context(), tp.Topic, tp.Partition, memlog.Record{Value: []byte("no")}); err == nil {
				h.t.Errorf("%v: a client has written to a closed copy", tp)
			}
			if _, err := h.a.Consume(h.t.Context(), tp.Topic, tp.Partition, 0, memlog.ReadCommitted); err != nil {
				h.t.Errorf("%v: a closed copy is not read: %v", tp, err)
			}
		}
	}
	switch open {
	case 0:
		expectWords(h.t, line, "WRITABLE: only the source B", "closed here")
		return true
	case len(halved):
		for topic, want := range h.config {
			if got, err := h.a.TopicConfig(topic); err != nil || !maps.Equal(got, want) {
				h.t.Errorf("settings of %s: %v, %v before: %v", topic, got, want, err)
			}
		}
		if strings.Contains(line, "WRITABLE") {
			h.t.Errorf("nothing is half done: %s", line)
		}
		return false
	}
	h.t.Errorf("%d of %d partitions are open: %s%s", open, len(halved), line, show(m.Status()))
	return false
}

// again goes home after an abort, and only the difference is copied.
func (h *halfway) again(m *running, closed bool) {
	h.t.Helper()
	lowest := map[mirror.TopicPartition]int64{}
	h.b.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range reply {
			for info := range mirror.Batches(reply[i].Records) {
				if at, ok := lowest[reply[i].TopicPartition]; !ok || info.Base < at {
					lowest[reply[i].TopicPartition] = info.Base
				}
			}
		}
		return reply
	}})
	from := h.common
	if closed {
		from = map[mirror.TopicPartition]int64{}
		for _, tp := range halved {
			from[tp] = h.a.log(tp.Topic, tp.Partition).End()
			h.b.fill(tp.Topic, tp.Partition, 2)
		}
	}
	plan, err := m.PlanFailback(h.t.Context(), "t", "u")
	if err != nil || closed && plan.Dropped > 0 {
		h.t.Fatalf("%v\n%s", err, plan)
	}
	if report, err := m.ExecuteFailback(h.t.Context(), plan); err != nil {
		h.t.Fatalf("%v\n%s\n%s", err, plan, report)
	}
	for _, tp := range halved {
		if !bytes.Equal(h.a.raw(tp.Topic, tp.Partition), h.b.raw(tp.Topic, tp.Partition)) {
			h.t.Errorf("%v differs after the failback", tp)
		}
		if at, ok := lowest[tp]; ok && at < from[tp] {
			h.t.Errorf("%v was copied from %d, and %d would have done", tp, at, from[tp])
		}
	}
	expectWords(h.t, h.line(), "WRITABLE: only the source B", "closed here")
}

// TestAcceptance4_4AFailbackIsAbortedAtEveryStep: before the first cut nothing has changed behind an abort, from there on the old cluster is a closed copy, whatever crashes at which step, in front of it
// and behind it; and without an abort the failback is gone on with.
func TestAcceptance4_4AFailbackIsAbortedAtEveryStep(t *testing.T) {
	const (
		live       = "aborted while it runs"
		aborted    = "dies, is aborted, comes back"
		comesBack  = "dies, comes back, is aborted"
		carriedOut = "dies, comes back, goes on"
	)
	left := map[bool]int{}
	for _, how := range []string{live, aborted, comesBack, carriedOut} {
		for _, late := range []bool{false, true} {
			for at, all := 0, 1; at < all; at++ {
				synctest.Test(t, func(t *testing.T) {
					h := newHalfway(t)
					m := h.process()
					defer func() { m.close() }()
					m.until("recorded", func(mirror.Status) bool {
						s, err := h.Control.Read(t.Context())
						return err == nil && len(s.Mirrors) > 0
					})
					plan, err := m.PlanFailback(t.Context(), "t", "u")
					if err != nil {
						t.Fatal(err)
					}
					expect(t, "given up", plan.Dropped, 5)
					h.mu.Lock()
					h.steps, h.at, h.late = nil, at, late
					gone, none := make(chan struct{}), false
					h.happens = func() {
						if how == live {
							h.line()
							none = len(h.abort().Topics) == 0
						} else {
							h.dead.Store(true)
						}
						close(gone)
					}
					h.mu.Unlock()
					ctx, stop := context.WithCancel(t.Context())
					go func() {
						defer stop()
						_, _ = m.ExecuteFailback(ctx, plan)
					}()
					select {
					case <-gone:
					case <-ctx.Done():
					}
					h.mu.Lock()
					happened, steps := h.happens == nil, h.steps
					h.happens = nil
					h.mu.Unlock()
					if !happened { // it was there before that step came
						all = min(all, at)
						return
					}
					all = at + 2
					defer func() {
						if t.Failed() {
							t.Logf("%s, late %v: step %d of %q", how, late, at, steps)
						}
					}()
					switch how {
					case aborted:
						h.line()
						h.abort()
						h.line()
						m = h.lives(m)
					case comesBack:
						m = h.lives(m)
						h.line()
						h.abort()
					case carriedOut:
						m = h.lives(m)
						if s, err := h.Control.Read(t.Context()); err != nil || len(s.Topics) == 0 {
							return // not even recorded
						}
						m.untilInStep()
						for _, tp := range halved {
							if !bytes.Equal(h.a.raw(tp.Topic, tp.Partition), h.b.raw(tp.Topic, tp.Partition)) {
								t.Errorf("%v differs", tp)
							}
						}
						return
					}
					if s, err := h.Control.Read(t.Context()); err != nil || none || len(s.Topics) == 0 {
						return // it was not recorded yet, so there was nothing to abort
					}
					closed := h.ends(m)
					left[closed]++
					if r := h.abort(); len(r.Topics) > 0 && r.Topics[0].Changed {
						t.Errorf("aborted again, something has changed\n%s", r)
					}
					m.close()
					m = h.process()
					if h.ends(m) != closed {
						t.Error("it is not as it was after a restart")
					}
					h.again(m, closed)
				})
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("given back: %d, closed copies: %d", left[false], left[true])
	if left[false] < 20 || left[true] < 20 {
		t.Error("one of the two was hardly met")
	}
}
