package kafkastore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// halfDead is a cluster of three brokers in this process, of which one leads and coordinates everything and may stand still: its connections stay up, new ones are accepted, and
// nothing is answered. What a stopped process got before it goes on is carried out when it does.
type halfDead struct {
	*testing.T
	*kfake.Cluster
	cfg   Config // past the fronts
	front map[string]*proxy.Proxy
	old   int32 // the broker that stands still
}

func newHalfDead(t *testing.T) *halfDead {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	must(t, err)
	t.Cleanup(c.Close)
	x := &halfDead{T: t, Cluster: c, cfg: Config{Seeds: c.ListenAddrs(), StatePartitions: 2, ReplicationFactor: 1}, front: map[string]*proxy.Proxy{}}
	for _, address := range c.ListenAddrs() {
		p, err := proxy.Listen(address)
		must(t, err)
		t.Cleanup(func() { p.Close() })
		x.front[address] = p
	}
	return x
}

// behind is the configuration of a process that has the fronts before it.
func (x *halfDead) behind() Config {
	cfg := x.cfg
	cfg.ClientOptions = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, x.front[address].Address())
	})}
	return cfg
}

// all are ids of which one broker is to be the coordinator.
var all = []string{"clustermirror-control", "clustermirror-owner-w", "clustermirror-owner-other"}

// give makes one broker leader and coordinator of everything.
func (x *halfDead) give(broker int32) {
	x.Helper()
	for _, topic := range Topics() {
		for _, p := range x.PartitionInfos(topic) {
			must(x.T, x.MoveTopicPartition(topic, p.Partition, broker))
		}
	}
	for slices.ContainsFunc(all, func(id string) bool { return x.CoordinatorFor(id) != broker }) {
		x.RehashCoordinators()
	}
}

// stop has the broker stand still, or go on.
func (x *halfDead) stop(still bool) {
	x.front[x.ListenAddrs()[x.old]].SetLink(proxy.Link{BlackHole: still})
}

// stopAt has the broker stand still once it has the next request of a kind, before it answers.
func (x *halfDead) stopAt(kind kmsg.Key) (stopped <-chan struct{}) {
	at := make(chan struct{})
	once := sync.OnceFunc(func() {
		x.stop(true)
		close(at)
	})
	x.ControlKey(int16(kind), func(kmsg.Request) (kmsg.Response, error, bool) {
		x.KeepControl()
		if x.CurrentNode() == x.old {
			once()
		}
		return nil, nil, false
	})
	return at
}

// mostAfterElection is far below what the client waits for an answer (10 s, and 20 s of Produce), and far above what is needed, so that a busy machine is no failure.
const mostAfterElection = 6 * time.Second

// The leader of all topics and coordinator of all ids stands still in each step of an update, before or after it was carried out, and another one is elected. The update is made
// soon, once; so is what follows, also when the old one goes on and carries out what it got.
func TestABrokerThatStandsStillIsNotWaitedFor(t *testing.T) {
	for _, kind := range []kmsg.Key{0: -1, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn, kmsg.ListOffsets, kmsg.Fetch} {
		name := "from the beginning"
		if kind >= 0 {
			name = "with " + kind.Name()
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newHalfDead(t)
			a, b := open(t, x.behind()), open(t, x.cfg)
			k, own := key(66, "k"), key(66, "own")
			n := opened(t, a, "w")
			x.give(0)
			write(t, n, change(own, "0"))
			update(t, a, change(k, "0"))
			if kind == kmsg.Fetch {
				update(t, b, change(key(66, "other"), "0")) // something to fetch
			}
			for i, call := range []func(context.Context) error{
				func(ctx context.Context) error { return a.Update(ctx, count(k, false)) },
				func(ctx context.Context) error { return n.Update(ctx, [][]byte{own}, count(own, false)) },
				func(ctx context.Context) error {
					_, err := a.Open(ctx, "other")
					return err
				},
			} {
				if i > 0 && kind >= 0 {
					break
				}
				x.old = int32(i)
				var wait func() error
				if kind < 0 {
					x.stop(true)
					wait = started(t, call)
				} else {
					at := x.stopAt(kind)
					wait = started(t, call)
					await(t, at)
				}
				elected := time.Now()
				x.give((x.old + 1) % 3)
				must(t, wait())
				took := time.Since(elected)
				t.Logf("call %d took %s from the election on", i, took.Round(time.Millisecond))
				if took > mostAfterElection {
					t.Errorf("call %d took %s from the election on", i, took)
				}
				x.stop(false)
			}
			expect(t, b, k, "1")
			must(t, a.Update(t.Context(), count(k, false)))
			must(t, n.Update(t.Context(), [][]byte{own}, count(own, false)))
			expect(t, b, k, "2")
			expect(t, a, k, "2")
			want := "1 by w/1"
			if kind < 0 {
				want = "2 by w/1"
			}
			expect(t, b, own, want)
		})
	}
}

// A broker that is silent for some seconds and leads on is waited for: what it was asked is done once, and nothing is decided again.
func TestASlowBrokerIsWaitedFor(t *testing.T) {
	for _, kind := range []kmsg.Key{kmsg.InitProducerID, kmsg.Produce, kmsg.EndTxn} {
		t.Run(kind.Name(), func(t *testing.T) {
			t.Parallel()
			x := newHalfDead(t)
			a, b := open(t, x.behind()), open(t, x.cfg)
			k := key(66, "k")
			opened(t, a, "w")
			x.give(0)
			update(t, a, change(k, "0"))
			at := x.stopAt(kind)
			decided := 0
			wait := started(t, func(ctx context.Context) error {
				return a.Update(ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
					decided++
					return count(k, false)(v)
				})
			})
			await(t, at)
			time.AfterFunc(2500*time.Millisecond, func() { x.stop(false) })
			must(t, wait())
			if decided != 1 {
				t.Errorf("it was decided %d times", decided)
			}
			expect(t, b, k, "1")
		})
	}
}

// A commit was sent to a coordinator that stands still and has no successor until the context ends: the outcome is not known, and whoever asks afterwards sees what is there.
func TestACommitThatStandsStillIsUnknown(t *testing.T) {
	t.Parallel()
	x := newHalfDead(t)
	a, b := open(t, x.behind()), open(t, x.cfg)
	k := key(66, "k")
	opened(t, a, "w")
	x.give(0)
	update(t, a, change(k, "0"))
	at := x.stopAt(kmsg.EndTxn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := started(t, func(context.Context) error { return a.Update(ctx, count(k, false)) })
	await(t, at)
	cancel()
	if err := wait(); !errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, keyedlog.ErrOutcomeUnknown)
	}
	x.give(1)
	must(t, a.Update(t.Context(), count(k, false)))
	expect(t, b, k, "2")
}

// Whoever watches for changes hears of one that was written after the election, whatever the old leader does.
func TestChangesAreToldOverABrokerThatStandsStill(t *testing.T) {
	t.Parallel()
	x := newHalfDead(t)
	a, b := open(t, x.behind()), open(t, x.cfg)
	opened(t, b, "w")
	x.give(0)
	k := key(66, "k")
	changed := a.Changed()
	settle := func() { // until the watch waits for what comes
		for {
			select {
			case <-changed:
				changed = a.Changed()
			case <-time.After(300 * time.Millisecond):
				return
			}
		}
	}
	settle()
	x.stop(true)
	x.give(1)
	update(t, b, change(k, "1"))
	elected := time.Now()
	for told := false; !told; {
		select {
		case <-changed:
			changed = a.Changed()
			told = shown(t, a, k) == "1"
		case <-time.After(20 * time.Second):
			t.Fatal("nobody tells")
		}
	}
	t.Logf("told %s after the election", time.Since(elected).Round(time.Millisecond))
	if took := time.Since(elected); took > pollOfAWatch+mostAfterElection {
		t.Errorf("told %s after the election", took)
	}
}

// pollOfAWatch is how long a broker may hold a Fetch of a watch in which there is nothing new.
const pollOfAWatch = 5 * time.Second
