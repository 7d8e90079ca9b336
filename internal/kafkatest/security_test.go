package kafkatest

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

// as makes a client of the CLIENT listener that does not retry.
func as(t *testing.T, c *Cluster, who Credentials) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ClientOptions(who), kgo.SeedBrokers(c.Bootstrap()...), kgo.RequestRetries(0), kgo.UnknownTopicRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestPlainUsersAndACLs(t *testing.T) {
	c := Start(t, Options{Client: Security{SASL: "PLAIN", Users: map[string]string{"alice": "secret"}}, Authorizer: true})
	c.CreateTopic(Topic{Name: "hers"})
	ctx, cancel := c.limit()
	defer cancel()
	if err := as(t, c, Credentials{User: "alice", Password: "wrong"}).Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password gave %v", err)
	}
	alice := as(t, c, Credentials{User: "alice", Password: "secret"})
	if err := alice.Ping(ctx); err != nil {
		t.Errorf("the right password gave %v", err)
	}
	list := func(cl *kgo.Client) error {
		d, err := kadm.NewClient(cl).ListTopics(ctx, "hers")
		if err != nil {
			return err
		}
		return d["hers"].Err
	}
	if err := list(alice); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without a rule alice got %v", err)
	}
	c.Allow("User:alice", []string{"hers"}, kadm.OpDescribe, kadm.OpRead)
	if err := list(as(t, c, Credentials{User: "alice", Password: "secret"})); err != nil { // a client remembers answers for a while
		t.Errorf("with a rule alice got %v", err)
	}
	if err := list(as(t, c, Credentials{})); err != nil {
		t.Errorf("admin got %v", err)
	}
}

func TestScramOverTLS(t *testing.T) {
	c := Start(t, Options{Client: Security{TLS: true, SASL: "SCRAM-SHA-512", Users: map[string]string{"bob": "secret"}}})
	ctx, cancel := c.limit()
	defer cancel()
	if err := as(t, c, Credentials{User: "bob", Password: "wrong"}).Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password gave %v", err)
	}
	if err := as(t, c, Credentials{User: "bob", Password: "secret"}).Ping(ctx); err != nil {
		t.Errorf("the right password gave %v", err)
	}
}

func TestTLSOnBothListenersAsksForCertificates(t *testing.T) {
	s := Security{TLS: true, ClientCertificates: true}
	c := Start(t, Options{Brokers: 2, Client: s, Internal: s})
	c.CreateTopic(Topic{Name: "t", Replication: 2})
	c.Produce("t", 0, "x")
	c.WaitSameSegments("t", 0, 1, 2) // the brokers accept each other
	ctx, cancel := c.limit()
	defer cancel()
	if err := as(t, c, Credentials{Certificate: "somebody"}).Ping(ctx); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	without := c.options(Security{TLS: true}, Credentials{})
	cl, err := kgo.NewClient(append(without, kgo.SeedBrokers(c.Bootstrap()...), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err == nil {
		t.Error("a client without a certificate was let in")
	}
}

func TestProxiedBlackHoleAndReset(t *testing.T) {
	c := Start(t, Options{Proxied: true})
	c.CreateTopic(Topic{Name: "t"})
	cl := c.Client(kgo.DefaultProduceTopic("t"), kgo.MetadataMinAge(1e7))
	ctx, cancel := c.limit()
	defer cancel()
	produce := func(ctx context.Context) error {
		return cl.ProduceSync(ctx, &kgo.Record{Value: []byte("x")}).FirstErr()
	}
	if err := produce(ctx); err != nil {
		t.Fatal(err)
	}
	p := c.Proxy(1)
	var bytes int64
	for _, s := range p.Connections() {
		bytes += s.ToServer
	}
	if bytes == 0 {
		t.Fatal("no byte went through the proxy: the broker does not advertise it")
	}
	p.SetLink(proxy.Link{BlackHole: true})
	done := make(chan error, 1)
	go func() { done <- produce(ctx) }()
	short, stop := context.WithTimeout(ctx, 300e6)
	defer stop()
	select {
	case err := <-done:
		t.Fatalf("a record passed the black hole: %v", err)
	case <-short.Done():
	}
	p.SetLink(proxy.Link{})
	if err := <-done; err != nil {
		t.Fatalf("after the black hole: %v", err)
	}
	if p.Reset() == 0 {
		t.Error("no connection to reset")
	}
	if err := produce(ctx); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}
