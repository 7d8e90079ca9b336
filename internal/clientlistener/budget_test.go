package clientlistener

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

func TestBudgetIsSharedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100, 60)
		var got []string
		var mu sync.Mutex
		want := func(who ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(got)
			slices.Sort(who)
			if !slices.Equal(got, who) {
				t.Fatalf("%q have it, expected are %q", got, who)
			}
		}
		take := func(ctx context.Context, name, address string, n int64) {
			go func() {
				if err := b.take(ctx, address, n); err == nil {
					mu.Lock()
					got = append(got, name)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		take(t.Context(), "first", "a", 50)
		take(t.Context(), "its second", "a", 20) // over the share
		want("first")
		take(t.Context(), "another", "b", 50)
		want("first", "another")
		take(t.Context(), "a third", "c", 60) // over the whole
		take(t.Context(), "a late one", "d", 1)
		want("first", "another")
		b.give("b", 50)
		want("first", "another") // 60 do not fit, and who came later does not overtake
		b.give("a", 31)          // a part
		want("first", "another", "its second", "a third", "a late one")
		b.give("a", 39)
		b.give("d", 1)
		b.give("c", 60)
		take(t.Context(), "all", "a", 1000) // counts as a share
		want("first", "another", "its second", "a third", "a late one", "all")
		ctx, stop := context.WithCancel(t.Context())
		take(ctx, "gave up", "a", 10)
		stop()
		synctest.Wait()
		b.give("a", 1000)
		if b.used != 0 || len(b.by) != 0 || len(b.waiting) != 0 {
			t.Errorf("%d are taken, %v, %d wait", b.used, b.by, len(b.waiting))
		}
	})
}

// heap is what lives.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fetchOfNothing is the body of a Fetch that is largest when it is decoded: topics without partitions, of which each has tags tags.
func fetchOfNothing(version int16, size, tags int) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	whole := req.AppendTo(nil)
	req.Topics = append(req.Topics, kmsg.NewFetchRequestTopic())
	for i := range tags {
		req.Topics[0].UnknownTags.Set(uint32(i), nil)
	}
	one := len(req.AppendTo(nil)) - len(whole)
	n := (size - len(whole)) / one
	for len(req.Topics) < n {
		req.Topics = append(req.Topics, req.Topics[0])
	}
	for len(req.AppendTo(nil)) > size {
		req.Topics = req.Topics[:len(req.Topics)-10]
	}
	return req.AppendTo(nil)
}

// TestWhatRequestsGrowTo: decoded, with its probe, no request takes more than it is counted with.
func TestWhatRequestsGrowTo(t *testing.T) {
	k, _ := kindOf(keyFetch)
	for _, version := range []int16{4, 12, 13} {
		for _, tags := range []int{0, 1, 9} {
			if tags > 0 && version < k.flexible {
				continue
			}
			body := fetchOfNothing(version, maxRead/4, tags)
			before := heap()
			req := k.request(version)
			if err := decode(req, body); err != nil {
				t.Fatal(err)
			}
			q := probe(req.(*kmsg.FetchRequest))
			frame := q.AppendTo(nil)
			grown := float64(heap()-before) / float64(len(body))
			runtime.KeepAlive(req)
			runtime.KeepAlive(q)
			t.Logf("table: version %d, %d tags for each topic: %.0f times %d bytes", version, tags, grown, len(body))
			if grown > decodeGrowth {
				t.Errorf("version %d, %d tags: %.0f times its %d bytes, counted are %d times", version, tags, grown, len(body), decodeGrowth)
			}
			if len(frame) > len(body) {
				t.Errorf("version %d: the probe has %d bytes of %d", version, len(frame), len(body))
			}
			runtime.KeepAlive(body)
		}
	}
}

// TestMemoryOfAllConnectionsIsBound: requests that wait for their answers behind one that is not answered for long, on many connections.
func TestMemoryOfAllConnectionsIsBound(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}()
		}
	}()
	const clients, most = 20, 64 << 20
	var refused atomic.Int32
	s := start(t, &fakePartition{}, func(c *Config) {
		c.Brokers = func() []Broker { return []Broker{{1, silent.Addr().String()}} }
		c.MaxMemory, c.TransferBound = most, time.Second
		c.Observer.Refused = func(reason string) {
			if reason == reasonMemory {
				refused.Add(1)
			}
		}
	})
	join := formatter.AppendRequest(nil, kmsg.NewPtrJoinGroupRequest(), 1)
	frame := formatter.AppendRequest(nil, &kmsg.FetchRequest{Version: 12}, 2)
	empty := (&kmsg.FetchRequest{Version: 12}).AppendTo(nil)
	frame = withLength(append(frame[:len(frame)-len(empty)], fetchOfNothing(12, maxRead-100, 0)...))
	before := heap()
	for range clients {
		c := dial(t, s)
		go c.conn.Write(append(join[:len(join):len(join)], frame...)) //nolint:errcheck // most of them are turned away
	}
	deadline := time.Now().Add(20 * time.Second)
	for refused.Load() < clients/2 { // of one address
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d connections were turned away", refused.Load(), clients)
		}
		runtime.Gosched()
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d connections keep %d MiB, the bound is %d", clients, grown>>20, most>>20)
	}
	s.kept.mu.Lock()
	used := s.kept.used
	s.kept.mu.Unlock()
	if used == 0 || used > s.kept.share {
		t.Errorf("one address has %d bytes of %d", used, s.kept.share)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, b := range []*budget{s.kept, s.answering, s.decoding} {
		if b.used != 0 || len(b.waiting) != 0 {
			t.Errorf("%d bytes are counted when all is over, and %d wait", b.used, len(b.waiting))
		}
	}
}

// TestSmallRequestsNeedNoBudget: consumers of few partitions are answered also while others have it all.
func TestSmallRequestsNeedNoBudget(t *testing.T) {
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return codeNotLeaderOrFollower }))
	s := start(t, &fakePartition{read: ReadAnswer{Replica: 3}}, func(c *Config) { c.TransferBound = 100 * time.Millisecond }, b)
	for _, full := range []*budget{s.kept, s.answering} {
		for _, address := range []string{"127.0.0.1", "other"} {
			if err := full.take(t.Context(), address, full.share); err != nil {
				t.Fatal(err)
			}
			defer full.give(address, full.share)
		}
	}
	dial(t, s).ask(fetchOf(12))
	large := fetchOf(12)
	for range 1000 {
		large.Topics[0].Partitions = append(large.Topics[0].Partitions, kmsg.NewFetchRequestTopicPartition())
	}
	c := dial(t, s)
	c.send(large)
	if !c.ended() {
		t.Error("a large request is answered while there is no memory for it")
	}
}

// pipes is a listener whose connections are net.Pipe's, for time that is not the machine's.
type pipes struct {
	come   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{come: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowIsNotSilent: TransferBound is for each 32 KiB, of an answer that was understood too; a side that takes nothing is cut when it is over.
func TestSlowIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Listener: newPipes(), Topics: func() Topics { return fakeTopics{} }, Brokers: func() []Broker { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		here, there := net.Pipe()
		c := newConnection(s, here)
		defer c.stop()
		const size = 20 << 20
		taken := make(chan int)
		go func() {
			b, n := make([]byte, pieceSize), 0
			for n < size {
				time.Sleep(s.config.TransferBound * 2 / 3)
				m, err := io.ReadFull(there, b)
				if n += m; err != nil {
					break
				}
			}
			taken <- n
		}()
		if err := c.reply(make([]byte, size)); err != nil {
			t.Errorf("a client that takes 32 KiB in time is cut: %v", err)
		}
		here.Close()
		if n := <-taken; n < size {
			t.Errorf("it has got %d bytes of %d", n, size)
		}

		here, _ = net.Pipe()
		c = newConnection(s, here)
		defer c.stop()
		began := time.Now()
		if err := c.reply(make([]byte, size)); err == nil || time.Since(began) != s.config.TransferBound {
			t.Errorf("one that takes nothing: %v after %s", err, time.Since(began))
		}
	})
}

// TestCloseDoesNotWaitForCallbacks: whoever gives TLS its certificates may read them from a disk that hangs.
func TestCloseDoesNotWaitForCallbacks(t *testing.T) {
	b := startBroker(t, answering)
	hang, inside := make(chan struct{}), make(chan struct{}, 1)
	ours, authority := certificate(t)
	s := start(t, &fakePartition{}, func(c *Config) {
		c.TLS, c.BrokerTLS = tlsThat(func() { inside <- struct{}{}; <-hang }, ours), trusting(authority)
		c.CloseBound = 10 * time.Millisecond
	}, b)
	c := dial(t, s)
	go func() { _ = tlsClient(c.conn, authority).Handshake() }()
	<-inside
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("nothing is said of the connection that has not ended")
		}
	case <-time.After(20 * time.Second):
		t.Error("Close waits for a callback")
	}
	close(hang)
	for deadline := time.Now().Add(20 * time.Second); s.Close() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end when the callback has")
		}
	}
}

// asking is a partition whose lookups wait.
type asking struct {
	*fakePartition
	now  *atomic.Int32
	wait chan struct{}
}

func (a asking) Offset(ctx context.Context, _ OffsetQuestion) OffsetAnswer {
	a.now.Add(1)
	defer a.now.Add(-1)
	select {
	case <-a.wait:
	case <-ctx.Done():
	}
	return OffsetAnswer{Offset: 1}
}

// allLed leads every partition.
type allLed struct{ Partition }

func (a allLed) ByID(statemachine.TopicID, int32) (Partition, bool) { return a.Partition, true }
func (a allLed) ByName(string, int32) (Partition, bool)             { return a.Partition, true }

// TestLookUpsAreShared: what one address has followers asked leaves places for others.
func TestLookUpsAreShared(t *testing.T) {
	code := int16(codeNotLeaderOrFollower)
	b := startBroker(t, codes(&code))
	slow := asking{&fakePartition{}, new(atomic.Int32), make(chan struct{})}
	s := start(t, nil, func(c *Config) { c.Topics = func() Topics { return allLed{slow} } }, b)
	many := listOf(7, 1000, false)
	for n := range int32(2 * maxQuestions) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = n+1, 1000
		many.Topics[0].Partitions = append(many.Topics[0].Partitions, p)
	}
	waiting := func(want int32) {
		t.Helper()
		for deadline := time.Now().Add(8 * time.Second); slow.now.Load() != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%d questions are under way, expected are %d", slow.now.Load(), want)
			}
		}
	}
	greedy := []*client{dial(t, s), dial(t, s)}
	for _, c := range greedy {
		c.send(many)
	}
	waiting(shareQuestions)
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	other := &client{t: t, conn: conn}
	other.send(listOf(7, 1000, false))
	waiting(shareQuestions + 2)
	close(slow.wait)
	for _, c := range append(greedy, other) {
		body, err := readFrame(c.conn)
		if err != nil || int32(binary.BigEndian.Uint32(body)) != c.next {
			t.Errorf("no answer: %v", err)
		}
	}
}
