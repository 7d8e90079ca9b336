package kafkasource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/clustermirror/clustermirror/mirror"
)

const password = "hunter2-is-the-secret"

// calls are all the calls that ask a broker something.
func calls(t *testing.T, s *Source) map[string]func() error {
	tp := mirror.TopicPartition{Topic: "t"}
	first := func(m map[mirror.TopicPartition]mirror.SourceOffsets, err error) error {
		if err != nil {
			return err
		}
		return m[tp].Err
	}
	return map[string]func() error{
		"Cluster": func() error { _, err := s.Cluster(t.Context()); return err },
		"Topics": func() error {
			topics, err := s.Topics(t.Context(), "t")
			if err == nil && len(topics) == 1 {
				err = topics[0].Err
			}
			return err
		},
		"Offsets":           func() error { return first(s.Offsets(t.Context(), []mirror.TopicPartition{tp})) },
		"OffsetsAt":         func() error { return first(s.OffsetsAt(t.Context(), epochStart, []mirror.TopicPartition{tp})) },
		"EndOffsetForEpoch": func() error { _, err := s.EndOffsetForEpoch(t.Context(), tp, -1, 0); return err },
		"Fetch": func() error {
			f, err := s.OpenFetcher(t.Context(), 0, mirror.FetchOptions{MaxWait: 10 * time.Millisecond})
			if err != nil {
				return err
			}
			defer f.Close()
			f.Want(mirror.FetchPosition{TopicPartition: tp, LeaderEpoch: -1, LastEpoch: -1})
			got, err := f.Fetch(t.Context())
			if err == nil && len(got) == 1 {
				err = got[0].Err
			}
			return err
		},
	}
}

// TestF72SourceThatNeverAnswers: at each phase of each call the bound holds, with few requests, and Close leaves nothing behind (checked by open).
func TestF72SourceThatNeverAnswers(t *testing.T) {
	const bound = 300 * time.Millisecond
	check := func(t *testing.T, s *Source, call func() error) {
		t.Helper()
		before, started := s.Counts(), time.Now()
		err := call()
		took := time.Since(started)
		e := sourceError(t, err, mirror.SourceTimeout, true)
		if !strings.Contains(e.Error(), "300ms") && !strings.Contains(e.Error(), "310ms") {
			t.Errorf("does not name the bound: %v", e)
		}
		if took > bound+time.Second { // the machine's share, not the source's
			t.Errorf("took %v", took)
		}
		if n := s.Counts().Connects - before.Connects; n > 5 {
			t.Errorf("%d connections", n)
		}
	}
	t.Run("accepts only", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := open(t, Config{Seeds: []string{l.Addr().String()}, Bound: bound})
		for name, call := range calls(t, s) {
			t.Run(name, func(t *testing.T) { check(t, s, call) })
		}
	})
	for _, x := range []struct {
		silent kmsg.Key
		calls  []string
	}{
		{kmsg.ApiVersions, []string{"Cluster", "Topics", "Offsets", "OffsetsAt", "EndOffsetForEpoch", "Fetch"}},
		{kmsg.SASLHandshake, []string{"Cluster", "Fetch"}},
		{kmsg.SASLAuthenticate, []string{"Cluster", "Fetch"}},
		{kmsg.Metadata, []string{"Cluster", "Topics", "Offsets", "OffsetsAt", "EndOffsetForEpoch", "Fetch"}},
		{kmsg.ListOffsets, []string{"Offsets", "OffsetsAt"}},
		{kmsg.OffsetForLeaderEpoch, []string{"EndOffsetForEpoch"}},
		{kmsg.Fetch, []string{"Fetch"}},
	} {
		for _, name := range x.calls {
			t.Run(x.silent.Name()+"/"+name, func(t *testing.T) {
				c := cluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", password))
				c.ControlKey(int16(x.silent), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					return nil, nil, true
				})
				s := open(t, Config{Seeds: c.ListenAddrs(), Bound: bound, ClientOptions: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism())}})
				check(t, s, calls(t, s)[name])
			})
		}
	}
}

// TestF72CloseEndsWhatHangs: a call under way returns when the source is closed, long before its bound.
func TestF72CloseEndsWhatHangs(t *testing.T) {
	for _, x := range []struct {
		silent kmsg.Key
		call   string
	}{{kmsg.ApiVersions, "Cluster"}, {kmsg.Metadata, "Topics"}, {kmsg.ListOffsets, "Offsets"}, {kmsg.OffsetForLeaderEpoch, "EndOffsetForEpoch"}, {kmsg.Fetch, "Fetch"}} {
		t.Run(x.call, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "t"))
			arrived := make(chan struct{}, 10)
			c.ControlKey(int16(x.silent), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				arrived <- struct{}{}
				return nil, nil, true
			})
			s := open(t, Config{Seeds: c.ListenAddrs(), Bound: time.Hour})
			ended := make(chan error, 1)
			call := calls(t, s)[x.call]
			go func() { ended <- call() }()
			<-arrived
			s.Close()
			select {
			case err := <-ended:
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%v", err)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("still waiting")
			}
			if err := call(); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	c := cluster(t)
	arrived := make(chan struct{}, 10)
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		arrived <- struct{}{}
		return nil, nil, true
	})
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Cluster(ctx)
		ended <- err
	}()
	<-arrived
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	s := open(t, Config{Seeds: []string{closedPort(t), closedPort(t)}, Bound: 2 * time.Second})
	for name, call := range calls(t, s) {
		before := s.Counts()
		sourceError(t, call(), mirror.SourceUnreachable, true)
		if n := s.Counts().Connects - before.Connects; n > 6 {
			t.Errorf("%s: %d connections for one call", name, n)
		}
	}
}

func TestOneSeedOfTwoIsEnough(t *testing.T) {
	c := cluster(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and is silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, dead := range []string{closedPort(t), l.Addr().String()} {
		for range 4 { // the client begins at any of them
			t.Run("", func(t *testing.T) {
				s := open(t, Config{Seeds: append(c.ListenAddrs(), dead), Bound: time.Second})
				if _, err := s.Cluster(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestWrongCredentials: one clear error, no storm, no secret. The fake cluster closes the connection where Kafka tells first.
func TestWrongCredentials(t *testing.T) {
	tells := func(c *kfake.Cluster) {
		c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		})
	}
	c := cluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"), kfake.Superuser("SCRAM-SHA-256", "v", "right"))
	telling := cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"))
	tells(telling)
	for _, x := range []struct {
		name      string
		c         *kfake.Cluster
		mechanism kgo.Opt
		want      mirror.SourceCode
		most      int64 // connections for one call
	}{
		{"told", telling, kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism()), mirror.SourceAuthentication, 1},
		{"mechanism not offered", telling, kgo.SASL(unknownMechanism{}), mirror.SourceAuthentication, 1},
		{"plain, cut off", c, kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism()), mirror.SourceUnreachable, 2},
		{"scram, cut off", c, kgo.SASL(scram.Auth{User: "v", Pass: password}.AsSha256Mechanism()), mirror.SourceUnreachable, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := open(t, Config{Seeds: x.c.ListenAddrs(), ClientOptions: []kgo.Opt{x.mechanism}})
			for name, call := range calls(t, s) {
				before := s.Counts()
				e := sourceError(t, call(), x.want, true)
				if !strings.Contains(e.Advice, "credentials") {
					t.Errorf("%s: %v", name, e)
				}
				if strings.Contains(e.Error(), password) {
					t.Error("the password is in the error")
				}
				if n := s.Counts().Connects - before.Connects; n > x.most {
					t.Errorf("%s: %d connections", name, n)
				}
			}
		})
	}
	t.Run("right", func(t *testing.T) {
		s := open(t, Config{Seeds: c.ListenAddrs(), ClientOptions: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: "right"}.AsMechanism())}})
		for name, call := range calls(t, s) {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("none given", func(t *testing.T) {
		s := open(t, Config{Seeds: c.ListenAddrs()})
		sourceError(t, calls(t, s)["Cluster"](), mirror.SourceUnreachable, true)
	})
}

// unknownMechanism is one that no broker knows.
type unknownMechanism struct{}

func (unknownMechanism) Name() string { return "UNHEARD-OF" }
func (unknownMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	return nil, nil, errors.New("not reached")
}

// TestAuthenticationErrorRepeatsNothingOfTheBrokers: a broker may echo what it was sent.
func TestAuthenticationErrorRepeatsNothingOfTheBrokers(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"))
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("no: " + string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes))
		return resp, nil, true
	})
	s := open(t, Config{Seeds: c.ListenAddrs(), ClientOptions: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism())}})
	e := sourceError(t, calls(t, s)["Cluster"](), mirror.SourceAuthentication, true)
	if strings.Contains(e.Error(), password) {
		t.Error(e)
	}
	for err := error(e); err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), password) {
			t.Errorf("inside: %v", err)
		}
	}
}

func TestTLSMismatch(t *testing.T) {
	made := httptest.NewTLSServer(nil)
	certificates := made.TLS.Certificates
	roots := x509.NewCertPool()
	roots.AddCert(made.Certificate())
	made.Close()

	secure := cluster(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: certificates}))
	mutual := cluster(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}))
	unsecured := cluster(t, kfake.SeedTopics(1, "t"))
	for _, x := range []struct {
		name   string
		c      *kfake.Cluster
		client *tls.Config
		want   []mirror.SourceCode // none: works
	}{
		{"right", secure, &tls.Config{RootCAs: roots}, nil},
		{"unknown authority", secure, &tls.Config{}, []mirror.SourceCode{mirror.SourceAuthentication}},
		{"another host", secure, &tls.Config{RootCAs: roots, ServerName: "elsewhere.test"}, []mirror.SourceCode{mirror.SourceAuthentication}},
		{"no client certificate", mutual, &tls.Config{RootCAs: roots}, []mirror.SourceCode{mirror.SourceAuthentication}},
		{"plain text to a TLS listener", secure, nil, []mirror.SourceCode{mirror.SourceAuthentication, mirror.SourceUnreachable}},
		// The fake cluster takes the handshake for the beginning of a long request and waits; Kafka closes.
		{"TLS to a plain text listener", unsecured, &tls.Config{RootCAs: roots}, []mirror.SourceCode{mirror.SourceAuthentication, mirror.SourceUnreachable, mirror.SourceTimeout}},
	} {
		t.Run(x.name, func(t *testing.T) {
			cfg := Config{Seeds: x.c.ListenAddrs(), Bound: 500 * time.Millisecond}
			if x.client != nil {
				cfg.ClientOptions = []kgo.Opt{kgo.DialTLSConfig(x.client)}
			}
			s := open(t, cfg)
			for name, call := range calls(t, s) {
				before := s.Counts()
				err := call()
				if x.want == nil {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				var e *mirror.SourceError
				if !errors.As(err, &e) || e.Advice == "" {
					t.Fatalf("%s: %v", name, err)
				}
				known := false
				for _, code := range x.want {
					known = known || e.Code == code
				}
				if !known {
					t.Errorf("%s: code %d: %v", name, e.Code, err)
				}
				if n := s.Counts().Connects - before.Connects; n > 4 {
					t.Errorf("%s: %d connections", name, n)
				}
			}
		})
	}
}

func TestDenied(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "u", password))
	s := open(t, Config{Seeds: c.ListenAddrs(), ClientOptions: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: password}.AsMechanism())}})
	for name, call := range calls(t, s) {
		err := call()
		if name == "Cluster" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if e := sourceError(t, err, mirror.SourceDenied, true); !strings.Contains(e.Advice, "topic t") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestNewRefusesAConfigThatCannotWork(t *testing.T) {
	for _, cfg := range []Config{{}, {Seeds: []string{"localhost:notaport"}}} {
		if s, err := New(cfg); err == nil {
			s.Close()
			t.Errorf("%+v", cfg.Seeds)
		}
	}
}

func TestMeaningOfEveryCode(t *testing.T) {
	for _, x := range []struct {
		err  *kerr.Error
		want mirror.SourceCode
	}{
		{kerr.UnknownTopicOrPartition, mirror.SourceUnknownTopic},
		{kerr.UnknownTopicID, mirror.SourceTopicIDChanged},
		{kerr.InconsistentTopicID, mirror.SourceTopicIDChanged},
		{kerr.NotLeaderForPartition, mirror.SourceNotLeader},
		{kerr.LeaderNotAvailable, mirror.SourceNotLeader},
		{kerr.KafkaStorageError, mirror.SourceNotLeader},
		{kerr.FencedLeaderEpoch, mirror.SourceFencedEpoch},
		{kerr.UnknownLeaderEpoch, mirror.SourceUnknownEpoch},
		{kerr.OffsetOutOfRange, mirror.SourceOffsetRange},
		{kerr.OffsetNotAvailable, mirror.SourceOffsetsNotReady},
		{kerr.UnsupportedCompressionType, mirror.SourceUnsupported},
		{kerr.UnsupportedVersion, mirror.SourceUnsupported},
		{kerr.TopicAuthorizationFailed, mirror.SourceDenied},
		{kerr.ClusterAuthorizationFailed, mirror.SourceDenied},
		{kerr.SaslAuthenticationFailed, mirror.SourceAuthentication},
		{kerr.FetchSessionIDNotFound, mirror.SourceSession},
		{kerr.InvalidFetchSessionEpoch, mirror.SourceSession},
		{kerr.RequestTimedOut, mirror.SourceTimeout},
		{kerr.UnknownServerError, mirror.SourceOther},
		{kerr.CorruptMessage, mirror.SourceOther},
	} {
		tp := mirror.TopicPartition{Topic: "t", Partition: 3}
		e := sourceError(t, failed("fetch", tp, x.err.Code), x.want, false)
		if !errors.Is(e, x.err) || e.Partition != tp {
			t.Errorf("%+v", e)
		}
	}
	if failed("fetch", mirror.TopicPartition{}, 0) != nil {
		t.Error("no error is an error")
	}
}
