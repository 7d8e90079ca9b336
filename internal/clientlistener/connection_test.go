package clientlistener

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answering answers every kind that tests send, with nothing in it.
func answering(req kmsg.Request) kmsg.Response {
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil
	}
	return req.ResponseKind()
}

func metadataOf(topics int) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	for i := range topics {
		name := fmt.Sprintf("topic-%d", i)
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	return req
}

// TestOrderAndBytes: requests in one write are answered in their order, those that are passed on arrive byte for byte, and a Produce with acks=0 has no answer.
func TestOrderAndBytes(t *testing.T) {
	b := startBroker(t, answering)
	c := dial(t, start(t, &fakePartition{}, nil, b))
	var out []byte
	var sent [][]byte
	var correlations []int32
	for i := range int32(60) {
		var req kmsg.Request
		switch i % 6 {
		case 0:
			req = metadataOf(int(i))
		case 1:
			req = listOf(7, Latest, true)
		case 2:
			req = produceOf(9, 0, 5000)
		case 3:
			req = fetchOf(13)
		case 4:
			req = produceOf(9, 1, 40_000) // more than the head that is looked at, and than a piece
		case 5:
			req = kmsg.NewPtrFindCoordinatorRequest()
		}
		frame := formatter.AppendRequest(nil, req, 1000+i)
		out = append(out, frame...)
		sent = append(sent, frame[4:])
		if i%6 != 2 {
			correlations = append(correlations, 1000+i)
		}
	}
	go c.conn.Write(out) //nolint:errcheck // what is missing shows below
	for _, want := range correlations {
		body, err := readFrame(c.conn)
		if err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.BigEndian.Uint32(body)); got != want {
			t.Fatalf("answer %d, expected is %d", got, want)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.raw) != len(sent) {
		t.Fatalf("%d requests arrived, %d were sent", len(b.raw), len(sent))
	}
	for i, raw := range b.raw {
		if readFixedHeader(raw).key != keyFetch && !bytes.Equal(raw, sent[i]) {
			t.Errorf("request %d arrived changed", i)
		}
	}
}

// TestKfakeBehind: a client that reaches a cluster only through here makes a topic, writes to it and reads where it ends.
func TestKfakeBehind(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "seeded"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s := start(t, &fakePartition{}, func(c *Config) {
		c.Brokers = func() []Broker { return []Broker{{0, cluster.ListenAddrs()[0]}} }
	})
	here := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Addr().String())
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr().String()), kgo.Dialer(here), kgo.DefaultProduceTopic("made"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "made"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cl.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := admin.ListEndOffsets(ctx, "made")
	if end, _ := ends.Lookup("made", 0); err != nil || end.Offset != 3 {
		t.Errorf("it ends at %+v, %v", end, err)
	}
	if err := admin.CommitAllOffsets(ctx, "a-group", kadm.OffsetsFromRecords(kgo.Record{Topic: "made", Offset: 1})); err != nil {
		t.Error(err)
	}
}

// TestABrokersEndIsItsClientsAlone: connections to a broker end with it, those to another one go on, and new ones pass over one that is dead.
func TestABrokersEndIsItsClientsAlone(t *testing.T) {
	brokers := []*fakeBroker{startBroker(t, answering), startBroker(t, answering)}
	s := start(t, &fakePartition{}, nil, brokers...)
	clients := []*client{dial(t, s), dial(t, s)}
	for _, c := range clients {
		c.ask(metadataOf(1))
	}
	if brokers[0].count() != 1 || brokers[1].count() != 1 {
		t.Fatalf("two clients went to the brokers %d and %d times", brokers[0].count(), brokers[1].count())
	}
	brokers[0].die()
	gone := 0
	for _, c := range clients {
		c.send(metadataOf(1))
		if _, err := readFrame(c.conn); err != nil {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d of 2 connections ended with one of two brokers", gone)
	}
	for range 3 {
		dial(t, s).ask(metadataOf(1))
	}
}

// TestLastWords: what a broker says before it ends the connection reaches the client, also one that sends on.
func TestLastWords(t *testing.T) {
	b := startBroker(t, nil)
	b.say = func(req kmsg.Request) kmsg.Response {
		if b.count() > 1 {
			return closeIt
		}
		return req.ResponseKind()
	}
	c := dial(t, start(t, &fakePartition{}, nil, b))
	c.ask(metadataOf(1))
	c.send(metadataOf(1))
	if !c.ended() {
		t.Error("the connection goes on")
	}
}

// TestAcksNoneEndsAsKafkaDoes: a broker answers a wrong Produce with acks=0 by ending the connection.
func TestAcksNoneEndsAsKafkaDoes(t *testing.T) {
	b := startBroker(t, func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.ProduceRequest); ok {
			return closeIt
		}
		return req.ResponseKind()
	})
	c := dial(t, start(t, &fakePartition{}, nil, b))
	c.ask(metadataOf(1))
	c.send(produceOf(9, 0, 10))
	if !c.ended() {
		t.Error("the connection goes on")
	}
}

func TestGarbageEndsItsOwnConnection(t *testing.T) {
	b := startBroker(t, answering)
	var reasons sync.Map
	s := start(t, &fakePartition{}, func(c *Config) {
		c.MaxRequestSize, c.Observer.Refused = 2<<20, func(reason string) { reasons.Store(reason, true) }
	}, b)
	good := dial(t, s)
	good.ask(metadataOf(1))
	frame := func(key, version int16, body ...byte) []byte {
		f := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
		f = binary.BigEndian.AppendUint16(f, uint16(version))
		f = append(f, 0, 0, 0, 9)
		return withLength(append(f, body...))
	}
	for name, sent := range map[string][]byte{
		"a negative length":        {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0},
		"a length of nothing":      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"TLS":                      {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 1, 2, 3},
		"HTTP":                     []byte("GET / HTTP/1.1\r\n\r\n"),
		"no kind of Kafka's":       frame(9999, 0, 0, 0),
		"Fetch cut off":            frame(keyFetch, 12, 0, 1, 'a', 0, 1, 2, 3),
		"Fetch of an old version":  frame(keyFetch, 3, 0, 0),
		"Fetch of a new version":   frame(keyFetch, 19, 0, 0),
		"SaslHandshake version 0":  frame(keySASLHandshake, 0, 0, 0, 0, 0),
		"Produce without acks":     frame(keyProduce, 9, 0, 0, 0, 9),
		"Produce, header cut off":  frame(keyProduce, 9, 0x7f, 0xff, 1),
		"Fetch, header cut off":    frame(keyFetch, 12, 0x7f, 0xff, 1),
		"a Fetch of 1.5 MiB":       frame(keyFetch, 12, make([]byte, 3<<19)...),
		"a request above the size": frame(3, 12, make([]byte, 2<<20)...),
	} {
		c := dial(t, s)
		_, _ = c.conn.Write(sent) // may end before all is taken
		if !c.ended() {
			t.Errorf("%s: the connection goes on", name)
		}
		good.ask(metadataOf(1))
	}
	reasons.Range(func(reason, _ any) bool {
		if !slices.Contains(Reasons, reason.(string)) {
			t.Errorf("%q is none of Reasons", reason)
		}
		return true
	})
	for _, reason := range []string{"request size", "version not answered", "request header", "request body"} {
		if _, ok := reasons.Load(reason); !ok {
			t.Errorf("nobody was refused for %q", reason)
		}
	}
}

// TestSmallBeforeLogin: who has not logged in holds little memory.
func TestSmallBeforeLogin(t *testing.T) {
	b := startBroker(t, answering)
	s := start(t, &fakePartition{}, func(c *Config) { c.SASL = true }, b)
	large := fetchOf(12)
	for range 5000 {
		large.Topics[0].Partitions = append(large.Topics[0].Partitions, kmsg.NewFetchRequestTopicPartition())
	}
	c := dial(t, s)
	login := kmsg.NewPtrSASLAuthenticateRequest()
	login.Version = 2
	c.ask(login)
	_, _ = c.conn.Write(formatter.AppendRequest(nil, large, 99))
	if !c.ended() {
		t.Error("a large Fetch before anything was answered")
	}
	c = dial(t, s)
	c.ask(metadataOf(1)) // a broker answers that after the login alone
	c.ask(large)
}

// TestConnectionsAreBound: in total and for an address.
func TestConnectionsAreBound(t *testing.T) {
	b := startBroker(t, answering)
	s := start(t, &fakePartition{}, func(c *Config) { c.MaxConnections, c.MaxConnectionsPerAddress = 3, 2 }, b)
	first, second := dial(t, s), dial(t, s)
	first.ask(metadataOf(1))
	second.ask(metadataOf(1))
	if third := dial(t, s); !third.ended() {
		t.Error("a third connection of one address")
	}
	first.conn.Close()
	for deadline := time.Now().Add(20 * time.Second); ; { // its place comes free in a moment
		c := dial(t, s)
		_, _ = c.conn.Write(formatter.AppendRequest(nil, metadataOf(1), 1)) // may have been turned away
		if _, err := readFrame(c.conn); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no place comes free")
		}
	}
	second.ask(metadataOf(1))
}

// TestWhoWaitsTooLong: a connection without a request, and one whose client takes no answers, end.
func TestWhoWaitsTooLong(t *testing.T) {
	large := kmsg.NewPtrMetadataResponse()
	large.Version = 12
	name := strings.Repeat("x", 1<<20)
	for range 64 {
		large.Topics = append(large.Topics, kmsg.MetadataResponseTopic{Topic: &name})
	}
	b := startBroker(t, func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.MetadataRequest); ok {
			return large
		}
		return req.ResponseKind()
	})
	var open atomic.Int64
	s := start(t, &fakePartition{}, func(c *Config) {
		c.IdleBound, c.TransferBound, c.HandshakeBound = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		c.Observer.Connections = func(n int) { open.Store(int64(n)) }
	}, b)
	if c := dial(t, s); !c.ended() {
		t.Error("a connection that never asked anything goes on")
	}
	c := dial(t, s)
	c.ask(kmsg.NewPtrFindCoordinatorRequest())
	if !c.ended() {
		t.Error("an idle connection goes on")
	}
	c = dial(t, s)
	c.send(metadataOf(1))
	for deadline := time.Now().Add(20 * time.Second); open.Load() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("a client that takes no answers keeps its connection")
		}
	}
}

// TestLargeRequestsTakeNoMemory: what is passed on is passed on in pieces.
func TestLargeRequestsTakeNoMemory(t *testing.T) {
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	const size = 64 << 20
	taken := make(chan int, 1)
	go func() {
		conn, err := sink.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b, n := make([]byte, 64<<10), 0
		for n < size {
			m, err := conn.Read(b)
			if n += m; err != nil {
				break
			}
		}
		taken <- n
	}()
	s := start(t, &fakePartition{}, func(c *Config) {
		c.Brokers = func() []Broker { return []Broker{{1, sink.Addr().String()}} }
	})
	c := dial(t, s)
	piece := make([]byte, 64<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	head := formatter.AppendRequest(nil, produceOf(9, -1, 10), 1)
	binary.BigEndian.PutUint32(head, size)
	if _, err := c.conn.Write(head); err != nil {
		t.Fatal(err)
	}
	for n := len(head) - 4; n < size; {
		m, err := c.conn.Write(piece[:min(len(piece), size-n)])
		if n += m; err != nil {
			t.Fatal(err)
		}
	}
	if n := <-taken; n < size {
		t.Errorf("%d bytes of %d arrived", n, size)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes were allocated for a request of %d", used, size)
	}
}

// TestCloseEndsAllAtOnce: also those that wait.
func TestCloseEndsAllAtOnce(t *testing.T) {
	silent := startBroker(t, func(kmsg.Request) kmsg.Response { return nil })
	s := start(t, &fakePartition{}, nil, silent)
	var clients []*client
	for i := range 5 {
		c := dial(t, s)
		if i > 0 { // the first one never asks
			c.send(metadataOf(1))
		}
		clients = append(clients, c)
	}
	for deadline := time.Now().Add(20 * time.Second); silent.count() < 4; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the requests do not arrive")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for i, c := range clients {
		if !c.ended() {
			t.Errorf("connection %d goes on", i)
		}
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// certificate makes one for this machine, and whom it is trusted by.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// tlsThat is TLS whose callback does something first.
func tlsThat(first func(), certificate tls.Certificate) *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		first()
		return &tls.Config{Certificates: []tls.Certificate{certificate}}, nil
	}}
}

func trusting(authority *x509.CertPool) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return &tls.Config{RootCAs: authority}, nil }
}

func tlsClient(conn net.Conn, authority *x509.CertPool) *tls.Conn {
	return tls.Client(conn, &tls.Config{RootCAs: authority, ServerName: "127.0.0.1"})
}

// TestTLSEndsHereAndBeginsAnew: and a broker that asks for a client's certificate, whether it must have one or not, is nothing to pass clients on to.
func TestTLSEndsHereAndBeginsAnew(t *testing.T) {
	theirs, theirAuthority := certificate(t)
	ours, ourAuthority := certificate(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.RequestClientCert, tls.RequireAnyClientCert, tls.RequireAndVerifyClientCert} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b := startBrokerOn(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{theirs}, ClientAuth: auth, ClientCAs: theirAuthority, MinVersion: version, MaxVersion: version}), answering)
			var refused atomic.Bool
			trusted := func() (*tls.Config, error) { return &tls.Config{RootCAs: theirAuthority}, nil }
			s := start(t, &fakePartition{}, func(c *Config) {
				c.TLS, c.BrokerTLS = &tls.Config{Certificates: []tls.Certificate{ours}}, trusted
				c.Observer.Refused = func(reason string) { refused.Store(reason == "client certificate") }
			}, b)
			c := dial(t, s)
			c.conn = tls.Client(c.conn, &tls.Config{RootCAs: ourAuthority, ServerName: "127.0.0.1"})
			c.send(metadataOf(1))
			_, answered := readFrame(c.conn)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			conn, err := Dial(ctx, l.Addr().String(), trusted)
			stop()
			if err == nil {
				conn.Close()
			}
			if auth == tls.NoClientCert {
				if answered != nil || err != nil {
					t.Errorf("version %x, no certificate is asked for: %v, %v", version, answered, err)
				}
			} else if answered == nil || !errors.Is(err, ErrClientCertificate) || !refused.Load() {
				t.Errorf("version %x, %v: the client was answered: %v, preflight sees %v, refused %v", version, auth, answered == nil, err, refused.Load())
			}
		}
	}
}

// TestSecretsAreNotLogged: a password that passes through is in no line of the log, whatever goes wrong with its connection.
func TestSecretsAreNotLogged(t *testing.T) {
	var log lockedBuffer
	b := startBroker(t, func(kmsg.Request) kmsg.Response { return closeIt })
	s := start(t, &fakePartition{}, func(c *Config) {
		c.SASL, c.Logger = true, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, b)
	c := dial(t, s)
	login := kmsg.NewPtrSASLAuthenticateRequest()
	login.Version, login.SASLAuthBytes = 2, []byte("\x00alice\x00alice-secret")
	c.send(login)
	if !c.ended() {
		t.Error("the connection goes on")
	}
	c = dial(t, s)
	_, _ = c.conn.Write(append([]byte{0, 0, 0, 200, 0, 1, 0, 99, 0, 0, 0, 1}, "alice-secret"...))
	if !c.ended() {
		t.Error("the connection goes on")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "alice") || !strings.Contains(text, "version not answered") {
		t.Errorf("the log says:\n%s", text)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestManual: the manual's table has the kinds and the versions that are told.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var said, are []string
	in := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(line, "what is done") && len(f) > 3 && f[0] == "request":
			in = true
		case in && len(f) < 3:
			in = false
		case in && f[0] != "all":
			said = append(said, strings.Join(f[:3], " "))
		}
	}
	for _, k := range kinds {
		told := fmt.Sprintf("%d-%d", k.min, k.max)
		switch {
		case k.max < k.min:
			told = "none"
		case k.max == k.min:
			told = fmt.Sprint(k.max)
		}
		are = append(are, fmt.Sprintf("%s %d %s", k.name, k.key, told))
	}
	if !slices.Equal(said, are) {
		t.Errorf("the manual says\n%q, they are\n%q", said, are)
	}
}
