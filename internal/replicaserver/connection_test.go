package replicaserver

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestVersionsOnOffer(t *testing.T) {
	topics, _ := topicOf(1)
	for _, security := range []SecurityProtocol{Plaintext, SASLPlaintext} {
		want := "1:13-18 2:7-11 10:4-6 18:0-4 23:3-4 27:1-2"
		if security.sasl() {
			want = "1:13-18 2:7-11 10:4-6 17:1-1 18:0-4 23:3-4 27:1-2 36:0-2"
		}
		f := dial(t, start(t, topics, func(c *Config) { c.Security, c.SASL = security, saslOf(t) }))
		for version := int16(0); version <= 4; version++ {
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "apache-kafka-java", "4.3.1"
			resp := f.ask(req).(*kmsg.ApiVersionsResponse)
			var got []string
			for _, k := range resp.ApiKeys {
				got = append(got, fmt.Sprintf("%d:%d-%d", k.ApiKey, k.MinVersion, k.MaxVersion))
			}
			if strings.Join(got, " ") != want || resp.ErrorCode != 0 {
				t.Errorf("%v, version %d: %q, code %d", security, version, got, resp.ErrorCode)
			}
		}
		for _, version := range []int16{5, 6, 99, -1} {
			// A client that knows more gets version 0 with the range that it can use, whatever its request looks like.
			if _, err := f.conn.Write(frame(keyApiVersions, version, "\x00\x00\x00\x09\xff\xff whatever")); err != nil {
				t.Fatal(err)
			}
			b, err := readFrame(f.conn)
			if err != nil {
				t.Fatal(err)
			}
			if want := "\x00\x00\x00\x09" + "\x00\x23" + "\x00\x00\x00\x01" + "\x00\x12\x00\x00\x00\x04"; string(b) != want {
				t.Errorf("version %d: %x, want %x", version, b, want)
			}
		}
	}
}

// frame is a request with its length.
func frame(key, version int16, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(rest)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	return append(b, rest...)
}

func TestNoCoordinatorIsHere(t *testing.T) {
	topics, _ := topicOf(1)
	f := dial(t, start(t, topics, nil))
	for version := int16(4); version <= 6; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKeys = version, 2, []string{"group:AAAAAAAAAAAAAAAAAAAAAQ:0", "other:AAAAAAAAAAAAAAAAAAAAAQ:1"}
		resp := f.ask(req).(*kmsg.FindCoordinatorResponse)
		if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != req.CoordinatorKeys[1] || resp.Coordinators[0].ErrorCode != codeCoordinatorNotAvailable || resp.Coordinators[0].NodeID != -1 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
}

// TestKafkasOwnMaximaAreMet asks with a client that is held to what a Kafka version knows.
func TestKafkasOwnMaximaAreMet(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(100)
	s := start(t, topics, nil)
	for name, v := range map[string]*kversion.Versions{"3.9": kversion.V3_9_0(), "4.0": kversion.V4_0_0(), "newest": kversion.Stable()} {
		if end, err := asClient(t, s, kgo.MaxVersions(v)); err != nil || end != 1 {
			t.Errorf("%s: end %d, %v", name, end, err)
		}
	}
}

func TestEndsOfLogs(t *testing.T) {
	topics, logs := topicOf(2)
	for range 5 {
		logs[0].append(100)
	}
	logs[0].raise(2)
	logs[0].truncate(4)
	logs[0].append(100)
	logs[0].high = 4
	f := dial(t, start(t, topics, nil))
	ask := func(version int16, replica, partition, epoch int32, topic string, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
		t.Helper()
		req := endOf(version, replica)
		req.Topics[0].Topic = topic
		p := &req.Topics[0].Partitions[0]
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = partition, epoch, timestamp
		resp := f.ask(req).(*kmsg.ListOffsetsResponse)
		if len(resp.Topics) != 1 || resp.Topics[0].Topic != topic || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != partition {
			t.Fatalf("version %d: %+v", version, resp)
		}
		return resp.Topics[0].Partitions[0]
	}
	for version := int16(7); version <= 11; version++ {
		for _, k := range []struct {
			replica, partition, epoch int32
			topic                     string
			timestamp                 int64
			code                      int16
			offset                    int64
			found                     int32
		}{
			{1, 0, 1, "a", latestTimestamp, 0, 5, 1},
			{1, 0, -1, "a", earliestTimestamp, 0, 2, 0},
			{1, 0, 1, "a", earliestLocalTimestamp, 0, 2, 0},
			{1, 1, -1, "a", latestTimestamp, 0, 0, -1},
			{1, 0, 0, "a", latestTimestamp, codeFencedLeaderEpoch, -1, -1},
			{1, 0, -1, "a", -3, codeInvalidRequest, -1, -1},
			{1, 0, -1, "a", -5, codeInvalidRequest, -1, -1},
			{1, 0, -1, "a", 1700000000000, codeInvalidRequest, -1, -1},
			{1, 7, -1, "a", latestTimestamp, codeNotLeader, -1, -1},
			{1, 0, -1, "b", latestTimestamp, codeUnknownTopicOrPartition, -1, -1},
			{-1, 0, -1, "a", latestTimestamp, 0, 4, -1}, // a coordinator of share groups
			{-1, 0, -1, "a", earliestTimestamp, codeTopicAuthorizationFailed, -1, -1},
			{-1, 0, 0, "a", latestTimestamp, codeFencedLeaderEpoch, -1, -1},
			{-2, 0, -1, "a", latestTimestamp, codeTopicAuthorizationFailed, -1, -1},
			{9999, 0, -1, "a", latestTimestamp, codeTopicAuthorizationFailed, -1, -1},
		} {
			if p := ask(version, k.replica, k.partition, k.epoch, k.topic, k.timestamp); p.ErrorCode != k.code || p.Offset != k.offset || p.LeaderEpoch != k.found || p.Timestamp != -1 {
				t.Errorf("version %d, %+v: %+v", version, k, p)
			}
		}
	}
	for version := int16(3); version <= 4; version++ {
		for _, k := range []struct {
			replica, partition, current, epoch int32
			topic                              string
			code                               int16
			found                              int32
			end                                int64
		}{
			{1, 0, 1, 0, "a", 0, 0, 4},
			{1, 0, -1, 1, "a", 0, 1, 5},
			{1, 0, 0, 0, "a", codeFencedLeaderEpoch, -1, -1},
			{1, 7, -1, 0, "a", codeNotLeader, -1, -1},
			{1, 0, -1, 0, "b", codeUnknownTopicOrPartition, -1, -1},
			{-1, 0, -1, 0, "a", codeTopicAuthorizationFailed, -1, -1},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version, req.ReplicaID = version, k.replica
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = k.topic
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = k.partition, k.current, k.epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			resp := f.ask(req).(*kmsg.OffsetForLeaderEpochResponse)
			if p := resp.Topics[0].Partitions[0]; resp.Topics[0].Topic != k.topic || p.Partition != k.partition || p.ErrorCode != k.code || p.LeaderEpoch != k.found || p.EndOffset != k.end {
				t.Errorf("version %d, %+v: %+v", version, k, p)
			}
		}
	}
}

func TestOnlyBrokersRead(t *testing.T) {
	topics, logs := topicOf(2)
	logs[0].append(100)
	var mu sync.Mutex
	allowed := true
	s := start(t, topics, func(c *Config) {
		c.Allowed = func(principal string) bool {
			mu.Lock()
			defer mu.Unlock()
			return allowed && principal == anonymous
		}
	})
	f := dial(t, s)
	for version := int16(13); version <= 18; version++ {
		for _, replica := range []int32{-1, -2, 9999} {
			req := fetchOf(version, topicA, 0, 0)
			req.SessionEpoch, req.MaxWaitMillis = 0, 20_000
			if req.ReplicaID = replica; version >= 15 {
				req.ReplicaState.ID = replica
			}
			if resp := f.ask(req).(*kmsg.FetchResponse); in(resp) != "[0:code 29 1:code 29]" || resp.SessionID != 0 {
				t.Errorf("version %d, replica %d: %s in session %d", version, replica, in(resp), resp.SessionID)
			}
		}
	}
	if _, n := logs[0].lastAsked(); n != 0 {
		t.Errorf("a partition was asked %d times for no follower", n)
	}
	if got := in(f.ask(fetchOf(18, topicA, 0)).(*kmsg.FetchResponse)); got != "[0:100]" {
		t.Fatalf("a broker gets %s", got)
	}
	mu.Lock()
	allowed = false
	mu.Unlock()
	if got := in(f.ask(fetchOf(18, topicA, 0)).(*kmsg.FetchResponse)); got != "[0:code 29]" {
		t.Errorf("one who is not allowed any more gets %s", got)
	}
	f = dial(t, start(t, topics, func(c *Config) { c.Allowed = nil }))
	if got := in(f.ask(fetchOf(18, topicA, 0)).(*kmsg.FetchResponse)); got != "[0:code 29]" {
		t.Errorf("where nobody is allowed: %s", got)
	}
	// Another cluster's broker is in the wrong place.
	f = dial(t, s)
	mu.Lock()
	allowed = true
	mu.Unlock()
	for cluster, code := range map[string]int16{"cluster": 0, "another": codeInconsistentClusterID} {
		req := fetchOf(18, topicA, 0)
		req.ClusterID = &cluster
		if got := f.ask(req).(*kmsg.FetchResponse).ErrorCode; got != code {
			t.Errorf("cluster %q: code %d, want %d", cluster, got, code)
		}
	}
}

func TestWhatIsNotAnsweredEndsTheConnection(t *testing.T) {
	topics, _ := topicOf(1)
	header := "\x00\x00\x00\x01\xff\xff"
	for name, k := range map[string]struct {
		security SecurityProtocol
		send     []byte
		reason   string
	}{
		"Produce":                        {Plaintext, frame(0, 9, header+"\x00"), "request not answered"},
		"Metadata":                       {Plaintext, frame(3, 12, header+"\x00"), "request not answered"},
		"a key below 0":                  {Plaintext, frame(-1, 0, header), "request not answered"},
		"SaslHandshake without SASL":     {Plaintext, frame(17, 1, header+"\x00\x05PLAIN"), "request not answered"},
		"Fetch 12":                       {Plaintext, frame(1, 12, header+"\x00"), "version not answered"},
		"Fetch 19":                       {Plaintext, frame(1, 19, header+"\x00"), "version not answered"},
		"SaslHandshake 0":                {SASLPlaintext, frame(17, 0, header+"\x00\x05PLAIN"), "version not answered"},
		"Fetch before the login":         {SASLPlaintext, frame(1, 17, header+"\x00"), "not authenticated"},
		"ListOffsets before the login":   {SASLPlaintext, frame(2, 11, header+"\x00"), "not authenticated"},
		"a long request before":          {SASLPlaintext, []byte("\x00\x01\x00\x01"), "request size"},
		"a long request":                 {Plaintext, []byte("\x00\x10\x00\x01"), "request size"},
		"a length below 0":               {Plaintext, []byte("\xff\xff\xff\xff"), "request size"},
		"HTTP":                           {Plaintext, []byte("GET / HTTP/1.1\r\n\r\n"), "request size"},
		"no header":                      {Plaintext, []byte("\x00\x00\x00\x00"), "request header"},
		"a client id that is cut off":    {Plaintext, frame(1, 17, "\x00\x00\x00\x01\x00\x09abc"), "request header"},
		"no tags":                        {Plaintext, frame(1, 17, header), "request header"},
		"tags that are cut off":          {Plaintext, frame(1, 17, header+"\x01\x00\x09abc"), "request header"},
		"many tags":                      {Plaintext, frame(1, 17, header+"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "request header"},
		"no body":                        {Plaintext, frame(1, 17, header+"\x00"), "request body"},
		"more topics than there are":     {Plaintext, frame(1, 17, header+"\x00"+strings.Repeat("\x00", 21)+"\xff\xff\xff\xff\x07"), "request body"},
		"more partitions than there are": {Plaintext, frame(2, 11, header+"\x00\x00\x00\x00\x01\x00\x02\x02a\xff\xff\xff\xff\x07"), "request body"},
	} {
		var mu sync.Mutex
		var reasons []string
		var log lines
		f := dial(t, start(t, topics, func(c *Config) {
			c.Security, c.SASL, c.MaxRequestSize, c.Logger = k.security, saslOf(t), 1<<20, slog.New(slog.NewTextHandler(&log, nil))
			c.Observer.Refused = func(reason string) {
				mu.Lock()
				defer mu.Unlock()
				reasons = append(reasons, reason)
			}
		}))
		if _, err := f.conn.Write(k.send); err != nil {
			t.Fatal(err)
		}
		if b, err := readFrame(f.conn); err == nil {
			t.Errorf("%s: answered %x", name, b)
		}
		mu.Lock()
		if !slices.Equal(reasons, []string{k.reason}) {
			t.Errorf("%s: refused for %q, want %q", name, reasons, k.reason)
		}
		mu.Unlock()
		// The line may come a moment after the connection's end.
		for end := time.Now().Add(5 * time.Second); strings.Count(log.String(), "\n") < 1 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, k.reason) {
			t.Errorf("%s: the log has\n%s", name, text)
		}
	}
}

func TestRequestsInPieces(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(100)
	inVirtualTime(t, topics, nil, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		for range 3 {
			for _, b := range kmsg.NewRequestFormatter(kmsg.FormatterClientID("x")).AppendRequest(nil, fetchOf(17, topicA, 0), 5) {
				if _, err := c.conn.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := readFrame(c.conn); err != nil {
				t.Fatal(err)
			}
		}
		big := fetchOf(17, topicA, make([]int64, 20_000)...) // larger than the buffer that is kept
		if got := c.ask(big).(*kmsg.FetchResponse); len(got.Topics[0].Partitions) != 20_000 {
			t.Errorf("%d partitions", len(got.Topics[0].Partitions))
		}
		c.ask(fetchOf(17, topicA, 0))
	})
}

func TestTimeLimits(t *testing.T) {
	topics, _ := topicOf(1)
	part := kmsg.NewRequestFormatter().AppendRequest(nil, fetchOf(17, topicA, 0), 5)
	for name, k := range map[string]struct {
		change func(*Config)
		send   []byte
		after  time.Duration
	}{
		"idle":                             {func(*Config) {}, nil, 10 * time.Minute},
		"idle, nobody allowed":             {func(c *Config) { c.Allowed = nil }, nil, 20 * time.Second},
		"idle before the login":            {func(c *Config) { c.Security, c.SASL = SASLPlaintext, saslOf(t) }, nil, 20 * time.Second},
		"idle before TLS":                  {func(c *Config) { c.Security, c.TLS = SSL, &tls.Config{} }, nil, 20 * time.Second},
		"a request that does not end":      {func(*Config) {}, part[:len(part)-1], time.Minute},
		"a length that does not end":       {func(*Config) {}, part[:2], time.Minute},
		"an answer that nobody takes":      {func(*Config) {}, part, time.Minute},
		"a login request that never comes": {func(c *Config) { c.Security, c.SASL = SASLPlaintext, saslOf(t) }, part[:5], 20 * time.Second},
	} {
		inVirtualTime(t, topics, k.change, func(t *testing.T, s *Server, _ *pipeListener, c *follower) {
			started := time.Now()
			if _, err := c.conn.Write(k.send); err != nil {
				t.Fatal(err)
			}
			time.Sleep(k.after - time.Second)
			synctest.Wait()
			s.mu.Lock()
			open := len(s.connections)
			s.mu.Unlock()
			if open != 1 {
				t.Fatalf("%s: it is gone before %v", name, time.Since(started))
			}
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
			s.mu.Lock()
			open = len(s.connections)
			s.mu.Unlock()
			if open != 0 {
				t.Errorf("%s: it is there after %v", name, time.Since(started))
			}
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	topics, _ := topicOf(1)
	var counts []int
	var refused []string
	change := func(c *Config) {
		c.MaxConnections = 2
		c.Observer.Connections = func(n int) { counts = append(counts, n) }
		c.Observer.Refused = func(reason string) { refused = append(refused, reason) }
	}
	inVirtualTime(t, topics, change, func(t *testing.T, _ *Server, l *pipeListener, c *follower) {
		second, third := l.dial(t), l.dial(t)
		defer func() { _ = second.conn.Close() }()
		if _, err := third.try(fetchOf(17, topicA, 0)); err == nil {
			t.Error("a third connection is served")
		}
		_ = c.conn.Close()
		synctest.Wait()
		fourth := l.dial(t)
		fourth.ask(fetchOf(17, topicA, 0))
		second.ask(fetchOf(17, topicA, 0))
		_ = fourth.conn.Close()
		synctest.Wait()
		if want := []int{1, 2, 1, 2, 1}; !slices.Equal(counts, want) {
			t.Errorf("told of %v connections, want %v", counts, want)
		}
		if !slices.Equal(refused, []string{"too many connections"}) {
			t.Errorf("refused: %q", refused)
		}
	})
}

// flakyListener fails a few times before it accepts.
type flakyListener struct {
	*pipeListener
	fails int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.fails > 0 {
		l.fails--
		return nil, fmt.Errorf("too many open files")
	}
	return l.pipeListener.Accept()
}

func TestAcceptGoesOnAfterErrors(t *testing.T) {
	topics, _ := topicOf(1)
	synctest.Test(t, func(t *testing.T) {
		l := &flakyListener{newPipeListener(), 3}
		startOn(t, l, topics, nil)
		c := l.dial(t)
		defer func() { _ = c.conn.Close() }()
		c.ask(fetchOf(17, topicA, 0))
	})
}

func TestObserver(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(1000)
	var told []string
	change := func(c *Config) {
		c.Observer.Request = func(kind string, version int16, took time.Duration, sent int) {
			told = append(told, fmt.Sprintf("%s %d %v %d", kind, version, took, sent))
		}
	}
	inVirtualTime(t, topics, change, func(t *testing.T, _ *Server, _ *pipeListener, c *follower) {
		c.ask(fetchOf(17, topicA, 0))
		req := fetchOf(13, topicA, 1)
		req.MaxWaitMillis = 100
		c.ask(req)
		c.ask(endOf(7, 1))
	})
	if want := []string{"Fetch 17 0s 1077", "Fetch 13 100ms 76", "ListOffsets 7 0s 46"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestConfigsThatDoNotFit(t *testing.T) {
	l := newPipeListener()
	topics, _ := topicOf(1)
	for want, c := range map[string]Config{
		"Listener and Topics": {Topics: topics},
		"needs TLS":           {Listener: l, Topics: topics, Security: SASLSSL, SASL: saslOf(t)},
		"needs a mechanism":   {Listener: l, Topics: topics, Security: SASLPlaintext},
		"no security":         {Listener: l, Topics: topics, Security: 7},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, bytes.Repeat([]byte{0}, 9), []byte("\x00\x01\x00\x11\x00\x00\x00\x01\x7f\xffabc")} {
		if _, _, ok := readHeader(b); ok {
			t.Errorf("%x is a header", b)
		}
	}
	h, rest, ok := readHeader([]byte("\x00\x01\x00\x11\x00\x00\x00\x09\x00\x03abcrest"))
	if !ok || h != (header{1, 17, 9}) || string(rest) != "rest" {
		t.Errorf("%+v, %q, %v", h, rest, ok)
	}
	if rest, ok := skipTags([]byte("\x02\x05\x01x\x80\x01\x02yyrest")); !ok || string(rest) != "rest" {
		t.Errorf("%q, %v", rest, ok)
	}
}
