package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

const (
	idleTopics     = 100
	idlePartitions = 50 // of each
	idleBrokers    = 3
	idleSettle     = 60 * time.Second // from when all partitions are mirrored
	idleMeasured   = 60 * time.Second
)

// idleRun is what a process of idle mirrors used.
type idleRun struct {
	Mirrors    int
	Partitions int
	CPU        float64 // of one core, as a part of 1, over idleMeasured
	Resident   int64   // bytes, at its end
	Fetches    float64 // requests a second, to all brokers of the source together
	Requests   float64 // of all kinds
	Started    float64 // seconds until all partitions were mirrored
}

// measureIdle has processes mirror topics in which nothing happens: of one partition, which is the base, and of 5,000 over three brokers, by one mirror and by three in one process.
func measureIdle(ctx context.Context, t *program, check bool) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: idleBrokers, HeapMB: 1024, Config: map[string]string{"log.segment.delete.delay.ms": "1000"}})
	from := placeOf(t, c)
	res := results{Machine: thisMachine(), Versions: theseVersions(c.Version()), Command: commandLine(os.Args[1:])}
	res.head(os.Stdout)
	c.CreateTopic(kafkatest.Topic{Name: "base", Partitions: 1, Replication: 1})
	var names []string
	for i := range idleTopics {
		names = append(names, fmt.Sprintf("idle-%03d", i))
		c.CreateTopic(kafkatest.Topic{Name: names[i], Partitions: idlePartitions, Replication: 1, Configs: map[string]string{"segment.bytes": "1048576"}})
	}
	fmt.Printf("%d topics of %d partitions, no records, %d source brokers; into memlog; CPU from /proc/self/stat over %v, after %v of settling\n\n",
		idleTopics, idlePartitions, idleBrokers, idleMeasured, idleSettle)
	fmt.Println("| mirrors in the process | partitions | s until mirrored | CPU, % of a core | resident MiB | beyond the base | requests/s | of them Fetch | load |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	run := func(mirrors int, topics ...string) idleRun {
		cmd, err := child(ctx, order{System: idle, Idle: topics, Mirrors: mirrors, Source: from})
		if err != nil {
			t.Fatalf("idle: %v", err)
		}
		var out bytes.Buffer
		cmd.Stdout = &out
		if err = kafkatest.StartProcess(cmd); err == nil {
			err = cmd.Wait()
		}
		var r idleRun
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &r)
		}
		if err != nil {
			t.Fatalf("idle: %v: %s", err, out.Bytes())
		}
		return r
	}
	base := run(1, "base")
	row := func(r idleRun) {
		fmt.Printf("| %d | %d | %.1f | %.2f | %.1f | %.1f | %.1f | %.1f | %s |\n", r.Mirrors, r.Partitions, r.Started, 100*r.CPU, mib(r.Resident), mib(r.Resident-base.Resident), r.Requests, r.Fetches, load())
	}
	row(base)
	one := run(1, names...)
	row(one)
	three := run(3, names...)
	row(three)
	fmt.Println()
	missed := false
	for _, g := range []goal{
		atMost("5,000 idle partitions, one mirror: % of a core beyond the base", 2, []float64{100 * (one.CPU - base.CPU)}),
		atMost("5,000 idle partitions, one mirror: resident MiB beyond the base", 64, []float64{mib(one.Resident - base.Resident)}),
		atMost("5,000 idle partitions, three mirrors in one process: % of a core beyond the base", 2, []float64{100 * (three.CPU - base.CPU)}),
		atMost("5,000 idle partitions, three mirrors in one process: resident MiB beyond the base", 64, []float64{mib(three.Resident - base.Resident)}),
	} {
		fmt.Println(g)
		missed = missed || g.Verdict == "FAIL"
	}
	if check && missed {
		t.Fatalf("a goal was missed")
	}
}

// idleSelf is the measured process.
func (m *measured) idleSelf() {
	began := time.Now()
	src := m.source()
	var running []*mirror.Mirror
	for n := range m.o.Mirrors {
		c := memlog.New(memlog.Config{ClusterID: fmt.Sprintf("bench-%d", n), Discard: true})
		m.t.Cleanup(func() { c.Close() })
		var topics []string
		for i, name := range m.o.Idle {
			if i%m.o.Mirrors == n {
				topics = append(topics, name)
			}
		}
		one, err := mirror.Open(m.ctx, mirror.Config{Name: fmt.Sprintf("bench-%d", n), Source: src, Destination: c, Store: keyedlog.NewStateStore(keyedlog.NewMemory()), Sink: mirror.Discard})
		if err != nil {
			m.t.Fatalf("mirror: %v", err)
		}
		m.t.Cleanup(func() { one.Close() })
		if _, err := one.Admin().Start(m.ctx, topics, mirror.StartOptions{}); err != nil {
			m.t.Fatalf("mirror: %v", err)
		}
		running = append(running, one)
	}
	r := idleRun{Mirrors: m.o.Mirrors}
	poll(m.ctx, m.t, "all partitions to be mirrored", 500*time.Millisecond, func() bool {
		r.Partitions = 0
		topics := 0
		for _, one := range running {
			for _, topic := range one.Status().Topics {
				topics++
				for _, p := range topic.Partitions {
					if p.State != statemachine.Mirroring {
						return false
					}
					r.Partitions++
				}
			}
		}
		return topics == len(m.o.Idle)
	})
	r.Started = time.Since(began).Seconds()
	m.sleep(idleSettle)
	before, err := processTime(os.Getpid())
	asked, at := src.Counts(), time.Now()
	m.sleep(idleMeasured)
	took := time.Since(at).Seconds()
	after, errAfter := processTime(os.Getpid())
	if err != nil || errAfter != nil {
		m.t.Fatalf("idle: %v, %v", err, errAfter)
	}
	now := src.Counts()
	r.CPU, r.Resident = (after-before).Seconds()/took, resident(m.t)
	r.Fetches, r.Requests = float64(now.Fetches-asked.Fetches)/took, float64(now.Requests-asked.Requests)/took
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		m.t.Fatalf("idle: %v", err)
	}
}

func (m *measured) sleep(d time.Duration) {
	select {
	case <-m.ctx.Done():
		m.t.Fatalf("%v", m.ctx.Err())
	case <-time.After(d):
	}
}
