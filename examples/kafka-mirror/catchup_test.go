package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/verify"
)

// TestFailbackWaitsUntilTheCopyHasWhatTheSourceHad: MIRRORING is reached before anything is copied. What is compared at the end of --failback --wait is a copy that has caught up.
// The mirror copies into memory, which says that it is the cluster of --bootstrap-server; what that has of the topic is copied by this test, as soon as it is waited for.
func TestFailbackWaitsUntilTheCopyHasWhatTheSourceHad(t *testing.T) {
	t.Parallel() // it waits most of the time
	source, standby := startSource(t, "orders"), startStandby(t, "orders")
	whole := batchesOf(t, source)
	at := standby.ListenAddrs()[0]
	common := []string{"--bootstrap-server", at, "--mirror", "dr"}
	if status, _, complaints := command(t, append(common, "--create", "--command-config", writeFile(t, "one.properties", "mirror.state.topic.replication.factor=1"), "--mirror-config",
		writeFile(t, "dr.properties", "bootstrap.servers="+source.ListenAddrs()[0]))...); status != 0 {
		t.Fatal(complaints)
	}
	memory := memlog.New(memlog.Config{ClusterID: standbyID})
	t.Cleanup(func() { memory.Close() })
	if _, err := memory.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	records, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: standby.ListenAddrs(), ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirrorInto(t, records, memory, mirror.Discard, time.Second)

	var complaints bytes.Buffer
	out := &watchedFor{words: "catching up: 1 of 1 partition to go\n", then: func() { appendRaw(t, standby, whole...) }}
	p := &program{out: out, complaints: &complaints}
	status := p.run(t.Context(), append(common, "--failback", "--topics", "orders", "--reason", "the primary is back", "--destination-cluster-id", standbyID, "--yes", "--wait"))
	if text := out.text.String(); status != 0 || !strings.Contains(text, "IDENTICAL") || !strings.Contains(text, "3 records") {
		t.Errorf("exit status %d\n%s%s", status, text, &complaints)
	}
}

// watchedFor does something when words were written to it for the first time.
type watchedFor struct {
	words string
	then  func()
	text  bytes.Buffer
	once  sync.Once
}

func (w *watchedFor) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if strings.Contains(w.text.String(), w.words) {
		w.once.Do(w.then)
	}
	return n, err
}

// growing is a side whose end grows by one each second.
type growing struct {
	verify.Side
	partition mirror.TopicPartition
	end       int64
	begun     time.Time
	err       error
}

func (g *growing) Partition() mirror.TopicPartition { return g.partition }

func (g *growing) Bounds(ctx context.Context) (verify.Bounds, error) {
	if err := ctx.Err(); err != nil {
		return verify.Bounds{}, err
	}
	return verify.Bounds{End: g.end + int64(time.Since(g.begun)/time.Second)}, g.err
}

// TestCatchUp: it is waited for what the sources had at the beginning, however they grow. A wait that ends before says of each partition how far it is, and what to do.
func TestCatchUp(t *testing.T) {
	pair := func(topic string, source, copied int64) verify.Pair {
		tp := mirror.TopicPartition{Topic: topic}
		return verify.Pair{A: &growing{partition: tp, end: source, begun: time.Now()}, B: &growing{partition: tp, end: copied, begun: time.Now()}}
	}
	for _, c := range []struct {
		name        string
		stops       bool // the wait is interrupted
		deaf        bool // the cluster of the copies does not answer
		bound, took time.Duration
		says        string
		shown       string
		missing     int
	}{
		{name: "in time", bound: time.Minute, took: 5 * time.Second, shown: "    0s  catching up: 2 of 3 partitions to go\n    2s  catching up: 1 of 3 partitions to go\n"},
		{name: "too late", bound: 3500 * time.Millisecond, took: 3500 * time.Millisecond, missing: 1, shown: "    0s  catching up: 2 of 3 partitions to go\n    2s  catching up: 1 of 3 partitions to go\n",
			says: "mirror dr: MIRRORING, but not up to the source's end yet: slow-0: the copy ends at 3, the source ended at 5: not in the 3.5s of --timeout. What is recorded stays; --describe shows how it goes on, and --verify compares it when its LAG is 0"},
		{name: "interrupted", bound: time.Minute, took: 1500 * time.Millisecond, stops: true, missing: 2, shown: "    0s  catching up: 2 of 3 partitions to go\n",
			says: "mirror dr: MIRRORING, but not up to the source's end yet: slow-0: the copy ends at 1, the source ended at 5; fast-0: the copy ends at 2, the source ended at 3: context canceled. What is recorded stays; --describe shows how it goes on, and --verify compares it when its LAG is 0"},
		{name: "nobody tells", bound: 1500 * time.Millisecond, took: 1500 * time.Millisecond, deaf: true, missing: 3, shown: "    0s  catching up: 3 of 3 partitions to go\n",
			says: "mirror dr: MIRRORING, but not up to the source's end yet: slow-0: where the copy ends is not known, the source ended at 5 (no broker answers); done-0: where the copy ends is not known, the source ended at 4 (no broker answers); " +
				"fast-0: where the copy ends is not known, the source ended at 3 (no broker answers): not in the 1.5s of --timeout. What is recorded stays; --describe shows how it goes on, and --verify compares it when its LAG is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := &program{options: options{mirror: "dr"}, out: &out}
				p.waits, p.waited = c.bound, &waitedJSON{Reached: true, Missing: []missingJSON{}, began: time.Now()}
				pairs := []verify.Pair{pair("slow", 5, 0), pair("done", 4, 4), pair("fast", 3, 1)}
				if c.deaf {
					for _, x := range pairs {
						x.B.(*growing).err = errors.New("no broker answers")
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				bounded, end := context.WithTimeout(ctx, c.bound)
				defer end()
				if c.stops {
					time.AfterFunc(c.took, stop)
				}
				began := time.Now()
				err := p.catchUp(ctx, bounded, pairs)
				said := ""
				if err != nil {
					said = err.Error()
				}
				if said != c.says || out.String() != c.shown || time.Since(began) != c.took {
					t.Errorf("in %s:\n%s%s\nwant in %s:\n%s%s", time.Since(began), &out, said, c.took, c.shown, c.says)
				}
				if status := exitStatus(err); (status == 4) != (c.says != "") || p.waited.Reached != (c.says == "") || len(p.waited.Missing) != c.missing || p.waited.Seconds != c.took.Seconds() {
					t.Errorf("exit status %d, %+v", status, p.waited)
				}
			})
		})
	}
}
