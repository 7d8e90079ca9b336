package replicaserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"hash"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secretWord is the password of these tests; no log line may hold it.
const secretWord = "s3cret, w=rd"

// credentialOf is what is stored of a SCRAM user with that password (RFC 5802).
func credentialOf(t testing.TB, h func() hash.Hash, password string, iterations int) ScramCredential {
	t.Helper()
	salt := []byte("any salt")
	salted, err := pbkdf2.Key(h, password, salt, iterations, h().Size())
	if err != nil {
		t.Fatal(err)
	}
	sign := func(key []byte, text string) []byte {
		m := hmac.New(h, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := h()
	stored.Write(sign(salted, "Client Key"))
	return ScramCredential{Salt: salt, StoredKey: stored.Sum(nil), ServerKey: sign(salted, "Server Key"), Iterations: int32(iterations)}
}

// saslOf has the user "admin, =1" with secretWord by each mechanism.
func saslOf(t testing.TB) SASL {
	short, long := credentialOf(t, sha256.New, secretWord, 4096), credentialOf(t, sha512.New, secretWord, 4096)
	return SASL{
		Plain:       func(user, password string) bool { return user == "admin, =1" && password == secretWord },
		ScramSHA256: func(user string) (ScramCredential, bool) { return short, user == "admin, =1" },
		ScramSHA512: func(user string) (ScramCredential, bool) { return long, user == "admin, =1" },
	}
}

// asClient asks a server with kgo where a partition ends, as a follower would.
func asClient(t testing.TB, s *Server, opts ...kgo.Opt) (int64, error) {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.Addr().String()), kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req := endOf(11, 1)
	resp, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return 0, err
	}
	p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return int64(p.ErrorCode), nil
	}
	return p.Offset, nil
}

// endOf asks for the end of partition 0 of the topic "a".
func endOf(version int16, replica int32) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, replica
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "a"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = latestTimestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// lines is a log that can be read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestLogins(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(100)
	var log lines
	var asked atomic.Value
	s := start(t, topics, func(c *Config) {
		c.Security, c.SASL, c.Logger = SASLPlaintext, saslOf(t), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Allowed = func(principal string) bool { asked.Store(principal); return true }
	})
	for name, mechanism := range map[string]func(user, password string) sasl.Mechanism{
		"PLAIN":         func(u, p string) sasl.Mechanism { return plain.Auth{User: u, Pass: p}.AsMechanism() },
		"SCRAM-SHA-256": func(u, p string) sasl.Mechanism { return scram.Auth{User: u, Pass: p}.AsSha256Mechanism() },
		"SCRAM-SHA-512": func(u, p string) sasl.Mechanism { return scram.Auth{User: u, Pass: p}.AsSha512Mechanism() },
	} {
		asked.Store("")
		if end, err := asClient(t, s, kgo.SASL(mechanism("admin, =1", secretWord))); err != nil || end != 1 {
			t.Errorf("%s: end %d, %v", name, end, err)
		}
		if asked.Load() != "User:admin, =1" {
			t.Errorf("%s: the principal is %q", name, asked.Load())
		}
		for _, wrong := range [][2]string{{"admin, =1", secretWord + "x"}, {"root", secretWord}} {
			if _, err := asClient(t, s, kgo.SASL(mechanism(wrong[0], wrong[1]))); err == nil || !strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") {
				t.Errorf("%s as %s: %v", name, wrong[0], err)
			}
		}
	}
	if _, err := asClient(t, s); err == nil {
		t.Error("it answers without a login")
	}
	if text := log.String(); strings.Contains(text, "s3cret") || !strings.Contains(text, "wrong user or password") {
		t.Errorf("the log:\n%s", text)
	}
	s = start(t, topics, func(c *Config) {
		c.Security, c.SASL = SASLPlaintext, saslOf(t)
		c.SASL.Plain = nil
	})
	if _, err := asClient(t, s, kgo.SASL(plain.Auth{User: "admin, =1", Pass: secretWord}.AsMechanism())); err == nil || !strings.Contains(err.Error(), "UNSUPPORTED_SASL_MECHANISM") {
		t.Errorf("a mechanism that is not offered: %v", err)
	}
}

func handshakeOf(mechanism string) *kmsg.SASLHandshakeRequest {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, mechanism
	return req
}

func loginOf(version int16, text string) *kmsg.SASLAuthenticateRequest {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = version, []byte(text)
	return req
}

// TestLoginByHand goes through what Kafka's client does and must not do, version by version.
func TestLoginByHand(t *testing.T) {
	topics, logs := topicOf(1)
	logs[0].append(100)
	inVirtualTime(t, topics, func(c *Config) { c.Security, c.SASL = SASLPlaintext, saslOf(t) }, func(t *testing.T, _ *Server, l *pipeListener, c *follower) {
		ok := "\x00admin, =1\x00" + secretWord
		login := func(c *follower, version int16, text string) int16 {
			t.Helper()
			return c.ask(loginOf(version, text)).(*kmsg.SASLAuthenticateResponse).ErrorCode
		}
		handshake := func(c *follower, mechanism string) int16 {
			t.Helper()
			resp := c.ask(handshakeOf(mechanism)).(*kmsg.SASLHandshakeResponse)
			if strings.Join(resp.SupportedMechanisms, " ") != "PLAIN SCRAM-SHA-256 SCRAM-SHA-512" {
				t.Errorf("offered: %q", resp.SupportedMechanisms)
			}
			return resp.ErrorCode
		}
		ended := func(c *follower, why string) {
			t.Helper()
			if _, err := c.try(endOf(11, 1)); err == nil {
				t.Errorf("%s: the connection goes on", why)
			}
			_ = c.conn.Close()
		}
		for version := int16(0); version <= 2; version++ {
			c := l.dial(t)
			c.ask(kmsg.NewPtrApiVersionsRequest())
			if code := handshake(c, "PLAIN"); code != 0 {
				t.Fatalf("handshake: code %d", code)
			}
			c.ask(kmsg.NewPtrApiVersionsRequest())
			resp := c.ask(loginOf(version, ok)).(*kmsg.SASLAuthenticateResponse)
			if resp.ErrorCode != 0 || resp.SessionLifetimeMillis != 0 || len(resp.SASLAuthBytes) != 0 {
				t.Fatalf("login version %d: %+v", version, resp)
			}
			if p := c.ask(endOf(11, 1)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.Offset != 1 {
				t.Errorf("after the login: %+v", p)
			}
			// Once more on the same connection (KIP-368).
			if a, b := handshake(c, "PLAIN"), login(c, version, ok); a != 0 || b != 0 {
				t.Errorf("logged in again: codes %d and %d", a, b)
			}
			c.ask(endOf(11, 1))
			if version == 0 {
				if code := handshake(c, "SCRAM-SHA-256"); code != codeIllegalSASLState {
					t.Errorf("another mechanism: code %d", code)
				}
			} else {
				handshake(c, "PLAIN")
				if code := login(c, version, "\x00admin, =1\x00wrong"); code != codeAuthenticationFailed {
					t.Errorf("logged in again with a wrong password: code %d", code)
				}
			}
			ended(c, "after a failed second login")
		}
		for text, code := range map[string]int16{
			"\x00admin, =1\x00x": codeAuthenticationFailed, "": codeAuthenticationFailed, "a\x00b": codeAuthenticationFailed, "\x00\x00": codeAuthenticationFailed,
			"root" + ok: codeAuthenticationFailed, ok + "\x00": codeAuthenticationFailed,
		} {
			c := l.dial(t)
			handshake(c, "PLAIN")
			if got := login(c, 2, text); got != code {
				t.Errorf("%q: code %d", text, got)
			}
			ended(c, text)
		}
		c2 := l.dial(t)
		handshake(c2, "PLAIN")
		if got := login(c2, 2, "admin, =1"+ok); got != 0 {
			t.Errorf("the user's own name to act as: code %d", got)
		}
		_ = c2.conn.Close()
		c2 = l.dial(t)
		if code := login(c2, 2, ok); code != codeIllegalSASLState {
			t.Errorf("without a handshake: code %d", code)
		}
		ended(c2, "without a handshake")
		c2 = l.dial(t)
		if code := handshake(c2, "GSSAPI"); code != codeUnsupportedMechanism {
			t.Errorf("GSSAPI: code %d", code)
		}
		ended(c2, "GSSAPI")
		c2 = l.dial(t)
		handshake(c2, "SCRAM-SHA-512")
		if code := handshake(c2, "PLAIN"); code != codeIllegalSASLState {
			t.Errorf("a handshake within a login: code %d", code)
		}
		ended(c2, "a handshake within a login")
	})
}

// TestScramMessages has the example of RFC 7677 with its nonces, and what is no SCRAM.
func TestScramMessages(t *testing.T) {
	credential := credentialOf(t, sha256.New, "pencil", 4096)
	newExchange := func() *scramExchange {
		return &scramExchange{newHash: sha256.New, lookup: func(user string) (ScramCredential, bool) { return credential, user == "user" }}
	}
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	salted, err := pbkdf2.Key(sha256.New, "pencil", decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096, 32)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := sha256.Sum256(sign(salted, "Client Key"))
	x := &scramExchange{
		newHash: sha256.New, user: "user", credential: ScramCredential{StoredKey: stored[:], ServerKey: sign(salted, "Server Key")}, binding: "n,,",
		nonce: "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", clientFirst: "n=user,r=rOprNGfwEbeRWgbNEkqO",
		serverFirst: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
	}
	reply, user, done, err := x.step([]byte("c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="))
	if string(reply) != "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" || user != "user" || !done || err != nil {
		t.Errorf("RFC 7677: %q, %q, %v, %v", reply, user, done, err)
	}
	for message, good := range map[string]bool{
		"n,,n=user,r=abc": true, "y,,n=user,r=abc": true, "n,a=user,n=user,r=abc": true, "n,,n=user,r=abc,x=y": true,
		"n,a=root,n=user,r=abc": false, "n,user,n=user,r=abc": false, "p=tls-unique,,n=user,r=abc": false, "n,,n=user,r=abc,tokenauth=true": false, "n,,n=user,r=": false,
		"n,,n=user,r=a\x01": false, "n,,n=nobody,r=abc": false, "n,,n=us=er,r=abc": false, "n,,n=,r=abc": false, "n,,r=abc,n=user": false, "n,,m=x,n=user,r=abc": false, "n,,n=user": false,
		"": false, "n": false, ",,": false,
	} {
		reply, _, done, err := newExchange().step([]byte(message))
		if (err == nil) != good || done || good && (!strings.HasPrefix(string(reply), "r=abc") || !strings.HasSuffix(string(reply), ",s=YW55IHNhbHQ=,i=4096")) {
			t.Errorf("%q: %q, %v", message, reply, err)
		}
	}
	for _, message := range []string{"", "c=biws,r=NONCE", "c=biws,r=NONCE,p=", "c=biws,r=NONCE,p=AAAA", "c=eSws,r=NONCE,p=PROOF", "c=biws,r=abc,p=PROOF", "r=NONCE,c=biws,p=PROOF", "c=biws,r=NONCE,p=!", "c=biws,r=NONCE,p=PROOF"} {
		x := newExchange()
		if _, _, _, err := x.step([]byte("n,,n=user,r=abc")); err != nil {
			t.Fatal(err)
		}
		message = strings.NewReplacer("NONCE", x.nonce, "PROOF", base64.StdEncoding.EncodeToString(make([]byte, 32))).Replace(message)
		if _, _, done, err := x.step([]byte(message)); err == nil || done {
			t.Errorf("%q is taken", message)
		}
	}
	// The right proof of a message whose first field is not what the client began with.
	for binding, good := range map[string]bool{"biws": true, "eSws": false} {
		x := newExchange()
		if _, _, _, err := x.step([]byte("n,,n=user,r=abc")); err != nil {
			t.Fatal(err)
		}
		without := "c=" + binding + ",r=" + x.nonce
		salted, err := pbkdf2.Key(sha256.New, "pencil", credential.Salt, int(credential.Iterations), 32)
		if err != nil {
			t.Fatal(err)
		}
		proof := sign(salted, "Client Key")
		subtle.XORBytes(proof, proof, sign(credential.StoredKey, x.clientFirst+","+x.serverFirst+","+without))
		if _, _, done, err := x.step([]byte(without + ",p=" + base64.StdEncoding.EncodeToString(proof))); (err == nil) != good || done != good {
			t.Errorf("binding %s: %v", binding, err)
		}
	}
	a, b := newExchange(), newExchange()
	_, _, _, _ = a.step([]byte("n,,n=user,r=abc"))
	_, _, _, _ = b.step([]byte("n,,n=user,r=abc"))
	if a.nonce == b.nonce || len(a.nonce) < 20 {
		t.Errorf("nonces %q and %q", a.nonce, b.nonce)
	}
}

// authority makes certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	next int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c := a.issue(pkix.Name{CommonName: "authority"}, a.key)
	a.cert = c.Leaf
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(subject pkix.Name, key *ecdsa.PrivateKey) tls.Certificate {
	a.t.Helper()
	a.next++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent := a.cert
	if parent == nil {
		parent = template
	}
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			a.t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestTLS(t *testing.T) {
	topics, logs := topicOf(1)
	for range 100 {
		logs[0].append(100)
		logs[0].append(3000)
	}
	ours, theirs := newAuthority(t), newAuthority(t)
	var current atomic.Pointer[tls.Config]
	use := func(name string) {
		c := ours.issue(pkix.Name{CommonName: name}, nil)
		current.Store(&tls.Config{Certificates: []tls.Certificate{c}, ClientCAs: ours.pool, ClientAuth: tls.VerifyClientCertIfGiven})
	}
	use("first")
	var asked atomic.Value
	change := func(c *Config) {
		c.Security, c.TLS = SSL, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }}
		c.Allowed = func(principal string) bool { asked.Store(principal); return principal != anonymous }
	}
	s := start(t, topics, change)
	var seen atomic.Value
	client := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ours.pool, Certificates: certs, VerifyConnection: func(state tls.ConnectionState) error {
			seen.Store(state.PeerCertificates[0].Subject.CommonName)
			return nil
		}}
	}
	broker := ours.issue(pkix.Name{CommonName: "broker-1", Organization: []string{"Acme, Inc."}}, nil)
	if end, err := asClient(t, s, kgo.DialTLSConfig(client(broker))); err != nil || end != 200 || asked.Load() != `User:CN=broker-1,O=Acme\, Inc.` || seen.Load() != "first" {
		t.Errorf("end %d, %v, principal %v, seen %v", end, err, asked.Load(), seen.Load())
	}
	use("renewed")
	if end, err := asClient(t, s, kgo.DialTLSConfig(client(broker))); err != nil || end != 200 || seen.Load() != "renewed" {
		t.Errorf("after the renewal: end %d, %v, seen %v", end, err, seen.Load())
	}
	if code, err := asClient(t, s, kgo.DialTLSConfig(client())); err != nil || code != codeTopicAuthorizationFailed || asked.Load() != anonymous {
		t.Errorf("without a certificate: code %d, %v, principal %v", code, err, asked.Load())
	}
	if _, err := asClient(t, s, kgo.DialTLSConfig(client(theirs.issue(pkix.Name{CommonName: "broker-1"}, nil)))); err == nil {
		t.Error("a certificate of another authority is taken")
	}
	if _, err := asClient(t, s); err == nil {
		t.Error("it answers without TLS")
	}

	conn, err := tls.Dial("tcp", s.Addr().String(), client(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	f := &follower{t: t, conn: conn}
	var want []byte
	for _, b := range logs[0].batches {
		want = append(want, b.bytes...)
	}
	for range 2 {
		if got := f.ask(fetchOf(18, topicA, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, want) {
			t.Errorf("%d bytes over TLS, want %d", len(got), len(want))
		}
	}

	s = start(t, topics, func(c *Config) {
		change(c)
		c.Security, c.SASL = SASLSSL, saslOf(t)
	})
	if end, err := asClient(t, s, kgo.DialTLSConfig(client(broker)), kgo.SASL(scram.Auth{User: "admin, =1", Pass: secretWord}.AsSha512Mechanism())); err != nil || end != 200 || asked.Load() != "User:admin, =1" {
		t.Errorf("SASL_SSL: end %d, %v, principal %v", end, err, asked.Load())
	}
}
