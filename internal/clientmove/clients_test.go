package clientmove

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// every is the pause between two records of a producer.
const every = 50 * time.Millisecond

// got is a record as a consumer had it.
type got struct {
	offset int64
	value  string
	at     time.Time
}

// reader is what one consumer has had so far.
type reader struct {
	name string

	mu      sync.Mutex
	records []got
	renewed []time.Time // when the application had to make a new client
}

func (r *reader) had(offset int64, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, got{offset, value, time.Now()})
}

func (r *reader) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.records...)
}

// sender writes records name-0, name-1 …, and knows when.
type sender struct {
	name string

	mu      sync.Mutex
	sent    []time.Time
	renewed []time.Time
}

// next is the value of a new record.
func (s *sender) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, time.Now())
	return s.name + "-" + strconv.Itoa(len(s.sent)-1)
}

func (s *sender) sentAt(value string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(strings.TrimPrefix(value, s.name+"-"))
	if err != nil || n >= len(s.sent) {
		return time.Time{}, false
	}
	return s.sent[n], true
}

func renewals(mu *sync.Mutex, all *[]time.Time) int {
	mu.Lock()
	defer mu.Unlock()
	return len(*all)
}

// java starts one of Kafka's tools, which ends with the test. A test that failed shows the end of what it said.
func java(t *testing.T, version, class string, in io.Reader, line func(string), args ...string) {
	t.Helper()
	libs, err := kafkatest.Libs(version)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libs, "*"), class}, args...)...)
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	complaints, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	var done sync.WaitGroup
	done.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			line(s.Text())
		}
	})
	done.Go(func() {
		for s := bufio.NewScanner(complaints); s.Scan(); {
			said = append(said, s.Text())
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s %s:\n%s", class, version, strings.Join(said[max(0, len(said)-25):], "\n"))
		}
	})
}

// javaProducer writes a record every so often, with Kafka's console producer.
func javaProducer(t *testing.T, version, bootstrap, topic string) *sender {
	s := &sender{name: "java"}
	in, out := io.Pipe()
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := io.WriteString(out, s.next()+"\n"); err != nil {
					return
				}
			}
		}
	})
	t.Cleanup(func() { close(stop); in.Close(); done.Wait() })
	java(t, version, "org.apache.kafka.tools.ConsoleProducer", in, func(string) {}, "--bootstrap-server", bootstrap, "--topic", topic, "--message-send-max-retries", "2147483647", "--timeout", "5")
	return s
}

// javaConsumer reads as a member of a group, with Kafka's console consumer.
func javaConsumer(t *testing.T, version, bootstrap, topic, group string, settings ...string) *reader {
	r := &reader{name: "Java " + version + " " + strings.Join(settings, " ")}
	config, format := "--command-property", "--formatter-property"
	if version[0] == '3' {
		config, format = "--consumer-property", "--property"
	}
	args := []string{"--bootstrap-server", bootstrap, "--topic", topic, "--group", group, format, "print.offset=true", config, "auto.offset.reset=earliest", config, "auto.commit.interval.ms=500"}
	for _, s := range settings {
		args = append(args, config, s)
	}
	java(t, version, "org.apache.kafka.tools.consumer.ConsoleConsumer", nil, func(line string) {
		offset, value, ok := strings.Cut(strings.TrimPrefix(line, "Offset:"), "\t")
		n, err := strconv.ParseInt(offset, 10, 64)
		if ok && err == nil {
			r.had(n, value)
		}
	}, args...)
	return r
}

// goProducer does it with franz-go. When the client says that the topic has another id it takes a new client: franz-go never takes up a new id by itself.
func goProducer(t *testing.T, bootstrap, topic string) *sender {
	s := &sender{name: "go"}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		var cl *kgo.Client
		defer func() { cl.Close() }()
		open := func() {
			var err error
			if cl, err = kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0)); err != nil {
				panic(err)
			}
		}
		open()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			r := kgo.StringRecord(s.next())
			for ctx.Err() == nil {
				err := cl.ProduceSync(ctx, r).FirstErr()
				if err == nil || !errors.Is(err, kerr.UnknownTopicID) {
					break
				}
				s.mu.Lock()
				s.renewed = append(s.renewed, time.Now())
				s.mu.Unlock()
				cl.Close()
				open()
			}
			<-tick.C
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
	return s
}

// goConsumer reads as a member of a group with franz-go. renew: when the client says that the topic has another id the application takes a new one.
func goConsumer(t *testing.T, bootstrap, topic, group string, renew bool) *reader {
	r := &reader{name: fmt.Sprintf("franz-go, a new client when the topic has a new id: %t", renew)}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		open := func() *kgo.Client {
			cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.AutoCommitInterval(500*time.Millisecond),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				panic(err)
			}
			return cl
		}
		cl := open()
		defer func() { cl.Close() }()
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			fs.EachRecord(func(x *kgo.Record) { r.had(x.Offset, string(x.Value)) })
			other := false
			fs.EachError(func(_ string, _ int32, err error) { other = other || errors.Is(err, kerr.UnknownTopicID) })
			if other {
				r.mu.Lock()
				r.renewed = append(r.renewed, time.Now())
				r.mu.Unlock()
			}
			if other && renew {
				cl.Close()
				cl = open()
			}
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
	return r
}
