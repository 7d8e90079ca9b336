package kraft

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// certificateUntil is one of this machine.
func certificateUntil(t *testing.T, end time.Time) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestStandbyLooksAgain: between the start of a process that stands by and its turn lie weeks. By then the controllers may have been upgraded to a version that knows cordoned log directories, and
// its certificate may have expired.
func TestStandbyLooksAgain(t *testing.T) {
	for _, x := range []struct {
		name    string
		after   time.Duration // Destination.lookAfter
		expires bool
	}{
		{"an upgrade", time.Hour, false},
		{"a certificate", 0, true},
		{"a certificate of a moment ago", time.Hour, true}, // it is not looked at each time: the turn must not wait for that
	} {
		t.Run(x.name, func(t *testing.T) {
			f := pretend(t)
			f.broker(1, 10, false)
			f.broker(pretendedNode, 30, false)
			f.seen()
			d := f.d
			id, err := openIdentity(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			d.identity, d.cluster, d.lookAfter = id, "cluster", x.after
			d.cfg.RequestTimeout = 500 * time.Millisecond // nobody answers most of Preflight's questions
			d.membership.host, d.membership.port = "localhost", 9990
			end := time.Now().Add(time.Hour)
			d.cfg.Security.TLS = func() (*tls.Config, error) { return certificateUntil(t, end), nil }
			registered, knows := 0, int16(1)
			f.answer = func(req kmsg.Request) (kmsg.Response, error) {
				switch req.(type) {
				case *kmsg.ApiVersionsRequest:
					resp := kmsg.NewPtrApiVersionsResponse()
					for _, key := range []kmsg.Key{kmsg.BrokerHeartbeat, kmsg.BrokerRegistration} {
						k := kmsg.NewApiVersionsResponseApiKey()
						k.ApiKey, k.MaxVersion = key.Int16(), knows
						resp.ApiKeys = append(resp.ApiKeys, k)
					}
					return resp, nil
				case *kmsg.BrokerRegistrationRequest:
					resp := kmsg.NewPtrBrokerRegistrationResponse()
					if registered++; registered == 1 {
						resp.ErrorCode = kerr.DuplicateBrokerRegistration.Code
						knows = 2 // weeks later
						if x.expires {
							end = time.Now().Add(-time.Hour)
						}
						f.broker(pretendedNode, 31, false)
					}
					resp.BrokerEpoch = 32
					return resp, nil
				case *kmsg.BrokerHeartbeatRequest:
					resp := kmsg.NewPtrBrokerHeartbeatResponse()
					resp.IsFenced = false
					return resp, nil
				}
				return nil, errors.New("it is not told here")
			}
			_, err = d.register(bounded(t))
			if x.after == 0 {
				if !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "has expired") || registered != 1 {
					t.Errorf("registered %d times, %v", registered, err)
				}
				return
			}
			if err != nil || registered != 2 || !d.membership.cordon {
				t.Errorf("registered %d times, cordoned %v, %v", registered, d.membership.cordon, err)
			}
		})
	}
}

// TestStandbyAsksWhenSomethingChanges: each refused registration is an error in the controllers' logs. While the other process lives and nothing changes, nobody asks.
func TestStandbyAsksWhenSomethingChanges(t *testing.T) {
	f := pretend(t)
	f.broker(pretendedNode, 30, false)
	f.seen()
	f.d.cfg.SessionTimeout = 20 * time.Millisecond
	long, stop := context.WithTimeout(t.Context(), 50*f.d.cfg.SessionTimeout)
	defer stop()
	if err := f.d.standBy(long, f.d.registration()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in 50 sessions: %v, want that it still waits", err)
	}
	refused := f.d.registration()
	f.broker(pretendedNode, 31, false)
	if err := f.d.standBy(bounded(t), refused); err != nil {
		t.Errorf("another registration: %v", err)
	}
}
