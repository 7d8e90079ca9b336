package replicaserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// follower is a raw client.
type follower struct {
	t    testing.TB
	conn net.Conn
	next int32
}

// ask sends a request and decodes the answer.
func (f *follower) ask(req kmsg.Request) kmsg.Response {
	f.t.Helper()
	resp, err := f.try(req)
	if err != nil {
		f.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func (f *follower) try(req kmsg.Request) (kmsg.Response, error) {
	f.next++
	if _, err := f.conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("broker-1-fetcher-0")).AppendRequest(nil, req, f.next)); err != nil {
		return nil, err
	}
	body, err := readFrame(f.conn)
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != f.next {
		f.t.Fatalf("the answer is to request %d, asked was %d", got, f.next)
	}
	body = body[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != keyApiVersions {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

// start serves on a local port.
func start(t testing.TB, topics Topics, change func(*Config)) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, topics, change)
}

func startOn(t testing.TB, l net.Listener, topics Topics, change func(*Config)) *Server {
	t.Helper()
	c := Config{Listener: l, NodeID: 9999, ClusterID: "cluster", Topics: topics, Allowed: func(string) bool { return true }, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func dial(t testing.TB, s *Server) *follower {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &follower{t: t, conn: conn}
}

var quiet = slog.New(slog.DiscardHandler)

var topicA = statemachine.TopicID{0xa, 1, 2, 3}

// fetchOf is a full fetch without a session, of one topic's partitions at offsets.
func fetchOf(version int16, topic statemachine.TopicID, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, 1, 10<<20, -1
	if version >= 15 {
		req.ReplicaState.ID, req.ReplicaState.Epoch = 1, 77
	} else {
		req.ReplicaID = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = topic
	for i, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes = int32(i), o, -1, -1, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func TestFetchInEveryVersion(t *testing.T) {
	topics := newFakeTopics()
	l, empty := topics.add("a", topicA, 0), topics.add("a", topicA, 1)
	for _, size := range []int{100, 5000, 700, 61} {
		l.append(size)
	}
	empty.append(100)
	f := dial(t, start(t, topics, nil))
	for version := int16(13); version <= 18; version++ {
		resp := f.ask(fetchOf(version, topicA, 1, 1)).(*kmsg.FetchResponse)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].TopicID != topicA || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("version %d: %+v", version, resp)
		}
		p := resp.Topics[0].Partitions[0]
		var want []byte
		for _, b := range l.batches[1:] {
			want = append(want, b.bytes...)
		}
		if p.ErrorCode != 0 || p.HighWatermark != 4 || p.LogStartOffset != 0 || !bytes.Equal(p.RecordBatches, want) {
			t.Errorf("version %d: high watermark %d, log start %d, %d bytes, want %d", version, p.HighWatermark, p.LogStartOffset, len(p.RecordBatches), len(want))
		}
		if p := resp.Topics[0].Partitions[1]; p.ErrorCode != 0 || len(p.RecordBatches) != 0 {
			t.Errorf("version %d: a partition at its end: %+v", version, p)
		}
		epoch := int64(77)
		if version < 15 {
			epoch = -1
		}
		if q, _ := l.lastAsked(); q.Broker != 1 || q.BrokerEpoch != epoch || q.Offset != 1 {
			t.Errorf("version %d: asked %+v", version, q)
		}
	}
}
