package lives

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// Link is a mirror's way to its source: it can be cut, and it counts.
type Link struct {
	received atomic.Int64

	mu     sync.Mutex
	broken bool
	conns  map[net.Conn]bool
}

// NewLink is a link that is whole.
func NewLink() *Link { return &Link{conns: map[net.Conn]bool{}} }

// Dial opens a connection over the link.
func (l *Link) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		c.Close()
		return nil, errors.New("the link is cut")
	}
	l.conns[c] = true
	return counted{c, &l.received}, nil
}

// Received is how many bytes came over the link so far.
func (l *Link) Received() int64 { return l.received.Load() }

// counted is a connection that adds what it reads.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Cut ends all connections, and no other one comes into being.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}
