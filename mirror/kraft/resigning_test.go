package kraft

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// identified gives a process of a fake cluster its folder.
func identified(t *testing.T, d *Destination) {
	t.Helper()
	id, err := openIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.identity = id
	if d.membership.incarnation, _, err = id.incarnation(us, "cluster"); err != nil {
		t.Fatal(err)
	}
	d.cluster = "cluster"
}

// left says whether a process has left its incarnation to others, and whether its folder has it still.
func left(t *testing.T, d *Destination) (toOthers, inFolder bool) {
	t.Helper()
	if err := d.cfg.Remember.Read(t.Context(), func(v keyedlog.View) error {
		_, toOthers = v.Get(resignedKey(us))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	id, err := openIdentity(d.identity.folder)
	if err != nil {
		t.Fatalf("after the end: %v", err)
	}
	defer id.close()
	return toOthers, id.saved.Incarnation == d.membership.incarnation
}

// wantsFence says that a request is the heartbeat that wants to be fenced.
func wantsFence(req kmsg.Request) bool {
	b, ok := req.(*kmsg.BrokerHeartbeatRequest)
	return ok && b.WantFence
}

// TestResignFails: where a stock broker would be elected, where the controllers are away, where something does not end, and where the storage refuses, the process ends all the same and says what is
// in the way. Its incarnation is nobody else's, and its folder has it.
func TestResignFails(t *testing.T) {
	refused := errors.New("refused")
	for _, x := range []struct {
		name   string
		spoil  func(t *testing.T, f *fake, d *Destination)
		fenced bool
		says   string
	}{
		{"a broker stays in sync", func(t *testing.T, f *fake, d *Destination) {
			f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us, 2} })
			f.hook(func() {
				f.before = func(_ context.Context, req kmsg.Request) error {
					if _, ok := req.(*kmsg.AlterPartitionRequest); ok {
						return refused
					}
					return nil
				}
			})
		}, false, "other brokers are in sync ([9999 2])"},
		{"the topic is not safe", func(t *testing.T, f *fake, d *Destination) {
			f.hook(func() {
				f.before = func(_ context.Context, req kmsg.Request) error {
					if kmsg.Key(req.Key()) == kmsg.IncrementalAlterConfigs {
						return refused
					}
					return nil
				}
			})
			f.set("orders", uncleanElection, "true")
		}, false, uncleanElection},
		{"no controllers", func(t *testing.T, f *fake, d *Destination) {
			f.hook(func() {
				f.before = func(_ context.Context, req kmsg.Request) error {
					if wantsFence(req) {
						return refused
					}
					return nil
				}
			})
		}, false, "refused"},
		{"something does not end", func(t *testing.T, f *fake, d *Destination) {
			if err := d.works.begin(); err != nil {
				t.Fatal(err)
			}
		}, false, "has not ended"},
		{"a take-over does not end", func(t *testing.T, f *fake, d *Destination) {
			if err := d.barrier.share(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, false, "has not ended"},
		{"the storage refuses", func(t *testing.T, f *fake, d *Destination) { d.cfg.Remember = readOnly{d.cfg.Remember} }, true, keyedlog.ErrNothingWritten.Error()},
	} {
		t.Run(x.name, func(t *testing.T) {
			f, d := startFake(t)
			identified(t, d)
			// As a topic that is mirrored: else it would be moved away.
			if err := d.remembered.change(t.Context(), "orders", mirror.TopicID{15: 1}, func(m *memory) { m.Configs = map[string]*string{minInSync: nil, uncleanElection: nil} }); err != nil {
				t.Fatal(err)
			}
			f.topic("orders", []int32{us, 1, 2})
			f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us} })
			f.set("orders", uncleanElection, "false")
			f.set("orders", minInSync, "1")
			var fenced atomic.Bool
			x.spoil(t, f, d)
			f.hook(func() {
				f.after = func(_ context.Context, req kmsg.Request) error {
					if wantsFence(req) {
						fenced.Store(true)
					}
					return nil
				}
			})
			err := d.Resign(within(t, time.Second))
			if err == nil || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), "when its session ends (9s)") {
				t.Errorf("resigned: %v", err)
			}
			if fenced.Load() != x.fenced {
				t.Errorf("fenced: %v", fenced.Load())
			}
			if toOthers, inFolder := left(t, d); toOthers || !inFolder {
				t.Errorf("left to others: %v, in its folder: %v", toOthers, inFolder)
			}
			if !errors.Is(d.usable(), ErrClosed) {
				t.Error("it is not closed")
			}
		})
	}
}

// readOnly is a log into which nothing can be written.
type readOnly struct{ keyedlog.Log }

func (readOnly) Update(context.Context, func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return keyedlog.ErrNothingWritten
}

// TestResignLetsNothingBegin: what is under way is waited for, and nothing new begins meanwhile.
func TestResignLetsNothingBegin(t *testing.T) {
	f, d := startFake(t)
	identified(t, d)
	reached, goOn := make(chan struct{}), make(chan struct{})
	f.hook(func() {
		f.before = func(_ context.Context, req kmsg.Request) error {
			if _, ok := req.(*kmsg.CreateTopicsRequest); ok {
				close(reached)
				<-goOn
			}
			return nil
		}
	})
	created, resigned := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.CreateTopic(within(t, 10*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1})
		created <- err
	}()
	<-reached
	go func() { resigned <- d.Resign(within(t, 10*time.Second)) }()
	for {
		_, err := d.GrowTopic(t.Context(), "orders", 2)
		if errors.Is(err, ErrResigned) {
			break
		}
		if !errors.Is(err, mirror.ErrUnknownTopic) {
			t.Fatalf("grown: %v", err)
		}
	}
	for name, err := range map[string]error{
		"creation": second(d.CreateTopic(t.Context(), mirror.TopicSpec{Name: "more", Partitions: 1})),
		"epochs":   second(d.RaiseLeaderEpochs(t.Context(), nil)),
		"giving":   d.Give(t.Context(), mirror.TopicPartition{Topic: "orders"}, other),
	} {
		if !errors.Is(err, ErrResigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case err := <-resigned:
		t.Fatalf("it has not waited: %v", err)
	default:
	}
	close(goOn)
	if err := <-created; err != nil {
		t.Errorf("what was under way: %v", err)
	}
	if err := <-resigned; err != nil {
		t.Error(err)
	}
	if p := f.of("orders"); len(p.ISR) != 1 || len(p.Replicas) != 4 {
		t.Errorf("it is left as %+v", p)
	}
	if toOthers, inFolder := left(t, d); !toOthers || inFolder {
		t.Errorf("left to others: %v, in its folder: %v", toOthers, inFolder)
	}
}

func second[T any](_ T, err error) error { return err }

// TestResignedIsTakenOnce: of many that wait one gets the incarnation; it is for the registration alone under which it was left.
func TestResignedIsTakenOnce(t *testing.T) {
	f, d := startFake(t)
	identified(t, d)
	if err := d.Resign(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	next := f.process(func(c *Config) { c.Remember = d.cfg.Remember })
	next.cluster = "cluster"
	registered := clustermetadata.Broker{ID: us, Epoch: 7, Incarnation: d.membership.incarnation, Fenced: true}
	for _, other := range []clustermetadata.Broker{{ID: us, Epoch: 8, Incarnation: registered.Incarnation}, {ID: us, Epoch: 7}} {
		if _, is, err := next.resigned(t.Context(), other, true); is || err != nil {
			t.Errorf("taken for %+v: %v", other, err)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	taken := 0
	for range 8 {
		wg.Go(func() {
			r, is, err := next.resigned(t.Context(), registered, true)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || is && r.Incarnation != registered.Incarnation {
				t.Errorf("%+v, %v", r, err)
			}
			if is {
				taken++
			}
		})
	}
	wg.Wait()
	if taken != 1 {
		t.Errorf("%d have taken it", taken)
	}
}

// TestResignIsNotUndoneByAHeartbeat: one that was to be sent when the process had itself fenced, and waited for its turn, is not sent afterwards.
func TestResignIsNotUndoneByAHeartbeat(t *testing.T) {
	f, d := startFake(t)
	identified(t, d)
	var mu sync.Mutex
	var beats []bool // those that want to be fenced
	waited := make(chan error, 1)
	f.hook(func() {
		f.before = func(_ context.Context, req kmsg.Request) error {
			b, ok := req.(*kmsg.BrokerHeartbeatRequest)
			if !ok {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if beats = append(beats, b.WantFence); b.WantFence {
				go func() { // its turn comes when this one is answered
					_, err := d.membership.heartbeat(t.Context(), false)
					waited <- err
				}()
			}
			return nil
		}
	})
	err := d.membership.fenceForGood(within(t, 10*time.Second))
	if late := <-waited; err != nil || !errors.Is(late, ErrResigned) {
		t.Errorf("fenced: %v; the one that waited: %v", err, late)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(beats) != 1 || !beats[0] {
		t.Errorf("heartbeats %v (true: wants to be fenced)", beats)
	}
}
