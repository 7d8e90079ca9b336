package kafkatest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security is how a listener lets clients in. The zero value is PLAINTEXT.
type Security struct {
	TLS bool // certificates are made by the test's own authority, for 127.0.0.1 and localhost
	// ClientCertificates asks every client for a certificate of that authority (needs TLS). Without SASL its subject is the principal.
	ClientCertificates bool

	// SASL is empty, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", or "OAUTHBEARER" with tokens that nobody signed. Listeners of clients alone may have SCRAM: its users are
	// stored in the cluster itself.
	SASL  string
	Users map[string]string // name to password. "admin" is added with AdminPassword
	// SessionLifetime is how long a client may go on before it has to authenticate again (KIP-368); 0: for ever.
	SessionLifetime time.Duration
}

// AdminPassword belongs to the user "admin", which every SASL listener knows.
const AdminPassword = "admin-secret"

// Credentials are what a client shows; the zero value is the user admin, and the certificate "client" where one is asked for.
type Credentials struct {
	User, Password string
	Certificate    string // common name
}

func (who Credentials) orAdmin() Credentials {
	if who.User == "" {
		who.User, who.Password = "admin", AdminPassword
	}
	if who.Certificate == "" {
		who.Certificate = "client"
	}
	return who
}

func (s Security) protocol() string {
	switch {
	case s.SASL != "" && s.TLS:
		return "SASL_SSL"
	case s.SASL != "":
		return "SASL_PLAINTEXT"
	case s.TLS:
		return "SSL"
	default:
		return "PLAINTEXT"
	}
}

func (s Security) users() map[string]string {
	u := map[string]string{"admin": AdminPassword}
	maps.Copy(u, s.Users)
	return u
}

// listenerProperties adds what listener name ("client", "internal") needs for s.
func (c *cluster) listenerProperties(p map[string]string, n *node, name string, s Security) error {
	prefix := "listener.name." + name + "."
	if s.TLS {
		a, err := c.authority()
		if err != nil {
			return err
		}
		keystore := filepath.Join(n.dir, name+"-keystore.pem")
		truststore := filepath.Join(n.dir, name+"-truststore.pem")
		cert, key, err := a.issue(fmt.Sprintf("broker-%d", n.id))
		if err != nil {
			return err
		}
		if err := os.WriteFile(keystore, append(slices.Clone(key), cert...), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(truststore, a.pem, 0o600); err != nil {
			return err
		}
		p[prefix+"ssl.keystore.type"] = "PEM"
		p[prefix+"ssl.keystore.location"] = keystore
		p[prefix+"ssl.truststore.type"] = "PEM"
		p[prefix+"ssl.truststore.location"] = truststore
		if s.ClientCertificates {
			p[prefix+"ssl.client.auth"] = "required"
		}
	}
	switch s.SASL {
	case "":
	case "PLAIN":
		p[prefix+"sasl.enabled.mechanisms"] = "PLAIN"
		var b strings.Builder
		fmt.Fprintf(&b, "org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password=%q", "admin", AdminPassword)
		users := s.users()
		for _, u := range slices.Sorted(maps.Keys(users)) {
			fmt.Fprintf(&b, " user_%s=%q", u, users[u])
		}
		p[prefix+"plain.sasl.jaas.config"] = b.String() + ";"
		if name == "internal" {
			p["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
		}
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		if name == "internal" {
			return fmt.Errorf("kafkatest: SCRAM on the INTERNAL listener: the users are not there before the brokers are; use PLAIN")
		}
		p[prefix+"sasl.enabled.mechanisms"] = s.SASL
		p[prefix+strings.ToLower(s.SASL)+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	case "OAUTHBEARER":
		if name == "internal" {
			return fmt.Errorf("kafkatest: OAUTHBEARER on the INTERNAL listener is not supported; use PLAIN")
		}
		p[prefix+"sasl.enabled.mechanisms"] = "OAUTHBEARER"
		p[prefix+"oauthbearer.sasl.jaas.config"] = `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`
	default:
		return fmt.Errorf("kafkatest: SASL mechanism %q is unknown", s.SASL)
	}
	if s.SessionLifetime > 0 {
		p[prefix+strings.ToLower(s.SASL)+".connections.max.reauth.ms"] = fmt.Sprint(s.SessionLifetime.Milliseconds())
	}
	return nil
}

// scramListeners are the listeners that have SCRAM, with what the ports are called.
func (c *cluster) scramListeners() map[string]Security {
	m := map[string]Security{}
	for name, s := range c.o.Listeners {
		m[name] = s
	}
	m["CLIENT"] = c.o.Client
	maps.DeleteFunc(m, func(_ string, s Security) bool { return !strings.HasPrefix(s.SASL, "SCRAM-") })
	return m
}

// createUsers stores the SCRAM users and waits until every broker knows them.
func (c *cluster) createUsers(ctx context.Context) error {
	listeners := c.scramListeners()
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		s := listeners[name]
		users := s.users()
		for _, u := range slices.Sorted(maps.Keys(users)) {
			if err := c.setPassword(ctx, s.SASL, u, users[u]); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		// The last one that was stored: brokers read the metadata log in its order.
		users := listeners[name].users()
		last := slices.Max(slices.Collect(maps.Keys(users)))
		if err := c.awaitLogin(ctx, name, listeners[name], Credentials{User: last, Password: users[last]}); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) setPassword(ctx context.Context, mechanism, user, password string) error {
	m := kadm.ScramSha256
	if mechanism == "SCRAM-SHA-512" {
		m = kadm.ScramSha512
	}
	r, err := c.Admin().AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: m, Iterations: 4096, Password: password}})
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		return fmt.Errorf("kafkatest: set the password of SCRAM user %s: %w", user, err)
	}
	return nil
}

// awaitLogin waits until every broker lets somebody in. A broker learns of SCRAM users from the metadata log; logging in is the one question that each broker answers for itself.
func (c *cluster) awaitLogin(ctx context.Context, name string, s Security, who Credentials) error {
	for _, n := range c.nodes {
		port := n.ports.Client
		if name != "CLIENT" {
			port = n.ports.further[name]
		}
		cl, err := kgo.NewClient(append(c.options(s, who), kgo.SeedBrokers(address(port)), kgo.RequestRetries(0))...)
		if err != nil {
			return err
		}
		err = poll(ctx, fmt.Sprintf("broker %d to know the SCRAM users", n.id), func(ctx context.Context) (bool, error) {
			err := cl.Ping(ctx)
			return err == nil, err
		})
		cl.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// SetPassword changes a SCRAM user's password, for one mechanism ("SCRAM-SHA-256", "SCRAM-SHA-512"), and waits until every broker knows it. Sessions that are open stay so until
// they have to authenticate again.
func (c *Cluster) SetPassword(mechanism, user, password string) {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	if err := c.setPassword(ctx, mechanism, user, password); err != nil {
		c.t.Fatalf("%v", err)
	}
	for name, s := range c.scramListeners() {
		if s.SASL != mechanism {
			continue
		}
		if err := c.awaitLogin(ctx, name, s, Credentials{User: user, Password: password}); err != nil {
			c.t.Fatalf("%v", err)
		}
	}
}

// ClientOptions are the options with which a client of the CLIENT listener shows who it is. Without seeds: see Bootstrap.
func (c *Cluster) ClientOptions(who Credentials) []kgo.Opt {
	c.t.Helper()
	return c.clientOptions(who)
}

func (c *cluster) clientOptions(who Credentials) []kgo.Opt {
	return c.options(c.o.Client, who)
}

// internalOptions are those of this package's own clients. They remember nothing for long: a test that deletes a topic and asks for it wants the broker's answer.
func (c *cluster) internalOptions() []kgo.Opt {
	return append(c.options(c.o.Internal, Credentials{}), kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
}

func (c *cluster) options(s Security, who Credentials) []kgo.Opt {
	who = who.orAdmin()
	var opts []kgo.Opt
	if s.TLS {
		cfg, err := c.tlsConfig(s, who.Certificate)
		opts = append(opts, kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, host)
		}))
	}
	if m := mechanism(s.SASL, who); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

func mechanism(name string, who Credentials) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: who.User, Pass: who.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: who.User, Pass: who.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: who.User, Pass: who.Password}.AsSha512Mechanism()
	}
	return nil
}

func (c *cluster) tlsConfig(s Security, name string) (*tls.Config, error) {
	a, err := c.authority()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if s.ClientCertificates {
		cert, key, err := a.issue(name)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// PEM makes files for a client that is configured by Kafka's property names: the authority's certificate, and a certificate and key (PKCS#8) of the given common name.
func (c *Cluster) PEM(name string) (authorityPEM, certificate, key []byte) {
	c.t.Helper()
	a, err := c.authority()
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	cert, k, err := a.issue(name)
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	return bytes.Clone(a.pem), cert, k
}

// Allow adds ALLOW rules for a principal ("User:alice") on literal topics, for the given operations (kadm.OpRead …).
func (c *Cluster) Allow(principal string, topics []string, operations ...kadm.ACLOperation) {
	c.t.Helper()
	c.CreateACLs(kadm.NewACLs().Allow(principal).AllowHosts("*").Topics(topics...).ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...))
}

// CreateACLs adds rules and waits until every running broker lists them.
func (c *Cluster) CreateACLs(b *kadm.ACLBuilder) {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	results, err := c.Admin().CreateACLs(ctx, b)
	if err == nil {
		for _, r := range results {
			if r.Err != nil {
				err = r.Err
			}
		}
	}
	if err != nil {
		c.t.Fatalf("kafkatest: create ACLs: %v", err)
	}
	for _, n := range c.nodes {
		if ok, _ := n.alive(); !ok || n.isPaused() {
			continue
		}
		cl, err := kgo.NewClient(append(c.internalOptions(), kgo.SeedBrokers(address(n.ports.Internal)))...)
		if err != nil {
			c.t.Fatalf("kafkatest: %v", err)
		}
		err = poll(ctx, fmt.Sprintf("broker %d to know the ACLs", n.id), func(ctx context.Context) (bool, error) {
			for _, r := range results {
				req := describeACL(r)
				raw, err := cl.SeedBrokers()[0].Request(ctx, req)
				if err != nil {
					return false, err
				}
				if n := countACLs(raw); n == 0 {
					return false, fmt.Errorf("rule for %s on %s %s is not there", r.Principal, r.Type, r.Name)
				}
			}
			return true, nil
		})
		cl.Close()
		if err != nil {
			c.t.Fatalf("%v", err)
		}
	}
}

// authority signs the cluster's certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func (c *cluster) authority() (*authority, error) {
	if c.tls != nil {
		return c.tls, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafkatest authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c.tls = &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	return c.tls, nil
}

// issue makes a certificate for servers on the loopback and for clients, with its chain, and its key.
func (a *authority) issue(name string) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	cert = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.pem...)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
