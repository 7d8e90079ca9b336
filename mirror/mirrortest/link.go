package mirrortest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Faults is what goes wrong by itself on the link, decided anew for each request of the mirror by the seed, the number of the connection and the number of the request on it: from 0, never,
// to 1, always. Zero: nothing.
type Faults struct {
	Break    float64       // the connection breaks
	Hole     float64       // the request gets lost, and the connection with it; nobody is told for HoleTime
	Delay    float64       // the request arrives later, by up to MaxDelay
	MaxDelay time.Duration // [5 ms]
	HoleTime time.Duration // [50 ms]
}

// Link is the network between the clusters: what both mirrors use, and clients do not. Safe for concurrent use.
type Link struct {
	seed uint64

	mu     sync.Mutex
	down   linkState
	delay  time.Duration
	faults Faults
	dialed uint64
	conns  map[*linkConn]struct{}
	healed chan struct{} // closed by Heal; a new one then
}

type linkState uint8

const (
	linkUp   linkState = iota
	linkCut            // connections break, nobody gets a new one
	linkHole           // what is sent gets lost
)

// errLinkCut is what the mirror's connections see after Cut.
var errLinkCut = errors.New("mirrortest: the link is cut")

func newLink(seed uint64, faults Faults) *Link {
	l := &Link{seed: seed, conns: map[*linkConn]struct{}{}, healed: make(chan struct{})}
	l.SetFaults(faults)
	return l
}

// Cut breaks every connection, and refuses new ones until Heal.
func (l *Link) Cut() { l.set(linkCut) }

// BlackHole loses everything from here on, and tells nobody: the worst kind of break.
func (l *Link) BlackHole() { l.set(linkHole) }

// Heal ends Cut, BlackHole and Delay. Connections that have lost something break. Faults go on.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.delay = linkUp, 0
	close(l.healed)
	l.healed = make(chan struct{})
	for c := range l.conns {
		if c.lost {
			c.Conn.Close()
		}
	}
}

func (l *Link) set(down linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for c := range l.conns {
		c.lost = true
		if down == linkCut {
			c.Conn.Close()
		}
	}
}

// Delay has every request, and every reply, arrive later by d.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// SetFaults changes what goes wrong by itself from here on.
func (l *Link) SetFaults(f Faults) {
	if f.MaxDelay == 0 {
		f.MaxDelay = 5 * time.Millisecond
	}
	if f.HoleTime == 0 {
		f.HoleTime = 50 * time.Millisecond
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
}

// options make a client use the link.
func (l *Link) options() []kgo.Opt { return []kgo.Opt{kgo.Dialer(l.dial)} }

// passes says why nothing gets through, and waits as long as a caller would have to.
func (l *Link) passes(ctx context.Context) error {
	l.mu.Lock()
	down, healed := l.down, l.healed
	l.mu.Unlock()
	switch down {
	case linkCut:
		return errLinkCut
	case linkHole:
		select {
		case <-healed:
			return errLinkCut
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.passes(ctx); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == linkCut {
		conn.Close()
		return nil, errLinkCut
	}
	l.dialed++
	c := &linkConn{Conn: conn, link: l, random: rand.New(rand.NewPCG(l.seed, l.dialed)), closed: make(chan struct{}), lost: l.down == linkHole}
	l.conns[c] = struct{}{}
	return c, nil
}

// linkConn is one connection of a mirror.
type linkConn struct {
	net.Conn
	link   *Link
	random *rand.Rand // of Write, which the client calls from one goroutine
	closed chan struct{}
	once   sync.Once
	lost   bool // something of it got lost; under link.mu

	asked atomic.Bool // a request was sent since the last reply began
}

// Write sends one request: the client writes each in one call.
func (c *linkConn) Write(b []byte) (int, error) {
	breaks, hole, late, how := c.random.Float64(), c.random.Float64(), c.random.Float64(), c.random.Float64()
	c.link.mu.Lock()
	f, wait, lost := c.link.faults, c.link.delay, c.lost
	if !lost && hole < f.Hole {
		lost, c.lost = true, true
		time.AfterFunc(f.HoleTime, func() { c.Conn.Close() })
	}
	c.link.mu.Unlock()
	if breaks < f.Break {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	if lost {
		return len(b), nil
	}
	if late < f.Delay {
		wait += time.Duration(how * float64(f.MaxDelay))
	}
	c.asked.Store(true)
	if !c.wait(wait) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// wait is false if the connection was closed meanwhile.
func (c *linkConn) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}

// Read loses what arrives after the break.
func (c *linkConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.link.mu.Lock()
		lost, delay := c.lost, c.link.delay
		c.link.mu.Unlock()
		if err != nil {
			return n, err
		}
		if c.asked.Swap(false) && !c.wait(delay) {
			return 0, net.ErrClosed
		}
		if !lost {
			return n, nil
		}
	}
}

func (c *linkConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	})
	return c.Conn.Close()
}
