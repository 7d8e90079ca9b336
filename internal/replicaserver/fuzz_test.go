package replicaserver

import (
	"bytes"
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

// FuzzRequests sends any bytes: the request loop never panics, never answers without end, and allocates in proportion to what was sent.
func FuzzRequests(f *testing.F) {
	topics, logs := topicOf(2)
	logs[0].append(100)
	servers := map[bool]*Server{}
	for _, security := range []SecurityProtocol{Plaintext, SASLPlaintext} {
		servers[security.sasl()] = startOn(f, newPipeListener(), topics, func(c *Config) {
			c.Security, c.SASL, c.Logger, c.MaxWait = security, saslOf(f), quiet, time.Millisecond
		})
	}
	add := func(sasl bool, requests ...kmsg.Request) {
		var b []byte
		for i, r := range requests {
			b = kmsg.NewRequestFormatter(kmsg.FormatterClientID("x")).AppendRequest(b, r, int32(i))
		}
		f.Add(sasl, b)
	}
	for version := int16(13); version <= 18; version++ {
		full := fetchOf(version, topicA, 0, 0)
		full.SessionEpoch = 0
		add(false, full, next(1, 1, 0), fetchOf(version, topicA, 1))
	}
	forget := next(0, 0, 0)
	forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topicA, Partitions: []int32{0}}}
	add(false, forget, endOf(7, 1), endOf(11, -1))
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Version, epochs.ReplicaID = 4, 1
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{LeaderEpoch: 1}}}}
	add(false, epochs)
	for version := int16(0); version <= 5; version++ {
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.Version = version
		add(true, versions)
	}
	add(true, handshakeOf("PLAIN"), loginOf(2, "\x00admin, =1\x00"+secretWord), fetchOf(17, topicA, 0))
	add(true, handshakeOf("SCRAM-SHA-256"), loginOf(0, "n,,n=admin=2C =3D1,r=abc"), loginOf(0, "c=biws,r=abc,p=AAAA"))
	f.Add(false, []byte("\xff\xff\xff\xff"))
	f.Add(false, []byte("\x00\x70\x00\x00\x00\x01\x00\x11"))
	f.Fuzz(func(t *testing.T, sasl bool, sent []byte) {
		server := servers[sasl]
		conn := &scripted{Reader: bytes.NewReader(sent)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := newConnection(server, conn)
		err := c.serve()
		c.leaveSession()
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Error("the loop ended without a reason")
		}
		if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(sent)); used > limit {
			t.Errorf("%d bytes were allocated for %d", used, len(sent))
		}
		if limit := 1000 + 100*len(sent); conn.sent > limit {
			t.Errorf("%d bytes were answered to %d", conn.sent, len(sent))
		}
	})
}
