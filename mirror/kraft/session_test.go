package kraft

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/mirror"
)

// told collects events.
type told struct {
	mu     sync.Mutex
	events []Event
}

func (e *told) listen(c *Config) {
	c.Notice = func(event Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.events = append(e.events, event)
	}
}

func (e *told) of(kind EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// leads makes a topic of one partition that d leads alone, and serves to follower 1.
func (f *fake) leads(d *Destination, topic string) *Log {
	f.t.Helper()
	d.keepSettings(topic) // a creation, as it were: nobody else finds out what it holds, or moves it away
	f.set(topic, minInSync, "1")
	f.set(topic, uncleanElection, "false")
	f.topic(topic, []int32{us, 1, 2, 3})
	f.change(topic, func(p *clustermetadata.Partition) { p.ISR, p.LeaderEpoch = []int32{us}, 5 })
	f.follows(d)
	l := d.log(mirror.TopicPartition{Topic: topic})
	if err := l.begin(f.of(topic), leaderlog.Found{}); err != nil {
		f.t.Fatal(err)
	}
	if code := l.ask(5); code != 0 {
		f.t.Fatalf("a follower is answered with %d", code)
	}
	return l
}

// follows waits until d has seen all that was written so far, and told its logs.
func (f *fake) follows(d *Destination) {
	f.t.Helper()
	if err := d.meta.caughtUp(f.t.Context()); err != nil && d.usable() == nil {
		f.t.Fatal(err)
	}
}

// ask is how a follower is answered that knows a leader epoch.
func (l *Log) ask(epoch int32) int16 {
	p, code := (*ledTopics)(l.d).ByID(l.id, l.tp.Partition)
	if p == nil {
		return code
	}
	return p.Fetch(replicaserver.FetchQuery{Broker: 1, BrokerEpoch: -1, LeaderEpoch: epoch, LastFetchedEpoch: -1, MaxBytes: 1}).Code
}

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// registers is another process that comes under a node id.
func (f *fake) registers(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epochOf = epoch
	f.broker(us)
}

// TestAnotherProcessComesUnderTheNodeID: the metadata shows another registration under this node id, which leads what this process led: it does not lead under that epoch, answers no follower,
// changes nothing, and says so.
func TestAnotherProcessComesUnderTheNodeID(t *testing.T) {
	for _, shownBefore := range []bool{true, false} { // whether this process has seen its own registration
		var events told
		f, d := startFake(t, events.listen)
		l := f.leads(d, "orders")
		if shownBefore {
			d.lookAtRegistration()
		}
		if err := d.usable(); err != nil {
			t.Fatal(err)
		}
		f.registers(100)
		f.change("orders", func(p *clustermetadata.Partition) { p.LeaderEpoch += 2 })
		soon(t, "the loss", func() bool { return d.usable() != nil })
		if err := d.usable(); !errors.Is(err, ErrUnregistered) {
			t.Errorf("it is %v", err)
		}
		soon(t, "the logs' end", func() bool { return l.log.Held() })
		for _, epoch := range []int32{5, 6, 7, -1} {
			if code := l.ask(epoch); code != kerr.NotLeaderForPartition.Code {
				t.Errorf("a follower under leader epoch %d is answered with %d", epoch, code)
			}
		}
		sent := func() (n int) {
			for _, key := range []kmsg.Key{kmsg.AlterPartition, kmsg.AlterPartitionAssignments, kmsg.IncrementalAlterConfigs, kmsg.ElectLeaders, kmsg.UnregisterBroker} {
				n += f.count(key)
			}
			return n
		}
		before := sent()
		tp := l.tp
		for what, err := range map[string]error{
			"setReplicas": d.setReplicas(t.Context(), tp, []int32{us, 1, 2}), "moveAway": d.moveAway(t.Context(), tp), "putBack": d.putBack(t.Context(), "orders"), "regain": l.regain(t.Context()),
			"addAgain": d.addAgain(t.Context(), "orders", l.id, nil), "begin": l.begin(f.of("orders"), leaderlog.Found{}),
			"remember": d.remembered.change(t.Context(), "orders", l.id, func(m *memory) { m.LeftOut = map[int32][]int32{0: {1}} }),
			"alone":    d.setISR(t.Context(), tp, []int32{us, 1}, func(clustermetadata.Partition) bool { return false }),
		} {
			if !errors.Is(err, ErrUnregistered) {
				t.Errorf("%s: %v", what, err)
			}
		}
		d.tidyOnce(t.Context())
		if after := sent(); after != before {
			t.Errorf("%d requests changed the cluster afterwards", after-before)
		}
		if code := l.ask(7); code != kerr.NotLeaderForPartition.Code {
			t.Errorf("a follower is answered with %d after all that", code)
		}
		soon(t, "the event", func() bool { return events.of(Unregistered) == 1 })
		if events.of(Violation) != 0 {
			t.Error("it takes the other process for a violation")
		}
	}
}

// TestStaleBrokerEpochEndsIt: a controller that calls this process's broker epoch old is believed, whatever was asked.
func TestStaleBrokerEpochEndsIt(t *testing.T) {
	var events told
	f, d := startFake(t, events.listen)
	l := f.leads(d, "orders")
	f.stale = true
	err := d.setISR(t.Context(), l.tp, []int32{us, 1}, func(p clustermetadata.Partition) bool { return slices.Contains(p.ISR, 1) })
	if err == nil || !errors.Is(d.usable(), ErrUnregistered) || l.ask(5) != kerr.NotLeaderForPartition.Code || events.of(Unregistered) != 1 {
		t.Errorf("%v; %v; a follower is answered with %d", err, d.usable(), l.ask(5))
	}
}

// TestNothingOutsideTheSession: a process that stood still for longer than a session serves nobody and changes nothing until a heartbeat is answered, and goes on then.
func TestNothingOutsideTheSession(t *testing.T) {
	f, d := startFake(t)
	l := f.leads(d, "orders")
	now := time.Now()
	d.membership.lease.Store(&now)
	if code := l.ask(5); code != 0 {
		t.Fatalf("in the session a follower is answered with %d", code)
	}
	asleep := time.Now().Add(-d.cfg.SessionTimeout - time.Second) // both clocks
	d.membership.lease.Store(&asleep)
	if code := l.ask(5); code != kerr.NotLeaderForPartition.Code {
		t.Errorf("outside the session a follower is answered with %d", code)
	}
	bounded, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := d.setReplicas(bounded, l.tp, []int32{us, 1, 2}); err == nil || f.count(kmsg.AlterPartitionAssignments) > 0 {
		t.Errorf("outside the session replicas were changed: %v", err)
	}
	if _, err := d.requests.configs.do(bounded, configChange{topic: "orders"}); err == nil || f.count(kmsg.IncrementalAlterConfigs) > 0 {
		t.Errorf("outside the session settings were changed: %v", err)
	}
	if err := d.remembered.change(t.Context(), "orders", l.id, func(*memory) {}); err == nil {
		t.Error("outside the session something was remembered, which another process may rely on")
	}
	if err := d.usable(); err != nil {
		t.Errorf("it gave up: %v", err)
	}
	d.membership.lease.Store(&now)
	if code := l.ask(5); code != 0 {
		t.Errorf("in the session again a follower is answered with %d", code)
	}
	if err := d.setReplicas(t.Context(), l.tp, []int32{us, 1, 2}); err != nil {
		t.Error(err)
	}
}

// TestDeadMetadataIsTold: when the metadata cannot be understood any more, nobody is served under what it said last, heartbeats end, and a person hears of it.
func TestDeadMetadataIsTold(t *testing.T) {
	var events told
	f, d := startFake(t, events.listen)
	l := f.leads(d, "orders")
	beating := make(chan struct{})
	go func() { d.membership.run(t.Context()); close(beating) }()
	broken := errors.New("broken")
	d.meta.die(broken)
	select {
	case <-beating:
	case <-time.After(20 * time.Second):
		t.Error("heartbeats go on")
	}
	if err := d.usable(); !errors.Is(err, broken) {
		t.Errorf("it is %v", err)
	}
	if code := l.ask(5); code != kerr.NotLeaderForPartition.Code || events.of(Trouble) != 1 {
		t.Errorf("a follower is answered with %d, %d events", code, events.of(Trouble))
	}
	if err := l.Append(t.Context(), 5, nil); !errors.Is(err, broken) {
		t.Errorf("append: %v", err)
	}
}

// TestBeginTakesTheNewestEpoch: the metadata goes on while a log is being found: it is led under the newest epoch, and not at all if somebody else leads.
func TestBeginTakesTheNewestEpoch(t *testing.T) {
	var events told
	f, d := startFake(t, events.listen)
	l := f.leads(d, "orders")
	l.lose()
	old := f.of("orders")
	f.change("orders", func(p *clustermetadata.Partition) { p.LeaderEpoch = 7 })
	f.follows(d)
	if err := l.begin(old, leaderlog.Found{}); err != nil {
		t.Fatal(err)
	}
	if code := l.ask(7); code != 0 || l.LeaderEpoch() != 7 {
		t.Errorf("under leader epoch 7 a follower is answered with %d; the log's is %d", code, l.LeaderEpoch())
	}
	l.lose()
	f.change("orders", func(p *clustermetadata.Partition) { p.Leader, p.ISR = 1, []int32{1} })
	f.follows(d)
	soon(t, "the change", func() bool { return l.LeaderEpoch() == 8 })
	if err := l.begin(old, leaderlog.Found{}); !errors.Is(err, mirror.ErrFenced) || !l.log.Held() || l.ask(8) != kerr.NotLeaderForPartition.Code || events.of(Violation) != 1 {
		t.Errorf("broker 1 leads: %v; a follower is answered with %d; %d violations", err, l.ask(8), events.of(Violation))
	}
}

// TestALeaderThatComesBackIsHeld: a stock broker led in between: what the log holds is found out before anybody is served again.
func TestALeaderThatComesBackIsHeld(t *testing.T) {
	f, d := startFake(t)
	l := f.leads(d, "orders")
	f.change("orders", func(p *clustermetadata.Partition) { p.Leader, p.ISR = 1, []int32{us, 1} })
	f.change("orders", func(p *clustermetadata.Partition) { p.Leader, p.ISR = us, []int32{us} })
	soon(t, "the change", func() bool { return l.LeaderEpoch() == 7 })
	soon(t, "the new leadership", func() bool { return l.log.LeaderEpoch() == 7 })
	if code := l.ask(7); code != kerr.NotLeaderForPartition.Code {
		t.Errorf("a follower is answered with %d", code)
	}
}

// TestATopicIsMadeAgainAtOnce: a topic's deletion and another one of its name are seen together, and the new one's log is made before the deletion is told.
func TestATopicIsMadeAgainAtOnce(t *testing.T) {
	var events told
	f, d := startFake(t, events.listen)
	old := f.leads(d, "orders")
	before := f.of("orders")
	now := before
	now.TopicID = mirror.TopicID{14: 1}
	d.mu.Lock()
	fresh := &Log{d: d, tp: old.tp, id: now.TopicID, work: newTurn(), log: leaderlog.New(leaderlog.Options{})}
	d.logs[old.tp] = fresh
	d.mu.Unlock()
	d.follow([]clustermetadata.Change{{Kind: clustermetadata.PartitionChanged, Before: before, TopicID: before.TopicID}})
	if fresh.gone != nil || d.known(old.tp) != fresh {
		t.Errorf("the new topic's log is gone: %v", fresh.gone)
	}
	// The other order of things: what d.log replaces is closed.
	d.mu.Lock()
	stale := &Log{d: d, tp: old.tp, id: mirror.TopicID{13: 1}, work: newTurn(), log: leaderlog.New(leaderlog.Options{})}
	d.logs[old.tp] = stale
	d.mu.Unlock()
	l := d.log(old.tp)
	soon(t, "the replaced log's end", func() bool {
		stale.mu.Lock()
		defer stale.mu.Unlock()
		return stale.gone != nil
	})
	if l.id != before.TopicID || d.known(old.tp) != l || !errors.Is(stale.gone, mirror.ErrUnknownTopic) {
		t.Errorf("log of %v, replaced with %v", l.id, stale.gone)
	}
	soon(t, "the event", func() bool { return events.of(TopicGone) == 1 })
}

// TestGatherDropsWhoHasGone: a question whose asker has gone is not sent.
func TestGatherDropsWhoHasGone(t *testing.T) {
	first, release := make(chan struct{}), make(chan struct{})
	var sent [][]int
	g := gather[int, int]{most: 100, bound: time.Minute, send: func(_ context.Context, qs []int) ([]int, error) {
		sent = append(sent, slices.Clone(qs))
		if len(sent) == 1 {
			close(first)
			<-release
		}
		return qs, nil
	}}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = g.do(t.Context(), 1) })
	<-first
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, err := g.do(gone, 2); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wg.Go(func() {
		if a, err := g.do(t.Context(), 3); err != nil || a != 3 {
			t.Errorf("%d, %v", a, err)
		}
	})
	soon(t, "the third question", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.queue) >= 1 && g.queue[len(g.queue)-1].question == 3
	})
	close(release)
	wg.Wait()
	if len(sent) != 2 || !slices.Equal(sent[1], []int{3}) {
		t.Errorf("%v were sent", sent)
	}
}

// TestNothingIsChangedOutsideTheSession: a process that was held up sends nothing that changes the cluster, however the request is wrapped, and goes on reading.
func TestNothingIsChangedOutsideTheSession(t *testing.T) {
	d := &Destination{cfg: Config{SessionTimeout: 9 * time.Second}}
	d.membership = newMembership(&d.cfg, nil, nil, nil)
	send := func(req kmsg.Request) (sent bool, err error) {
		_, err = d.guarded(t.Context(), struct{ kmsg.Request }{req}, func() (kmsg.Response, error) { sent = true; return req.ResponseKind(), nil })
		return sent, err
	}
	writes := []kmsg.Request{kmsg.NewPtrAlterPartitionRequest(), kmsg.NewPtrAllocateProducerIDsRequest(), kmsg.NewPtrAlterPartitionAssignmentsRequest(), kmsg.NewPtrElectLeadersRequest(),
		kmsg.NewPtrIncrementalAlterConfigsRequest(), kmsg.NewPtrCreateTopicsRequest(), kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewPtrUnregisterBrokerRequest(), kmsg.NewPtrCreateACLsRequest(),
		kmsg.NewPtrDeleteACLsRequest(), kmsg.NewPtrOffsetCommitRequest(), kmsg.NewPtrAlterShareGroupOffsetsRequest()}
	for _, in := range []bool{true, false} {
		beat := time.Now()
		if !in {
			beat = beat.Add(-d.cfg.SessionTimeout - time.Second)
		}
		d.membership.lease.Store(&beat)
		for _, req := range writes {
			if sent, err := send(req); sent != in || (err == nil) != in {
				t.Errorf("%s: in the session %t, sent %t, %v", kmsg.NameForKey(req.Key()), in, sent, err)
			}
		}
		if sent, err := send(kmsg.NewPtrOffsetFetchRequest()); !sent || err != nil {
			t.Errorf("a reading request: in the session %t, sent %t, %v", in, sent, err)
		}
	}
}

// TestTheSessionEndsWhileABrokerIsConnectedTo: a process is held up between the look at its session and the first byte of the commit, as while it connects: the commit is not sent.
func TestTheSessionEndsWhileABrokerIsConnectedTo(t *testing.T) {
	for _, ends := range []bool{false, true} {
		d := &Destination{cfg: Config{SessionTimeout: 9 * time.Second}}
		d.membership = newMembership(&d.cfg, nil, nil, nil)
		beat := time.Now()
		d.membership.lease.Store(&beat)
		var committed atomic.Bool
		address := serveVersions(t, kmsg.OffsetCommit, func() {
			if asleep := time.Now().Add(-d.cfg.SessionTimeout - time.Second); ends {
				d.membership.lease.Store(&asleep)
			}
		}, &committed)
		var err error
		d.aside, err = kraftclient.New(kraftclient.Config{Controllers: []string{address}, Address: func(int32) (string, bool) { return address, true }, Intercept: d.guarded})
		if err != nil {
			t.Fatal(err)
		}
		ctx, refuse := context.WithCancelCause(t.Context())
		_, err = d.aside.Broker(ctx, 1, fenced{kmsg.NewPtrOffsetCommitRequest(), d.membership.inSession, refuse})
		d.aside.Close()
		if committed.Load() == ends || (err == nil) == ends {
			t.Errorf("the session ends %t, committed %t, %v", ends, committed.Load(), err)
		}
		if why := context.Cause(ctx); ends && (why == nil || !strings.Contains(why.Error(), "no heartbeat")) {
			t.Errorf("it is said to be %v", why)
		}
	}
}

// serveVersions is a broker that serves one request besides ApiVersions, whose answer comes after before. asked: the request came.
func serveVersions(t *testing.T, key kmsg.Key, before func(), asked *atomic.Bool) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			size := make([]byte, 4)
			if _, err := io.ReadFull(conn, size); err != nil {
				return
			}
			req := make([]byte, binary.BigEndian.Uint32(size))
			if _, err := io.ReadFull(conn, req); err != nil {
				return
			}
			k, version := int16(binary.BigEndian.Uint16(req)), int16(binary.BigEndian.Uint16(req[2:]))
			if k == int16(key) {
				asked.Store(true)
			}
			resp := kmsg.ResponseForKey(k)
			if versions, ok := resp.(*kmsg.ApiVersionsResponse); ok {
				before()
				for _, k := range []kmsg.Key{kmsg.ApiVersions, key} {
					versions.ApiKeys = append(versions.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(k), MaxVersion: 2})
				}
			}
			resp.SetVersion(version)
			body := resp.AppendTo(append([]byte{}, req[4:8]...))
			if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}
