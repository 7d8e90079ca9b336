package simulator

import (
	"container/heap"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/statemachine"
)

// began is when virtual time begins.
var began = time.UnixMilli(1_700_000_000_000).UTC()

// world is one run: clusters, mirrors, clients and time. One goroutine, no clock, no map iteration that anybody can see.
type world struct {
	groups   groups
	cfg      Config
	now      time.Duration
	events   eventHeap
	sequence uint64
	count    map[uint64]uint64 // how often a latency was drawn, by purpose

	clusters [2]*cluster
	mirrors  [2]*mirror
	clients  clients
	history  history

	model    *model.World
	broken   []model.Violation
	err      error // the simulator itself is wrong: ends the run
	objector func(op string) *model.Violation

	record bool // keeps a transcript
	out    strings.Builder
	stats  Stats
}

// event is something that is going to happen.
type event struct {
	at       time.Duration
	sequence uint64
	do       func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].sequence < h[j].sequence
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = event{}
	*h = old[:n]
	return e
}

// cluster is a Kafka cluster: source and destination in one.
type cluster struct {
	w           *world
	name        string
	firstBroker int32
	topics      []*topic // in order of creation; deleted ones stay, gone
	made        int      // topics so far
	store       statemachine.MemoryStore
	nextID      int64 // producer id that is given next
	lost        bool  // nobody answers any more
	storeFail   storeFault
	groupFail   groupFault
}

type topic struct {
	name string
	id   statemachine.TopicID
	logs []*partitionLog
	gone bool
}

func newWorld(cfg Config, record bool) *world {
	w := &world{cfg: cfg, model: model.New(), record: record, count: map[uint64]uint64{}}
	w.stats.init()
	for i, name := range []string{"A", "B"} {
		w.clusters[i] = &cluster{w: w, name: name, firstBroker: int32(1 + 10*i), nextID: int64(1000 + 4000*i)}
	}
	a, b := w.clusters[0], w.clusters[1]
	w.mirrors[0] = newMirror(w, "a-to-b", a, b)
	w.mirrors[1] = newMirror(w, "b-to-a", b, a)
	w.history.init(w)
	a.create("orders", cfg.Partitions, true)
	for _, m := range w.mirrors {
		m.begin()
	}
	return w
}

// after makes something happen later. Of what happens at one moment, what was decided first comes first.
func (w *world) after(d time.Duration, do func()) {
	w.sequence++
	heap.Push(&w.events, event{at: w.now + max(d, 0), sequence: w.sequence, do: do})
}

// step lets the next thing happen; false: there is none before limit.
func (w *world) step(limit time.Duration) bool {
	if len(w.events) == 0 || w.events[0].at > limit || w.over() {
		return false
	}
	e := heap.Pop(&w.events).(event)
	if e.at > w.now {
		w.now = e.at
	}
	e.do()
	w.stats.Events++
	return true
}

func (w *world) run(d time.Duration) {
	limit := w.now + d
	for w.step(limit) {
	}
	if !w.over() && w.now < limit {
		w.now = limit
	}
}

func (w *world) time() time.Time { return began.Add(w.now) }

// over says that there is nothing more to be seen.
func (w *world) over() bool { return w.err != nil || len(w.broken) > 0 }

func (w *world) wrong(err error) {
	if w.err == nil {
		w.err = err
		w.say("the simulator is wrong: %v", err)
	}
}

// tell tells the model a fact.
func (w *world) tell(fact func(*model.World)) {
	fact(w.model)
	if v := w.model.Violations(); len(v) > len(w.broken) {
		for _, one := range v[len(w.broken):] {
			w.say("VIOLATION %v", one)
		}
		w.broken = v
	}
}

func (w *world) say(format string, args ...any) {
	if w.record {
		fmt.Fprintf(&w.out, "%9.3f ", w.now.Seconds())
		fmt.Fprintf(&w.out, format, args...)
		w.out.WriteByte('\n')
	}
}

// jitter is a duration of [least, most): the n-th one drawn for a purpose is the same in every run with this seed, whatever else happens.
func (w *world) jitter(purpose uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(w.draw(purpose)%uint64(most-least))
}

func (w *world) draw(purpose uint64) uint64 {
	w.count[purpose]++
	return mix(mix(w.cfg.Seed^purpose) + w.count[purpose])
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func fingerprintOf(at model.At) uint64 {
	return fingerprint([]byte(at.Cluster+"/"+at.Topic)) + uint64(at.Partition)
}

func (w *world) cluster(name string) *cluster {
	for _, c := range w.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (w *world) index(c *cluster) int {
	if c == w.clusters[0] {
		return 0
	}
	return 1
}

func (w *world) mirror(name string) *mirror {
	for _, m := range w.mirrors {
		if m.name == name {
			return m
		}
	}
	return nil
}

// create makes a topic. A copy's gate is closed from the beginning.
func (c *cluster) create(name string, partitions int32, open bool) *topic {
	if c.made++; open && (c.made > 1 || c != c.w.clusters[0]) {
		c.w.history.deleted()
	}
	t := &topic{name: name}
	t.id[0], t.id[1], t.id[15] = c.name[0], byte(c.made), byte(c.made)
	for p := range partitions {
		t.logs = append(t.logs, newLog(c, t, p, open))
	}
	c.topics = append(c.topics, t)
	return t
}

// delete removes a topic.
func (c *cluster) delete(t *topic) {
	t.gone = true
	c.w.history.deleted()
	for _, l := range t.logs {
		l.gone = true
		c.w.tell(func(m *model.World) { m.Deleted(l.at) })
		l.wake()
	}
}

// topic of that name, nil if there is none.
func (c *cluster) topic(name string) *topic {
	for i := len(c.topics) - 1; i >= 0; i-- {
		if t := c.topics[i]; t.name == name && !t.gone {
			return t
		}
	}
	return nil
}

// log of that name and partition, nil if there is none.
func (c *cluster) log(name string, p int32) *partitionLog {
	t := c.topic(name)
	if t == nil || int(p) >= len(t.logs) || p < 0 {
		return nil
	}
	return t.logs[p]
}

// served says whether a mirror's process leads a closed log.
func (c *cluster) served(l *partitionLog) bool {
	m := c.w.into(c)
	return m != nil && m.serves(l)
}

// into is the mirror whose destination a cluster is.
func (w *world) into(c *cluster) *mirror {
	for _, m := range w.mirrors {
		if m != nil && m.destination == c {
			return m
		}
	}
	return nil
}

// entries are what is stored for a topic's partition, in order of key.
func (c *cluster) entries(t *topic, p int32) []statemachine.Entry {
	var list []statemachine.Entry
	err := c.store.Load(context.Background(), func(e statemachine.Entry) error {
		if e.Key.TopicID == t.id && e.Key.Partition == p {
			list = append(list, e)
		}
		return nil
	})
	if err != nil {
		c.w.wrong(err)
	}
	return list
}

// logs are all logs that exist, in order.
func (w *world) logs(each func(*partitionLog)) {
	for _, c := range w.clusters {
		for _, t := range c.topics {
			if t.gone {
				continue
			}
			for _, l := range t.logs {
				each(l)
			}
		}
	}
}

// compare compares all logs with what the model was told.
func (w *world) compare() {
	w.logs(func(l *partitionLog) { l.compare() })
}
