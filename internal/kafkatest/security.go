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

	// SASL is empty, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", or, on listeners of clients alone, "OAUTHBEARER" with tokens that nobody signed.
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

// byCertificate: the subject of its certificate is who a client is.
func (s Security) byCertificate() bool { return s.SASL == "" && s.TLS && s.ClientCertificates }

func (s Security) scram() bool { return strings.HasPrefix(s.SASL, "SCRAM-") }

func (s Security) users() map[string]string {
	u := map[string]string{"admin": AdminPassword}
	maps.Copy(u, s.Users)
	return u
}

// listeners are all of a node's, by name.
func (o Options) listeners() map[string]Security {
	m := map[string]Security{"CLIENT": o.Client, "INTERNAL": o.Internal, "CONTROLLER": o.Controller}
	maps.Copy(m, o.Listeners)
	return m
}

// checkSecurity refuses what Kafka cannot do.
func (o Options) checkSecurity() error {
	for _, l := range []struct {
		name string
		s    Security
	}{{"INTERNAL", o.Internal}, {"CONTROLLER", o.Controller}} {
		if l.s.SASL == "OAUTHBEARER" {
			return fmt.Errorf("kafkatest: OAUTHBEARER on the %s listener is not supported; use PLAIN or SCRAM", l.name)
		}
	}
	if o.Controllers > 1 && o.Controller.scram() {
		return fmt.Errorf("kafkatest: SCRAM on the CONTROLLER listener of %d controllers: they log in to each other before one of them has read the users (4.3.1 and 4.4.0: no election"+
			" succeeds); use PLAIN, or one controller", o.Controllers)
	}
	return nil
}

// firstUsers are the arguments that make the format tool put SCRAM users into the first records of the metadata log (KIP-900): brokers log in with them before anybody could store them.
func (o Options) firstUsers() []string {
	var args []string
	for _, s := range []Security{o.Internal, o.Controller} {
		if !s.scram() {
			continue
		}
		users := s.users()
		for _, u := range slices.Sorted(maps.Keys(users)) {
			arg := fmt.Sprintf("%s=[name=%s,password=%s]", s.SASL, u, users[u])
			if !slices.Contains(args, arg) {
				args = append(args, "--add-scram", arg)
			}
		}
	}
	return args
}

// superUsers are those of Options.Authorizer.
func (c *cluster) superUsers() []string {
	users := []string{"User:ANONYMOUS", "User:admin"}
	if c.o.Internal.byCertificate() || c.o.Controller.byCertificate() {
		users = append(users, "User:CN="+ownCredentials.Certificate)
		for _, n := range c.nodes {
			users = append(users, "User:CN="+n.certificate())
		}
	}
	return append(users, c.o.SuperUsers...)
}

// ownCredentials are what this package's own clients show.
var ownCredentials = Credentials{User: "admin", Password: AdminPassword, Certificate: "admin"}

// certificate is the common name of the node's certificates.
func (n *node) certificate() string { return fmt.Sprintf("broker-%d", n.id) }

// listenerProperties adds what listener name ("client", "internal", "controller") needs for s.
func (c *cluster) listenerProperties(p map[string]string, n *node, name string, s Security) error {
	prefix := "listener.name." + name + "."
	if s.TLS {
		a, err := c.authority()
		if err != nil {
			return err
		}
		keystore := filepath.Join(n.dir, name+"-keystore.pem")
		truststore := filepath.Join(n.dir, name+"-truststore.pem")
		cert, key, err := a.issue(n.certificate(), loopback...)
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
		p[prefix+"ssl.endpoint.identification.algorithm"] = "https" // a node that connects to another checks the name in its certificate
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
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		p[prefix+"sasl.enabled.mechanisms"] = s.SASL
		p[prefix+strings.ToLower(s.SASL)+".sasl.jaas.config"] = fmt.Sprintf(
			"org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password=%q;", "admin", AdminPassword)
	case "OAUTHBEARER":
		p[prefix+"sasl.enabled.mechanisms"] = "OAUTHBEARER"
		p[prefix+"oauthbearer.sasl.jaas.config"] = `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`
	default:
		return fmt.Errorf("kafkatest: SASL mechanism %q is unknown", s.SASL)
	}
	switch {
	case s.SASL != "" && name == "internal":
		p["sasl.mechanism.inter.broker.protocol"] = s.SASL
	case s.SASL != "" && name == "controller":
		p["sasl.mechanism.controller.protocol"] = s.SASL
	}
	if s.SessionLifetime > 0 {
		p[prefix+strings.ToLower(s.SASL)+".connections.max.reauth.ms"] = fmt.Sprint(s.SessionLifetime.Milliseconds())
	}
	return nil
}

// scramListeners are the listeners that have SCRAM.
func (c *cluster) scramListeners() map[string]Security {
	m := c.o.listeners()
	maps.DeleteFunc(m, func(_ string, s Security) bool { return !s.scram() })
	return m
}

// createUsers stores the SCRAM users of clients and waits until every broker knows them. Those of brokers are there from the first: see firstUsers.
func (c *cluster) createUsers(ctx context.Context) error {
	listeners := c.scramListeners()
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		if name == "INTERNAL" || name == "CONTROLLER" {
			continue
		}
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
	for _, addr := range c.addresses(name) {
		err := poll(ctx, fmt.Sprintf("listener %s at %s to know the SCRAM users", name, addr), func(ctx context.Context) (bool, error) {
			w, err := c.openWire(ctx, addr, s, who)
			if err != nil {
				return false, err
			}
			w.close()
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SetPassword changes a SCRAM user's password, for one mechanism ("SCRAM-SHA-256", "SCRAM-SHA-512"), and waits until every broker knows it. Sessions that are open stay so until
// they have to authenticate again. Not for the user admin where INTERNAL or CONTROLLER has that mechanism: brokers and this package log in with AdminPassword.
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

// ListenerOptions are the options with which a client of any listener ("CLIENT", "INTERNAL", "CONTROLLER", or one of Options.Listeners) shows who it is. Without seeds. dial opens the
// connections, such as a proxy.Dialer's DialContext; nil is an ordinary one.
func (c *Cluster) ListenerOptions(listener string, who Credentials, dial func(ctx context.Context, network, addr string) (net.Conn, error)) []kgo.Opt {
	c.t.Helper()
	return c.dialledOptions(c.security(listener), who, dial)
}

func (c *Cluster) security(listener string) Security {
	c.t.Helper()
	s, ok := c.o.listeners()[listener]
	if !ok {
		c.t.Fatalf("kafkatest: this cluster was started without a listener %s", listener)
	}
	return s
}

// BrokerPrincipal is who a node is ("User:admin") when it connects to a listener that has the security of INTERNAL or CONTROLLER: to another node's, and to that of a process that joined.
func (c *Cluster) BrokerPrincipal(listener string, broker int32) string {
	c.t.Helper()
	s := c.security(listener)
	switch {
	case s.SASL != "":
		return "User:admin"
	case s.byCertificate():
		return "User:CN=" + c.node(broker).certificate()
	default:
		return "User:ANONYMOUS"
	}
}

func (c *cluster) clientOptions(who Credentials) []kgo.Opt {
	return c.options(c.o.Client, who)
}

// adminOptions are those of this package's own clients, over a listener that no other broker and no test's client uses: a process that joined the cluster is no broker there.
// They remember nothing for long: a test that deletes a topic and asks for it wants the broker's answer.
func (c *cluster) adminOptions() []kgo.Opt {
	return append(c.options(Security{}, ownCredentials), kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
}

func (c *cluster) options(s Security, who Credentials) []kgo.Opt {
	return c.dialledOptions(s, who, nil)
}

func (c *cluster) dialledOptions(s Security, who Credentials, dial func(ctx context.Context, network, addr string) (net.Conn, error)) []kgo.Opt {
	who = who.orAdmin()
	var opts []kgo.Opt
	if s.TLS {
		cfg, err := c.tlsConfig(s, who.Certificate)
		below := dial
		if below == nil {
			below = new(net.Dialer).DialContext
		}
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err != nil {
				return nil, err
			}
			return dialTLS(ctx, network, addr, below, cfg)
		}
	}
	if dial != nil {
		opts = append(opts, kgo.Dialer(dial))
	}
	if m := mechanism(s.SASL, who); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

// dialTLS shakes hands over what dial opens, and checks the certificate for addr's host.
func dialTLS(ctx context.Context, network, addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error), cfg *tls.Config) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
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
		cert, key, err := a.issue(name, loopback...)
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
// Brokers accept it from a server on 127.0.0.1 and localhost too.
func (c *Cluster) PEM(name string) (authorityPEM, certificate, key []byte) {
	c.t.Helper()
	return c.PEMFor(name, loopback...)
}

// PEMFor is PEM with a certificate that is good for a server on the given hosts (names or IP addresses) only: brokers, who check the name of whom they connect to, refuse it elsewhere.
func (c *Cluster) PEMFor(name string, hosts ...string) (authorityPEM, certificate, key []byte) {
	c.t.Helper()
	a, err := c.authority()
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	cert, k, err := a.issue(name, hosts...)
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	return bytes.Clone(a.pem), cert, k
}

// ServerTLS is what a process beside the brokers needs to serve a listener with the security of the given one ("INTERNAL"): a new certificate of the common name, good for the hosts
// (none: 127.0.0.1 and localhost), and, where the listener asks for them, clients' certificates of the same authority are demanded. Security without TLS gives nil.
func (c *Cluster) ServerTLS(listener, name string, hosts ...string) *tls.Config {
	c.t.Helper()
	s := c.security(listener)
	if !s.TLS {
		return nil
	}
	if len(hosts) == 0 {
		hosts = loopback
	}
	_, cert, key := c.PEMFor(name, hosts...)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.t.Fatalf("kafkatest: %v", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if s.ClientCertificates {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.ClientCAs = x509.NewCertPool()
		cfg.ClientCAs.AddCert(c.tls.cert)
	}
	return cfg
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
		cl, err := kgo.NewClient(append(c.adminOptions(), kgo.SeedBrokers(address(n.ports.Admin)))...)
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

// loopback is where all servers of a test are.
var loopback = []string{"127.0.0.1", "localhost"}

// issue makes a certificate for servers on the given hosts and for clients, with its chain, and its key.
func (a *authority) issue(name string, hosts ...string) (cert, key []byte, err error) {
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
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
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
