package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// mortal is a process that dies when the nth request of one kind has taken effect: its answer is lost, and no request is sent any more.
type mortal struct {
	kind func(kmsg.Request) string // "" for requests that do not count

	mu    sync.Mutex
	seen  []string // in order, since armed
	armed bool
	last  int
	dead  bool
	died  chan struct{}
}

var errMortal = errors.New("dropped by the test: the process is dead")

func (m *mortal) around(cfg *kraft.Config) {
	cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
		m.mu.Lock()
		if m.dead {
			m.mu.Unlock()
			return nil, errMortal
		}
		final := false
		if name := m.kind(req); m.armed && name != "" {
			m.seen = append(m.seen, name)
			final = len(m.seen) == m.last
		}
		m.mu.Unlock()
		resp, err := send()
		if !final {
			return resp, err
		}
		m.mu.Lock()
		m.dead = true
		close(m.died)
		m.mu.Unlock()
		return nil, errMortal
	})
}

// takeOverRequest names those requests of a take-over that change something.
func takeOverRequest(req kmsg.Request) string {
	switch r := req.(type) {
	case *kmsg.IncrementalAlterConfigsRequest:
		return "settings"
	case *kmsg.AlterPartitionAssignmentsRequest:
		return "reassign"
	case *kmsg.FetchRequest:
		if r.ReplicaState.ID >= 9000 {
			return "replica fetch"
		}
	case *kmsg.ElectLeadersRequest:
		return "elect"
	case *kmsg.AlterPartitionRequest:
		return "shrink"
	}
	return ""
}

// local writes to an open topic as clients do, with acks=all, until stop, and knows what was acknowledged.
type local struct {
	mu    sync.Mutex
	acked []string
	stop  func()
}

func writeLocally(t *testing.T, c *kafkatest.Cluster, topic, name string) *local {
	t.Helper()
	// Attempts are not repeated for longer than a moment, so a record is either acknowledged soon or not known to be there.
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(3*time.Second), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(-1))
	ctx, cancel := context.WithCancel(context.Background())
	w := &local{}
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			value := fmt.Sprintf("%s/%d/", name, n)
			if _, err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).First(); err == nil {
				w.mu.Lock()
				w.acked = append(w.acked, value)
				w.mu.Unlock()
			}
			time.Sleep(10 * time.Millisecond) // many of them share the machine with the brokers
		}
	})
	w.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(w.stop)
	return w
}

func (w *local) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// in fails unless every acknowledged record is in the log exactly once.
func (w *local) in(t *testing.T, log []byte) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	lost := 0
	for _, v := range w.acked {
		if n := bytes.Count(log, []byte(v)); n != 1 {
			lost++
			if lost < 4 {
				t.Errorf("the acknowledged record %s is in the log %d times", v, n)
			}
		}
	}
	t.Logf("%d records were acknowledged, %d are not in the log once", len(w.acked), lost)
}

// TestRealKafkaTakeOverProcessDies: an ordinary topic (three replicas, min.insync.replicas=2, ELR on) with clients that write with acks=all all the time is taken over. The process dies when
// its nth request that changes something has taken effect, for every n there is, once to be opened by the next process and once to be taken over by it. The copies are the same, everything that was
// acknowledged is in them, and when the topic is open again it says what it said before.
func TestRealKafkaTakeOverProcessDies(t *testing.T) {
	c := short(t, 1, map[string]string{"default.replication.factor": "3"})
	var group sync.WaitGroup
	var deepest atomic.Int32
	const most = 7 // more than a take-over has
	failures := make(chan string, 100)
	var topics []string
	var writers []*local
	for n := range 2 * most {
		topic := fmt.Sprintf("dies-%d", n)
		topics = append(topics, topic)
		c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{1 + int32(n)%3, 1 + int32(n+1)%3, 1 + int32(n+2)%3}}, Configs: map[string]string{minISR: "2", "retention.ms": "-1"}})
	}
	for _, topic := range topics {
		writers = append(writers, writeLocally(t, c, topic, topic))
	}
	eventually(t, "the first records", func() bool { return !slices.ContainsFunc(writers, func(w *local) bool { return w.count() == 0 }) })
	cfgs := make([]kraft.Config, len(topics))
	for i := range topics {
		cfgs[i] = config(t, c)
		quick(&cfgs[i])
		cfgs[i].NodeID = 9200 + int32(i)
		for k := range topics {
			if k != i {
				cfgs[i].Peers = append(cfgs[i].Peers, 9200+int32(k))
			}
		}
	}
	logs := make([]string, len(topics))
	for i, topic := range topics {
		group.Go(func() {
			failures <- func() string {
				last := i%most + 1
				m := &mortal{kind: takeOverRequest, last: last, died: make(chan struct{})}
				cfg := cfgs[i]
				m.around(&cfg)
				ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
				defer stop()
				d, err := kraft.Join(ctx, cfg)
				if err != nil {
					return fmt.Sprintf("%s: join: %v", topic, err)
				}
				l, err := d.OpenLog(ctx, mirror.TopicPartition{Topic: topic})
				if err != nil {
					return fmt.Sprintf("%s: open log: %v", topic, err)
				}
				m.mu.Lock()
				m.armed = true
				m.mu.Unlock()
				taking, end := context.WithCancel(ctx)
				go func() {
					select {
					case <-m.died:
					case <-taking.Done():
					}
					end()
				}()
				err = l.CloseForWrites(taking)
				end()
				m.mu.Lock()
				seen, dead := slices.Clone(m.seen), m.dead
				m.dead = true
				m.mu.Unlock()
				deepest.Store(max(deepest.Load(), int32(len(seen))))
				logs[i] = fmt.Sprintf("%s: died after %v (%t), %v", topic, seen, dead, err)
				d.Close()
				// The next process, with nothing but the node id and what is remembered.
				again := cfgs[i]
				again.Folder = cfg.Folder + "-again"
				if d, err = kraft.Join(ctx, again); err != nil {
					return fmt.Sprintf("%s: join again: %v", topic, err)
				}
				defer d.Close()
				for tries := 0; ; tries++ {
					if l, err = d.OpenLog(ctx, mirror.TopicPartition{Topic: topic}); err == nil && i < most {
						err = l.Open(ctx)
					} else if err == nil {
						if err = l.CloseForWrites(ctx); err == nil {
							logs[i] += fmt.Sprintf("; then taken over at %d", l.End())
							err = l.Open(ctx)
						}
					}
					if err == nil {
						break
					}
					if ctx.Err() != nil || tries == 50 {
						return fmt.Sprintf("%s: the second process: %v", topic, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if err := d.Leave(ctx); err != nil {
					return fmt.Sprintf("%s: leave: %v", topic, err)
				}
				return ""
			}()
		})
	}
	group.Wait()
	close(failures)
	for f := range failures {
		if f != "" {
			t.Error(f)
		}
	}
	w := watchOf(t, c)
	for i, line := range logs {
		t.Log(line)
		if t.Failed() {
			t.Log(w.history(topics[i], 0))
		}
	}
	if int(deepest.Load()) >= most {
		t.Errorf("a take-over had %d requests, only %d were tried", deepest.Load(), most)
	}
	for i, topic := range topics {
		before := writers[i].count()
		eventually(t, "clients to write again", func() bool { return writers[i].count() > before })
		writers[i].stop()
		eventually(t, "the copies to be in sync", func() bool {
			p := w.partition(topic, 0)
			return len(p.ISR) == 3 && len(p.Replicas) == 3 && len(p.Adding)+len(p.Removing) == 0
		})
		writers[i].in(t, c.WaitSameSegments(topic, 0, 1, 2, 3))
		if got := w.image().Configs(2, topic); len(got) != 2 || got[minISR] != "2" || got["retention.ms"] != "-1" {
			t.Errorf("%s says %v at last", topic, got)
		}
		if t.Failed() {
			t.Log(topic, w.history(topic, 0))
		}
	}
	if got := w.image().Brokers(); len(got) != 3 {
		t.Errorf("%d brokers are registered at last", len(got))
	}
}

// TestRealKafkaTakeOverReassignmentCancelled: somebody cancels all reassignments between the addition of this process and its way into the in-sync replicas. It asks again.
func TestRealKafkaTakeOverReassignmentCancelled(t *testing.T) {
	c := kafkatest.Shared(t)
	st := stepAt(func(req kmsg.Request) bool { return takeOverRequest(req) == "replica fetch" })
	j := join(t, c, as(9301), st.before)
	w := watchOf(t, c)
	c.CreateTopic(kafkatest.Topic{Name: "retaken", Replication: 3, Configs: map[string]string{minISR: "2"}})
	produce(t, c, "retaken", 0, "a", "b")
	l := j.open("retaken", 0)
	err := st.during(t, func() error { return l.CloseForWrites(bound(t)) }, func() {
		if err := reassign(t, c, "retaken", 0); err != nil {
			t.Errorf("cancel: %v", err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	t.Log(w.history("retaken", 0))
	if p := w.partition("retaken", 0); p.Leader != 9301 || len(p.ISR) != 1 || len(p.Replicas) != 4 || l.End() != 2 {
		t.Errorf("not taken over: %+v, end %d", p, l.End())
	}
	if err := l.Open(bound(t)); err != nil {
		t.Error(err)
	}
	if err := j.Leave(bound(t)); err != nil {
		t.Error(err)
	}
}

// reassigns counts reassignments alone.
func reassigns(req kmsg.Request) string {
	if name := takeOverRequest(req); name == "reassign" {
		return name
	}
	return ""
}

// TestRealKafkaHandOverProcessDies: a stock broker is dead, and the process dies within a hand-over that leaves it out, after the reassignment; then within a take-over of an ordinary topic,
// when it is in sync with the two that live. The next process opens both at once, without the dead broker, and that one is in sync again when it comes back.
func TestRealKafkaHandOverProcessDies(t *testing.T) {
	c := short(t, 1, nil)
	first := &mortal{kind: reassigns, died: make(chan struct{})}
	s := play(t, c, []string{"half"}, quick, first.around)
	c.CreateTopic(kafkatest.Topic{Name: "ordinary", Assignment: [][]int32{{1, 2, 3}}, Configs: map[string]string{minISR: "2"}})
	produce(t, c, "ordinary", 0, "a", "b")
	c.Kill(3)
	s.fenced(3)
	s.more("half", 2)
	await(t, s.open("half", 0))
	dies := func(m *mortal, last int, what func(context.Context) error) {
		t.Helper()
		m.mu.Lock()
		m.armed, m.last = true, last
		m.mu.Unlock()
		ctx, stop := context.WithCancel(bound(t))
		go func() { <-m.died; stop() }()
		if err := what(ctx); err == nil {
			t.Fatal("it did not die")
		}
		s.Close()
	}
	s.w.mayLead("half") // from the reassignment on a hand-over may happen
	dies(first, 1, s.open("half", 0).Open)
	if p := s.w.partition("half", 0); p.Leader != nodeID || !slices.Equal(p.Removing, []int32{3, nodeID}) && !slices.Equal(p.Removing, []int32{nodeID, 3}) {
		t.Errorf("after the death: %+v", p)
	}
	second := &mortal{kind: takeOverRequest, died: make(chan struct{})}
	second.around(&s.cfg)
	s.returns()
	s.handOver("half")
	dies(second, 3, s.open("ordinary", 0).CloseForWrites)
	s.cfg.Intercept(nil)
	s.returns()
	if err := s.open("ordinary", 0).Open(bound(t)); err != nil {
		t.Errorf("open: %v", err)
	}
	produce(t, c, "ordinary", 0, "c")
	t.Log(s.w.history("ordinary", 0))
	c.StartBroker(3)
	s.inSync("half", 1, 2, 3)
	s.inSync("ordinary", 1, 2, 3)
	s.writer.Stop()
	s.same("half", 1, 2, 3)
	c.WaitSameSegments("ordinary", 0, 1, 2, 3)
	eventually(t, "the topics' settings", func() bool {
		im := s.w.image()
		return len(im.Configs(2, "half")) == 0 && len(im.Configs(2, "ordinary")) == 1
	})
	if err := s.Leave(bound(t)); err != nil {
		t.Error(err)
	}
}
