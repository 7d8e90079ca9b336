package clientlistener

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// fakeBroker is a stock broker's listener: it decodes what comes and answers what say says, in order.
type fakeBroker struct {
	t        testing.TB
	listener net.Listener
	say      func(req kmsg.Request) kmsg.Response // nil: no answer; closeIt: the connection ends

	mu    sync.Mutex
	got   []kmsg.Request
	raw   [][]byte // whole requests without their lengths
	conns []net.Conn
}

// closeIt is the answer after which a broker ends the connection, without one.
var closeIt = kmsg.NewPtrApiVersionsResponse()

func startBroker(t testing.TB, say func(kmsg.Request) kmsg.Response) *fakeBroker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startBrokerOn(t, l, say)
}

func startBrokerOn(t testing.TB, l net.Listener, say func(kmsg.Request) kmsg.Response) *fakeBroker {
	b := &fakeBroker{t: t, listener: l, say: say}
	go b.accept()
	t.Cleanup(b.die)
	return b
}

func (b *fakeBroker) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, conn)
		b.mu.Unlock()
		go b.serve(conn)
	}
}

func (b *fakeBroker) serve(conn net.Conn) {
	defer conn.Close()
	for {
		body, err := readFrame(conn)
		if err != nil {
			return
		}
		h := readFixedHeader(body)
		req := kmsg.RequestForKey(h.key)
		if req == nil {
			return
		}
		version := h.version
		if h.key == keyApiVersions && version > 5 {
			version = 3 // unreadable, and not read
		}
		req.SetVersion(version)
		rest, ok := bodyOf(body, req.IsFlexible())
		if !ok {
			return
		}
		if err := decode(req, append([]byte(nil), rest...)); err != nil && version == h.version {
			return
		}
		if h.key == keyApiVersions {
			req.SetVersion(h.version)
		}
		b.mu.Lock()
		b.got, b.raw = append(b.got, req), append(b.raw, body)
		b.mu.Unlock()
		resp := b.say(req)
		switch {
		case resp == nil:
			continue
		case resp == kmsg.Response(closeIt):
			return
		}
		if _, err := conn.Write(encodeAnswer(h.key, h.correlation, resp)); err != nil {
			return
		}
	}
}

// die ends the broker and its connections.
func (b *fakeBroker) die() {
	b.listener.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

func (b *fakeBroker) last() kmsg.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[len(b.got)-1]
}

func (b *fakeBroker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

func (b *fakeBroker) address() Broker { return Broker{1, b.listener.Addr().String()} }

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

// fakePartition answers as it is told.
type fakePartition struct {
	read   ReadAnswer
	offset OffsetAnswer
	epoch  [3]int64 // found epoch, end offset, code

	mu    sync.Mutex
	reads []ReadQuestion
	asked []OffsetQuestion
}

func (p *fakePartition) Read(q ReadQuestion) ReadAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads = append(p.reads, q)
	return p.read
}

func (p *fakePartition) Offset(_ context.Context, q OffsetQuestion) OffsetAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, q)
	return p.offset
}

func (p *fakePartition) EndOffsetFor(int32, int32) (int32, int64, int16) {
	return int32(p.epoch[0]), p.epoch[1], int16(p.epoch[2])
}

// fakeTopics leads the partition 0 of the topic "led" alone.
type fakeTopics struct{ led *fakePartition }

var (
	ledID   = [16]byte{1}
	otherID = [16]byte{2}
)

func (t fakeTopics) ByID(id statemachine.TopicID, partition int32) (Partition, bool) {
	return t.led, id == ledID && partition == 0
}

func (t fakeTopics) ByName(topic string, partition int32) (Partition, bool) {
	return t.led, topic == "led" && partition == 0
}

// start serves in front of brokers.
func start(t testing.TB, led *fakePartition, change func(*Config), brokers ...*fakeBroker) *Server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Listener: l, Topics: func() Topics { return fakeTopics{led} }, Brokers: func() (all []Broker) {
		for _, b := range brokers {
			all = append(all, b.address())
		}
		return all
	}}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a raw client.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func dial(t testing.TB, s *Server) *client {
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t: t, conn: conn}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("a-client"))

func (c *client) send(req kmsg.Request) {
	c.t.Helper()
	c.next++
	if _, err := c.conn.Write(formatter.AppendRequest(nil, req, c.next)); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request and decodes the answer.
func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req)
	body, err := readFrame(c.conn)
	if err != nil {
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != c.next {
		c.t.Fatalf("the answer is to request %d, asked was %d", got, c.next)
	}
	resp := req.ResponseKind()
	body, _ = answerBody(req.Key(), resp.IsFlexible(), body[4:])
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

// ended says that the other side has closed the connection, without an answer.
func (c *client) ended() bool {
	n, err := c.conn.Read(make([]byte, 1))
	return n == 0 && err != nil
}
