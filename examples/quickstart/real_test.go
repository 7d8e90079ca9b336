package main

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// realCluster is a cluster with a topic of three partitions, 1,200 records of 1,000 bytes in each, one record per batch.
func realCluster(t *testing.T) (*kfake.Cluster, string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.ClusterID("field"), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1500), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range 3600 {
		records = append(records, &kgo.Record{Topic: "orders", Partition: int32(i % 3), Value: []byte(strings.Repeat("x", 1000))})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return c, c.ListenAddrs()[0]
}

// requests counts the requests that the cluster gets from here on, by name.
func requests(c *kfake.Cluster) func() map[string]int {
	var mu sync.Mutex
	seen := map[string]int{}
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		seen[kmsg.NameForKey(r.Key())]++
		return nil, nil, false
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

func TestRealReadsOnlyAndSaysWhatItSees(t *testing.T) {
	c, address := realCluster(t)
	seen := requests(c)
	out, code := runUntil(t, regexp.MustCompile(`orders: 3 MIRRORING, 3600 offsets here, lag 0; `), "-source", address, "-topic", "orders")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{
		"Asking " + address + " for topic orders. Nothing will be written there.\n",
		"\ncluster  field, 2 brokers\ntopic    orders, 3 partitions\nsize     3600 offsets, about 3", " on each replica (judged by the first ones read)\n",
		"\nrights   this client may describe and read it\ncopying  the last 10000 offsets of each partition (-from earliest for all)\n",
		" kept, at most 256 MiB\n", "\nInterrupted. This is the failover that would have been made:\nFAILOVER PLAN  mirror quickstart", "\norders-2 ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	reading := []string{"ApiVersions", "Metadata", "ListOffsets", "OffsetForLeaderEpoch", "Fetch", "DescribeCluster"}
	got := seen()
	for name := range got {
		if !slices.Contains(reading, name) {
			t.Errorf("the source was sent %s", name)
		}
	}
	if got["Fetch"] == 0 || got["Metadata"] == 0 {
		t.Errorf("the counter counts nothing: %v", got)
	}
}

func TestRealBeginsNearTheEnd(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range recentOffsets + 5000 {
		records = append(records, &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i)})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{"recent": "10000", "earliest": "15000"} {
		out, code := runUntil(t, regexp.MustCompile(` 1 MIRRORING, `+want+` offsets here, lag 0; `), "-source", c.ListenAddrs()[0], "-topic", "orders", "-from", from)
		if code != 0 || !strings.Contains(out, "size     15000 offsets") {
			t.Errorf("-from %s: exit %d\n%s", from, code, out)
		}
	}
}

func TestRealKeepsWithinItsMemory(t *testing.T) {
	_, address := realCluster(t)
	out, code := runUntil(t, regexp.MustCompile(`lag 0; .*its oldest`), "-source", address, "-topic", "orders", "-from", "earliest", "-memory", "300KiB")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	lines := regexp.MustCompile(`, (\d+) offsets here, .* (\d+) (KiB|bytes) kept, at most 300 KiB: the copy's log start was raised, its oldest (\d+) KiB are gone`).FindAllStringSubmatch(out, -1)
	if len(lines) == 0 {
		t.Fatalf("no line says that the log start was raised:\n%s", out)
	}
	for _, l := range lines {
		here, _ := strconv.Atoi(l[1])
		kept, _ := strconv.Atoi(l[2])
		if l[3] == "KiB" && kept > 300 {
			t.Errorf("%d KiB kept", kept)
		}
		if here == 0 || here > 300 {
			t.Errorf("%d offsets of 1,000 bytes are here", here)
		}
	}
}

// webServerAt is the address of a web server that does not understand what it is asked.
func webServerAt(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1024))
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestObviousMistakesEndInOneLineThatNamesTheFix(t *testing.T) {
	_, address := realCluster(t)
	denied, deniedAt := realCluster(t)
	denied.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		denied.KeepControl()
		req, resp := r.(*kmsg.FetchRequest), r.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewFetchResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewFetchResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	web := webServerAt(t)
	var all strings.Builder
	for _, args := range [][]string{
		{"-source", "127.0.0.1:1", "-topic", "orders"},
		{"-source", address, "-topic", "order"},
		{"-source", deniedAt, "-topic", "orders"},
		{"-source", web, "-topic", "orders"},
		{"-source", "localhost:9092"},
		{"-topic", "orders"},
		{"-source", "localhost", "-topic", "orders"},
		{"-source", "localhost:9092", "-topic", "orders", "-from", "yesterday"},
		{"-source", "localhost:9092", "-topic", "orders", "-memory", "much"},
		{"-source", "localhost:9092", "-topic", "orders", "-break=byte"},
		{"-break=everything"},
		{"-memory", "5"},
		{"-memory", "256MiB"},
		{"-from", "earliest"},
		{"-from", "recent"},
		{"-from", "earliest", "-memory", "1GiB", "-break=byte"},
		{"-from", "yesterday"},
		{"-source", "", "-from", "earliest"},
		{"orders"},
		{"-sorce", "localhost:9092"},
	} {
		_, complaints, code := run(t, args...)
		if strings.Count(complaints, "\n") != 1 || code == 0 {
			t.Errorf("%v: exit %d, not one line:\n%s", args, code, complaints)
		}
		mask := strings.NewReplacer(address, "HOST:PORT", deniedAt, "HOST:PORT", web, "HOST:PORT")
		fmt.Fprintf(&all, "$ quickstart %s\n%sexit %d\n\n", mask.Replace(strings.Join(args, " ")), mask.Replace(complaints), code)
	}
	golden(t, "mistakes.txt", all.String())
}
