package clientlistener

import (
	"context"
	"errors"
	"fmt"
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

	// Three parts of MaxMemory. Who holds of one waits only for later ones, and who decodes for none, so nobody waits for himself.
	kept      *budget // requests, until they are answered
	answering *budget // answers, until they are sent
	decoding  *budget // requests, while they are decoded
	questions *budget // one for each that a follower is asked at a time
	spread    atomic.Uint64

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
		config: c, log: c.Logger, connections: map[*connection]struct{}{}, addresses: map[string]int{},
		kept: newBudget(c.MaxMemory/8, c.MaxMemory/16), answering: newBudget(c.MaxMemory*3/8, c.MaxMemory*3/16), decoding: newBudget(c.MaxMemory/2, c.MaxMemory/4), questions: newBudget(maxQuestions, shareQuestions),
		pieces: sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }},
		warned: map[string]*atomic.Int64{"full": {}, "broker": {}, "certificate": {}, "client": {}},
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.count()
	s.open.Add(1)
	go s.accept()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.config.Listener.Addr() }

// Close ends the server and all connections at once: a client asks another broker. It returns when no goroutine is left, or an error when one is after CloseBound: then a callback of Config (TLS, BrokerTLS) does not return.
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
	gone := make(chan struct{})
	go func() {
		s.open.Wait()
		close(gone)
	}()
	last := time.NewTimer(s.config.CloseBound)
	defer last.Stop()
	select {
	case <-gone:
		return err
	case <-last.C:
		err = errors.Join(err, fmt.Errorf("client listener: connections have not ended within %s: look whether the files of TLS, or what they are on, can be read", s.config.CloseBound))
		s.log.Warn("the listener for clients is closed, and not all of it has ended", "error", err)
		return err
	}
}

// count tells how many clients are connected. s.mu is held, so that the last one told is true.
func (s *Server) count() {
	if f := s.config.Observer.Connections; f != nil {
		f(len(s.connections))
	}
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
			s.refused(reasonFull)
			s.warn("full", "clients' connections are refused: there are as many as are allowed", "connections", s.config.MaxConnections, "from one address", s.config.MaxConnectionsPerAddress, "address", raw.RemoteAddr().String())
		}
		return
	}
	c := newConnection(s, raw)
	s.connections[c] = struct{}{}
	if address != "" {
		s.addresses[address]++
	}
	s.count()
	s.open.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.open.Done()
		c.run()
		s.mu.Lock()
		delete(s.connections, c)
		if s.addresses[address]--; s.addresses[address] <= 0 {
			delete(s.addresses, address)
		}
		s.count()
		s.mu.Unlock()
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
