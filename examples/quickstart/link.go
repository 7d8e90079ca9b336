package main

import (
	"context"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// link is the network between source and mirror. After cut nothing gets through, and nobody is told: the worst kind of break.
type link struct {
	mu    sync.Mutex
	isCut bool
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

func (l *link) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// options make a client use the link.
func (l *link) options() []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &linkConn{Conn: conn, link: l}, nil
	})}
}

// linkConn swallows what is written and what arrives once the link is cut.
type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Write(b []byte) (int, error) {
	if c.link.broken() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.link.broken() {
			return n, err
		}
	}
}
