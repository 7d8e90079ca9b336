package kafkasource

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/mirror"
)

// jaas is a line of Kafka's PLAIN or SCRAM login.
func jaas(module, user, password string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return fmt.Sprintf(`org.apache.kafka.common.security.%sLoginModule required username="%s" password="%s";`, module, escape.Replace(user), escape.Replace(password))
}

// reads asks a source for its cluster id and fetches the two records of the topic.
func reads(ctx context.Context, settings mirror.Settings) (id string, err error) {
	src, err := Open(ctx, settings)
	if err != nil {
		return "", err
	}
	defer src.Close()
	info, err := src.Cluster(ctx)
	if err != nil {
		return "", err
	}
	topics, err := src.Topics(ctx, "secured")
	if err != nil || len(topics) != 1 {
		return "", fmt.Errorf("topics: %v, %w", topics, err)
	}
	f, err := src.OpenFetcher(ctx, topics[0].Leaders[0].Leader, mirror.FetchOptions{})
	if err != nil {
		return "", err
	}
	defer f.Close()
	f.Want(position(topics[0], 0, 0))
	got, err := f.Fetch(ctx)
	if err == nil && (len(got) != 1 || got[0].Err != nil || got[0].HighWatermark != 2 || len(got[0].Records) == 0) {
		err = fmt.Errorf("fetched %+v", got)
	}
	return info.ID, err
}

func TestKafkaEveryWayOfSecurity(t *testing.T) {
	alice := map[string]string{"alice": `se"c\ret`}
	c := kafkatest.Start(t, kafkatest.Options{Listeners: map[string]kafkatest.Security{
		"TLS": {TLS: true}, "MUTUAL": {TLS: true, ClientCertificates: true}, "PLAIN": {SASL: "PLAIN", Users: map[string]string{"alice": "secret"}},
		"SCRAM256": {SASL: "SCRAM-SHA-256"}, "SCRAM512": {SASL: "SCRAM-SHA-512", Users: alice}, "SECURE": {TLS: true, SASL: "SCRAM-SHA-512", Users: alice},
		"OAUTH": {SASL: "OAUTHBEARER"},
	}})
	c.CreateTopic(kafkatest.Topic{Name: "secured"})
	c.Produce("secured", 0, "one", "two")
	dir := t.TempDir()
	file := func(name string, text ...[]byte) string {
		path := filepath.Join(dir, name)
		var all []byte
		for _, b := range text {
			all = append(all, b...)
		}
		if err := os.WriteFile(path, all, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority, cert, key := c.PEM("client")
	otherAuthority, otherCert, otherKey := stranger(t, time.Now().Add(time.Hour))
	expiredAuthority, expiredCert, expiredKey := stranger(t, time.Now().Add(-time.Hour))
	trust := file("trust.pem", authority)
	t.Setenv("KAFKASOURCE_TEST_PASSWORD", `se"c\ret`)
	t.Setenv("KAFKASOURCE_TEST_BOOTSTRAP", c.Bootstrap()[0])
	at := func(listener string, pairs ...string) mirror.Settings {
		s := mirror.Settings{"bootstrap.servers": c.Listener(listener)[0], "request.timeout.ms": "8000"}
		for i := 0; i < len(pairs); i += 2 {
			s[pairs[i]] = pairs[i+1]
		}
		return s
	}
	with := func(s mirror.Settings, name, value string) mirror.Settings {
		s = maps.Clone(s)
		s[name] = value
		return s
	}
	tls := at("TLS", "security.protocol", "SSL", "ssl.truststore.type", "PEM", "ssl.truststore.location", trust)
	mutual := at("MUTUAL", "security.protocol", "SSL", "ssl.truststore.location", trust, "ssl.keystore.type", "PEM", "ssl.keystore.location", file("own.pem", key, cert))
	plain := at("PLAIN", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config", jaas("plain.Plain", "alice", "secret"))
	scram256 := at("SCRAM256", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-256", "sasl.jaas.config", jaas("scram.Scram", "admin", kafkatest.AdminPassword))
	scram512 := at("SCRAM512", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-512", "sasl.jaas.config", jaas("scram.Scram", "alice", `se"c\ret`))
	secure := at("SECURE", "security.protocol", "SASL_SSL", "sasl.mechanism", "SCRAM-SHA-512", "ssl.truststore.certificates", string(authority),
		"sasl.jaas.config", jaas("scram.Scram", "alice", "${env:KAFKASOURCE_TEST_PASSWORD}"))
	oauth := at("OAUTH", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER",
		"sasl.jaas.config", `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";`)
	for _, row := range []struct {
		what     string
		settings mirror.Settings
	}{
		{"PLAINTEXT", mirror.Settings{"bootstrap.servers": "${env:KAFKASOURCE_TEST_BOOTSTRAP}"}},
		{"SSL", tls},
		{"SSL with a client certificate", mutual},
		{"SSL with a client certificate as text", at("MUTUAL", "security.protocol", "SSL", "ssl.truststore.certificates", string(authority),
			"ssl.keystore.certificate.chain", string(cert), "ssl.keystore.key", string(key))},
		{"SASL_PLAINTEXT, PLAIN", plain},
		{"SASL_PLAINTEXT, SCRAM-SHA-256", scram256},
		{"SASL_PLAINTEXT, SCRAM-SHA-512", scram512},
		{"SASL_SSL, SCRAM-SHA-512", secure},
		{"SASL_PLAINTEXT, OAUTHBEARER, unsecured", oauth},
	} {
		if id, err := reads(t.Context(), row.settings); err != nil || id != c.ID() {
			t.Errorf("%s: cluster %q, %v", row.what, id, err)
		}
	}

	// A name that is not in the certificate: another address of this machine.
	_, port, _ := strings.Cut(c.Listener("TLS")[0], ":")
	elsewhere, err := proxy.ListenOn("127.0.0.2:0", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	for _, row := range []struct {
		what     string
		settings mirror.Settings
		code     mirror.SourceCode
		advice   string
	}{
		{"wrong password, PLAIN", with(plain, "sasl.jaas.config", jaas("plain.Plain", "alice", "wrong-marker")), mirror.SourceAuthentication, "check user, password"},
		{"wrong password, SCRAM", with(scram512, "sasl.jaas.config", jaas("scram.Scram", "alice", "wrong-marker")), mirror.SourceAuthentication, "check user, password"},
		{"mechanism that the listener lacks", with(scram512, "sasl.mechanism", "SCRAM-SHA-256"), mirror.SourceAuthentication, "the SASL mechanism"},
		{"token of nobody's making", with(oauth, "sasl.jaas.config",
			`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_user="wrong-marker" unsecuredLoginPrincipalClaimName="user";`),
			mirror.SourceAuthentication, "token"},
		{"no SASL where it is asked for", at("PLAIN"), mirror.SourceUnreachable, "does the listener ask for SASL"},
		{"no TLS where it is asked for", at("TLS"), mirror.SourceAuthentication, "TLS"},
		{"TLS where there is none", with(tls, "bootstrap.servers", c.Bootstrap()[0]), mirror.SourceUnreachable, "TLS"},
		{"wrong authority", with(tls, "ssl.truststore.location", file("other.pem", otherAuthority)), mirror.SourceAuthentication, "put the authority's certificate there"},
		{"host name", with(tls, "bootstrap.servers", "127.0.0.2:"+strconv.Itoa(elsewhere.Port())), mirror.SourceAuthentication, "advertised.listeners"},
		{"no client certificate", at("MUTUAL", "security.protocol", "SSL", "ssl.truststore.location", trust), mirror.SourceAuthentication, "if it asks for client certificates"},
		{"client certificate of another authority", with(mutual, "ssl.keystore.location", file("stranger.pem", otherKey, otherCert)), mirror.SourceAuthentication,
			"if it asks for client certificates"},
		{"expired client certificate", with(mutual, "ssl.keystore.location", file("expired.pem", expiredKey, expiredCert, expiredAuthority)), mirror.SourceAuthentication,
			"put a new certificate there"},
		{"no such file", with(tls, "ssl.truststore.location", filepath.Join(dir, "none.pem")), mirror.SourceAuthentication, "correct the path"},
		{"no such variable", with(scram512, "sasl.jaas.config", jaas("scram.Scram", "alice", "${env:KAFKASOURCE_TEST_NONE}")), mirror.SourceAuthentication, "set it for this process"},
	} {
		_, err := reads(t.Context(), row.settings)
		var e *mirror.SourceError
		if !errors.As(err, &e) || e.Code != row.code || !strings.Contains(e.Advice, row.advice) || strings.Contains(err.Error(), "marker") {
			t.Errorf("%s: %v", row.what, err)
			continue
		}
		t.Logf("%s: %v", row.what, err)
	}
}

// stranger makes an authority that no broker trusts, and a client's certificate and key of it.
func stranger(t *testing.T, until time.Time) (authority, certificate, key []byte) {
	t.Helper()
	issue := func(name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
			IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if parent == nil {
			parent, by = template, k
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, k.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, k
	}
	root, rootKey := issue("stranger", nil, nil)
	cert, k := issue("client", root, rootKey)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	return text("CERTIFICATE", root.Raw), text("CERTIFICATE", cert.Raw), text("PRIVATE KEY", pkcs8)
}
