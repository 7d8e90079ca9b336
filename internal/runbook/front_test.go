package runbook

import (
	"io"
	"net"
	"sync"
	"testing"
)

// front is an address that leads to a cluster, and can be led to another one: what a name in DNS or a load balancer is.
type front struct {
	listener net.Listener

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
}

func newFront(t *testing.T, target string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: l, target: target, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Close()
		f.lead("")
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *front) address() string { return f.listener.Addr().String() }

// lead ends what is connected; new connections go to target.
func (f *front) lead(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
	for c := range f.conns {
		c.Close()
	}
	clear(f.conns)
}

func (f *front) serve(c net.Conn) {
	defer c.Close()
	f.mu.Lock()
	target := f.target
	f.conns[c] = true
	f.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(to, c)
		to.Close()
	}()
	io.Copy(c, to)
}
