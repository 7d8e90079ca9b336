package proxy

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// Dialer opens connections for a program under test and can cut them by the address that was dialled, for addresses that the program learns by itself and that no Proxy can stand
// in front of. The zero value is ready. All methods are safe for concurrent use. Addresses are compared as text.
//
// The program gets real TCP connections of the loopback, so that what hangs looks as it does with a broken network; only their addresses are not those of the server.
type Dialer struct {
	// Dial opens the connections to servers, which must be TCP; nil means net.Dialer. It is not changed once DialContext has been called.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	links  map[string]*Proxy // by address; they have no listener
	closed bool
}

// Cut is a way to lose the network.
type Cut int

const (
	// Hang holds everything back, as if packets were lost: connections stay up and mute, new ones hang until their context ends or the address is restored.
	Hang Cut = iota
	// Break resets the connections on both sides; new ones are refused.
	Break
)

// Cut takes the network to addr away until Restore, for connections that are up and for new ones.
func (d *Dialer) Cut(addr string, how Cut) {
	if how == Hang {
		d.SetLink(addr, Link{BlackHole: true})
		return
	}
	d.SetLink(addr, Link{Refuse: true})
	d.link(addr).Reset()
}

// Restore ends a Cut, and any other link that was set. Bytes that were held back flow.
func (d *Dialer) Restore(addr string) { d.SetLink(addr, Link{}) }

// SetLink changes what happens to the bytes to and from addr, for connections that are up too. With BlackHole a new connection hangs, with Refuse it fails.
func (d *Dialer) SetLink(addr string, l Link) { d.link(addr).SetLink(l) }

// Connections tells of every connection to addr that was opened so far.
func (d *Dialer) Connections(addr string) []Stat { return d.link(addr).Connections() }

// Close breaks all connections and waits for the end of the Dialer's goroutines. New ones fail.
func (d *Dialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, p := range d.links {
		p.Close()
	}
	return nil
}

func (d *Dialer) link(addr string) *Proxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.links[addr]
	if p == nil {
		if d.links == nil {
			d.links = map[string]*Proxy{}
		}
		p = &Proxy{target: addr, changed: make(chan struct{}), closed: d.closed}
		d.links[addr] = p
	}
	return p
}

// DialContext opens a connection, as net.Dialer's method does: what goes wrong with the server's address is returned as it came.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	p := d.link(addr)
	failed := func(err error) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Net: network, Err: err} }
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if err := p.awaitPassable(ctx); err != nil {
		return failed(err)
	}
	if p.refuses() {
		return failed(refused)
	}
	dial := d.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	server, ok := raw.(*net.TCPConn)
	if !ok {
		raw.Close()
		return nil, fmt.Errorf("proxy: dial %s: %T is no TCP connection", addr, raw)
	}
	near, far, err := pair()
	if err != nil {
		server.Close()
		return failed(err)
	}
	if !p.admit(far, func(c *conn) { c.join(server) }) {
		near.Close()
		server.Close()
		return failed(refused)
	}
	return near, nil
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link.Refuse || p.closed
}

// awaitPassable waits while the link is a black hole.
func (p *Proxy) awaitPassable(ctx context.Context) error {
	for {
		p.mu.Lock()
		hold, changed := p.link.BlackHole && !p.closed, p.changed
		p.mu.Unlock()
		if !hold {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pair makes both ends of a connection on the loopback.
func pair() (near, far *net.TCPConn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		b, err := l.Accept()
		if err != nil {
			a.Close()
			return nil, nil, err
		}
		if b.RemoteAddr().String() == a.LocalAddr().String() {
			return a.(*net.TCPConn), b.(*net.TCPConn), nil
		}
		b.Close() // somebody else's
	}
}
