package kafkastore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lifeline is the network of one process. It knows each request that goes out, can hold it, lose it or its answer, and can be cut: then nothing gets out any more.
type lifeline struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
	sent  []kmsg.Key
	traps []*trap
}

// trap is what happens to the nth request of a kind from now on.
type trap struct {
	kind  kmsg.Key
	nth   int
	after bool         // once its answer is here
	do    func() error // an error breaks the connection
	names string       // only requests that hold this text, if any
}

var (
	errCut  = errors.New("the process is dead")
	errLost = errors.New("lost on the way") // of a request: it was sent as far as its sender knows
)

func lose() error { return errLost }

func (l *lifeline) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		c.Close()
		return nil, errCut
	}
	l.conns = append(l.conns, c)
	return &wire{Conn: c, l: l}, nil
}

// sever ends the process as far as anybody outside can tell.
func (l *lifeline) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		c.Close()
	}
}

// on sets a trap for the nth request of a kind from now on, 1 is the next.
func (l *lifeline) on(kind kmsg.Key, nth int, after bool, do func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traps = append(l.traps, &trap{kind, nth, after, do, ""})
}

// onTopic is on for the next request of a kind that names a topic.
func (l *lifeline) onTopic(kind kmsg.Key, topic string, after bool, do func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traps = append(l.traps, &trap{kind, 1, after, do, topic})
}

// hold stops the nth request of a kind before it goes out, or its answer. reached is closed then; release lets it go.
func (l *lifeline) hold(kind kmsg.Key, nth int, after bool) (reached <-chan struct{}, release func()) {
	at, goOn := make(chan struct{}), make(chan struct{})
	l.on(kind, nth, after, func() error {
		close(at)
		<-goOn
		return nil
	})
	return at, sync.OnceFunc(func() { close(goOn) })
}

// requests are those sent since the last call.
func (l *lifeline) requests() []kmsg.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.sent
	l.sent = nil
	return all
}

// wire is a connection on which each Write is one request, as kgo does it.
type wire struct {
	net.Conn
	l *lifeline

	mu      sync.Mutex
	answers []*trap // to be sprung when something comes back
}

func (w *wire) Write(b []byte) (int, error) {
	const kindAt = 4
	if len(b) < kindAt+2 {
		return w.Conn.Write(b)
	}
	kind := kmsg.Key(binary.BigEndian.Uint16(b[kindAt:]))
	var sprung []*trap
	w.l.mu.Lock()
	w.l.sent = append(w.l.sent, kind)
	w.l.traps = slices.DeleteFunc(w.l.traps, func(t *trap) bool {
		if t.kind != kind || !bytes.Contains(b, []byte(t.names)) {
			return false
		}
		if t.nth--; t.nth == 0 {
			sprung = append(sprung, t)
		}
		return t.nth == 0
	})
	w.l.mu.Unlock()
	for _, t := range sprung {
		if t.after {
			w.mu.Lock()
			w.answers = append(w.answers, t)
			w.mu.Unlock()
		} else if err := t.do(); err != nil {
			w.Conn.Close()
			if err == errLost {
				return len(b), nil
			}
			return 0, err
		}
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		return n, err
	}
	w.mu.Lock()
	sprung := w.answers
	w.answers = nil
	w.mu.Unlock()
	for _, t := range sprung {
		if err := t.do(); err != nil {
			w.Conn.Close()
			return 0, err
		}
	}
	return n, nil
}

// process is a store that can be killed.
func process(t testing.TB, cfg Config) (*Store, *lifeline) {
	t.Helper()
	l := new(lifeline)
	cfg.ClientOptions = append([]kgo.Opt{kgo.Dialer(l.dial)}, cfg.ClientOptions...)
	return open(t, cfg), l
}

// kill ends all calls of a store after its network was cut, so that nothing of it is waited for.
func kill(s *Store, l *lifeline) {
	l.sever()
	s.Close()
}
