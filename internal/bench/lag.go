package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// lagBatch is about what a batch of a lag cell holds: there is one for each partition in a request.
const lagBatch = 16 << 10

// lags measures each system of a cell, beside a bare fetcher that follows the same topic at the same time: pauses of the broker and of the machine hit both.
func (s *suite) lags(c cell) (out []lagPair) {
	for round := range s.extent.of(c) {
		for _, system := range c.systems() {
			p := s.lag(c, system)
			p.Round, p.Load = round+1, load()
			out = append(out, p)
		}
	}
	return out
}

func (s *suite) lag(c cell, system string) lagPair {
	s.topics++
	o := order{Topic: fmt.Sprintf("bench-%d", s.topics), Partitions: c.partitions, Codec: c.codec, Source: s.from, Destination: s.to, Lag: true}
	s.create(s.src, o.Topic, c.partitions)
	defer s.remove(s.src, o.Topic)
	if system == copier {
		s.create(s.dst, o.Topic, c.partitions)
		defer s.remove(s.dst, o.Topic)
	}
	one, records, err := makeBatch(c.records[0], lagBatch, c.codec)
	if err != nil {
		s.t.Fatalf("batch: %v", err)
	}
	w := &stampWriter{s: s, o: o, one: one, client: s.src.Client(kgo.MaxVersions(kversion.V3_0_0())), places: make(chan struct{}, 8)} // produce by topic name
	w.first()
	followers := []*follower{s.follow(o, raw), s.follow(o, system)}
	caughtUp := func() {
		w.wait()
		poll(s.ctx, s.t, system+" to have everything", time.Millisecond, func() bool {
			want := w.batches.Load() * int64(records)
			return !slices.ContainsFunc(followers, func(f *follower) bool {
				if f.gone.Load() {
					s.t.Fatalf("%s has ended", f.system)
				}
				return f.have.Load() < want
			})
		})
	}
	caughtUp()
	megabytes := func(batches int64, in time.Duration) float64 {
		return float64(batches*int64(len(one))) / 1e6 / in.Seconds()
	}

	began, before := time.Now(), w.batches.Load()
	for time.Since(began) < s.extent.saturate {
		w.write()
	}
	caughtUp()
	saturation := megabytes(w.batches.Load()-before, time.Since(began))

	// Half of that. The first second does not count.
	every := time.Duration(2 * float64(len(one)) * float64(c.partitions) / 1e6 / saturation * float64(time.Second))
	began, before = time.Now(), w.batches.Load()
	counted := began.Add(time.Second)
	end := counted.Add(s.extent.steady)
	for n := 0; time.Now().Before(end); n++ {
		time.Sleep(time.Until(began.Add(time.Duration(n) * every)))
		w.write()
	}
	rate := megabytes(w.batches.Load()-before, time.Since(began))
	caughtUp()
	p := lagPair{Saturation: saturation, Rate: rate}
	for i, to := range []*lag{&p.Raw, &p.System} {
		*to = followers[i].end(s.t, counted, end)
	}
	return p
}

// stampWriter produces batches that carry the moment in which they were sent.
type stampWriter struct {
	s       *suite
	o       order
	one     []byte
	client  *kgo.Client
	places  chan struct{} // requests under way
	batches atomic.Int64  // that the broker has
}

// first writes until every partition has taken a batch of one request: a new topic may not be led yet.
func (w *stampWriter) first() {
	poll(w.s.ctx, w.s.t, "leaders of "+w.o.Topic, 20*time.Millisecond, func() bool {
		before := w.batches.Load()
		w.write()
		w.wait()
		return w.batches.Load()-before == int64(w.o.Partitions)
	})
}

// write sends a request with one batch for each partition. It waits while there is no place for one more.
func (w *stampWriter) write() {
	w.places <- struct{}{}
	stamped := slices.Clone(w.one)
	setTimestamps(stamped, stamp(time.Now().UnixMicro()))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = w.o.Topic
	for p := range w.o.Partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, stamped
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	go func() {
		defer func() { <-w.places }()
		res, err := w.client.Broker(1).Request(w.s.ctx, req)
		if err != nil {
			log.Printf("produce: %v", err) // the followers will miss it, and that ends the command
			return
		}
		for _, rt := range res.(*kmsg.ProduceResponse).Topics {
			for _, rp := range rt.Partitions {
				if kerr.ErrorForCode(rp.ErrorCode) == nil {
					w.batches.Add(1)
				}
			}
		}
	}()
}

// wait returns when no request is under way.
func (w *stampWriter) wait() {
	for range cap(w.places) {
		w.places <- struct{}{}
	}
	for range cap(w.places) {
		<-w.places
	}
}

// follower is a process that follows a topic.
type follower struct {
	system string
	in     io.WriteCloser
	have   atomic.Int64
	gone   atomic.Bool
	late   chan *lag
	ended  func() error
}

func (s *suite) follow(o order, system string) *follower {
	o.System = system
	cmd, err := child(s.ctx, o)
	if err != nil {
		s.t.Fatalf("%s: %v", system, err)
	}
	f := &follower{system: system, late: make(chan *lag, 1), ended: cmd.Wait}
	var out io.Reader
	if f.in, err = cmd.StdinPipe(); err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = kafkatest.StartProcess(cmd)
	}
	if err != nil {
		s.t.Fatalf("%s: %v", system, err)
	}
	go func() {
		defer close(f.late)
		defer f.gone.Store(true)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var p progress
			if json.Unmarshal(lines.Bytes(), &p) != nil {
				return
			}
			f.have.Store(p.Have)
			if p.Late != nil {
				f.late <- p.Late
			}
		}
	}()
	return f
}

// end asks for the lag of what was sent between two times, and waits for the end of the process.
func (f *follower) end(t *program, from, to time.Time) lag {
	if _, err := fmt.Fprintln(f.in, from.UnixMicro(), to.UnixMicro()); err != nil {
		t.Fatalf("%s: %v", f.system, err)
	}
	l := <-f.late
	if l == nil {
		t.Fatalf("%s told no lag", f.system)
	}
	for range f.late { // to the end of its output
	}
	if err := f.ended(); err != nil {
		t.Fatalf("%s: %v", f.system, err)
	}
	return *l
}
