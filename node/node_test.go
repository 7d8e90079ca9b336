package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// cluster is a destination in memory that lets one node in at a time, as controllers do.
type cluster struct {
	*inMemory
	records *keyedlog.Memory
	source  *memlog.Cluster
	place   chan struct{}
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{inMemory: memlog.New(memlog.Config{ClusterID: "standby"}), records: keyedlog.NewMemory(), source: memlog.New(memlog.Config{ClusterID: "primary"}), place: make(chan struct{}, 1)}
	t.Cleanup(func() { c.inMemory.Close(); c.source.Close() })
	if _, err := c.source.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return c
}

// inMemory has another name than its method Cluster.
type inMemory = memlog.Cluster

// lent is a cluster that somebody else closes.
type lent struct{ *inMemory }

func (lent) Close() error { return nil }

// membership is a node's place in a cluster.
type membership struct {
	lent
	c *cluster

	mu       sync.Mutex
	standing error
	resigned bool
	replaced bool
}

func (m *membership) Standing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.standing
}

func (m *membership) Replaced(context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

func (m *membership) lose(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standing = err
}

func (m *membership) Resign(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resigned = true
	return nil
}

func (m *membership) Close() error {
	<-m.c.place
	return nil
}

// running is a node that runs.
type running struct {
	*Node
	t    *testing.T
	c    *cluster
	mine chan *membership
	stop context.CancelFunc
	done chan error
}

func (c *cluster) run(t *testing.T, name string, change ...func(*Config)) *running {
	t.Helper()
	r := &running{t: t, c: c, mine: make(chan *membership, 1), done: make(chan error, 1)}
	cfg := Config{
		Name: name, Open: func(context.Context) (Records, error) { return c.records.Again(), nil }, Sink: mirror.Discard,
		OpenSource: func(context.Context, mirror.Settings) (mirror.Source, error) { return lent{c.source}, nil },
		Join: func(ctx context.Context, _ keyedlog.Log, hooks Hooks) (Destination, error) {
			select {
			case c.place <- struct{}{}:
			default:
				hooks.StandingBy("another process has the place")
				select {
				case c.place <- struct{}{}:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				hooks.StandingBy("")
			}
			hooks.Clients.Connected(4)
			hooks.Clients.Redirected(1)
			hooks.Clients.Refused(kraft.RefusalReasons()[0])
			m := &membership{lent: lent{c.inMemory}, c: c}
			r.mine <- m
			return m, nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.Node, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.done <- r.Run(ctx) }()
	return r
}

// end tells the node to end and returns what Run says.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	return r.ended()
}

func (r *running) ended() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("Run does not return")
		return nil
	}
}

// until waits in virtual time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *cluster) admin(t *testing.T, name string) *mirror.Admin {
	t.Helper()
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: name, Control: mirror.NewControl(c.records.Again()), States: keyedlog.NewStateStore(c.records.Again())})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// create makes the mirror and starts its topic.
func (c *cluster) create(t *testing.T, name string) *mirror.Admin {
	t.Helper()
	a := c.admin(t, name)
	if _, err := a.Create(t.Context(), mirror.Settings{"bootstrap.servers": "primary:9092"}, mirror.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(t.Context(), []string{"orders"}, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (r *running) mirrors(state statemachine.State) bool {
	for _, look := range r.look().Mirrors {
		for _, t := range look.Topics {
			for _, p := range t.Partitions {
				if p.State == state {
					return true
				}
			}
		}
	}
	return false
}

func TestNodeFollowsWhatIsCreatedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := c.run(t, "9999")
		until(t, "it runs", func() bool { s := r.Status(); return s.State == Running && s.Ready() })
		a := c.create(t, "dr")
		until(t, "its mirror mirrors", func() bool { return r.mirrors(statemachine.Mirroring) })
		if s := r.Status(); len(s.Mirrors) != 1 || s.Mirrors[0].Name != "dr" || !s.Mirrors[0].Running || s.Mirrors[0].Partitions != 1 || !s.Ready() {
			t.Errorf("%s", s)
		}
		if _, err := a.Stop(t.Context(), []string{"orders"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "it is stopped", func() bool { return r.mirrors(statemachine.Stopped) })
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if m := <-r.mine; !m.resigned {
			t.Error("it did not give its place away")
		}
		if s := r.Status(); s.State != Ended || s.Ready() {
			t.Errorf("%s", s)
		}
	})
}

// With a rate in its file a node compares copies while it mirrors them, and its metrics say so. Nothing else needs to be set.
func TestNodeComparesCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		options, err := mirror.NodeOptionsFrom(mirror.Settings{"mirror.verification.rate": "1000000", "mirror.verification.interval.ms": "60000"})
		if err != nil {
			t.Fatal(err)
		}
		r := c.run(t, "9999", func(c *Config) { c.Options = options })
		c.create(t, "dr")
		if _, err := c.source.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		identical := func() int {
			for _, s := range r.look().Mirrors {
				if v := s.Verification; v != nil && !v.LastPass.IsZero() {
					return v.Identical
				}
			}
			return 0
		}
		until(t, "a pass has ended", func() bool { return identical() == 1 })
		page := httptest.NewRecorder()
		r.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		if body := page.Body.String(); !strings.Contains(body, `clustermirror_verify_copies{destination_cluster_id="standby",mirror="dr",result="identical"} 1`) {
			t.Errorf("%s", body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestStandbyGoesOnWhereTheOtherEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create(t, "dr")
		first := c.run(t, "9999")
		until(t, "the first mirrors", func() bool { return first.mirrors(statemachine.Mirroring) })
		second := c.run(t, "9999")
		until(t, "the second stands by", func() bool { return second.Status().State == StandingBy })
		if s := second.Status(); s.Ready() || s.Reasons[0] != "standing by: another process has the place" {
			t.Errorf("%s", s)
		}
		if err := first.end(); err != nil {
			t.Error(err)
		}
		until(t, "the second mirrors", func() bool { return second.mirrors(statemachine.Mirroring) })
		third := c.run(t, "9999")
		until(t, "the third stands by", func() bool { return third.Status().State == StandingBy })
		if err := third.end(); err != nil {
			t.Errorf("a standby that is told to end: %v", err)
		}
		if err := second.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestNodeThatWasThrownOutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create(t, "dr")
		r := c.run(t, "9999")
		until(t, "it mirrors", func() bool { return r.mirrors(statemachine.Mirroring) })
		why := errors.New("UnregisterBroker")
		m := <-r.mine
		m.lose(fmt.Errorf("%w: %w", ErrThrownOut, why))
		if err := r.ended(); !errors.Is(err, ErrThrownOut) || !errors.Is(err, why) {
			t.Error(err)
		}
		if m.resigned {
			t.Error("it gave away a place that it has not")
		}
	})
}

// TestNodeThatWasHeldUpMayComeBack: another process took its place, and nobody threw it out.
func TestNodeThatWasHeldUpMayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := c.run(t, "9999")
		until(t, "it runs", func() bool { return r.Status().State == Running })
		m := <-r.mine
		m.mu.Lock()
		m.replaced = true
		m.mu.Unlock()
		m.lose(fmt.Errorf("%w: stale broker epoch", ErrThrownOut))
		if err := r.ended(); !errors.Is(err, ErrLost) || errors.Is(err, ErrThrownOut) || !strings.Contains(err.Error(), "another process under this node id") {
			t.Error(err)
		}
	})
}

// TestNodeLeavesAnotherNodesMirrorAlone: two node ids never pull at one mirror, and a mirror of which nothing is left may move.
func TestNodeLeavesAnotherNodesMirrorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.create(t, "dr")
		first := c.run(t, "9999")
		until(t, "the first mirrors", func() bool { return first.mirrors(statemachine.Mirroring) })
		if err := first.end(); err != nil {
			t.Fatal(err)
		}
		other := c.run(t, "9998")
		until(t, "the other says who has it", func() bool {
			s := other.Status()
			return len(s.Mirrors) == 1 && !s.Mirrors[0].Running && strings.Contains(s.Mirrors[0].Problem, "node 9999 has it (1 topics")
		})
		time.Sleep(5 * time.Minute) // virtual
		if other.mirrors(statemachine.Mirroring) {
			t.Error("it took the mirror")
		}
		if err := other.end(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Stop(t.Context(), []string{"orders"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		first = c.run(t, "9999")
		until(t, "the first has stopped it", func() bool { return first.mirrors(statemachine.Stopped) })
		time.Sleep(time.Minute) // its report
		if err := first.end(); err != nil {
			t.Fatal(err)
		}
		other = c.run(t, "9998")
		until(t, "the other runs what nobody has", func() bool { s := other.Status(); return len(s.Mirrors) == 1 && s.Mirrors[0].Running })
		if err := other.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestNodeRunsOnlyItsMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create(t, "dr")
		r := c.run(t, "9999", func(cfg *Config) { cfg.Mirrors = func(name string) bool { return name != "dr" } })
		until(t, "it runs", func() bool { return r.Status().State == Running })
		time.Sleep(time.Minute) // virtual
		if s := r.Status(); len(s.Mirrors) != 0 || !s.Ready() {
			t.Errorf("%s", s)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestMirrorThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create(t, "dr")
		var mu sync.Mutex
		broken := errors.New("the log of records is away")
		failing := true
		r := c.run(t, "9999", func(cfg *Config) {
			cfg.Open = func(context.Context) (Records, error) {
				return &failingRecords{Memory: c.records.Again(), fail: func() error {
					mu.Lock()
					defer mu.Unlock()
					if failing {
						return broken
					}
					return nil
				}}, nil
			}
		})
		until(t, "it says why", func() bool {
			s := r.Status()
			return len(s.Mirrors) == 1 && !s.Ready() && strings.Contains(s.Mirrors[0].Problem, broken.Error())
		})
		mu.Lock()
		failing = false
		mu.Unlock()
		until(t, "it mirrors", func() bool { return r.mirrors(statemachine.Mirroring) && r.look().Ready })
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// failingRecords opens no session while fail says so.
type failingRecords struct {
	*keyedlog.Memory
	fail func() error
}

func (f *failingRecords) Open(ctx context.Context, writer string) (keyedlog.Session, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Memory.Open(ctx, writer)
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := c.run(t, "9999")
		pages := r.Handler()
		ask := func(path string) (int, string) {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Code, w.Body.String()
		}
		until(t, "it runs", func() bool { return r.Status().State == Running })
		for path, says := range map[string]string{"/healthz": "alive", "/readyz": "ready", "/metrics": `clustermirror_node_ready{destination_cluster_id="standby",node=`, "/status": `"State": "running"`} {
			if status, body := ask(path); status != http.StatusOK || !strings.Contains(body, says) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		for _, line := range []string{"connections 4", "redirected_partitions_total 1", `connections_refused_total{reason="too many connections"} 1`} {
			if _, body := ask("/metrics"); !strings.Contains(body, "\nclustermirror_client_"+line+"\n") {
				t.Errorf("what the listener for clients tells is not in the metrics: %s", line)
			}
		}
		(<-r.mine).lose(errors.New("fenced since 03:12"))
		if status, body := ask("/readyz"); status != http.StatusServiceUnavailable || body != "fenced since 03:12\n" {
			t.Errorf("%d %s", status, body)
		}
		if status, _ := ask("/nowhere"); status != http.StatusNotFound {
			t.Errorf("%d", status)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if status, body := ask("/readyz"); status != http.StatusServiceUnavailable || !strings.HasPrefix(body, "ended") {
			t.Errorf("%d %s", status, body)
		}
		if status, body := ask("/healthz"); status != http.StatusOK {
			t.Errorf("after its end: %d %s", status, body)
		}
	})
}

// TestHealthFindsALoopThatStandsStill: an idle node is healthy, one whose look at what is wanted never comes back is not.
func TestHealthFindsALoopThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		hung := &hungRecords{Memory: c.records.Again(), release: make(chan struct{})}
		r := c.run(t, "9999", func(cfg *Config) { cfg.Open = func(context.Context) (Records, error) { return hung, nil } })
		until(t, "it runs", func() bool { return r.Status().State == Running })
		health := func() int {
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
			return w.Code
		}
		time.Sleep(10 * time.Minute) // virtual: nothing happens
		if status := health(); status != http.StatusOK {
			t.Errorf("an idle node: %d", status)
		}
		hung.hang.Store(true)
		time.Sleep(2 * standstill)
		if status := health(); status != http.StatusServiceUnavailable {
			t.Errorf("a loop that stands still: %d", status)
		}
		close(hung.release)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// hungRecords has reads that do not end with their context.
type hungRecords struct {
	*keyedlog.Memory
	hang    atomic.Bool
	release chan struct{}
}

func (h *hungRecords) Read(ctx context.Context, f func(keyedlog.View) error) error {
	if h.hang.Load() {
		<-h.release
	}
	return h.Memory.Read(ctx, f)
}

func TestNodeIsRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := c.run(t, "9999")
		until(t, "it runs", func() bool { return r.Status().State == Running })
		if err := r.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestConfigSaysWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	for _, says := range []string{"Name", "Open", "Join", "OpenSource", "Sink"} {
		if err == nil || !strings.Contains(err.Error(), "node.Config: "+says+" is not set") {
			t.Errorf("%v does not say %s", err, says)
		}
	}
}
