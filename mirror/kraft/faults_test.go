package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// cell is one fault at one place of one topic's life. Each cell has a node id, a topic, an identity folder and a Remember log of its own, so many cells run in one cluster at the same
// time. It does what a mirror does: the same call again until it succeeds, on a new process where the old one has died.
type cell struct {
	*testing.T
	table   *faultTable
	c       *kafkatest.Cluster
	w       *watch
	place   place
	fault   fault
	node    int32
	topic   string
	configs map[string]string // what the topic says for itself when the mirror has nothing to do with it

	remember keyedlog.Log
	dialer   *proxy.Dialer
	listener string       // of every process of this cell
	front    *proxy.Proxy // what brokers connect to
	gate     *gate        // nil: the fault is this cell's own
	writer   *kafkatest.Writer

	mu        sync.Mutex
	folder    string
	now       *process
	armed     bool
	met       int
	fencing   bool // a heartbeat has asked for a fence
	events    []string
	undone    sync.WaitGroup // what ends a fault
	batches   [][]byte       // the source's log
	safe      int64          // what counted as replicated
	partition int32          // partitions that somebody has added
}

// process is one life of the mirror's process.
type process struct {
	*kraft.Destination                    // nil until it has joined
	stop               context.CancelFunc // of the joining
	dead               atomic.Bool
	joined, closed     chan struct{}
}

var (
	errDead = errors.New("this process is dead")
	errLost = errors.New("the network lost it")

	errDeleted = errors.New("the topic was deleted")
)

func (c *cell) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// around is a process's Intercept.
func (c *cell) around(p *process) func(context.Context, kmsg.Request, func() (kmsg.Response, error)) (kmsg.Response, error) {
	return func(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
		if p.dead.Load() {
			return nil, errDead
		}
		c.mu.Lock()
		if beat, ok := req.(*kmsg.BrokerHeartbeatRequest); ok && beat.WantFence {
			c.fencing = true
		}
		here := c.armed && c.place.at != nil && c.place.at(c, req)
		if here {
			c.met++
		}
		n := c.met
		c.mu.Unlock()
		if !here {
			return send()
		}
		return c.fault.do(c, p, n, send)
	}
}

// point is a place that no request marks.
func (c *cell) point(name string, p *process) {
	c.mu.Lock()
	here := c.armed && c.place.name == name
	if here {
		c.met++
	}
	n := c.met
	c.mu.Unlock()
	if here {
		_, _ = c.fault.do(c, p, n, func() (kmsg.Response, error) { return nil, nil })
	}
}

// disarm ends the part of the life in which the fault is placed, and fails if it was not.
func (c *cell) disarm() {
	c.Helper()
	c.mu.Lock()
	met := c.met
	c.armed = false
	c.mu.Unlock()
	if met == 0 {
		c.Errorf("the place %s was never met, so the fault was not placed", c.place.name)
	}
}

// die ends a process at once: not one more request of it is sent.
func (c *cell) die(p *process) {
	if p.dead.Swap(true) {
		return
	}
	c.note("the process dies")
	p.stop()
	go func() {
		defer close(p.closed)
		<-p.joined
		if p.Destination != nil {
			p.Close()
		}
	}()
}

// alive is the process, a new one if the last one has died.
func (c *cell) alive() (*process, error) {
	c.mu.Lock()
	p := c.now
	c.mu.Unlock()
	if p != nil && !p.dead.Load() {
		return p, nil
	}
	if p != nil {
		<-p.closed
		switch c.fault.comes {
		case afterSession:
			if err := c.waitFenced(); err != nil {
				return nil, err
			}
		case another:
			c.folder = c.TempDir()
		}
	}
	l, err := net.Listen("tcp", c.listener)
	if err != nil {
		return nil, err
	}
	if c.front == nil {
		c.listener, c.front = l.Addr().String(), c.c.ProxyTo(l.Addr().String())
	}
	dial := kgo.Dialer(c.dialer.DialContext)
	cfg := kraft.Config{
		NodeID: c.node, Controllers: c.c.ControllerAddresses(), ControllerOptions: []kgo.Opt{dial}, BrokerOptions: []kgo.Opt{dial}, Listener: l, Advertised: c.front.Address(),
		Folder: c.folder, Remember: c.remember, ReplicationFactor: 3, MinInSyncReplicas: 2, Peers: c.table.others(c.node), RequestTimeout: 8 * time.Second,
		HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: session,
		Notice: func(e kraft.Event) { c.note("event %v %s %v", e.Kind, e.Text, e.Err) },
	}
	next := &process{joined: make(chan struct{}), closed: make(chan struct{})}
	cfg.Intercept(c.around(next))
	ctx, stop := context.WithTimeout(c.Context(), 40*time.Second)
	next.stop = stop
	defer stop()
	c.note("joining")
	next.Destination, err = kraft.Join(ctx, cfg)
	close(next.joined)
	if err != nil {
		l.Close()
	}
	if err == nil || next.dead.Load() {
		c.mu.Lock()
		c.now = next
		c.mu.Unlock()
	}
	c.note("joined: %v", err)
	return next, err
}

// waitFenced waits until the controllers take this cell's process for dead.
func (c *cell) waitFenced() error {
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if b, ok := c.w.image().Broker(c.node); ok && b.Fenced {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("it was not fenced")
}

// cellBound is how long one procedure may take, everything that goes wrong included.
const cellBound = 45 * time.Second

// until does the same again until it succeeds.
func (c *cell) until(what string, f func(context.Context, *process) error) {
	c.Helper()
	deadline := time.Now().Add(cellBound)
	for {
		p, err := c.alive()
		if err == nil {
			ctx, stop := context.WithTimeout(c.Context(), 20*time.Second)
			err = f(ctx, p)
			stop()
			if err == nil && !p.dead.Load() {
				return
			}
		}
		c.note("%s: %v", what, err)
		if c.fault.deletes && errors.Is(err, mirror.ErrUnknownTopic) {
			panic(errDeleted)
		}
		if time.Now().After(deadline) {
			c.Fatalf("%s did not succeed: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *cell) tp(p int32) mirror.TopicPartition {
	return mirror.TopicPartition{Topic: c.topic, Partition: p}
}

// ours is the log, which has to be ours.
func (c *cell) ours(ctx context.Context, p *process) (mirror.Log, error) {
	l, err := p.OpenLog(ctx, c.tp(0))
	if err != nil {
		return nil, err
	}
	owner, _, err := l.Owner(ctx)
	if err != nil {
		return nil, err
	}
	if owner != mirror.OwnerOurs {
		return nil, fmt.Errorf("the log is %v", owner)
	}
	if l.End() < c.safe {
		c.Errorf("the log ends at %d, and everything up to %d had counted as replicated", l.End(), c.safe)
	}
	return l, nil
}

// ensure makes the topic and takes it, as a mirror does that starts. Whatever of an earlier life is in it that is not the source's is cut.
func (c *cell) ensure() {
	c.Helper()
	c.until("creation", func(ctx context.Context, p *process) error {
		if _, err := p.Topic(ctx, c.topic); errors.Is(err, mirror.ErrUnknownTopic) {
			c.safe = 0
			if _, err := p.CreateTopic(ctx, mirror.TopicSpec{Name: c.topic, Partitions: 1, Configs: c.configs}); err != nil && !errors.Is(err, mirror.ErrTopicExists) {
				return err
			}
		} else if err != nil {
			return err
		}
		l, err := p.OpenLog(ctx, c.tp(0))
		if err != nil {
			return err
		}
		if owner, _, err := l.Owner(ctx); err != nil {
			return err
		} else if owner == mirror.OwnerOpen {
			c.note("it came up open")
			if err := l.CloseForWrites(ctx); err != nil {
				return err
			}
		}
		if l, err = c.ours(ctx, p); err != nil {
			return err
		}
		if len(c.batches) == 0 && l.End() > 0 {
			if err := l.ResetTo(ctx, 0); err != nil {
				return err
			}
		}
		return l.AwaitTruncated(ctx)
	})
}

// fill appends until the log has n batches of the source, and all of them are replicated.
func (c *cell) fill(n int, producer bool) {
	c.Helper()
	for len(c.batches) < n {
		c.batches = append(c.batches, nil)
	}
	c.until("appending", func(ctx context.Context, p *process) error {
		l, err := c.ours(ctx, p)
		if err != nil {
			return err
		}
		for {
			at, end := int64(0), l.End()
			i := 0
			for ; i < n && at < end; i++ {
				h, err := batch.ParseHeader(c.batches[i])
				if err != nil {
					return err
				}
				at = h.BaseOffset + int64(h.LastOffsetDelta) + 1
			}
			if at != end {
				return fmt.Errorf("the log ends at %d, which is no batch's end", end)
			}
			if i == n {
				break
			}
			if c.batches[i] == nil {
				c.batches[i] = c.make(at, l.LeaderEpoch(), producer)
			}
			if err := l.Append(ctx, l.LeaderEpoch(), slices.Clone(c.batches[i])); err != nil {
				return err
			}
			c.safe = max(c.safe, l.Replicated())
			c.point(pointAppending, p)
			c.point(pointAfterCut, p)
		}
		c.point(pointStopping, p)
		if err := l.AwaitReplicated(ctx, l.End()); err != nil {
			return err
		}
		c.safe = max(c.safe, l.Replicated())
		return nil
	})
}

// make is the source's batch at an offset. With a producer its id is above all that the cluster has given out.
func (c *cell) make(offset int64, epoch int32, producer bool) []byte {
	if !producer {
		return data(offset, epoch, 3, c.topic)
	}
	d := batch.DataSpec{BaseOffset: offset, LeaderEpoch: epoch, BaseTimestamp: time.Now().UnixMilli(), ProducerID: c.w.image().NextProducerID() + 500}
	for i := range 3 {
		d.Records = append(d.Records, batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "%s-%d", c.topic, i)})
	}
	return batch.AppendData(nil, d)
}

// raise wants greater leader epochs.
func (c *cell) raise() {
	c.Helper()
	want := c.w.partition(c.topic, 0).LeaderEpoch + 2
	c.until("raising the leader epoch", func(ctx context.Context, p *process) error {
		if _, err := c.ours(ctx, p); err != nil {
			return err
		}
		got, err := p.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{c.tp(0): want})
		if err == nil && got[c.tp(0)] < want {
			err = fmt.Errorf("the leader epoch is %d, wanted %d", got[c.tp(0)], want)
		}
		return err
	})
}

// settle makes sure that nobody is given the source's producer ids.
func (c *cell) settle() {
	c.Helper()
	highest := int64(-1)
	for h := range batch.All(bytes.Join(c.batches, nil)) {
		highest = max(highest, h.ProducerID)
	}
	c.until("settling producer ids", func(ctx context.Context, p *process) error {
		l, err := c.ours(ctx, p)
		if err != nil {
			return err
		}
		return l.(mirror.ProducerIDSettler).SettleProducerIDs(ctx, highest)
	})
	for _, broker := range c.c.Brokers() {
		if id := c.producerID(broker); id >= 0 && id <= highest {
			c.Errorf("broker %d gives out the producer id %d, the source had ids up to %d", broker, id, highest)
		}
	}
}

// producerID asks a broker for an id, −1 if it does not answer.
func (c *cell) producerID(broker int32) int64 {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.c.InternalAddress(broker)))
	if err != nil {
		c.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(c.Context(), 3*time.Second)
	defer stop()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	resp, err := req.RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil || resp.ErrorCode != 0 {
		return -1
	}
	return resp.ProducerID
}

// open hands the partitions over.
func (c *cell) open() {
	c.Helper()
	c.closedForClients()
	c.w.mayLead(c.topic)
	for i := int32(0); i <= c.partition; i++ { // one may be added meanwhile
		c.until("hand-over", func(ctx context.Context, p *process) error {
			l, err := p.OpenLog(ctx, c.tp(i))
			if err != nil {
				return err
			}
			if err := l.Open(ctx); err != nil {
				return err
			}
			owner, _, err := l.Owner(ctx)
			if err == nil && owner != mirror.OwnerOpen {
				err = fmt.Errorf("the log is %v after Open", owner)
			}
			return err
		})
	}
}

// closedForClients fails if a client has written before the hand-over.
func (c *cell) closedForClients() {
	c.Helper()
	if c.writer == nil {
		return
	}
	for _, s := range c.writer.Successes() {
		if s.Topic == c.topic && !c.exposed() {
			c.Errorf("a client's write got through before the hand-over: %+v", s)
			return
		}
	}
}

// stock makes a topic that stock brokers lead, with records in it.
func (c *cell) stock(records int) {
	c.Helper()
	c.w.mayLead(c.topic)
	c.c.CreateTopic(kafkatest.Topic{Name: c.topic, Assignment: [][]int32{{1 + c.node%3, 1 + (c.node+1)%3, 1 + (c.node+2)%3}}, Configs: c.configs})
	for i := range records {
		produce(c.T, c.c, c.topic, 0, fmt.Sprint("local ", i))
	}
}

// takeOver takes the partition from the stock brokers; what they have is the source's log from then on.
func (c *cell) takeOver() {
	c.Helper()
	c.until("take-over", func(ctx context.Context, p *process) error {
		l, err := p.OpenLog(ctx, c.tp(0))
		if err != nil {
			return err
		}
		if err := l.CloseForWrites(ctx); err != nil {
			return err
		}
		_, err = c.ours(ctx, p)
		return err
	})
	c.w.mustNotLead(c.topic)
	c.batches = nil
	for _, b := range batch.All(c.c.WaitSameSegments(c.topic, 0, c.c.Brokers()...)) {
		c.batches = append(c.batches, b)
	}
}

// cut truncates to the first n batches and waits until all copies have followed.
func (c *cell) cut(n int) {
	c.Helper()
	end := int64(0)
	for h := range batch.All(bytes.Join(c.batches[:n], nil)) {
		end = h.BaseOffset + int64(h.LastOffsetDelta) + 1
	}
	c.batches = c.batches[:n]
	c.until("truncation", func(ctx context.Context, p *process) error {
		l, err := c.ours(ctx, p)
		if err != nil {
			return err
		}
		c.safe = end
		if _, err := l.TruncateTo(ctx, end); err != nil {
			return err
		}
		c.point(pointTruncated, p)
		if l.End() != end {
			return fmt.Errorf("the log ends at %d, it was truncated to %d", l.End(), end)
		}
		return l.AwaitTruncated(ctx)
	})
}

// same waits until every stock broker holds exactly the source's log.
func (c *cell) same() {
	c.Helper()
	want := bytes.Join(c.batches, nil)
	for _, broker := range c.c.Brokers() {
		eventually(c.T, fmt.Sprintf("the copy of %s on broker %d", c.topic, broker), func() bool {
			return slices.Contains(c.c.LogDirs(c.topic, 0, broker), c.topic+"-0") && bytes.Equal(c.c.SegmentBytes(c.topic, 0, broker), want)
		})
	}
}

// end is the rest of every life: ours, copied byte for byte; handed over, written by clients; the topic's settings are its own again, and the process leaves without a trace.
func (c *cell) end() {
	c.Helper()
	c.until("being ours", func(ctx context.Context, p *process) error { _, err := c.ours(ctx, p); return err })
	c.same()
	c.open()
	c.opened()
}

func (c *cell) opened() {
	c.Helper()
	c.undone.Wait()
	produce(c.T, c.c, c.topic, 0, "after the hand-over")
	if c.writer != nil { // the same clients, which had no success before
		eventually(c.T, "a client's success", func() bool {
			return slices.ContainsFunc(c.writer.Successes(), func(s kafkatest.Success) bool { return s.Topic == c.topic && s.Err == nil })
		})
	}
	for i := range c.partition + 1 {
		eventually(c.T, fmt.Sprintf("%s-%d to be in sync on all", c.topic, i), func() bool {
			p := c.w.partition(c.topic, i)
			return slices.Equal(slices.Sorted(slices.Values(p.ISR)), c.c.Brokers()) && len(p.Replicas) == len(p.ISR) && len(p.Adding)+len(p.Removing) == 0
		})
	}
	want := bytes.Join(c.batches, nil)
	for _, broker := range c.c.Brokers() {
		eventually(c.T, fmt.Sprintf("the clients' records on broker %d", broker), func() bool { return len(c.c.SegmentBytes(c.topic, 0, broker)) > len(want) })
		if !bytes.HasPrefix(c.c.SegmentBytes(c.topic, 0, broker), want) {
			c.Errorf("after the hand-over broker %d does not hold what was appended", broker)
		}
	}
	eventually(c.T, "the topic's own settings", func() bool {
		return maps.Equal(c.w.image().Configs(clustermetadata.TopicResource, c.topic), c.configs)
	})
	eventually(c.T, "nothing to be remembered", func() bool {
		n := 0
		if err := c.remember.Read(c.Context(), func(v keyedlog.View) error { return v.Each(nil, func(keyedlog.Record) error { n++; return nil }) }); err != nil {
			c.Fatal(err)
		}
		return n == 0
	})
	c.until("leaving", func(ctx context.Context, p *process) error { return p.Leave(ctx) })
	if b, ok := c.w.image().Broker(c.node); ok {
		c.Errorf("after leaving the cluster still knows %+v", b)
	}
}

// exposed says whether this cell's process is away while the stock brokers are in sync with an empty log, which is the one moment in which they may be elected (see CreateTopic).
func (c *cell) exposed() bool {
	return c.fault.absent && (c.place.name == "create: take in" || c.place.name == "create: take out")
}

// live is the cell's whole life.
func (c *cell) live() {
	defer func() {
		c.undone.Wait()
		c.mu.Lock()
		p := c.now
		c.mu.Unlock()
		if p != nil {
			c.die(p)
			<-p.closed
		}
		if c.Failed() {
			c.Log(strings.Join(c.events, "\n"), c.w.history(c.topic, 0))
		}
	}()
	if c.exposed() {
		c.w.mayLead(c.topic)
	}
	if c.lifeUntilDeleted() {
		c.disarm()
		c.w.mustNotLead(c.topic)
		c.batches, c.safe = nil, 0
		c.ensure()
		c.fill(5, false)
		c.end()
	}
	if c.met == 0 {
		c.Errorf("the place %s was never met, so the fault was not placed", c.place.name)
	}
	for _, v := range c.w.violations() {
		// A partition that an operator adds in the moment of a fence is led by stock brokers from its first moment, which nobody can keep him from. It is told.
		if c.partition == 1 && strings.HasPrefix(c.place.name, "raise") && strings.Contains(v, "leads "+c.topic+"-1 ") {
			if !slices.ContainsFunc(c.events, func(e string) bool { return strings.Contains(e, "event ") && strings.Contains(e, c.topic+"-1: ") }) {
				c.Errorf("watch: %s, and nothing was told of it", v)
			}
			continue
		}
		c.Errorf("watch: %s", v)
	}
}

// lifeUntilDeleted is the place's life; true: it was ended by the deletion of its topic.
func (c *cell) lifeUntilDeleted() (deleted bool) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case errDeleted:
			deleted = true
		default:
			panic(r)
		}
	}()
	c.place.life(c)
	return false
}

// begin is where the procedure begins in which the fault is placed.
func (c *cell) begin() {
	if c.gate != nil {
		c.gate.ready.come(c)
		<-c.gate.ready.open
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.fencing = true, false
}

// gate lets the fault of a whole cluster strike when every cell is at its place: first all are ready, then all are there.
type gate struct{ ready, there *muster }

type muster struct {
	mu      sync.Mutex
	missing map[*cell]bool
	all     chan struct{} // closed when nobody is missing
	open    chan struct{} // closed when all may go on
}

func newMuster(cells []*cell) *muster {
	m := &muster{missing: map[*cell]bool{}, all: make(chan struct{}), open: make(chan struct{})}
	for _, c := range cells {
		m.missing[c] = true
	}
	return m
}

func (m *muster) come(c *cell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing[c] {
		delete(m.missing, c)
		if len(m.missing) == 0 {
			close(m.all)
		}
	}
}
