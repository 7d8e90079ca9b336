package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// scene is a process that has joined, under the eyes of a watch and of clients that write to its topics all the time.
type scene struct {
	*joined
	w       *watch
	writer  *kafkatest.Writer
	written map[string][]byte // by topic, what was appended to partition 0
}

// play joins c and has topics of one partition each, of which some batches are copied already.
func play(t *testing.T, c *kafkatest.Cluster, topics []string, change ...func(*kraft.Config)) *scene {
	t.Helper()
	s := &scene{w: watched(t, c, topics...), written: map[string][]byte{}}
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.joined = join(t, c, append([]func(*kraft.Config){func(cfg *kraft.Config) { cfg.Listener = own }}, change...)...)
	s.w.ours = []int32{s.cfg.NodeID}
	targets := map[string][]int32{}
	for _, topic := range topics {
		targets[topic] = []int32{0}
	}
	s.writer = c.WriteAlways(targets, own.Addr().String())
	for _, topic := range topics {
		s.create(topic, 1)
		s.more(topic, 10)
	}
	for _, topic := range topics {
		await(t, s.open(topic, 0))
	}
	return s
}

// more appends batches to a topic's log, under whatever leader epoch it has meanwhile.
func (s *scene) more(topic string, batches int) {
	s.t.Helper()
	l := s.open(topic, 0)
	for range batches {
		eventually(s.t, "an append to "+topic, func() bool {
			b := data(l.End(), l.LeaderEpoch(), 3, topic)
			err := l.Append(bound(s.t), l.LeaderEpoch(), b)
			if err == nil {
				s.written[topic] = append(s.written[topic], b...)
			} else if !errors.Is(err, mirror.ErrFenced) {
				s.t.Fatalf("append to %s: %v", topic, err)
			}
			return err == nil
		})
	}
}

// closedAll fails if a client's write has got through.
func (s *scene) closedAll() {
	s.t.Helper()
	if got := s.writer.Successes(); len(got) > 0 {
		s.t.Errorf("%d writes got through, the first is %+v", len(got), got[0])
	}
}

// same waits until brokers have the same log of a topic, and looks whether it begins with all that was mirrored.
func (s *scene) same(topic string, brokers ...int32) {
	s.t.Helper()
	got := s.c.WaitSameSegments(topic, 0, brokers...)
	if !bytes.HasPrefix(got, s.written[topic]) {
		s.t.Errorf("%s: brokers %v hold %d bytes that do not begin with the %d that were appended", topic, brokers, len(got), len(s.written[topic]))
	}
}

// exactly is same for a topic that no client has written to.
func (s *scene) exactly(topic string, brokers ...int32) {
	s.t.Helper()
	for _, id := range brokers {
		eventually(s.t, "the copy of "+topic, func() bool {
			return len(s.c.LogDirs(topic, 0, id)) > 0 && len(s.c.SegmentBytes(topic, 0, id)) >= len(s.written[topic])
		})
		if got := s.c.SegmentBytes(topic, 0, id); !bytes.Equal(got, s.written[topic]) {
			s.t.Errorf("%s: broker %d holds %d bytes, and they are not the %d that were appended", topic, id, len(got), len(s.written[topic]))
		}
	}
}

// handOver opens a topic, and takes the time until a client has written.
func (s *scene) handOver(topic string) {
	s.t.Helper()
	s.closedAll()
	s.w.mayLead(topic)
	began := time.Now()
	if err := s.open(topic, 0).Open(bound(s.t)); err != nil {
		s.t.Fatalf("open %s: %v", topic, err)
	}
	opened := time.Since(began)
	eventually(s.t, "a client's write to "+topic, func() bool {
		return slices.ContainsFunc(s.writer.Successes(), func(w kafkatest.Success) bool { return w.Topic == topic && w.Err == nil })
	})
	p := s.w.partition(topic, 0)
	s.t.Logf("%s: open after %v, written after %v; leader %d, replicas %v, in sync %v, adding %v", topic, opened.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), p.Leader, p.Replicas, p.ISR, p.Adding)
}

// fenced waits until the controllers take brokers for dead.
func (s *scene) fenced(brokers ...int32) {
	s.t.Helper()
	eventually(s.t, "dead brokers to be fenced", func() bool {
		im := s.w.image()
		return !slices.ContainsFunc(brokers, func(id int32) bool { b, _ := im.Broker(id); return !b.Fenced })
	})
}

func (s *scene) inSync(topic string, brokers ...int32) {
	s.t.Helper()
	slices.Sort(brokers)
	eventually(s.t, topic+" to be in sync on all", func() bool {
		p := s.w.partition(topic, 0)
		isr := slices.Clone(p.ISR)
		slices.Sort(isr)
		return slices.Equal(isr, brokers) && len(p.Replicas) == len(brokers) && len(p.Adding)+len(p.Removing) == 0
	})
}

// TestRealKafkaHandOverWithDeadBrokers: of three stock brokers one is dead, then two are, and the controllers know it. Each time a topic is handed over to those that live; the others
// come back and are in sync again without anybody's help, byte for byte.
func TestRealKafkaHandOverWithDeadBrokers(t *testing.T) {
	c := short(t, 1, nil)
	s := play(t, c, []string{"one", "two", "alive"}, quick)
	c.Kill(3)
	s.fenced(3)
	s.more("one", 5)
	await(t, s.open("one", 0))
	s.handOver("one")
	c.Kill(2)
	s.fenced(2)
	s.more("two", 5)
	await(t, s.open("two", 0))
	s.w.mayLead("two")
	s.handOverNow("two")
	s.more("alive", 5)
	c.LaunchBroker(2)
	c.StartBroker(3)
	for _, topic := range []string{"one", "two"} {
		s.inSync(topic, 1, 2, 3)
	}
	s.writer.Stop()
	s.same("one", 1, 2, 3)
	s.same("two", 1, 2, 3)
	s.exactly("alive", 1, 2, 3)
}

// handOverNow is handOver when other topics are open already.
func (s *scene) handOverNow(topic string) {
	s.t.Helper()
	for _, got := range s.writer.Successes() {
		if got.Topic == topic {
			s.t.Fatalf("a write got through before: %+v", got)
		}
	}
	s.w.mayLead(topic)
	if err := s.open(topic, 0).Open(bound(s.t)); err != nil {
		s.t.Fatalf("open %s: %v", topic, err)
	}
	eventually(s.t, "a client's write to "+topic, func() bool {
		return slices.ContainsFunc(s.writer.Successes(), func(w kafkatest.Success) bool { return w.Topic == topic && w.Err == nil })
	})
	p := s.w.partition(topic, 0)
	s.t.Logf("%s: leader %d, replicas %v, in sync %v, adding %v", topic, p.Leader, p.Replicas, p.ISR, p.Adding)
}

// step is a place in a process's requests where a test does something.
type step struct {
	at            func(req kmsg.Request) bool
	armed         atomic.Bool
	reached, goOn chan bool
}

func stepAt(at func(req kmsg.Request) bool) *step {
	return &step{at: at, reached: make(chan bool), goOn: make(chan bool)}
}

func (s *step) before(cfg *kraft.Config) {
	cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
		if s.at(req) && s.armed.CompareAndSwap(true, false) {
			s.reached <- true
			<-s.goOn
		}
		return send()
	})
}

// during calls what, and calls do before the first request of the step is sent. It returns what what says.
func (s *step) during(t *testing.T, what func() error, do func()) error {
	t.Helper()
	s.armed.Store(true)
	result := make(chan error, 1)
	go func() { result <- what() }()
	select {
	case <-s.reached:
	case err := <-result:
		t.Fatalf("the step was never met: %v", err)
	}
	do()
	s.goOn <- true
	return <-result
}

// takesIn says whether a request takes brokers into the in-sync replicas, or others than one out.
func takesIn(req kmsg.Request) bool {
	r, ok := req.(*kmsg.AlterPartitionRequest)
	return ok && len(r.Topics) > 0 && len(r.Topics[0].Partitions[0].NewEpochISR) > 1
}

// TestRealKafkaHandOverBrokerDiesInside: broker 1, the first in order, dies between the reassignment and the AlterPartition. Once the controllers know it already when the
// AlterPartition comes (they refuse it), once they do not.
func TestRealKafkaHandOverBrokerDiesInside(t *testing.T) {
	c := short(t, 1, nil)
	st := stepAt(takesIn)
	s := play(t, c, []string{"known", "unknown"}, quick, st.before)
	inside := func(topic string, broker int32, wait func()) {
		s.w.mayLead(topic)
		began := time.Now()
		l := s.open(topic, 0)
		if err := st.during(t, func() error { return l.Open(bound(t)) }, func() { c.Kill(broker); wait() }); err != nil {
			t.Fatalf("open %s: %v", topic, err)
		}
		opened := time.Since(began)
		eventually(t, "a client's write", func() bool {
			return slices.ContainsFunc(s.writer.Successes(), func(w kafkatest.Success) bool { return w.Topic == topic && w.Err == nil })
		})
		p := s.w.partition(topic, 0)
		t.Logf("%s: open after %v, written after %v; leader %d, replicas %v, in sync %v, adding %v", topic, opened.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), p.Leader, p.Replicas, p.ISR, p.Adding)
	}
	inside("known", 3, func() { s.fenced(3) })
	c.StartBroker(3)
	s.inSync("known", 1, 2, 3)
	s.more("unknown", 3)
	await(t, s.open("unknown", 0))
	inside("unknown", 2, func() {})
	c.StartBroker(2)
	s.inSync("unknown", 1, 2, 3)
	s.inSync("known", 1, 2, 3)
	s.writer.Stop()
	s.same("known", 1, 2, 3)
	s.same("unknown", 1, 2, 3)
}
