package kraft_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// The third set-up, SASL_PLAINTEXT with PLAIN, is that of TestRealKafkaExactRights; PLAINTEXT is that of most tests.

// replicaFetch asks a process's own listener for a partition as a broker would that has its five records.
func replicaFetch(t *testing.T, address string, options []kgo.Opt, broker int32, topicID [16]byte) error {
	t.Helper()
	cl, err := kgo.NewClient(append(options, kgo.SeedBrokers(address), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = broker, broker
	req.MaxBytes, req.SessionEpoch = 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = topicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.CurrentLeaderEpoch, rp.FetchOffset, rp.LastFetchedEpoch, rp.PartitionMaxBytes = -1, 5, 0, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	raw, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	resp := raw.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the answer does not hold the partition")
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// strangersStayOut: whoever is not named as a broker gets nothing, however well it can log in; the same question of a broker is answered.
func strangersStayOut(t *testing.T, j *joined, topic, address string, stranger kafkatest.Credentials) {
	t.Helper()
	found, err := j.Topic(bound(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := replicaFetch(t, address, j.c.ListenerOptions("INTERNAL", stranger, nil), 1, found.ID); err == nil {
		t.Errorf("%+v, who is no broker, was answered", stranger.User+stranger.Certificate)
	} else {
		t.Logf("who is no broker: %v", err)
	}
	if err := replicaFetch(t, address, nil, 1, found.ID); err == nil {
		t.Error("who shows nothing was answered")
	}
}

// TestRealKafkaScram: brokers log in to this process with the users that the cluster's own metadata holds, over TLS.
func TestRealKafkaScram(t *testing.T) {
	scram := kafkatest.Security{TLS: true, SASL: "SCRAM-SHA-512", Users: map[string]string{"mirror": mirrorLogin.Password}}
	c := kafkatest.Start(t, kafkatest.Options{Internal: scram, Controller: scram, Authorizer: true})
	grant(c, mirrorUser, kraft.Rights()...)
	l := freeListener(t)
	cfg := config(t, c)
	secured(c, "SASL_SSL")(&cfg)
	own := c.ServerTLS("INTERNAL", "mirror")
	cfg.Listener, cfg.Security.TLS, cfg.Security.PlainPassword = l, func() (*tls.Config, error) { return own, nil }, nil

	wrong := cfg
	wrong.Listener, wrong.Security.Brokers = nil, []string{"User:nobody"}
	eventually(t, "the rights to be seen", func() bool { return len(missing(preflight(t, wrong))) == 0 })
	if r := preflight(t, wrong); !found(r, kraft.AboutOwnListener, kraft.Blocks, `no such user "nobody"`) {
		t.Errorf("a user that does not exist is not named:\n%s", r)
	}

	j := joinWith(t, c, cfg)
	log := j.create("scram", 1)
	appendTo(t, log, data(0, log.LeaderEpoch(), 5, "scram"))
	await(t, log)
	strangersStayOut(t, j, "scram", l.Addr().String(), mirrorLogin) // a user of the cluster, and no broker
	found, err := j.Topic(bound(t), "scram")
	if err != nil {
		t.Fatal(err)
	}
	if err := replicaFetch(t, l.Addr().String(), c.ListenerOptions("INTERNAL", kafkatest.Credentials{}, nil), 1, found.ID); err != nil {
		t.Errorf("the brokers' own user: %v", err)
	}
	bad := kafkatest.Credentials{User: "admin", Password: "wrong"}
	if err := replicaFetch(t, l.Addr().String(), c.ListenerOptions("INTERNAL", bad, nil), 1, found.ID); err == nil || !strings.Contains(err.Error(), "SASL") {
		t.Errorf("the brokers' user with a wrong password: %v", err)
	}
	handOn(t, log)
	life(t, j)
	secretsStayPrivate(t, cfg.Folder)
}

// handOn hands a partition over after others have asked for it in the name of its broker: the next batch makes the real one say where it is.
func handOn(t *testing.T, log mirror.Log) {
	t.Helper()
	appendTo(t, log, data(5, log.LeaderEpoch(), 1, "more"))
	await(t, log)
	if err := log.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
}

// secretsStayPrivate: what lies in the identity folder is for its owner alone.
func secretsStayPrivate(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == folder { // the folder itself is the test's
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRealKafkaClientCertificates: brokers show certificates and check the name in ours. One that they refuse is told of; it is renewed while the process runs.
func TestRealKafkaClientCertificates(t *testing.T) {
	certificates := kafkatest.Security{TLS: true, ClientCertificates: true}
	c := kafkatest.Start(t, kafkatest.Options{Internal: certificates, Controller: certificates, Authorizer: true})
	grant(c, "User:CN=mirror", kraft.Rights()...)
	l := freeListener(t)
	cfg := config(t, c)
	secured(c, "SSL")(&cfg)
	var shown atomic.Pointer[tls.Config]
	cfg.Listener, cfg.Security.TLS = l, func() (*tls.Config, error) { return shown.Load(), nil }

	elsewhere, right := c.ServerTLS("INTERNAL", "mirror", "elsewhere.example"), c.ServerTLS("INTERNAL", "mirror")
	look := cfg
	look.Listener = nil
	shown.Store(elsewhere)
	eventually(t, "the rights to be seen", func() bool { return len(missing(preflight(t, look))) == 0 })
	if r := preflight(t, look); r.Err() == nil || !found(r, kraft.AboutOwnListener, kraft.Blocks, "not for the advertised host") {
		t.Errorf("a certificate for another host is not refused:\n%s", r)
	}
	shown.Store(expired(t, c))
	if r := preflight(t, look); r.Err() == nil || !found(r, kraft.AboutOwnListener, kraft.Blocks, "has expired") {
		t.Errorf("a certificate that has expired is not refused:\n%s", r)
	}
	shown.Store(ofAnotherAuthority(t))
	if r := preflight(t, look); r.Err() != nil || !found(r, kraft.AboutOwnListener, kraft.Warns, "issued by CN=another authority, and that of broker 1 by CN=kafkatest authority") {
		t.Errorf("a certificate of another authority is not told of:\n%s", r)
	}

	shown.Store(right)
	if r := preflight(t, look); len(r.Of(kraft.Warns))+len(r.Of(kraft.Blocks)) > 0 {
		t.Errorf("where all is well:\n%s", r)
	}
	j := joinWith(t, c, cfg)
	shown.Store(elsewhere) // renewed wrongly
	log := j.create("certificates", 1)
	appendTo(t, log, data(0, log.LeaderEpoch(), 5, "certificates"))
	eventually(t, "an event that names the broker that does not come", func() bool {
		for _, e := range j.seen() {
			if e.Kind == kraft.Trouble && strings.Contains(e.Text, "broker 1 is alive") && strings.Contains(e.Text, l.Addr().String()) {
				return true
			}
		}
		return false
	})
	if log.Replicated() > 0 {
		t.Error("a broker has copied from a process whose certificate is for another host")
	}
	renewed := c.ServerTLS("INTERNAL", "mirror")
	shown.Store(renewed)
	await(t, log)
	conn, err := tls.Dial("tcp", l.Addr().String(), clientTLS(t, c, "broker-1"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := x509.ParseCertificate(renewed.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().PeerCertificates[0]; got.SerialNumber.Cmp(want.SerialNumber) != 0 {
		t.Error("the certificate that is shown is not the renewed one")
	}
	conn.Close()

	strangersStayOut(t, j, "certificates", l.Addr().String(), kafkatest.Credentials{Certificate: "stranger"})
	topic, err := j.Topic(bound(t), "certificates")
	if err != nil {
		t.Fatal(err)
	}
	broker := kafkatest.Credentials{Certificate: strings.TrimPrefix(c.BrokerPrincipal("INTERNAL", 1), "User:CN=")}
	if err := replicaFetch(t, l.Addr().String(), c.ListenerOptions("INTERNAL", broker, nil), 1, topic.ID); err != nil {
		t.Errorf("a broker's certificate: %v", err)
	}
	handOn(t, log)
	life(t, j)
}

func clientTLS(t *testing.T, c *kafkatest.Cluster, name string) *tls.Config {
	t.Helper()
	authority, cert, key := c.PEM(name)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}
}

// expired is a configuration whose certificate was valid until a minute ago, as a renewal that never came leaves it.
func expired(t *testing.T, c *kafkatest.Cluster) *tls.Config {
	t.Helper()
	return expiredAs(t, c.ServerTLS("INTERNAL", "mirror"))
}

// expiredAs is the same of another configuration.
func expiredAs(t *testing.T, cfg *tls.Config) *tls.Config {
	t.Helper()
	cfg = cfg.Clone()
	pair := cfg.Certificates[0]
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	leaf.NotAfter = time.Now().Add(-time.Minute)
	pair.Leaf = leaf
	cfg.Certificates = []tls.Certificate{pair}
	return cfg
}

// ofAnotherAuthority is a configuration with a certificate for this machine that an authority has issued which the cluster does not know.
func ofAnotherAuthority(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestOwnListenerIsTheOnlyOpenPort: joining opens Config.Listen and nothing else: no HTTP, no profiling.
func TestOwnListenerIsTheOnlyOpenPort(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"net/http`) {
			t.Errorf("%s imports net/http", f)
		}
		opened += strings.Count(string(b), "net.Listen(")
	}
	if opened != 1 {
		t.Errorf("net.Listen is called at %d places, want one", opened)
	}
}
