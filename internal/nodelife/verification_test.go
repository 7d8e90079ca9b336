package nodelife_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// TestNodeComparesItsCopies: a node with mirror.verification.rate compares what it mirrors again and again. A topic that the source's cleaner has rewritten since it was copied is no difference. One byte of
// a record that has changed on the disks of the destination's brokers, with a CRC that fits, is: --describe, the metrics, the node's log and --verify say where.
func TestNodeComparesItsCopies(t *testing.T) {
	kafkatest.Require(t)
	from, to := primary(t), standby(t)
	const topic, keyed, name = "node-compared", "node-compared-keyed", "node-compared-dr"
	from.CreateTopic(kafkatest.Topic{Name: topic})
	from.CreateTopic(kafkatest.Topic{Name: keyed, Configs: map[string]string{"cleanup.policy": "compact", "segment.ms": "50", "min.compaction.lag.ms": "3600000"}})
	for _, value := range lives.Values("first", 20) {
		from.Produce(topic, 0, value) // a batch each
	}
	plain := lives.Client(from, lives.Plain...)
	for range 4 {
		lives.Put(t, plain, keyed, "a", "b", "c")
	}
	lives.Put(t, plain, keyed, "last") // the newest segment is not cleaned
	p := start(t, to, "a", "mirror.verification.rate=100000000", "mirror.verification.interval.ms=500")
	p.ready()
	create(t, from, to, name)
	verb(t, to, 0, "--start", "--mirror", name, "--topics", topic+","+keyed)
	until(t, to, name, topic+"-0        MIRRORING  20", keyed+"-0  MIRRORING  13")
	passed := func() { // a pass over both copies that begins now or later has ended: the first one to end may have begun before
		t.Helper()
		for range 2 {
			since := time.Now()
			lives.Eventually(t, "another pass over all copies", func() (bool, string) {
				_, page := p.get("/metrics")
				age, ok := gauge(page, "clustermirror_verify_pass_age_seconds", name)
				return ok && age < time.Since(since).Seconds(), page
			})
		}
	}
	passed()
	until(t, to, name, "verification: 2 copies: 2 identical; the oldest comparison began ", "; the last pass over all of them ended ")

	var now []kadm.AlterConfig
	for name, value := range lives.Compacted {
		now = append(now, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	if altered, err := from.Admin().AlterTopicConfigs(t.Context(), now, keyed); err != nil || altered[0].Err != nil {
		t.Fatal(err, altered)
	}
	lives.Cleaned(t, from, keyed, []int32{1}, func(hs []batch.Header) bool { return len(hs) < 5 })
	passed()
	until(t, to, name, "verification: 2 copies: 2 identical; ")
	if said := p.out.String(); strings.Contains(said, "is not as the source") {
		t.Error("a cleaner's work was told as a difference")
	}

	if status := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("told to end it ended with status %d", status)
	}
	for _, broker := range to.Brokers() {
		damage(t, to, topic, broker, 10)
	}
	p.start()
	p.ready()
	until(t, to, name, "verification: 2 copies: 1 DIFFERENT, 1 identical; ", topic+"-0: the copy is not as the source from offset 10 on, DIFFERENT: batch at offset 10 differs in byte ")
	_, page := p.get("/metrics")
	if n, ok := gauge(page, "clustermirror_verify_copies", name, `result="different"`); !ok || n != 1 {
		t.Errorf("verify_copies, different: %v, %v\n%s", n, ok, page)
	}
	if said := p.out.String(); !strings.Contains(said, topic+"-0: the copy is not as the source from offset 10 on, DIFFERENT") {
		t.Error("the node has not said it")
	}
	if out := verb(t, to, 8, "--verify", "--mirror", name, "--topics", topic); !strings.Contains(out, topic+"-0: batch at offset 10 differs in byte ") {
		t.Errorf("--verify says\n%s", out)
	}
	verb(t, to, 0, "--stop", "--mirror", name, "--all-topics", "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes", "--wait")
	verb(t, to, 0, "--delete", "--mirror", name, "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
}

// gauge is the value of a series of a mirror, with these labels too.
func gauge(page, series, mirror string, labels ...string) (value float64, ok bool) {
	for line := range strings.Lines(page) {
		m := regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)\n$`).FindStringSubmatch(line)
		if m == nil || m[1] != series || !strings.Contains(m[2], fmt.Sprintf("mirror=%q", mirror)) {
			continue
		}
		has := true
		for _, l := range labels {
			has = has && strings.Contains(m[2], l)
		}
		if value, err := strconv.ParseFloat(m[3], 64); has && err == nil {
			return value, true
		}
	}
	return 0, false
}

// damage changes the last byte of the last record's value of the batch at an offset, on the disk of one broker, and makes its CRC fit. The broker sees it at once: it sends what its files hold.
func damage(t *testing.T, c *kafkatest.Cluster, topic string, broker int32, offset int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.DataDir(broker), topic+"-0", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for h, one := range batch.All(whole) {
			if h.BaseOffset == offset {
				records, err := batch.ReadRecords(one, &h)
				if err != nil {
					t.Fatal(err)
				}
				bad, value := bytes.Clone(one), records[len(records)-1].Value
				i := bytes.LastIndex(bad, value)
				bad[i+len(value)-1] ^= 1
				batch.Seal(bad)
				f, err := os.OpenFile(file, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := f.WriteAt(bad, int64(at)); err != nil {
					t.Fatal(err)
				}
				return
			}
			at += len(one)
		}
	}
	t.Fatalf("broker %d has no batch at %d", broker, offset)
}
