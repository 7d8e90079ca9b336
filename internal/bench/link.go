package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

// The link of -link: what lies between two continents.
const (
	linkRoundTrip = 100 * time.Millisecond
	linkRate      = 125_000_000 // bytes a second
)

// longLink is what an order says of the way to the source.
type longLink struct {
	RoundTrip  time.Duration // 0: none but the machine's own
	Rate       int           // bytes a second, of each connection
	OneAtATime bool          // no requests ahead
}

func (l longLink) dialer(addresses ...string) *proxy.Dialer {
	d := &proxy.Dialer{}
	for _, a := range addresses {
		d.SetLink(a, proxy.Link{Delay: l.RoundTrip / 2, Rate: l.Rate})
	}
	return d
}

// measureLink has a mirror copy one partition over a long link, with requests ahead and with one at a time, beside a bare stream of bytes over the same link.
func measureLink(ctx context.Context, t *program, e extent, check bool) {
	s := &suite{ctx: ctx, t: t, extent: e}
	s.src = kafkatest.Start(t, kafkatest.Options{HeapMB: 1024, Config: brokerConfig})
	s.from = placeOf(t, s.src)
	res := results{Machine: thisMachine(), Versions: theseVersions(s.src.Version()), Command: commandLine(os.Args[1:])}
	res.head(os.Stdout)
	l := longLink{RoundTrip: linkRoundTrip, Rate: linkRate}
	fmt.Printf("link: a proxy in the process (no tc netem: its delay and rate without loss or a window of TCP), %v round trip, %d MB/s a connection; one partition, 1 KiB records, %d MB\n\n",
		l.RoundTrip, l.Rate/1_000_000, e.megabytes)
	o := s.fill(cell{records: []int{1024}, codec: "none", partitions: 1}, 1024)
	var ahead, one []float64
	fmt.Println("| round | bare stream MB/s | one request at a time | of the stream | requests ahead | of the stream | peak MiB | load |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for round := range e.rounds {
		stream := bareStream(t, l, o.Bytes)
		o.Link, o.AtMost = l, e.steady
		o.Link.OneAtATime = true
		slow := s.once(o, memlogged)
		o.Link.OneAtATime = false
		fast := s.once(o, memlogged)
		one, ahead = append(one, slow.rate()/stream), append(ahead, fast.rate()/stream)
		fmt.Printf("| %d | %.1f | %.1f | %.2f | %.1f | %.2f | %.0f | %s |\n", round+1, stream, slow.rate(), slow.rate()/stream, fast.rate(), fast.rate()/stream, fast.peakMiB(), load())
	}
	g := atLeast("one partition over the link, of a bare stream over it", 0.8, ahead)
	fmt.Printf("\none request at a time: %.2f (%s); requests ahead: %.2f (%s)\n", median(one), spread(one), median(ahead), spread(ahead))
	fmt.Println(g)
	if check && g.Verdict == "FAIL" {
		t.Fatalf("a goal was missed")
	}
}

// bareStream is how fast so many bytes pass the link: MB/s from the first to the last.
func bareStream(t *program, l longLink, bytes int64) float64 {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer listener.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.CopyN(c, zeros{}, bytes)
			c.Close()
		}
		sent <- err
	}()
	d := l.dialer(listener.Addr().String())
	defer d.Close()
	c, err := d.DialContext(t.ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer c.Close()
	b := make([]byte, 1<<20)
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		t.Fatalf("%v", err)
	}
	began := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, b)
	took := time.Since(began)
	if err == nil {
		err = <-sent
	}
	if err != nil || n != bytes-1 {
		t.Fatalf("bare stream: %d of %d bytes: %v", n+1, bytes, err)
	}
	return float64(n) / 1e6 / took.Seconds()
}

// zeros is bytes without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
