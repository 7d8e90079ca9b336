package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// echo is a server that returns what it gets; it sends each connection's end to ends.
func echo(t *testing.T) (addr string, ends chan error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ends = make(chan error, 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, err := io.Copy(c, struct{ io.Reader }{c})
				ends <- err
				c.Close()
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), ends
}

func connect(t *testing.T, p *Proxy) *net.TCPConn {
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func start(t *testing.T) (*Proxy, chan error) {
	addr, ends := echo(t)
	p, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, ends
}

// roundTrip fails unless b comes back unchanged.
func roundTrip(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	go c.Write(b)
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("round trip of %d bytes: %v, equal %v", len(b), err, bytes.Equal(got, b))
	}
}

// silent fails if a byte or an end arrives within the time.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	defer c.SetReadDeadline(time.Time{})
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("expected silence, got %d bytes and %v", n, err)
	}
}

func TestPassesBytesAndCounts(t *testing.T) {
	p, ends := start(t)
	c := connect(t, p)
	roundTrip(t, c, bytes.Repeat([]byte("0123456789"), 30_000))
	c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Fatalf("after the end: %d bytes, %v", len(b), err)
	}
	if err := <-ends; err != nil {
		t.Fatalf("the server saw %v, want an orderly end", err)
	}
	s := p.Connections()
	if len(s) != 1 || s[0].ToServer != 300_000 || s[0].ToClient != 300_000 {
		t.Fatalf("counts: %+v", s)
	}
}

func TestBlackHoleHoldsAndReleases(t *testing.T) {
	p, _ := start(t)
	c := connect(t, p)
	roundTrip(t, c, []byte("before"))
	p.SetLink(Link{BlackHole: true})
	c.Write([]byte("held"))
	silent(t, c)
	late := connect(t, p) // accepted, and mute
	late.Write([]byte("late"))
	silent(t, late)
	p.SetLink(Link{})
	for c, want := range map[net.Conn]string{c: "held", late: "late"} {
		got := make([]byte, 4)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("after the black hole: %q, %v; want %q", got, err, want)
		}
	}
}

func TestCloseEndsABlackHole(t *testing.T) {
	p, _ := start(t)
	p.SetLink(Link{BlackHole: true})
	c := connect(t, p)
	c.Write([]byte("x"))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestResetReachesBothSides(t *testing.T) {
	p, ends := start(t)
	c := connect(t, p)
	roundTrip(t, c, []byte("x"))
	if n := p.Reset(); n != 1 {
		t.Fatalf("reset %d connections, want 1", n)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %v, want a reset", err)
	}
	if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	if p.Connections()[0].Open {
		t.Error("the connection counts as open")
	}
}

func TestHalfOpenTellsOnlyTheServer(t *testing.T) {
	p, ends := start(t)
	c := connect(t, p)
	roundTrip(t, c, []byte("x"))
	if n := p.HalfOpen(); n != 1 {
		t.Fatalf("%d connections, want 1", n)
	}
	if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	if _, err := c.Write([]byte("into nothing")); err != nil {
		t.Errorf("write on the half-open side: %v", err)
	}
	silent(t, c)
	if !p.Connections()[0].Open {
		t.Error("the client's side counts as closed")
	}
	if p.Reset() != 1 {
		t.Error("Reset did not find the half-open connection")
	}
}

func TestRefuseResetsNewConnectionsOnly(t *testing.T) {
	p, _ := start(t)
	old := connect(t, p)
	roundTrip(t, old, []byte("x"))
	p.SetLink(Link{Refuse: true})
	c, err := net.Dial("tcp", p.Address())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if err == nil {
		t.Error("a new connection was let in")
	}
	roundTrip(t, old, []byte("still"))
}

// The lower bounds are what the link promises; a slow machine only makes it slower.
func TestDelayAndRateAreLowerBounds(t *testing.T) {
	p, _ := start(t)
	c := connect(t, p)
	p.SetLink(Link{Delay: 30 * time.Millisecond})
	begin := time.Now()
	roundTrip(t, c, []byte("x"))
	if d := time.Since(begin); d < 60*time.Millisecond {
		t.Errorf("a round trip over 30 ms each way took %v", d)
	}
	p.SetLink(Link{Rate: 100_000})
	begin = time.Now()
	roundTrip(t, c, make([]byte, 20_000))
	if d := time.Since(begin); d < 190*time.Millisecond {
		t.Errorf("20,000 bytes at 100,000 a second took %v", d)
	}
}

func TestTargetAbsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Address())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if err == nil {
		t.Error("a connection to an absent target was not ended")
	}
}
