package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// Cluster ids of the tests, of a length that real ones have.
const (
	sourceID  = "PqwYhCxRbmzsVvnJykLxAa"
	standbyID = "StdZqbTwueFxgHciKmNwyv"
)

// startSource is a Kafka-protocol cluster in this process, with topics of one partition and three records each.
func startSource(t *testing.T, topics ...string) *kfake.Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(sourceID), kfake.SeedTopics(1, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DisableIdempotentWrite()) // its ids would be as no Kafka gives them out
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, topic := range topics {
		for _, value := range []string{"1 apple", "2 pears", "3 plums"} {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return fake
}

// startMirror runs mirror dr, with its desired state in records, into a cluster in memory, as another process would.
func startMirror(t *testing.T, records keyedlog.Log, destinationID string) *mirror.Mirror {
	t.Helper()
	memory := memlog.New(memlog.Config{ClusterID: destinationID})
	t.Cleanup(func() { memory.Close() })
	return startMirrorInto(t, records, memory, mirror.Discard, 0)
}

// startMirrorInto runs mirror dr into a cluster; it looks at its source, and reports, every refresh, 0: as it does by default.
func startMirrorInto(t *testing.T, records keyedlog.Log, memory *memlog.Cluster, sink mirror.Sink, refresh time.Duration) *mirror.Mirror {
	t.Helper()
	m, err := mirror.Open(t.Context(), mirror.Config{
		Name: "dr", Owner: "mirror-1", OpenSource: kafkasource.Open, Destination: memory, Store: keyedlog.NewStateStore(records), Control: mirror.NewControl(records), Sink: sink, RefreshInterval: refresh,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// writeFile writes a file of the test's own and returns its path.
func writeFile(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs the program as a shell would.
func command(t *testing.T, args ...string) (status int, out, complaints string) {
	t.Helper()
	var o, c bytes.Buffer
	p := &program{out: &o, complaints: &c}
	status = p.run(t.Context(), args)
	return status, o.String(), c.String()
}

// session is a transcript as a person would see it: commands behind a $, what they printed, and their exit status if it is not 0.
type session struct {
	t      *testing.T
	common []string // where the desired state is
	text   strings.Builder
	shown  *strings.Replacer // addresses and paths of this run, and what the transcript says instead
}

func (s *session) run(args ...string) (status int, out string) {
	s.t.Helper()
	args = append(append([]string{}, s.common...), args...)
	status, out, complaints := command(s.t, args...)
	fmt.Fprint(&s.text, s.shown.Replace("$ kafka-mirror "+quoted(args)+"\n"+out+complaints))
	if status != 0 {
		fmt.Fprintf(&s.text, "exit status %s\n", []string{"", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}[status]) // digits are masked
	}
	return status, out
}

func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; strings.ContainsAny(a, " *|") {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

// await runs a command that changes nothing, outside the transcript, until its output has all of the texts.
func (s *session) await(args []string, texts ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, out, complaints := command(s.t, append(append([]string{}, s.common...), args...)...)
		missing := ""
		for _, text := range texts {
			if !strings.Contains(out, text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%v never showed %q; it shows:\n%s%s", args, missing, out, complaints)
		case <-tick.C:
		}
	}
}

var (
	planHash = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{8}\b`)
	number   = regexp.MustCompile(`\d+`)
	blanks   = regexp.MustCompile(` +`)
	ages     = regexp.MustCompile(`(looked at|seen|for|answered|said it,|mirror-#,) (just now|<?#[#.]*( ?\w+)?( ago)?)`)
	ids      = regexp.MustCompile(`(source|destination|--destination-cluster-id) [\w-]{22}\b`)
)

// masked is a text without what differs from run to run: plans, cluster ids, numbers, ages, and how wide columns are because of them.
func masked(text string) string {
	text = ids.ReplaceAllString(planHash.ReplaceAllString(text, "PLAN"), "$1 ID")
	text = ages.ReplaceAllString(number.ReplaceAllString(text, "#"), "$1 AGE")
	return blanks.ReplaceAllString(text, " ")
}

// golden compares a text with the file of that name in testdata; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has\n%s\nand this run gave\n%s", path, want, got)
	}
}
