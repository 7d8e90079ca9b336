package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermirror/clustermirror/metrics"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statuspage"
)

// readBound is the longest time of one look at what is wanted.
const readBound = 30 * time.Second

// lookAgain is how often what is wanted is read also when nobody says that it has changed.
const lookAgain = 30 * time.Second

// standingLook is how often the destination is asked whether the node still has its place.
const standingLook = time.Second

// silentAfter is how long another node may say nothing and still count as alive; nodes report every 5 s.
const silentAfter = 20 * time.Second

// Node is a mirror node. New makes one, Run runs it once. Safe for concurrent use.
type Node struct {
	cfg       Config
	collector *metrics.Collector
	page      *statuspage.Page
	rate      *mirror.SharedRate // of all mirrors

	ticked atomic.Int64 // when the loop that runs mirrors last came round, in nanoseconds since 1970; 0: it does not run

	// Set by Run before mirrors run.
	records Records
	control mirror.Control

	mu           sync.Mutex
	destination  Destination
	clusterID    string // the destination's, "" as long as it is not known
	state        State
	since        time.Time
	why          string // of the state, "" if it needs none
	reading      error  // why what is wanted cannot be read
	certificates Certificates
	draining     time.Time // by when it has to be done; the zero time: it was not told to end
	runs         map[string]*run
	heard        map[string]heardOf // of other nodes, by name
	began        bool
}

// heardOf is when a report was seen to be another one than before, by this process's clock.
type heardOf struct{ seen, at time.Time }

// New makes a node and starts nothing.
func New(cfg Config) (*Node, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, rate: mirror.NewSharedRate(cfg.Options.SharedRate), since: time.Now(), runs: map[string]*run{}, heard: map[string]heardOf{}}
	n.collector = metrics.New(n.look)
	page, err := n.newPage()
	if err != nil {
		return nil, err
	}
	n.page = page
	return n, nil
}

// Run opens what the node needs, waits for its turn, runs mirrors until ctx ends, drains, and returns nil. What is wrong at the start ends it with that error, and so does what takes away
// the node's place for good: ErrThrownOut, ErrLost. It may be called once.
func (n *Node) Run(ctx context.Context) (err error) {
	n.mu.Lock()
	again := n.began
	n.began = true
	n.mu.Unlock()
	if again {
		return errors.New("node: Run was called before")
	}
	defer func() { n.enter(Ended, errorText(err)) }()
	closeHTTP, err := n.serve()
	if err != nil {
		return err
	}
	defer closeHTTP()
	if n.cfg.Certificates != nil {
		watching, end := context.WithCancel(ctx)
		defer end()
		go n.watchCertificates(watching)
	}
	if n.cfg.Page != "" {
		sampling, end := context.WithCancel(ctx)
		var samples sync.WaitGroup
		samples.Go(func() { n.page.Run(sampling) })
		defer samples.Wait()
		defer end()
	}
	if n.records, err = n.cfg.Open(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, n.records.Close()) }()
	n.control = mirror.NewControl(n.records)
	if n.cfg.ClusterID != nil {
		n.learnCluster(ctx, n.cfg.ClusterID) // before it may have to stand by: alarms compare processes of one cluster
	}

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	destination, err := n.cfg.Join(ctx, n.records, Hooks{
		StandingBy: func(why string) {
			if why == "" {
				n.enter(Starting, "its turn has come")
				return
			}
			n.enter(StandingBy, why)
		},
		Notice:  n.collector.ObserveDestination,
		Clients: ClientHooks{Connected: n.collector.ObserveClients, Redirected: n.collector.ObserveRedirected, Refused: n.collector.ObserveRefused},
	})
	if err != nil {
		return unlessEnded(ctx, err)
	}
	n.mu.Lock()
	n.destination = destination
	n.mu.Unlock()
	n.learnCluster(ctx, destination.ClusterID)
	n.enter(Running, "")
	var running sync.WaitGroup
	running.Go(func() {
		for pause(working, standingLook) {
			if err := destination.Standing(); errors.Is(err, ErrThrownOut) || errors.Is(err, ErrLost) {
				stop(err)
			}
		}
	})
	n.follow(working, &running)
	n.ticked.Store(0)
	if ctx.Err() == nil { // not told to end
		out := n.whyOut(context.Cause(working), destination)
		n.enter(Draining, out.Error())
		running.Wait()
		return errors.Join(out, destination.Close())
	}
	n.enter(Draining, "")
	running.Wait()
	// What is left of the bound, and a moment in any case: a standby would wait for a whole session.
	last, done := context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(n.drainBy()), resignBound))
	defer done()
	if err := destination.Resign(last); err != nil {
		n.cfg.Logger.Warn("whoever stands by has to wait until this node's session ends", "error", err)
	}
	return destination.Close()
}

// learnCluster notes the destination's cluster id. Nothing but metrics depends on it.
func (n *Node) learnCluster(ctx context.Context, ask func(context.Context) (string, error)) {
	bounded, stop := context.WithTimeout(ctx, clusterIDBound)
	defer stop()
	if id, err := ask(bounded); err == nil && id != "" {
		n.mu.Lock()
		n.clusterID = id
		n.mu.Unlock()
	}
}

// clusterIDBound is how long the destination is asked for its cluster id.
const clusterIDBound = 5 * time.Second

// whyOut tells a node that was thrown out from one in whose place another process is, as after it was held up for longer than a session: that one may be started again, and stands by.
func (n *Node) whyOut(out error, d Destination) error {
	bounded, stop := context.WithTimeout(context.Background(), replacedBound)
	defer stop()
	if errors.Is(out, ErrThrownOut) && d.Replaced(bounded) {
		return fmt.Errorf("%w: another process under this node id has taken it, as when this one was held up for longer than a session; a new process stands by for it", ErrLost)
	}
	return out
}

// replacedBound is how long the cluster is asked who has this node's place.
const replacedBound = 15 * time.Second

// resignBound is how long giving the place away may take when waiting for steps has used the time up.
const resignBound = 5 * time.Second

// drainBy is by when the end has to be done; the first call begins it.
func (n *Node) drainBy() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.draining.IsZero() {
		n.draining = time.Now().Add(n.cfg.DrainBound)
	}
	return n.draining
}

// unlessEnded is nil for what fails because the node was told to end.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// enter notes a state and says so.
func (n *Node) enter(s State, why string) {
	n.mu.Lock()
	news := n.state != s || n.why != why
	if n.state != s {
		n.since = time.Now()
	}
	n.state, n.why = s, why
	n.mu.Unlock()
	if news {
		attributes := []any{"node", n.cfg.Name, "version", n.cfg.Version}
		if why != "" {
			attributes = append(attributes, "why", why)
		}
		n.cfg.Logger.Info("node "+s.String(), attributes...)
	}
}

// follow runs the mirrors that there are to run, until ctx ends.
func (n *Node) follow(ctx context.Context, running *sync.WaitGroup) {
	for {
		changed := n.control.Changed()
		n.start(ctx, running)
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if !pause(ctx, 100*time.Millisecond) { // several changes at once are one
				return
			}
		case <-time.After(lookAgain):
		}
	}
}

// start begins with mirrors that do not run yet. One that was deleted goes on for as long as the node: it takes the records of its states out, and is there if it is created again.
func (n *Node) start(ctx context.Context, running *sync.WaitGroup) {
	bounded, stop := context.WithTimeout(ctx, readBound)
	defer stop()
	state, err := n.control.Read(bounded)
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if (err == nil) != (n.reading == nil) {
		n.cfg.Logger.Warn("what is wanted can be read: "+fmt.Sprint(err == nil), "error", err)
	}
	n.ticked.Store(time.Now().UnixNano())
	if n.reading = err; err != nil {
		return
	}
	names := make([]string, 0, len(state.Mirrors)+len(state.Deleted))
	for _, m := range state.Mirrors {
		names = append(names, m.Name)
	}
	for _, d := range state.Deleted {
		names = append(names, d.Name)
	}
	for _, name := range names {
		if n.runs[name] != nil || !n.cfg.Mirrors(name) {
			continue
		}
		r := &run{n: n, name: name}
		n.runs[name] = r
		running.Go(func() { r.follow(ctx) })
	}
}

// silent says that another node has reported nothing new for long, as far as this process has watched it.
func (n *Node) silent(other mirror.NodeReport) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, known := n.heard[other.Node]
	if !known || !h.seen.Equal(other.Seen) {
		n.heard[other.Node] = heardOf{other.Seen, time.Now()}
		return false
	}
	return time.Since(h.at) > silentAfter
}

// pause waits; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// serve serves Handler and the page, if that is wanted.
func (n *Node) serve() (stop func(), err error) {
	closeHTTP, err := n.serveAt(n.cfg.HTTP, n.Handler(), "health and metrics", httpListener)
	if err != nil {
		return nil, err
	}
	closePage, err := n.serveAt(n.cfg.Page, n.page, "the status page", pageListener)
	if err != nil {
		closeHTTP()
		return nil, err
	}
	return func() {
		closePage()
		closeHTTP()
	}, nil
}

// serveAt serves one of them at host:port, or nothing at "".
func (n *Node) serveAt(address string, handler http.Handler, what, setting string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("node: serving %s, %s: %w", what, setting, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with Close
	}()
	n.cfg.Logger.Info(what, "address", l.Addr().String())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}
