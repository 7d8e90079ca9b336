package replicaserver

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
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// anonymous is the principal of a connection that showed nothing (Kafka: KafkaPrincipal.ANONYMOUS).
const anonymous = "User:ANONYMOUS"

// keptBuffer is the largest request buffer that a connection keeps for its next request.
const keptBuffer = 256 << 10

// connection is one broker's connection. One goroutine reads a request, answers it, and reads the next one; nothing else touches its fields.
type connection struct {
	server *Server
	raw    net.Conn
	conn   net.Conn // raw, or TLS over it
	reader *bufio.Reader
	log    *slog.Logger

	body    []byte // of the last request
	head    []byte // the last answer that was no Fetch's
	encoder fetchEncoder
	fetched kmsg.FetchRequest

	principal     string
	authenticated bool
	loginBy       time.Time // until it must be authenticated
	login         login
	toldRefusal   bool

	session *session // its fetch session, nil none
	timer   *time.Timer
}

func newConnection(s *Server, raw net.Conn) *connection {
	return &connection{
		server: s, raw: raw, conn: raw, principal: anonymous, authenticated: !s.config.Security.sasl(), loginBy: time.Now().Add(s.config.HandshakeBound),
		log: s.log.With("address", raw.RemoteAddr().String()),
	}
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

// stop ends a wait for the next request. Called by others.
func (c *connection) stop() { _ = c.raw.SetReadDeadline(time.Unix(1, 0)) }

// run serves until the connection ends, and says in one line why if it was refused.
func (c *connection) run() {
	defer func() {
		_ = c.conn.Close()
		c.leaveSession()
		if c.timer != nil {
			c.timer.Stop()
		}
	}()
	err := c.serve()
	var no *refusal
	switch {
	case errors.As(err, &no):
		c.server.refused(no.reason)
		c.log.Warn("a connection is closed for what it sent", "principal", c.principal, "reason", no.Error())
	case c.server.ending.Err() == nil && !errors.Is(err, io.EOF):
		c.log.Debug("a broker's connection ended", "principal", c.principal, "error", err)
	}
}

func (c *connection) serve() error {
	if c.server.config.Security.tls() {
		if err := c.secure(); err != nil {
			return err
		}
	}
	c.reader = bufio.NewReaderSize(c.conn, 4<<10)
	for {
		body, err := c.read()
		if err != nil {
			return err
		}
		if err := c.answer(body); err != nil {
			return err
		}
		if cap(c.body) > keptBuffer {
			c.body = nil
		}
		if cap(c.head) > keptBuffer {
			c.head = nil
		}
	}
}

// secure does the TLS handshake and takes the principal from the client's certificate if one was verified.
func (c *connection) secure() error {
	t := tls.Server(c.raw, c.server.config.TLS)
	ctx, cancel := context.WithDeadline(c.server.ending, c.loginBy)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		if c.server.ending.Err() != nil || errors.Is(err, io.EOF) { // somebody who only looks whether the port is open
			return err
		}
		return &refusal{"TLS handshake", err.Error()}
	}
	c.conn = t
	if state := t.ConnectionState(); len(state.VerifiedChains) > 0 {
		name, err := distinguishedName(state.VerifiedChains[0][0].RawSubject)
		if err != nil {
			return &refusal{"certificate", "its subject cannot be read: " + err.Error()}
		}
		c.principal = "User:" + name
	}
	return nil
}

// read reads one request without its length. The bytes are good until the next call.
func (c *connection) read() ([]byte, error) {
	limit, wait := c.server.config.MaxRequestSize, time.Now().Add(c.server.config.IdleBound)
	trusted := c.authenticated && c.server.config.Allowed(c.principal)
	if !trusted { // nobody who is no broker holds a connection or much memory for long
		limit, wait = min(limit, maxLoginRequest), c.loginBy
	}
	if err := c.readUntil(wait); err != nil {
		return nil, err
	}
	if _, err := c.reader.Peek(1); err != nil {
		if !trusted && errors.Is(err, os.ErrDeadlineExceeded) && c.server.ending.Err() == nil {
			return nil, &refusal{"login too slow", "no broker was proven within the handshake's bound"}
		}
		return nil, err
	}
	if trusted {
		if err := c.readUntil(time.Now().Add(c.server.config.TransferBound)); err != nil {
			return nil, err
		}
	}
	var length [4]byte
	if _, err := io.ReadFull(c.reader, length[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(length[:])))
	if n < 0 || n > limit {
		return nil, &refusal{"request size", fmt.Sprintf("%d bytes, the limit is %d", n, limit)}
	}
	// What is announced is allocated as it comes, not before.
	body := c.body[:0]
	for len(body) < n {
		at, more := len(body), min(n-len(body), max(cap(body)-len(body), 64<<10))
		body = slices.Grow(body, more)[:at+more]
		if _, err := io.ReadFull(c.reader, body[at:]); err != nil {
			return nil, err
		}
	}
	c.body = body
	return body, nil
}

// readUntil sets the time until which reads wait. A Close that began before or begins later ends them.
func (c *connection) readUntil(t time.Time) error {
	if err := c.raw.SetReadDeadline(t); err != nil {
		return err
	}
	return c.server.ending.Err()
}

// answer reads a request's header, answers it and sends the answer.
func (c *connection) answer(body []byte) error {
	started := time.Now()
	h, rest, ok := readHeader(body)
	if !ok {
		return &refusal{"request header", "it is cut off"}
	}
	kind, known := kindOf(h.key, c.server.config.Security.sasl())
	switch {
	case !known:
		return &refusal{"request not answered", fmt.Sprintf("key %d version %d: this listener is for the brokers' replication alone", h.key, h.version)}
	case !c.authenticated && kind.key != keyApiVersions && kind.key != keySASLHandshake && kind.key != keySASLAuthenticate:
		return &refusal{"not authenticated", kind.name + " before the login"}
	case kind.key == keyApiVersions && (h.version < kind.min || h.version > kind.max):
		// The body of a version that is not known cannot be read, and need not be.
		return c.sendMessage(h, kind, versionsAnswer(h.version, c.server.config.Security.sasl()), started)
	case h.version < kind.min || h.version > kind.max:
		return &refusal{"version not answered", fmt.Sprintf("%s version %d, answered are %d to %d", kind.name, h.version, kind.min, kind.max)}
	}
	if kind.isFlexible(h.version) {
		if rest, ok = skipTags(rest); !ok {
			return &refusal{"request header", "its tags are cut off"}
		}
	}
	var req kmsg.Request
	if kind.key == keyFetch {
		req = &c.fetched
	} else {
		req = kmsg.RequestForKey(kind.key)
	}
	req.SetVersion(h.version)
	if err := decode(req, rest); err != nil {
		return &refusal{"request body", fmt.Sprintf("%s version %d: %v", kind.name, h.version, err)}
	}
	switch req := req.(type) {
	case *kmsg.FetchRequest:
		return c.fetch(h, kind, req, started)
	case *kmsg.ListOffsetsRequest:
		return c.sendMessage(h, kind, c.listOffsets(req), started)
	case *kmsg.OffsetForLeaderEpochRequest:
		return c.sendMessage(h, kind, c.offsetForEpoch(req), started)
	case *kmsg.FindCoordinatorRequest:
		return c.sendMessage(h, kind, noCoordinator(req), started)
	case *kmsg.WriteTxnMarkersRequest:
		return c.sendMessage(h, kind, c.noMarkers(req), started)
	case *kmsg.ApiVersionsRequest:
		return c.sendMessage(h, kind, versionsAnswer(h.version, c.server.config.Security.sasl()), started)
	case *kmsg.SASLHandshakeRequest:
		resp, after := c.handshake(req)
		return errors.Join(c.sendMessage(h, kind, resp, started), after)
	case *kmsg.SASLAuthenticateRequest:
		resp, after := c.authenticate(req)
		return errors.Join(c.sendMessage(h, kind, resp, started), after)
	}
	return &refusal{"request not answered", kind.name}
}

// decode reads a request's body. A decoder that panics on it costs its sender the connection, not everybody the process.
func decode(req kmsg.Request, body []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be read: %v", r)
		}
	}()
	return req.ReadFrom(body)
}

// header is what every request begins with (Kafka: RequestHeader).
type header struct {
	key, version int16
	correlation  int32
}

// readHeader reads a request's header up to its tags, and returns what follows.
func readHeader(b []byte) (h header, rest []byte, ok bool) {
	if len(b) < 10 {
		return h, nil, false
	}
	h = header{int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:])), int32(binary.BigEndian.Uint32(b[4:]))}
	client := int(int16(binary.BigEndian.Uint16(b[8:])))
	b = b[10:]
	if client > len(b) {
		return h, nil, false
	}
	return h, b[max(client, 0):], true
}

// skipTags skips tagged fields (KIP-482).
func skipTags(b []byte) (rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)) {
		return nil, false
	}
	b = b[w:]
	for range n {
		_, w := binary.Uvarint(b)
		if w <= 0 {
			return nil, false
		}
		b = b[w:]
		size, w := binary.Uvarint(b)
		if w <= 0 || size > uint64(len(b)-w) {
			return nil, false
		}
		b = b[w+int(size):]
	}
	return b, true
}

// sendMessage sends an answer that is small.
func (c *connection) sendMessage(h header, kind answered, resp kmsg.Response, started time.Time) error {
	b := append(c.head[:0], 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(h.correlation))
	if kind.key != keyApiVersions && resp.IsFlexible() { // KIP-511: the header of an answer to ApiVersions never has tags
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	c.head = b
	return c.send(kind, h.version, b, nil, started)
}

// send writes an answer: one buffer, or the ones that were cut from it and from batches.
func (c *connection) send(kind answered, version int16, whole []byte, pieces net.Buffers, started time.Time) error {
	if err := c.raw.SetWriteDeadline(time.Now().Add(c.server.config.TransferBound)); err != nil {
		return err
	}
	var n int64
	var err error
	switch {
	case pieces == nil:
		var w int
		w, err = c.conn.Write(whole)
		n = int64(w)
	case c.conn == c.raw:
		n, err = pieces.WriteTo(c.conn) // writev, where it is a socket
	default:
		// Each Write of TLS is a record of its own: small pieces are gathered, which costs nothing beside the encryption.
		w := bufio.NewWriterSize(c.conn, 64<<10)
		for _, p := range pieces {
			var m int
			if m, err = w.Write(p); err != nil {
				break
			}
			n += int64(m)
		}
		err = errors.Join(err, w.Flush())
	}
	if f := c.server.config.Observer.Request; f != nil && err == nil {
		f(kind.name, version, time.Since(started), int(n))
	}
	return err
}

// refusesReplica says whether nobody but a broker may be behind a request: consumers and debug readers (replica ids below 0) read elsewhere, and a principal must be allowed.
func (c *connection) refusesReplica(replica int32) bool {
	reason := ""
	switch {
	case replica < 0 || replica == c.server.config.NodeID:
		reason = "not a follower"
	case !c.server.config.Allowed(c.principal):
		reason = "principal not allowed"
	default:
		return false
	}
	c.server.refused(reason)
	if !c.toldRefusal {
		c.toldRefusal = true
		c.log.Warn("a request is refused: only the cluster's brokers read here", "reason", reason, "principal", c.principal, "replica", replica)
	}
	return true
}
