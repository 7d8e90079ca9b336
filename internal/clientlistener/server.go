package clientlistener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server passes clients on to stock brokers. Safe for concurrent use.
type Server struct {
	config Config
	log    *slog.Logger
	pieces sync.Pool

	decoding  chan struct{} // one place for each request that is decoded at a time
	questions chan struct{} // one place for each question that a follower is asked at a time
	spread    atomic.Uint64 // of the last connection

	ending context.Context // ends when Close begins
	end    context.CancelFunc
	open   sync.WaitGroup // goroutines

	mu          sync.Mutex
	closed      bool
	connections map[*connection]struct{}
	addresses   map[string]int // connections by the IP address they come from

	warned map[string]*atomic.Int64 // time of the last line of a kind that anybody can cause, Unix nanoseconds
}

// New begins to serve. Close ends it.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: c, log: c.Logger, connections: map[*connection]struct{}{}, addresses: map[string]int{}, decoding: make(chan struct{}, maxDecoding), questions: make(chan struct{}, maxQuestions),
		pieces: sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }},
		warned: map[string]*atomic.Int64{"full": {}, "broker": {}, "certificate": {}, "client": {}},
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.open.Add(1)
	go s.accept()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.config.Listener.Addr() }

// Close ends the server and all connections at once: a client asks another broker. It returns when no goroutine is left.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.end()
	for c := range s.connections {
		c.close()
	}
	s.mu.Unlock()
	err := s.config.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.open.Wait()
	return err
}

// accept takes connections until the listener is closed. Errors such as too many open files pass: it waits a moment and goes on.
func (s *Server) accept() {
	defer s.open.Done()
	for {
		raw, err := s.config.Listener.Accept()
		if err == nil {
			s.begin(raw)
			continue
		}
		if s.ending.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		s.warn("client", "cannot accept a client's connection", "error", err)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.ending.Done():
			return
		}
	}
}

func (s *Server) begin(raw net.Conn) {
	s.mu.Lock()
	address := addressOf(raw)
	if s.closed || len(s.connections) >= s.config.MaxConnections || address != "" && s.addresses[address] >= s.config.MaxConnectionsPerAddress {
		full := !s.closed
		s.mu.Unlock()
		_ = raw.Close()
		if full {
			s.refused("too many connections")
			s.warn("full", "clients' connections are refused: there are as many as are allowed", "connections", s.config.MaxConnections, "from one address", s.config.MaxConnectionsPerAddress, "address", raw.RemoteAddr().String())
		}
		return
	}
	c := newConnection(s, raw)
	s.connections[c] = struct{}{}
	if address != "" {
		s.addresses[address]++
	}
	n := len(s.connections)
	s.open.Add(1)
	s.mu.Unlock()
	if f := s.config.Observer.Connections; f != nil {
		f(n)
	}
	go func() {
		defer s.open.Done()
		c.run()
		s.mu.Lock()
		delete(s.connections, c)
		if s.addresses[address]--; s.addresses[address] <= 0 {
			delete(s.addresses, address)
		}
		n := len(s.connections)
		s.mu.Unlock()
		if f := s.config.Observer.Connections; f != nil {
			f(n)
		}
	}()
}

// addressOf is the IP address that a connection comes from, "" if it has none.
func addressOf(raw net.Conn) string {
	if a, ok := raw.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return ""
}

func (s *Server) refused(reason string) {
	if f := s.config.Observer.Refused; f != nil {
		f(reason)
	}
}

// warn logs a line of a kind that clients can cause, at most one a minute.
func (s *Server) warn(kind, text string, about ...any) {
	last := s.warned[kind]
	if now, before := time.Now().UnixNano(), last.Load(); now-before > int64(time.Minute) && last.CompareAndSwap(before, now) {
		s.log.Warn(text, about...)
	}
}
