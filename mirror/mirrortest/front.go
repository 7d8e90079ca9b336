package mirrortest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// front is one broker as clients see it: the port that it listens on. What is about records it answers itself, out of the memory cluster; the rest goes on to a kfake broker behind it
// (groups, metadata, settings, access rules), and its answers pass through here, so that leaders and their epochs can be put right.
type front struct {
	cluster *Cluster
	node    int32
	net.Listener
	behind chan net.Conn // to kfake, which takes this front for its listener
	closed chan struct{}
	once   sync.Once
}

func newFront(c *Cluster, node int32) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &front{cluster: c, node: node, Listener: l, behind: make(chan net.Conn), closed: make(chan struct{})}, nil
}

// Accept is kfake's: it gets the connections that are passed on to it, not those of clients.
func (f *front) Accept() (net.Conn, error) {
	select {
	case conn := <-f.behind:
		return conn, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close ends both sides.
func (f *front) Close() error {
	err := error(nil)
	f.once.Do(func() {
		close(f.closed)
		err = f.Listener.Close()
	})
	return err
}

// inner opens a connection to the kfake broker. from is whose connection it stands for.
func (f *front) inner(ctx context.Context, from net.Addr) (net.Conn, error) {
	ours, its := net.Pipe()
	select {
	case f.behind <- &innerConn{its, from}:
		return ours, nil
	case <-f.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// innerConn is a pipe that says whose connection it is.
type innerConn struct {
	net.Conn
	from net.Addr
}

func (c *innerConn) RemoteAddr() net.Addr { return c.from }

// serve takes clients until the front is closed. While the cluster is dead they are turned away.
func (f *front) serve() {
	for {
		client, err := f.Listener.Accept()
		if err != nil {
			return
		}
		ctx, ok := f.cluster.admit()
		if !ok {
			client.Close()
			continue
		}
		go func() {
			defer f.cluster.running.Done()
			(&connection{front: f, client: client}).serve(ctx)
		}()
	}
}

// connection is one client's.
type connection struct {
	front  *front
	client net.Conn
	kfake  net.Conn // opened when the first request goes there

	fetched map[mirror.TopicPartition]int64 // by the last fetch, from which offset
}

// mostAhead is how many requests of one client are read before they are answered. More wait in the network, as with Kafka, which reads one at a time.
const mostAhead = 16

// serve answers one request after the other, as a broker does, until the client goes or ctx ends.
func (c *connection) serve(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stop := context.AfterFunc(ctx, func() { c.client.Close() })
	defer stop()
	defer c.client.Close()
	frames := make(chan []byte, mostAhead)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer end() // a client that goes ends what waits for it
		for {
			frame, err := readFrame(c.client)
			if err != nil {
				return
			}
			select {
			case frames <- frame:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		c.client.Close()
		<-read
		if c.kfake != nil {
			c.kfake.Close()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case frame := <-frames:
			reply, err := c.answer(ctx, frame)
			if err != nil {
				return
			}
			if reply == nil {
				continue
			}
			if _, err := c.client.Write(reply); err != nil {
				return
			}
		}
	}
}

// largestFrame is what a request may have (Kafka: socket.request.max.bytes).
const largestFrame = 100 << 20

// readFrame reads one request or reply, with its length in front.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > largestFrame {
		return nil, fmt.Errorf("mirrortest: a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// request is one request of a client.
type request struct {
	kmsg.Request
	frame       []byte
	correlation int32
	header      int // bytes of the frame before the body
}

var errMalformed = errors.New("mirrortest: a request that cannot be read")

// parse reads a request's header, and its body if one is asked for.
func parse(frame []byte) (r request, key int16, err error) {
	b := kbin.Reader{Src: frame[4:]}
	key, version := b.Int16(), b.Int16()
	r = request{frame: frame, correlation: b.Int32()}
	if r.Request = kmsg.RequestForKey(key); r.Request == nil {
		return r, key, errMalformed
	}
	r.SetVersion(version)
	b.NullableString()
	if r.IsFlexible() {
		kmsg.SkipTags(&b)
	}
	r.header = len(frame) - len(b.Src)
	return r, key, b.Complete()
}

// body reads the rest.
func (r *request) body() error { return r.ReadFrom(r.frame[r.header:]) }

// again is the request as it is now, with the header that it came with.
func (r *request) again() []byte {
	frame := r.AppendTo(append([]byte(nil), r.frame[:r.header]...))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// reply is the bytes of an answer.
func (r *request) reply(resp kmsg.Response) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(r.correlation))
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		b = append(b, 0) // no tags
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// pass sends a request on to kfake and returns its reply.
func (c *connection) pass(ctx context.Context, frame []byte) ([]byte, error) {
	if c.kfake == nil {
		conn, err := c.front.inner(ctx, c.client.RemoteAddr())
		if err != nil {
			return nil, err
		}
		c.kfake = conn
	}
	stop := context.AfterFunc(ctx, func() { c.kfake.Close() })
	defer stop()
	if _, err := c.kfake.Write(frame); err != nil {
		return nil, err
	}
	return readFrame(c.kfake)
}

// passed sends a request on and reads kfake's reply.
func (c *connection) passed(ctx context.Context, r *request) (kmsg.Response, error) {
	reply, err := c.pass(ctx, r.frame)
	if err != nil {
		return nil, err
	}
	return r.read(reply)
}

// read reads the reply to a request.
func (r *request) read(reply []byte) (kmsg.Response, error) {
	resp := r.ResponseKind()
	body := kbin.Reader{Src: reply[8:]}
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		kmsg.SkipTags(&body)
	}
	return resp, resp.ReadFrom(body.Src)
}

// answer answers one request: the bytes to send, or none.
func (c *connection) answer(ctx context.Context, frame []byte) ([]byte, error) {
	r, key, err := parse(frame)
	if err != nil {
		return nil, err
	}
	own := c.own(kmsg.Key(key))
	if own == nil {
		return c.pass(ctx, frame)
	}
	if err := r.body(); err != nil {
		return nil, err
	}
	resp, err := own(ctx, &r)
	if raw, is := resp.(rawReply); is {
		return raw.frame, err
	}
	if err != nil || resp == nil {
		return nil, err
	}
	return r.reply(resp), nil
}

// rawReply is kfake's reply, sent on as it is.
type rawReply struct {
	kmsg.Response
	frame []byte
}

// hidden are requests that are not offered: clients' telemetry, as at a broker where nobody collects it (KIP-714; clients would wait for it when they close), and share groups (KIP-932), which kfake would
// read from its own logs, and they are empty.
var hidden = []kmsg.Key{
	kmsg.GetTelemetrySubscriptions, kmsg.PushTelemetry, kmsg.ShareGroupHeartbeat, kmsg.ShareGroupDescribe, kmsg.ShareFetch, kmsg.ShareAcknowledge, kmsg.DescribeShareGroupOffsets,
	kmsg.AlterShareGroupOffsets, kmsg.DeleteShareGroupOffsets,
}

// apiVersions has kfake's answer without what is hidden.
func (c *connection) apiVersions(ctx context.Context, r *request) (kmsg.Response, error) {
	reply, err := c.pass(ctx, r.frame)
	if err != nil {
		return nil, err
	}
	if len(reply) < 10 || binary.BigEndian.Uint16(reply[8:]) != 0 { // a refusal is in version 0, whatever was asked (KIP-511)
		return rawReply{nil, reply}, nil
	}
	got, err := r.read(reply)
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.ApiVersionsResponse)
	resp.ApiKeys = slices.DeleteFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return slices.Contains(hidden, kmsg.Key(k.ApiKey))
	})
	return resp, nil
}

// own is what answers a request here; nil: it is kfake's alone.
func (c *connection) own(key kmsg.Key) func(context.Context, *request) (kmsg.Response, error) {
	switch key {
	case kmsg.ApiVersions:
		return c.apiVersions
	case kmsg.Produce:
		return c.produce
	case kmsg.Fetch:
		return c.fetch
	case kmsg.ListOffsets:
		return c.listOffsets
	case kmsg.OffsetForLeaderEpoch:
		return c.offsetForLeaderEpoch
	case kmsg.DeleteRecords:
		return c.deleteRecords
	case kmsg.Metadata:
		return c.metadata
	case kmsg.DescribeTopicPartitions:
		return c.describeTopicPartitions
	case kmsg.CreateTopics, kmsg.CreatePartitions, kmsg.DeleteTopics:
		return c.changeTopics
	case kmsg.InitProducerID:
		return c.initProducerID
	case kmsg.AddPartitionsToTxn:
		return c.addPartitions
	case kmsg.AddOffsetsToTxn:
		return c.addOffsets
	case kmsg.TxnOffsetCommit:
		return c.commitOffsets
	case kmsg.EndTxn:
		return c.endTransaction
	case kmsg.DescribeProducers:
		return c.describeProducers
	case kmsg.DescribeTransactions:
		return c.describeTransactions
	case kmsg.ListTransactions:
		return c.listTransactions
	}
	return nil
}
