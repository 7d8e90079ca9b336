package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

// wire is one connection that sends requests in the version they name, without asking what the other side offers: a listener that does not advertise a request gets it all the same.
// It is not safe for concurrent use. After an error it is of no use but to be closed.
type wire struct {
	conn   net.Conn
	format *kmsg.RequestFormatter
	next   int32 // correlation id
}

// openWire connects to a listener with security s and shows who.
func (c *cluster) openWire(ctx context.Context, addr string, s Security, who Credentials) (*wire, error) {
	who = who.orAdmin()
	dial := new(net.Dialer).DialContext
	if s.TLS {
		cfg, err := c.tlsConfig(s, who.Certificate)
		if err != nil {
			return nil, err
		}
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialTLS(ctx, network, addr, new(net.Dialer).DialContext, cfg)
		}
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("kafkatest"))}
	if m := mechanism(s.SASL, who); m != nil {
		if err := w.authenticate(ctx, m); err != nil {
			w.close()
			return nil, fmt.Errorf("kafkatest: log in at %s: %w", addr, err)
		}
	}
	return w, nil
}

func (w *wire) close() { w.conn.Close() }

func (w *wire) authenticate(ctx context.Context, m sasl.Mechanism) error {
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Version, hello.Mechanism = 1, m.Name()
	raw, err := w.ask(ctx, hello)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(raw.(*kmsg.SASLHandshakeResponse).ErrorCode); err != nil {
		return err
	}
	session, message, err := m.Authenticate(ctx, w.conn.RemoteAddr().String())
	for done := false; err == nil && !done; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 1, message
		if raw, err = w.ask(ctx, req); err != nil {
			return err
		}
		resp := raw.(*kmsg.SASLAuthenticateResponse)
		if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
			return err
		}
		done, message, err = session.Challenge(resp.SASLAuthBytes)
	}
	return err
}

// send writes a request and waits for nothing.
func (w *wire) send(ctx context.Context, req kmsg.Request) error {
	deadline, _ := ctx.Deadline() // the zero time, for none, is none for a connection too
	if err := w.conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	w.next++
	_, err := w.conn.Write(w.format.AppendRequest(nil, req, w.next))
	return err
}

// ask sends a request and returns the answer.
func (w *wire) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := w.send(ctx, req); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { w.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	head := make([]byte, 8)
	if _, err := io.ReadFull(w.conn, head); err != nil {
		return nil, err
	}
	size, id := int32(binary.BigEndian.Uint32(head)), int32(binary.BigEndian.Uint32(head[4:]))
	if id != w.next || size < 4 || size > 64<<20 {
		return nil, fmt.Errorf("kafkatest: an answer of %d bytes to request %d, awaited was one to request %d", size, id, w.next)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() { // its header has tags
		b := kbin.Reader{Src: body}
		kmsg.SkipTags(&b)
		if err := b.Complete(); err != nil {
			return nil, err
		}
		body = b.Src
	}
	return resp, resp.ReadFrom(body)
}
