package realkafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// untilCode waits for a report of trouble with the source that has this meaning and says what to do.
func (r *running) untilCode(code mirror.SourceCode) *mirror.SourceError {
	r.t.Helper()
	var found *mirror.SourceError
	lives.Eventually(r.t, fmt.Sprintf("trouble of code %d", code), func() (bool, string) {
		var all []string
		for _, e := range r.told() {
			var err error
			switch e := e.(type) {
			case mirror.SourceTrouble:
				err = e.Err
			case mirror.TopicTrouble:
				err = e.Err
			}
			if err == nil {
				continue
			}
			all = append(all, err.Error())
			if errors.As(err, &found) && found.Code == code {
				return true, ""
			}
		}
		return false, strings.Join(all, "\n")
	})
	if found.Advice == "" {
		r.t.Errorf("no advice: %v", found)
	}
	return found
}

func TestWrongAddress(t *testing.T) {
	c := shared(t)
	topic := "wrong-address"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	lives.Produce(t, lives.Client(c), topic, 0, "one")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	r := open(t, c, func(s *setup) { s.source.Seeds = []string{address} })
	r.start(topic)
	r.untilCode(mirror.SourceUnreachable)
	if p := lives.One(r.Status(), topic, 0); p.State == statemachine.Mirroring {
		t.Errorf("%s", lives.Show(r.Status()))
	}
	// The address becomes right: nobody has to do anything.
	p, err := proxy.ListenOn(address, strings.Replace(c.Bootstrap()[0], "localhost", "127.0.0.1", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r.same(topic, 0, 1)
}

func TestTLSWherePlaintextIsExpected(t *testing.T) {
	c := shared(t)
	topic := "tls-to-plaintext"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	r := open(t, c, func(s *setup) {
		s.source.ClientOptions = []kgo.Opt{kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true})}
	})
	r.start(topic)
	// The broker only closes the connection, so TLS is a guess; the advice makes it.
	if e := r.untilCode(mirror.SourceUnreachable); !strings.Contains(e.Advice, "TLS") {
		t.Errorf("no word of TLS: %v", e)
	}
	if lag := lives.One(r.Status(), topic, 0).LagOffsets; lag == 0 && len(r.Status().Topics) > 0 && len(r.Status().Topics[0].Partitions) > 0 {
		t.Errorf("%s", lives.Show(r.Status()))
	}
}

var keptSecured *kafkatest.Cluster

// secured is the cluster of tests that need security or a proxy: one broker with passwords, an authorizer and a proxy in front.
func secured(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	kafkatest.Require(t)
	lender.T = t
	if keptSecured == nil {
		keptSecured = kafkatest.Start(&lender, kafkatest.Options{
			Client: kafkatest.Security{SASL: "PLAIN", Users: map[string]string{"mirror": "right"}}, Authorizer: true, Proxied: true,
		})
	}
	return keptSecured
}

func as(password string) func(*setup) {
	return func(s *setup) {
		s.source.ClientOptions = append(s.source.ClientOptions, kgo.SASL(saslplain.Auth{User: "mirror", Pass: password}.AsMechanism()))
	}
}

func TestF77WrongPassword(t *testing.T) {
	r := open(t, secured(t), as("wrong"))
	r.start("f77-password")
	r.untilCode(mirror.SourceAuthentication)
	// One clear state, not a storm: failed connections are bounded by the back-off.
	before := r.src.Counts().Connects
	began := time.Now()
	lives.Eventually(t, "two more attempts", func() (bool, string) {
		n := r.src.Counts().Connects - before
		return n >= 2, fmt.Sprintf("%d connections since", n)
	})
	if rate := float64(r.src.Counts().Connects-before) / time.Since(began).Seconds(); rate > 50 {
		t.Errorf("%.0f connections a second", rate)
	}
}

func TestF73DeniedTopicAndBack(t *testing.T) {
	c := secured(t)
	topic := "f73-denied"
	c.CreateTopic(kafkatest.Topic{Name: topic})
	cl := lives.Client(c) // the user admin
	lives.Produce(t, cl, topic, 0, lives.Values("allowed", 10)...)
	read := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).Allow("User:mirror").AllowHosts("*").Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	}
	// Read alone: it implies the right to describe.
	c.Allow("User:mirror", []string{topic}, kadm.OpRead, kadm.OpDescribeConfigs)
	r := open(t, c, as("right"))
	r.start(topic)
	r.same(topic, 0, 10)

	deleted, err := c.Admin().DeleteACLs(t.Context(), read())
	if err != nil || len(deleted) != 1 || len(deleted[0].Deleted) == 0 {
		t.Fatalf("%v, %+v", err, deleted)
	}
	unknown := func(p mirror.PartitionStatus) bool { return p.LagOffsets == mirror.Unknown && !p.LagUnknown.IsZero() }
	p := r.until("the lag is unknown", topic, 0, unknown) // a fetch that was under way is still allowed
	lives.Produce(t, cl, topic, 0, lives.Values("denied", 10)...)
	// The broker may tell it by one look-up and not yet by another; from the first refusal on, no answer makes the lag a number.
	retries := len(told[mirror.RetryScheduled](r)) + 2
	lives.Eventually(t, "two more attempts", func() (bool, string) {
		if p = lives.One(r.Status(), topic, 0); !unknown(p) {
			t.Fatalf("denied, and the lag is %d%s", p.LagOffsets, lives.Show(r.Status()))
		}
		return len(told[mirror.RetryScheduled](r)) >= retries, lives.Show(r.Status())
	})
	s := r.Status()
	said := p.Reason
	if s.Topics[0].Err != nil {
		said += s.Topics[0].Err.Error()
	}
	for _, e := range told[mirror.SourceTrouble](r) {
		if e.Err != nil {
			said += e.Err.Error()
		}
	}
	if !strings.Contains(said, "READ") || !strings.Contains(said, topic) {
		t.Errorf("nothing says what to grant: %q%s", said, lives.Show(s))
	}
	if p.End != 10 {
		t.Errorf("the copy ends at %d", p.End)
	}
	c.Allow("User:mirror", []string{topic}, kadm.OpRead, kadm.OpDescribeConfigs)
	r.same(topic, 0, 20)
}

// ours lists goroutines of mirrors and their sources.
func ours() string {
	buf := make([]byte, 8<<20)
	var some []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if (strings.Contains(g, "clustermirror/mirror.(") || strings.Contains(g, "mirror/kafkasource.")) && !strings.Contains(g, "testing.tRunner") {
			some = append(some, g)
		}
	}
	return strings.Join(some, "\n\n")
}

func TestF72BlackHoleBeforeARealBroker(t *testing.T) {
	c := secured(t)
	topic := "f72-black-hole"
	c.CreateTopic(kafkatest.Topic{Name: topic})
	c.Allow("User:mirror", []string{topic}, kadm.OpRead, kadm.OpDescribeConfigs)
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("ten", 10)...)
	p := c.Proxy(1)
	defer p.SetLink(proxy.Link{})

	// At the start's look-up: nothing is copied, close is bounded (see end).
	p.SetLink(proxy.Link{BlackHole: true})
	early := open(t, c, as("right"))
	early.start(topic)
	early.untilCode(mirror.SourceTimeout)
	early.end()
	if left := ours(); left != "" {
		t.Errorf("goroutines after Close:\n%s", left)
	}

	// While fetching: the lag is unknown, failover and close are bounded.
	p.SetLink(proxy.Link{})
	r := open(t, c, as("right"))
	if left := ours(); left == "" {
		t.Error("a running mirror has no goroutine: the check cannot fail")
	}
	r.start(topic)
	r.same(topic, 0, 10)
	p.SetLink(proxy.Link{BlackHole: true})
	before := r.src.Counts().Connects
	r.until("lag is unknown", topic, 0, func(p mirror.PartitionStatus) bool { return p.LagOffsets == mirror.Unknown })
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	report, err := r.Failover(ctx, mirror.FailoverOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("failover took %v", took)
	}
	if got := report.Partitions[0]; got.FinalOffset != 10 || got.OpensAt != 11 {
		t.Errorf("%+v", got)
	}
	if n := r.src.Counts().Connects - before; n > 50 {
		t.Errorf("%d connections while nothing answered", n)
	}
}
