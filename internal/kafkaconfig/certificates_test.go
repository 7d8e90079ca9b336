package kafkaconfig

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAcceptance6_6WhenCertificatesEnd: the own one as the file is now, also when it has ended, and those of the brokers as they were shown.
func TestAcceptance6_6WhenCertificatesEnd(t *testing.T) {
	a := newAuthority(t) // for an hour
	inHalf, inTwo := time.Now().Add(30*time.Minute).Truncate(time.Second).UTC(), time.Now().Add(2*time.Hour).Truncate(time.Second).UTC()
	broker := func(until time.Time) string {
		cert, key := a.issue("broker", until)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return "127.0.0.1:" + serve(t, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	short, long := broker(inHalf), broker(inTwo)
	own := filepath.Join(t.TempDir(), "own.pem")
	cert, key := a.issue("client", inTwo)
	write(t, own, cert+key)
	for _, check := range []string{"https", ""} {
		c, err := Parse(map[string]string{Bootstrap: short, SecurityProtocol: "SSL", TruststoreCertificates: a.pem, KeystoreLocation: own, HostNameCheck: check})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Certificates(); len(got) != 1 || !got[0].Own || got[0].Of != KeystoreLocation || !got[0].Ends.Equal(inTwo) {
			t.Errorf("before a connection: %+v", got)
		}
		for _, address := range []string{short, long} {
			conn, err := c.dial(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		ends := map[string]time.Time{}
		for _, x := range c.Certificates() {
			if !x.Own {
				ends[x.Of] = x.Ends
			}
		}
		last := a.cert.NotAfter // the authority ends before what it has signed
		if check == "" {
			last = inTwo // nothing is said of the authority where the name is not checked
		}
		if len(ends) != 2 || !ends[short].Equal(inHalf) || !ends[long].Equal(last) {
			t.Errorf("host name check %q, shown: %v, want %v and %v", check, ends, inHalf, last)
		}
		if got := c.dialer.certificates(inHalf.Add(forgotten + time.Minute)); len(got) != 1 || got[0].Of != long {
			t.Errorf("a day after the end of one: %v", got)
		}
	}

	c, err := Parse(map[string]string{Bootstrap: short, SecurityProtocol: "SSL", TruststoreCertificates: a.pem, KeystoreLocation: own})
	if err != nil {
		t.Fatal(err)
	}
	gone := time.Now().Add(-time.Minute).Truncate(time.Second).UTC()
	cert, key = a.issue("client", gone)
	write(t, own, cert+key)
	if got := c.Certificates(); len(got) != 1 || !got[0].Ends.Equal(gone) {
		t.Errorf("one that has ended: %+v", got)
	}
	s, err := ParseServer("SSL", map[string]string{KeystoreLocation: own, ClientAuth: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Certificates(); len(got) != 1 || !got[0].Ends.Equal(gone) {
		t.Errorf("a listener's: %+v", got)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if got := c.Certificates(); len(got) != 0 {
		t.Errorf("none is there: %+v", got)
	}
	plain, err := Parse(map[string]string{Bootstrap: short})
	if err != nil || len(plain.Certificates()) != 0 {
		t.Errorf("without TLS: %v %+v", err, plain.Certificates())
	}
}
