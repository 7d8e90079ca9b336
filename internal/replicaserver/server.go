package replicaserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers the brokers that follow partitions of this process. Safe for concurrent use.
type Server struct {
	config   Config
	topics   Topics
	log      *slog.Logger
	sessions sessions
	backs    chan struct{} // one place for each reading back at a time

	ending context.Context // ends when Close begins
	end    context.CancelFunc
	open   sync.WaitGroup // goroutines

	mu          sync.Mutex
	closed      bool
	connections map[*connection]struct{}
	addresses   map[string]int // connections by the IP address they come from

	warned atomic.Int64 // time of the last line about too many connections, Unix nanoseconds

	fetched sync.Map // by broker id, *atomic.Int64: when its last Fetch was taken, Unix nanoseconds
}

// LastFetch is when a broker's last Fetch came that was not refused; the zero time: none has. One that follows fetches all the time, but a partition in a session of its that nothing happens to is
// not asked (Partition.Fetch), so what a partition saw last says nothing of the broker.
func (s *Server) LastFetch(broker int32) time.Time {
	if at, ok := s.fetched.Load(broker); ok {
		return time.Unix(0, at.(*atomic.Int64).Load())
	}
	return time.Time{}
}

// noteFetch notes that a broker asks.
func (s *Server) noteFetch(broker int32) {
	at, ok := s.fetched.Load(broker)
	if !ok {
		at, _ = s.fetched.LoadOrStore(broker, new(atomic.Int64))
	}
	at.(*atomic.Int64).Store(time.Now().UnixNano())
}

// New begins to serve. Close ends it.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, topics: c.Topics, log: c.Logger, backs: make(chan struct{}, c.MaxReadBacks), connections: map[*connection]struct{}{}, addresses: map[string]int{}}
	s.sessions = sessions{max: c.MaxSessions, eviction: c.SessionEviction, byID: map[int32]*session{}, told: c.Observer.Sessions}
	s.ending, s.end = context.WithCancel(context.Background())
	s.open.Add(1)
	go s.accept()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.config.Listener.Addr() }

// Close ends the server: nothing is accepted any more, waiting fetches are answered at once, connections are closed after the answer that is being sent, and all of them when the context ends.
// It returns when no goroutine is left, or the context's error if there are some a moment after it ended.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.end()
	for c := range s.connections {
		c.stop()
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
	select {
	case <-gone:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.connections {
		_ = c.raw.Close()
	}
	s.mu.Unlock()
	// What still runs has a closed connection and an ended context: it needs a moment, not a wait.
	last := time.NewTimer(time.Second)
	defer last.Stop()
	select {
	case <-gone:
		return err
	case <-last.C:
		return ctx.Err()
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
		s.log.Warn("cannot accept a broker's connection", "error", err)
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
			if now, last := time.Now().UnixNano(), s.warned.Load(); now-last > int64(time.Minute) && s.warned.CompareAndSwap(last, now) {
				s.log.Warn("connections are refused: there are as many as are allowed", "connections", s.config.MaxConnections, "from one address", s.config.MaxConnectionsPerAddress, "address", raw.RemoteAddr().String())
			}
		}
		return
	}
	c := newConnection(s, raw)
	if len(s.connections) >= s.config.MaxConnections/2 {
		c.loginBy = time.Now().Add(s.config.HandshakeBound / 4) // places are scarce
	}
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
