package clientlistener

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// connection is one client's, and the one of its own to a stock broker. One goroutine passes on requests, another one answers.
type connection struct {
	server *Server
	raw    net.Conn
	from   string // the IP address
	spread uint64
	log    *slog.Logger

	ctx  context.Context // ends with the connection
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	broker net.Conn // nil before the first request

	client  net.Conn // raw, or TLS over it
	reader  *bufio.Reader
	pending chan pending
	reading chan struct{} // one place: of a request that is kept until it is answered
	proven  atomic.Bool   // a broker has answered something that it answers only to who has logged in
	kept    int64         // taken of the server's budget for that request

	// Of the goroutine that answers.
	topics     Topics    // as they are for the answer that is being made
	lastSet    uint64    // what the last Fetch asked
	answeredAt time.Time // when it was answered
}

// pending is a request that was passed on, in the order in which the broker answers.
type pending struct {
	header
	kind    kind
	special bool   // its answer has to be understood
	body    []byte // as the client sent it, nil where only the answer counts
}

func newConnection(s *Server, raw net.Conn) *connection {
	c := &connection{
		server: s, raw: raw, client: raw, from: addressOf(raw), spread: s.spread.Add(1), log: s.log.With("client", raw.RemoteAddr().String()), pending: make(chan pending, maxPending), reading: make(chan struct{}, 1),
	}
	c.proven.Store(!s.config.SASL)
	c.ctx, c.stop = context.WithCancel(s.ending)
	return c
}

// refusal is why a connection is closed for what it sent.
type refusal struct {
	reason string // one or two fixed words, for metrics
	detail string
}

func (r *refusal) Error() string {
	if r.detail == "" {
		return r.reason
	}
	return r.reason + ": " + r.detail
}

// close ends both connections at once, without a word. Idempotent; called by anybody.
func (c *connection) close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	_ = c.raw.Close()
	if c.broker != nil {
		_ = under(c.broker).Close()
	}
}

// under is the socket under TLS: closing that says nothing, and waits for nothing.
func under(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// run passes on until one side ends, and says in one line why if the client was refused.
func (c *connection) run() {
	defer c.close()
	err := c.begin()
	c.forget()
	var no *refusal
	switch {
	case errors.Is(err, ErrClientCertificate):
		c.server.refused(reasonCertificate)
		c.server.warn("certificate", "clients are turned away", "error", err)
	case errors.As(err, &no):
		c.server.refused(no.reason)
		c.server.warn("client", "a client's connection is closed for what it sent", "client", c.raw.RemoteAddr().String(), "reason", no.Error())
	case c.server.ending.Err() == nil:
		c.log.Debug("a client's connection ended", "error", err)
	}
}

func (c *connection) begin() error {
	s := c.server
	by := time.Now().Add(s.config.HandshakeBound)
	if s.config.TLS != nil {
		t := tls.Server(c.raw, s.config.TLS)
		ctx, stop := context.WithDeadline(c.ctx, by)
		err := t.HandshakeContext(ctx)
		stop()
		if err != nil {
			return err // whoever looks whether the port is open causes it too
		}
		c.client = t
	}
	c.reader = bufio.NewReaderSize(c.client, 4<<10)
	if err := c.raw.SetReadDeadline(by); err != nil {
		return err
	}
	if _, err := c.reader.Peek(1); err != nil {
		return err
	}
	broker, err := c.connect(c.ctx)
	if err != nil {
		if !errors.Is(err, ErrClientCertificate) && c.ctx.Err() == nil {
			s.warn("broker", "no stock broker takes a client on: its connection is closed", "client", c.raw.RemoteAddr().String(), "error", err)
		}
		return fmt.Errorf("connecting to a stock broker: %w", err)
	}
	c.mu.Lock()
	c.broker = broker
	if c.closed {
		_ = under(broker).Close()
	}
	c.mu.Unlock()

	answered := make(chan error, 1)
	go func() {
		err := c.answers()
		c.close()
		answered <- err
	}()
	err = c.requests()
	var no *refusal
	if err = errors.Join(err, c.ctx.Err()); errors.As(err, &no) || !errors.Is(err, errBrokerGone) {
		c.close()
	} else if under(broker).SetReadDeadline(time.Now().Add(time.Second)) != nil { // what the broker said last is still on its way
		c.close()
	}
	if other := <-answered; errors.As(other, &no) {
		return other
	}
	return err
}

// errBrokerGone: a request could not be sent to the stock broker.
var errBrokerGone = errors.New("the stock broker ended the connection")

// requests passes on what the client sends.
func (c *connection) requests() error {
	s := c.server
	for {
		if err := c.await(); err != nil {
			return err
		}
		if err := c.raw.SetReadDeadline(time.Now().Add(s.config.TransferBound)); err != nil {
			return err
		}
		var start [4 + fixedHeader]byte
		if _, err := io.ReadFull(c.reader, start[:]); err != nil {
			return err
		}
		n := int(int32(binary.BigEndian.Uint32(start[:])))
		if n < fixedHeader || n > s.config.MaxRequestSize {
			return &refusal{reasonSize, fmt.Sprintf("%d bytes, the limit is %d", n, s.config.MaxRequestSize)}
		}
		h := readFixedHeader(start[4:])
		k, special := kindOf(h.key)
		p := pending{header: h, kind: k, special: special}
		var err error
		switch {
		case !special:
			err = c.pass(&p, start[:], n-fixedHeader)
		case h.key == keyApiVersions:
			if h.version > k.max || h.version < 0 {
				// A version above ours may say to which broker the client believes it speaks (KIP-1242). The broker is asked in one that nobody has: it tells its range, as it would of any it does not know (KIP-511).
				p.version = 0
				binary.BigEndian.PutUint16(start[6:], 1<<15-1)
			}
			err = c.pass(&p, start[:], n-fixedHeader)
		case !k.answers(h.version):
			return &refusal{reasonVersion, fmt.Sprintf("%s version %d", k.name, h.version)}
		case h.key == keyProduce:
			err = c.passProduce(p, start[:], n-fixedHeader)
		case k.read:
			err = c.passRead(p, start[:], n-fixedHeader)
		default:
			err = c.pass(&p, start[:], n-fixedHeader)
		}
		if err != nil {
			return err
		}
	}
}

// await returns when the client sends something. A client that waits for an answer is not idle.
func (c *connection) await() error {
	for {
		if err := c.raw.SetReadDeadline(time.Now().Add(c.server.config.IdleBound)); err != nil {
			return err
		}
		_, err := c.reader.Peek(1)
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && len(c.pending) > 0 && c.ctx.Err() == nil && c.client == c.raw { // after a deadline TLS reads no more
			continue
		}
		return err
	}
}

// expect notes that the broker will answer p. It waits while too much is unanswered.
func (c *connection) expect(p pending) error {
	select {
	case c.pending <- p:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// pass passes on a request as it comes: its start, and rest bytes that are still to be read. p nil: it has no answer.
func (c *connection) pass(p *pending, start []byte, rest int) error {
	if p != nil {
		if err := c.expect(*p); err != nil {
			return err
		}
	}
	if err := c.send(start); err != nil {
		return err
	}
	return c.copyRest(rest)
}

func (c *connection) copyRest(rest int) error {
	piece := c.server.pieces.Get().(*[]byte)
	defer c.server.pieces.Put(piece)
	for rest > 0 {
		b := (*piece)[:min(rest, pieceSize)]
		if err := c.raw.SetReadDeadline(time.Now().Add(c.server.config.TransferBound)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.reader, b); err != nil {
			return err
		}
		if err := c.send(b); err != nil {
			return err
		}
		rest -= len(b)
	}
	return nil
}

// send writes to the stock broker.
func (c *connection) send(b []byte) error {
	if c.write(c.broker, b) != nil {
		return errBrokerGone
	}
	return nil
}

// write writes piece by piece, each within TransferBound: a side that takes it slowly is not cut while it takes it.
func (c *connection) write(to net.Conn, b []byte) error {
	for len(b) > 0 {
		if err := under(to).SetWriteDeadline(time.Now().Add(c.server.config.TransferBound)); err != nil {
			return err
		}
		n, err := to.Write(b[:min(len(b), pieceSize)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// passProduce looks into the beginning of a Produce: one with acks=0 has no answer (Kafka closes the connection where one would be an error). Its records go to the broker, which
// refuses them after it has looked at the client's rights.
func (c *connection) passProduce(p pending, start []byte, rest int) error {
	head := slices.Clone(start)
	more := min(rest, headSize)
	head = slices.Grow(head, more)[:len(head)+more]
	if _, err := io.ReadFull(c.reader, head[len(head)-more:]); err != nil {
		return err
	}
	flexible := p.version >= p.kind.flexible
	body, ok := bodyOf(head[4:], flexible)
	if !ok {
		return &refusal{reasonHeader, "it is cut off, or too long"}
	}
	acks, ok := acksOf(body, flexible)
	if !ok {
		return &refusal{reasonBody, "Produce: its acks are cut off, or come too late"}
	}
	if acks == 0 {
		return c.pass(nil, head, rest-more)
	}
	return c.pass(&p, head, rest-more)
}

// passRead passes on a request that has to be understood: one at a time, as it is kept until it is answered.
func (c *connection) passRead(p pending, start []byte, rest int) error {
	limit := maxRead
	if !c.proven.Load() {
		limit = maxReadUnproven
	}
	if rest > limit {
		return &refusal{reasonSize, fmt.Sprintf("%s of %d bytes, the limit is %d", p.kind.name, rest, limit)}
	}
	select {
	case c.reading <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	if rest > small {
		n := int64(rest) * keptGrowth
		if err := c.take(c.server.kept, n, p.kind.name); err != nil {
			return err
		}
		c.kept = n
	}
	// What is announced is allocated as it comes, not before.
	frame := slices.Clone(start)
	for rest > 0 {
		more := min(rest, max(pieceSize, len(frame)))
		frame = slices.Grow(frame, more)[:len(frame)+more]
		if err := c.raw.SetReadDeadline(time.Now().Add(c.server.config.TransferBound)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.reader, frame[len(frame)-more:]); err != nil {
			return err
		}
		rest -= more
	}
	body, ok := bodyOf(frame[4:], p.version >= p.kind.flexible)
	if !ok {
		return &refusal{reasonHeader, "it is cut off"}
	}
	p.body = body // decoded once more for the answer: it may be minutes until then, and bytes are the least that can be kept
	err := c.understand(p, func(req kmsg.Request) {
		if fetch, ok := req.(*kmsg.FetchRequest); ok {
			frame = withLength(probe(fetch).AppendTo(slices.Clip(frame[:len(frame)-len(body)])))
		}
	})
	if err != nil {
		return err
	}
	if err := c.expect(p); err != nil {
		return err
	}
	return c.send(frame)
}

// take waits for memory, TransferBound at most. The reason for it is told to who is refused.
func (c *connection) take(of *budget, n int64, what string) error {
	ctx, stop := context.WithTimeout(c.ctx, c.server.config.TransferBound)
	defer stop()
	err := of.take(ctx, c.from, n)
	if err != nil && c.ctx.Err() == nil {
		return &refusal{reasonMemory, fmt.Sprintf("%s: %d bytes are not to be had within %s", what, n, c.server.config.TransferBound)}
	}
	return err
}

// forget gives back what is kept for the request that has to be understood.
func (c *connection) forget() {
	c.server.kept.give(c.from, c.kept)
	c.kept = 0
}

// understand decodes a request and gives it to use, which must not wait: as long as that takes it counts many times what it is on the wire.
func (c *connection) understand(p pending, use func(kmsg.Request)) error {
	n := int64(len(p.body)) * decodeGrowth
	if err := c.take(c.server.decoding, n, p.kind.name); err != nil {
		return err
	}
	defer c.server.decoding.give(c.from, n)
	req := p.kind.request(p.version)
	if err := decode(req, p.body); err != nil {
		return &refusal{reasonBody, fmt.Sprintf("%s version %d: %v", p.kind.name, p.version, err)}
	}
	use(req)
	return nil
}

// answers passes on what the broker answers.
func (c *connection) answers() error {
	reader := bufio.NewReaderSize(c.broker, 4<<10)
	for {
		var start [8]byte
		if _, err := io.ReadFull(reader, start[:]); err != nil {
			return err
		}
		n := int(int32(binary.BigEndian.Uint32(start[:]))) - 4
		correlation := int32(binary.BigEndian.Uint32(start[4:]))
		var p pending
		select {
		case p = <-c.pending:
		default:
			return &refusal{reasonAnswer, "to nothing that was asked"}
		}
		if n < 0 || correlation != p.correlation {
			return &refusal{reasonAnswer, fmt.Sprintf("number %d of %d bytes, expected is %d", correlation, n, p.correlation)}
		}
		if p.key != keyApiVersions && p.key != keySASLHandshake && p.key != keySASLAuthenticate {
			c.proven.Store(true)
		}
		if !p.special || p.key == keySASLHandshake {
			if err := c.passAnswer(reader, start[:], n); err != nil {
				return err
			}
			continue
		}
		if n > maxAnswer {
			return &refusal{reasonAnswer, fmt.Sprintf("%s of %d bytes, the limit is %d", p.kind.name, n, maxAnswer)}
		}
		if err := c.answerInstead(reader, p, n); err != nil {
			return err
		}
	}
}

// answerInstead answers in place of the broker, whose answer has n bytes more.
func (c *connection) answerInstead(reader io.Reader, p pending, n int) error {
	s := c.server
	var taken int64
	if n > small || len(p.body) > small {
		taken = s.answering.counted(int64(n)*answerGrowth + int64(len(p.body))*askedGrowth)
		if err := c.take(s.answering, taken, "the answer to "+p.kind.name); err != nil {
			return err
		}
	}
	defer func() { s.answering.give(c.from, taken) }()
	answer, hold, err := c.made(reader, p, n)
	if err != nil {
		return err
	}
	if most := int64(len(answer)); taken > most { // what it was made of is gone
		s.answering.give(c.from, taken-most)
		taken = most
	}
	if p.kind.read {
		c.forget()
		<-c.reading
	}
	c.hold(hold)
	if p.key == keyFetch {
		c.answeredAt = time.Now()
	}
	return c.reply(answer)
}

// made reads the broker's answer and makes the one for the client out of it.
func (c *connection) made(reader io.Reader, p pending, n int) (answer []byte, hold time.Duration, err error) {
	stuck := time.AfterFunc(c.server.config.TransferBound, c.close) // no deadline: whoever waits for the broker's last words has one of its own
	defer stuck.Stop()
	body := make([]byte, n)
	for rest := body; len(rest) > 0; {
		piece := rest[:min(len(rest), pieceSize)]
		if _, err := io.ReadFull(reader, piece); err != nil {
			return nil, 0, err
		}
		stuck.Reset(c.server.config.TransferBound)
		rest = rest[len(piece):]
	}
	stuck.Stop()
	answer, hold, err = c.answer(p, body)
	var no *refusal
	if err != nil && !errors.As(err, &no) && c.ctx.Err() == nil {
		err = &refusal{reasonAnswer, fmt.Sprintf("%s version %d: %v", p.kind.name, p.version, err)}
	}
	return answer, hold, err
}

// passAnswer passes on an answer as it comes.
func (c *connection) passAnswer(reader io.Reader, start []byte, rest int) error {
	if err := c.reply(start); err != nil {
		return err
	}
	piece := c.server.pieces.Get().(*[]byte)
	defer c.server.pieces.Put(piece)
	for rest > 0 {
		b := (*piece)[:min(rest, pieceSize)]
		if _, err := io.ReadFull(reader, b); err != nil {
			return err
		}
		if err := c.reply(b); err != nil {
			return err
		}
		rest -= len(b)
	}
	return nil
}

// reply writes to the client.
func (c *connection) reply(b []byte) error {
	return c.write(c.client, b)
}
