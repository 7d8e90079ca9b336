package kafkatest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

func TestSecurityThatKafkaCannotDoIsRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{Controllers: 3, Controller: Security{SASL: "SCRAM-SHA-256"}}, "SCRAM on the CONTROLLER listener of 3 controllers"},
		{Options{Controllers: 1, Internal: Security{SASL: "OAUTHBEARER"}}, "OAUTHBEARER on the INTERNAL listener"},
		{Options{Controllers: 1, Controller: Security{SASL: "OAUTHBEARER"}}, "OAUTHBEARER on the CONTROLLER listener"},
	} {
		if err := c.o.checkSecurity(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v gave %v, want %q", c.o, err, c.says)
		}
	}
	for _, o := range []Options{{Controllers: 1, Controller: Security{SASL: "SCRAM-SHA-512"}}, {Controllers: 3, Controller: Security{SASL: "PLAIN"}, Internal: Security{SASL: "SCRAM-SHA-512"}}} {
		if err := o.checkSecurity(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// controller makes a client of the controller's listener that asks once.
func controller(t *testing.T, c *Cluster, who Credentials, dial func(context.Context, string, string) (net.Conn, error)) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ListenerOptions("CONTROLLER", who, dial), kgo.SeedBrokers(c.ControllerAddresses()...), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// allocate asks the controller for producer ids in the name of a broker that is not registered: the answer says whether who may act as a broker, and changes nothing.
func allocate(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID = 4000
	raw, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(raw.(*kmsg.AllocateProducerIDsResponse).ErrorCode)
}

// Each set-up starts, its brokers talk to each other and to the controller, and who is not let in stays outside.
func TestInternalAndControllerSecurity(t *testing.T) {
	users := map[string]string{"mirror": "secret"}
	mirror := Credentials{User: "mirror", Password: "secret", Certificate: "mirror"}
	scram := Security{TLS: true, SASL: "SCRAM-SHA-512", Users: users}
	plain := Security{SASL: "PLAIN", Users: users}
	certificates := Security{TLS: true, ClientCertificates: true}
	for _, s := range []struct {
		name      string
		o         Options
		principal string // of broker 1
		mirror    string // principal of who has no rights
		stranger  *Credentials
	}{
		{"plaintext", Options{}, "User:ANONYMOUS", "", nil},
		{"SASL_SSL with SCRAM", Options{Brokers: 2, Internal: scram, Controller: scram, Authorizer: true}, "User:admin", "User:mirror", &Credentials{User: "mirror", Password: "wrong"}},
		{"SSL with certificates", Options{Internal: certificates, Controller: certificates, Authorizer: true, Config: map[string]string{"broker.session.timeout.ms": "60000"}}, "User:CN=broker-1", "User:CN=mirror", nil},
		{"SASL_PLAINTEXT with PLAIN", Options{Internal: plain, Controller: plain, Authorizer: true}, "User:admin", "User:mirror", &Credentials{User: "mirror", Password: "wrong"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			var c *Cluster
			if s.o.Internal.protocol() == "PLAINTEXT" {
				c = Shared(t)
			} else {
				c = Start(t, s.o)
			}
			ctx, cancel := c.limit()
			defer cancel()
			const topic = "listeners"
			c.CreateTopic(Topic{Name: topic, Replication: len(c.Brokers())})
			c.Produce(topic, 0, "x")
			c.WaitSameSegments(topic, 0, c.Brokers()...)
			for _, listener := range []string{"INTERNAL", "CONTROLLER"} {
				if got := c.BrokerPrincipal(listener, 1); got != s.principal {
					t.Errorf("broker 1 is %s at %s, want %s", got, listener, s.principal)
				}
			}
			w := c.WriteAlways(map[string][]int32{topic: {0}})
			w.WaitRounds(1)
			w.Stop()
			if len(w.Successes()) == 0 {
				t.Errorf("nothing was written: %v", w.Answers())
			}

			d := new(proxy.Dialer)
			t.Cleanup(func() { d.Close() })
			if err := allocate(ctx, controller(t, c, ownCredentials, d.DialContext)); !errors.Is(err, kerr.StaleBrokerEpoch) {
				t.Errorf("this package's own client got %v, want what is said to a broker that is not registered", err)
			}
			if n := len(d.Connections(c.ControllerAddresses()[0])); n == 0 {
				t.Error("the controller was not dialled by what was given for that")
			}
			if s.stranger != nil {
				for _, listener := range []string{"INTERNAL", "CONTROLLER"} {
					if _, err := c.openWire(ctx, c.addresses(listener)[0], c.security(listener), *s.stranger); !errors.Is(err, kerr.SaslAuthenticationFailed) {
						t.Errorf("a wrong password gave %v at %s", err, listener)
					}
				}
			}
			if s.o.Internal.ClientCertificates {
				for _, listener := range []string{"INTERNAL", "CONTROLLER"} {
					w, err := c.openWire(ctx, c.addresses(listener)[0], Security{TLS: true}, Credentials{})
					if err == nil {
						_, err = w.ask(ctx, kmsg.NewPtrApiVersionsRequest())
						w.close()
					}
					if err == nil {
						t.Errorf("who has no certificate was let in at %s", listener)
					}
				}
			}
			if s.mirror == "" {
				return
			}
			// With the authorizer: no right without a rule.
			if err := allocate(ctx, controller(t, c, mirror, nil)); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
				t.Errorf("without a rule %s got %v", s.mirror, err)
			}
			c.CreateACLs(kadm.NewACLs().Allow(s.mirror).AllowHosts("*").Clusters().Operations(kadm.OpClusterAction))
			err := poll(ctx, "the controller to know the rule", func(ctx context.Context) (bool, error) {
				err := allocate(ctx, controller(t, c, mirror, nil))
				return errors.Is(err, kerr.StaleBrokerEpoch), err
			})
			if err != nil {
				t.Error(err)
			}
			if s.o.Internal.ClientCertificates {
				brokersCheckWhomTheyConnectTo(t, ctx, c)
			}
		})
	}
}

// brokersCheckWhomTheyConnectTo registers a process that leads a topic, so that broker 1 connects to its listener to follow: once with a certificate for another host, once with a right one.
func brokersCheckWhomTheyConnectTo(t *testing.T, ctx context.Context, c *Cluster) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	join(t, ctx, c, 9999, l.Addr().(*net.TCPAddr).Port)
	c.CreateTopic(Topic{Name: "followed", Assignment: [][]int32{{9999, 1}}})

	elsewhere, right := c.ServerTLS("INTERNAL", "joined", "elsewhere.example"), c.ServerTLS("INTERNAL", "joined")
	shake := func(cfg *tls.Config) (tls.ConnectionState, error) {
		deadline, _ := ctx.Deadline()
		l.(*net.TCPListener).SetDeadline(deadline)
		raw, err := l.Accept()
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer raw.Close()
		conn := tls.Server(raw, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			return tls.ConnectionState{}, err
		}
		raw.SetDeadline(deadline)
		_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the broker's verdict comes after our side of the handshake
		return conn.ConnectionState(), err
	}
	if _, err := shake(elsewhere); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate for another host: %v, want a refusal", err)
	}
	state, err := shake(right)
	if err != nil {
		t.Fatalf("a certificate for this host: %v", err)
	}
	if got := "User:CN=" + state.PeerCertificates[0].Subject.CommonName; got != c.BrokerPrincipal("INTERNAL", 1) {
		t.Errorf("the broker showed itself as %s, want %s", got, c.BrokerPrincipal("INTERNAL", 1))
	}
}

// join registers a broker with one listener, INTERNAL on the port, and lets it in.
func join(t *testing.T, ctx context.Context, c *Cluster, id int32, port int) {
	t.Helper()
	cl := controller(t, c, ownCredentials, nil)
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	reg := kmsg.NewPtrBrokerRegistrationRequest()
	reg.BrokerID, reg.ClusterID, reg.IncarnationID, reg.LogDirs = id, c.ID(), [16]byte{1}, [][16]byte{{0, 0, 1}}
	reg.PreviousBrokerEpoch = -1
	protocol := map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}[c.security("INTERNAL").protocol()]
	reg.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "INTERNAL", Host: "127.0.0.1", Port: uint16(port), SecurityProtocol: protocol}}
	features := kmsg.NewPtrApiVersionsRequest()
	features.ClientSoftwareName, features.ClientSoftwareVersion = "kafkatest", "1"
	for _, f := range ask(features).(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		reg.Features = append(reg.Features, kmsg.BrokerRegistrationRequestFeature{Name: f.Name, MinSupportedVersion: f.MaxVersionLevel, MaxSupportedVersion: f.MaxVersionLevel})
	}
	registered := ask(reg).(*kmsg.BrokerRegistrationResponse)
	if err := kerr.ErrorForCode(registered.ErrorCode); err != nil {
		t.Fatalf("register broker %d: %v", id, err)
	}
	err := poll(ctx, fmt.Sprintf("broker %d to be unfenced", id), func(context.Context) (bool, error) {
		beat := kmsg.NewPtrBrokerHeartbeatRequest()
		beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = id, registered.BrokerEpoch, registered.BrokerEpoch
		r := ask(beat).(*kmsg.BrokerHeartbeatResponse)
		return r.ErrorCode == 0 && !r.IsFenced, kerr.ErrorForCode(r.ErrorCode)
	})
	if err != nil {
		t.Fatal(err)
	}
}
