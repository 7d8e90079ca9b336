package kafkaconfig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// issue makes a certificate for a common name and 127.0.0.1 that is valid until the given time, and its key.
func (a *authority) issue(name string, until time.Time) (cert, key string) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// serve accepts TLS connections with the given configuration, and writes the common name of each client's certificate. It gives the port.
func serve(t *testing.T, config *tls.Config) (port string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				conn := c.(*tls.Conn)
				if conn.Handshake() != nil {
					return
				}
				who := "nobody"
				if p := conn.ConnectionState().PeerCertificates; len(p) > 0 {
					who = p[0].Subject.CommonName
				}
				io.WriteString(c, who)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// connect dials as a client with these settings does, and reads what the server writes.
func connect(t *testing.T, settings map[string]string, address string) (string, error) {
	t.Helper()
	ts, errs := newTLS(func(name string) string { return settings[name] }, settings)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	d := &dialer{setup: 5 * time.Second, most: 5 * time.Second, tls: ts, failures: map[string]int{}}
	conn, err := d.dial(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	return string(b), err
}

func TestStoresAreReadForEachConnection(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("server", time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	asks := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	address := "127.0.0.1:" + serve(t, asks)

	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("trust.pem"), a.pem)
	certA, keyA := a.issue("first", time.Now().Add(time.Hour))
	write(t, path("own.pem"), keyA+certA)
	inFiles := map[string]string{TruststoreLocation: path("trust.pem"), TruststoreType: "PEM", KeystoreLocation: path("own.pem"), KeystoreType: "pem"}
	inText := map[string]string{
		TruststoreCertificates: "${directory:" + dir + ":trust.pem}", KeystoreChain: "${directory:" + dir + ":own.pem}", KeystoreKey: "${directory:" + dir + ":own.pem}",
	}
	oneLine := map[string]string{
		TruststoreCertificates: strings.ReplaceAll(a.pem, "\n", " "), KeystoreChain: strings.ReplaceAll(certA, "\n", " "), KeystoreKey: strings.ReplaceAll(keyA, "\n", " "),
	}
	for _, s := range []map[string]string{inFiles, inText, oneLine} {
		if who, err := connect(t, s, address); err != nil || who != "first" {
			t.Errorf("connected as %q, %v", who, err)
		}
	}
	certB, keyB := a.issue("second", time.Now().Add(time.Hour))
	write(t, path("own.pem"), keyB+certB)
	for _, s := range []map[string]string{inFiles, inText} {
		if who, err := connect(t, s, address); err != nil || who != "second" {
			t.Errorf("after the change connected as %q, %v", who, err)
		}
	}

	// What a client of TLS must say no to, each with one sentence of advice.
	other := newAuthority(t)
	otherCert, otherKey := other.issue("stranger", time.Now().Add(time.Hour))
	expiredCert, expiredKey := a.issue("old", time.Now().Add(-time.Hour))
	oldServer, err := tls.X509KeyPair([]byte(expiredCert), []byte(expiredKey))
	if err != nil {
		t.Fatal(err)
	}
	expired := "127.0.0.1:" + serve(t, &tls.Config{Certificates: []tls.Certificate{oldServer}})
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	go func() {
		for {
			c, err := plain.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "this is not TLS, it is a line of text")
			c.Close()
		}
	}()
	trust := map[string]string{TruststoreCertificates: a.pem}
	with := func(more ...string) map[string]string {
		s := map[string]string{TruststoreCertificates: a.pem}
		for i := 0; i < len(more); i += 2 {
			s[more[i]] = more[i+1]
		}
		return s
	}
	byName := strings.Replace(address, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		what     string
		settings map[string]string
		address  string
		says     []string
	}{
		{"wrong authority", map[string]string{TruststoreCertificates: other.pem}, address, []string{"not signed by an authority that is trusted here", TruststoreCertificates}},
		{"host name", with(KeystoreChain, certA, KeystoreKey, keyA), byName, []string{"the certificate of localhost", "is for other names", "advertised.listeners"}},
		{"no client certificate", trust, address, []string{"refused the TLS connection", KeystoreLocation}},
		{"a stranger's certificate", with(KeystoreChain, otherCert, KeystoreKey, otherKey), address, []string{"refused the TLS connection", KeystoreLocation}},
		{"expired client certificate", with(KeystoreChain, expiredCert, KeystoreKey, expiredKey), address, []string{"the client certificate expired at", "taken up at the next connection"}},
		{"expired server certificate", trust, expired, []string{"is not valid", "renew it at the broker"}},
		{"plain text", trust, plain.Addr().String(), []string{"does not answer in TLS"}},
	} {
		_, err := connect(t, c.settings, c.address)
		if e := Find(err); e == nil || e.Advice == "" || strings.Contains(e.Wrong().Error(), e.Advice) {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		for _, w := range c.says {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", c.what, err, w)
			}
		}
	}
	// The check of the name switched off, and of nothing else.
	off := with(KeystoreChain, certA, KeystoreKey, keyA, HostNameCheck, "")
	if who, err := connect(t, off, byName); err != nil || who != "first" {
		t.Errorf("without the check of the name: %q, %v", who, err)
	}
	if _, err := connect(t, map[string]string{TruststoreCertificates: other.pem, HostNameCheck: ""}, byName); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("without the check of the name, a wrong authority: %v", err)
	}
	// Versions.
	old := asks.Clone()
	old.MaxVersion = tls.VersionTLS12
	v12 := "127.0.0.1:" + serve(t, old)
	if who, err := connect(t, with(KeystoreChain, certA, KeystoreKey, keyA, EnabledProtocols, "TLSv1.2"), v12); err != nil || who != "first" {
		t.Errorf("TLS 1.2: %q, %v", who, err)
	}
	if _, err := connect(t, with(KeystoreChain, certA, KeystoreKey, keyA, EnabledProtocols, "TLSv1.3"), v12); err == nil {
		t.Error("a server of TLS 1.2 was accepted where only 1.3 is enabled")
	}
}

func TestSettingsOfTLSThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		says     string
	}{
		{map[string]string{TruststoreType: "JKS"}, "keytool -importkeystore"},
		{map[string]string{KeystoreType: "pkcs12"}, "openssl pkcs12"},
		{map[string]string{KeystoreType: "marker"}, "is not PEM"},
		{map[string]string{TruststorePassword: "marker"}, "a PEM store has no password"},
		{map[string]string{KeystorePassword: "marker"}, KeyPassword},
		{map[string]string{KeyPassword: "marker"}, "no key is"},
		{map[string]string{KeystoreKey: "marker"}, "only one of it and"},
		{map[string]string{KeystoreChain: "marker"}, "only one of it and"},
		{map[string]string{KeystoreKey: "marker", KeystoreChain: "x", KeystoreLocation: "/x"}, "set either the file"},
		{map[string]string{TruststoreLocation: "/x", TruststoreCertificates: "marker"}, "is set beside"},
		{map[string]string{HostNameCheck: "marker"}, "neither https nor empty"},
		{map[string]string{EnabledProtocols: "TLSv1.1,TLSv1.2"}, "neither TLSv1.2 nor TLSv1.3"},
	} {
		c.settings[Bootstrap], c.settings[SecurityProtocol] = "a:1", "SSL"
		_, err := Parse(c.settings)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "marker") {
			t.Errorf("%v gave %v, not %q", c.settings, err, c.says)
		}
	}
}

func TestEncryptedKeys(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	chain := read("certificate.pem")
	for _, name := range []string{"key.pem", "k-aes-128-cbc.pem", "k-aes-256-cbc.pem", "k-sha1.pem", "k-sha512.pem"} {
		if _, err := keyPair(chain, read(name), "tulip"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		chain, key, password string
		want                 error
		advice               string
	}{
		{chain, read("k-aes-256-cbc.pem"), "rose", errWrongKey, KeyPassword},
		{chain, read("k-aes-256-cbc.pem"), "", errNoPassword, KeyPassword},
		{chain, read("k-des3.pem"), "tulip", errScheme, "openssl pkcs8 -topk8"},
		{chain, read("k-old.pem"), "tulip", errOldCipher, "openssl pkcs8 -topk8"},
		{chain, "\xfe\xed\xfe\xed a Java key store", "", errNoPEM, "keytool"},
		{"", read("key.pem"), "", errNoPEM, "keytool"},
		{chain, strings.Replace(read("key.pem"), "\nM", "\n!", 1), "", errDamaged, "PEM"},
	} {
		_, err := keyPair(c.chain, c.key, c.password)
		if !errors.Is(err, c.want) || !strings.Contains(unreadable(KeystoreLocation, "/x", err).Advice, c.advice) {
			t.Errorf("got %v, not %v", err, c.want)
		}
	}
	if _, err := keyPair(chain, chain, ""); err == nil {
		t.Error("a chain without a key was accepted")
	}
	_, foreign := newAuthority(t).issue("x", time.Now())
	if _, err := keyPair(chain, foreign, ""); err == nil || !strings.Contains(err.Error(), "not that of the first certificate") {
		t.Errorf("another key: %v", err)
	}
}

func FuzzDecryptKey(f *testing.F) {
	for _, name := range []string{"k-aes-128-cbc.pem", "k-sha1.pem", "k-des3.pem"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		block, _ := pem.Decode(b)
		f.Add(block.Bytes)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		if _, err := decryptKey(der, "rose"); err == nil {
			t.Error("a wrong password opened a key")
		}
	})
}

func TestSetupTimeoutGrowsWithFailuresOfOneAddress(t *testing.T) {
	d := &dialer{setup: 10 * time.Millisecond, most: 35 * time.Millisecond, failures: map[string]int{}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []time.Duration{10, 20, 35, 35} {
		if got := d.limit("a:1"); got != want*time.Millisecond {
			t.Errorf("limit %v, not %v ms", got, want)
		}
		if _, err := d.dial(ended, "tcp", "a:1"); err == nil {
			t.Fatal("connected")
		}
	}
	if d.limit("b:1") != d.setup {
		t.Error("another address waits longer too")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d.failures[l.Addr().String()] = 3
	c, err := d.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if d.limit(l.Addr().String()) != d.setup {
		t.Error("a success does not bring the limit back")
	}
}
