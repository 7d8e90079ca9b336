package clientlistener

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// scripted is a connection whose other side has sent everything already.
type scripted struct {
	io.Reader
	sent int
}

func (c *scripted) Write(b []byte) (int, error)      { c.sent += len(b); return len(b), nil }
func (c *scripted) Close() error                     { return nil }
func (c *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *scripted) SetDeadline(time.Time) error      { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }

// between is a connection between two scripts. What clients send is answered by nobody.
func between(s *Server, fromClient, fromBroker []byte) (*connection, *scripted, *scripted) {
	client, broker := &scripted{Reader: bytes.NewReader(fromClient)}, &scripted{Reader: bytes.NewReader(fromBroker)}
	c := newConnection(s, client)
	c.reader, c.broker = bufio.NewReaderSize(client, 4<<10), broker
	return c, client, broker
}

func someRequests() (all []kmsg.Request) {
	for version := int16(4); version <= 18; version++ {
		all = append(all, fetchOf(version))
	}
	for version := int16(1); version <= 11; version++ {
		all = append(all, listOf(version, Latest, true))
	}
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = version
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "led", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{LeaderEpoch: 1}}}}
		all = append(all, req)
	}
	for version := int16(3); version <= 13; version++ {
		all = append(all, produceOf(version, -1, 10), produceOf(version, 0, 10))
	}
	return append(all, metadataOf(2), kmsg.NewPtrApiVersionsRequest())
}

// FuzzRequests has a client send any bytes: the loop never panics, ends, allocates in proportion to what was sent, and passes on hardly more than that.
func FuzzRequests(f *testing.F) {
	s := start(f, &fakePartition{}, nil)
	for _, req := range someRequests() {
		f.Add(formatter.AppendRequest(nil, req, 1))
	}
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x70\x00\x00\x00\x01\x00\x11"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, _, broker := between(s, sent, nil)
		defer c.stop()
		defer c.forget()
		drained, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case p := <-c.pending:
					if p.kind.read {
						c.forget()
						<-c.reading
					}
				case <-drained.Done():
					return
				}
			}
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := c.requests()
		runtime.ReadMemStats(&after)
		stop()
		<-done
		if err == nil {
			t.Error("the loop ended without a reason")
		}
		if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+300*len(sent)); used > limit {
			t.Errorf("%d bytes were allocated for %d", used, len(sent))
		}
		if limit := 100 + 60*len(sent); broker.sent > limit {
			t.Errorf("%d bytes were passed on of %d", broker.sent, len(sent))
		}
	})
}

// FuzzAnswers has a broker send any bytes after a request: the loop never panics, ends, and answers hardly more than came.
func FuzzAnswers(f *testing.F) {
	led := &fakePartition{read: ReadAnswer{Replica: 3}, offset: OffsetAnswer{Offset: 1}}
	s := start(f, led, func(c *Config) { c.MaxHold = time.Microsecond })
	code := int16(codeNotLeaderOrFollower)
	requests := someRequests()
	for i, req := range requests {
		resp := codes(&code)(req)
		if _, ok := req.(*kmsg.FetchRequest); ok {
			resp = fetchSays(func(string, [16]byte, int32) int16 { return code })(req)
		}
		if resp != nil {
			f.Add(uint8(i), encodeAnswer(req.Key(), 1, resp))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, sent []byte) {
		req := requests[int(which)%len(requests)]
		c, client, _ := between(s, nil, sent)
		defer c.stop()
		p := pending{header: header{req.Key(), req.GetVersion(), 1}}
		if p.kind, p.special = kindOf(p.key); p.kind.read {
			p.body = req.AppendTo(nil)
			c.reading <- struct{}{}
		}
		c.pending <- p
		if err := c.answers(); err == nil {
			t.Error("the loop ended without a reason")
		}
		if limit := 1000 + 200*len(sent); client.sent > limit {
			t.Errorf("%d bytes were answered of %d", client.sent, len(sent))
		}
	})
}
