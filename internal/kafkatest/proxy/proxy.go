// Package proxy is a TCP proxy on a loopback port whose link can be made slow, mute or broken while it runs. It knows nothing of Kafka.
package proxy

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Link is what the proxy does to the bytes of every connection, in both directions. The zero value passes them on at once.
type Link struct {
	Delay time.Duration // between reading a byte and writing it
	Rate  int           // bytes a second, for each connection and direction; 0 means no limit

	// BlackHole holds everything back: connections stay up, new ones are accepted, no byte and no end of a connection passes. Bytes that were held flow when it ends.
	BlackHole bool
	// Refuse resets new connections. Those that are up stay.
	Refuse bool
}

// Stat is one connection, past or present, in the order of their arrival.
type Stat struct {
	Client   string // remote address
	ToServer int64  // bytes handed to the server
	ToClient int64  // bytes handed to the client
	Open     bool   // towards the client
}

// Proxy forwards to one target. All methods are safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener // nil: connections come from a Dialer
	done     sync.WaitGroup

	mu      sync.Mutex
	link    Link
	changed chan struct{} // closed and replaced whenever link changes or the proxy closes
	conns   []*conn
	closed  bool
}

type conn struct {
	p      *Proxy
	client *net.TCPConn
	gone   chan struct{} // closed when the client's side is closed
	once   sync.Once

	// under p.mu
	server             *net.TCPConn
	half               bool // the server's side was cut off, the client is not told
	toServer, toClient int64
}

// Listen opens a proxy to target ("host:port") on a free loopback port.
func Listen(target string) (*Proxy, error) { return ListenOn("127.0.0.1:0", target) }

// ListenOn opens a proxy to target on the given address.
func ListenOn(address, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{})}
	p.done.Go(p.accept)
	return p, nil
}

// Address is where clients connect.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Port is Address's port.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Link is what the proxy does now.
func (p *Proxy) Link() Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// SetLink changes what the proxy does, for connections that are up too.
func (p *Proxy) SetLink(l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
	p.broadcast()
}

func (p *Proxy) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Connections tells of every connection since Listen.
func (p *Proxy) Connections() []Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := make([]Stat, len(p.conns))
	for i, c := range p.conns {
		stats[i] = Stat{Client: c.client.RemoteAddr().String(), ToServer: c.toServer, ToClient: c.toClient, Open: !c.isGone()}
	}
	return stats
}

// Reset breaks all connections at once, on both sides, with a TCP reset, and returns how many.
func (p *Proxy) Reset() int {
	open := p.open()
	for _, c := range open {
		c.shut(true)
	}
	return len(open)
}

// HalfOpen resets all connections towards the server and leaves the clients' sides up and mute, as a crash behind a firewall does. It returns how many.
func (p *Proxy) HalfOpen() int {
	open := p.open()
	for _, c := range open {
		p.mu.Lock()
		c.half = true
		server := c.server
		p.mu.Unlock()
		if server != nil {
			server.SetLinger(0)
			server.Close()
		}
	}
	return len(open)
}

func (p *Proxy) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.conns), (*conn).isGone)
}

// Close stops listening, breaks all connections and waits for the end of the proxy's goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.broadcast()
	p.mu.Unlock()
	var err error
	if p.listener != nil {
		err = p.listener.Close()
	}
	p.Reset()
	p.done.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		raw, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.admit(raw.(*net.TCPConn), (*conn).serve)
	}
}

// admit takes a client in and serves it; or resets it and returns false, where the link refuses.
func (p *Proxy) admit(client *net.TCPConn, serve func(*conn)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link.Refuse || p.closed {
		client.SetLinger(0)
		client.Close()
		return false
	}
	c := &conn{p: p, client: client, gone: make(chan struct{})}
	p.conns = append(p.conns, c)
	p.done.Go(func() { serve(c) }) // under the lock: Close waits for all whom it did not see refused
	return true
}

func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// shut closes both sides, with a reset or in order.
func (c *conn) shut(reset bool) {
	c.once.Do(func() {
		c.p.mu.Lock()
		server := c.server
		close(c.gone)
		c.p.mu.Unlock()
		for _, side := range []*net.TCPConn{c.client, server} {
			if side == nil {
				continue
			}
			if reset {
				side.SetLinger(0)
			}
			side.Close()
		}
	})
}

func (c *conn) serve() {
	if !c.passable() {
		c.shut(true)
		return
	}
	raw, err := net.Dial("tcp", c.p.target)
	if err != nil {
		c.shut(true)
		return
	}
	c.join(raw.(*net.TCPConn))
}

// join moves bytes between the client and the server until both directions have ended.
func (c *conn) join(server *net.TCPConn) {
	c.p.mu.Lock()
	c.server = server
	gone := c.isGone() || c.half
	c.p.mu.Unlock()
	if gone {
		server.Close()
	}
	var both sync.WaitGroup
	both.Go(func() { c.pump(c.client, server, &c.toServer) })
	both.Go(func() { c.pump(server, c.client, &c.toClient) })
	both.Wait()
	c.shut(false)
}

// passable waits while the link is a black hole; false means that the connection has ended meanwhile.
func (c *conn) passable() bool {
	for {
		c.p.mu.Lock()
		hold, changed, closed := c.p.link.BlackHole, c.p.changed, c.p.closed
		c.p.mu.Unlock()
		if closed {
			return false
		}
		if !hold {
			return true
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		}
	}
}

type chunk struct {
	bytes []byte
	read  time.Time
}

// pump moves bytes one way. Reading and writing are two goroutines, so that a delay does not lower the throughput.
func (c *conn) pump(from, to *net.TCPConn, count *int64) {
	queue := make(chan chunk, 1024)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				select {
				case queue <- chunk{b[:n], time.Now()}:
				case <-c.gone:
					return
				}
			}
			if err != nil {
				c.ended(from, err)
				return
			}
		}
	})
	defer reader.Wait()
	var free time.Time // when the last byte so far has left the wire
	for ch := range queue {
		if !c.write(to, ch, &free, count) {
			from.CloseRead() // lets the reader end
			for range queue {
			}
			return
		}
	}
	if c.passable() && !c.isHalf() {
		to.CloseWrite()
	}
}

// ended: a side that breaks breaks the other, unless that is what HalfOpen asked for.
func (c *conn) ended(side *net.TCPConn, err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	if side != c.client && c.isHalf() {
		<-c.gone // mute: the client's side stays as it is until the client, Reset or Close ends it
		return
	}
	c.shut(true)
}

func (c *conn) isHalf() bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.half
}

// write passes a chunk on when its time has come. Times are those of an ideal wire, so that a timer that is late does not make the link slower than its rate.
func (c *conn) write(to *net.TCPConn, ch chunk, free *time.Time, count *int64) bool {
	rest := ch.bytes
	for len(rest) > 0 {
		if !c.passable() {
			return false
		}
		l := c.p.Link()
		n := len(rest)
		due := ch.read.Add(l.Delay)
		if l.Rate > 0 {
			n = min(n, max(1, l.Rate/20))
			if due.Before(*free) {
				due = *free
			}
			due = due.Add(time.Duration(n) * time.Second / time.Duration(l.Rate)) // the time that these bytes are on the wire
			*free = due
		}
		if !c.pause(time.Until(due)) || !c.passable() {
			return false
		}
		w, err := to.Write(rest[:n])
		c.p.mu.Lock()
		*count += int64(w)
		c.p.mu.Unlock()
		if err != nil {
			if to != c.client && c.isHalf() {
				rest = nil // swallowed
				continue
			}
			c.shut(true)
			return false
		}
		rest = rest[n:]
	}
	return true
}

// pause waits; false means that the connection has ended meanwhile.
func (c *conn) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	}
}
