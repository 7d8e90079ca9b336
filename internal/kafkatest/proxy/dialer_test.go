package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

func dial(t *testing.T, d *Dialer, addr string) net.Conn {
	t.Helper()
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialer(t *testing.T) *Dialer {
	d := new(Dialer)
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDialerHangHoldsOneAddressAndReleases(t *testing.T) {
	cut, _ := echo(t)
	other, _ := echo(t)
	d := dialer(t)
	c, untouched := dial(t, d, cut), dial(t, d, other)
	roundTrip(t, c, []byte("before"))
	d.Cut(cut, Hang)
	c.Write([]byte("held"))
	silent(t, c)
	roundTrip(t, untouched, []byte("still"))
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := d.DialContext(short, "tcp", cut); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a dial while the network hangs gave %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		c, err := d.DialContext(t.Context(), "tcp", cut)
		if err == nil {
			c.Close()
		}
		waiting <- err
	}()
	d.Restore(cut)
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "held" {
		t.Errorf("after the cut: %q, %v", got, err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a dial that waited for the network: %v", err)
	}
}

func TestDialerBreakResetsAndRefuses(t *testing.T) {
	addr, ends := echo(t)
	d := dialer(t)
	c := dial(t, d, addr)
	roundTrip(t, c, []byte("x"))
	d.Cut(addr, Break)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %v, want a reset", err)
	}
	if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dial while the network is broken gave %v", err)
	}
	d.Restore(addr)
	roundTrip(t, dial(t, d, addr), []byte("again"))
	if s := d.Connections(addr); len(s) != 2 || s[0].Open || !s[1].Open || s[1].ToServer != 5 {
		t.Errorf("connections: %+v", s)
	}
}

func TestDialerReturnsTheServersOwnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := dialer(t).DialContext(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dial to an address where nobody listens gave %v", err)
	}
}

func TestDialerCloseEndsConnectionsAndWaitingDials(t *testing.T) {
	addr, _ := echo(t)
	d := dialer(t)
	c := dial(t, d, addr)
	d.Cut(addr, Hang)
	waiting := make(chan error, 1)
	go func() {
		_, err := d.DialContext(t.Context(), "tcp", addr)
		waiting <- err
	}()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the waiting dial gave %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still up")
	}
}
