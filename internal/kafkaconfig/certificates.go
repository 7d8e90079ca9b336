package kafkaconfig

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// Certificate says until when one is good that connections depend on.
type Certificate struct {
	Own  bool   // ours, of the key store; else what the other side showed
	Of   string // the setting that it is in, or the other side's host:port
	Ends time.Time
}

// forgotten is how long after its end the certificate of another side is still told of when nobody connects there any more: the broker may be gone.
const forgotten = 24 * time.Hour

// Certificates are what connections depend on: the own certificate, read now, and those that the other sides showed when they were connected to last. What cannot be read is left out: connections say why.
func (c *Connection) Certificates() (all []Certificate) {
	if c.tls == nil {
		return nil
	}
	return append(c.tls.own.certificates(), c.dialer.certificates(time.Now())...)
}

// Certificates are those of the settings as they are now.
func (r *Renewable) Certificates() []Certificate { return r.now.Load().Certificates() }

func (s store) certificates() []Certificate {
	if !s.isSet() {
		return nil
	}
	pair, err := s.load()
	if err != nil {
		return nil
	}
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		if cert, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, cert)
		}
	}
	return []Certificate{{Own: true, Of: s.setting, Ends: soonest(chain)}}
}

// soonest is when the first one of a chain ends.
func soonest(chain []*x509.Certificate) (ends time.Time) {
	for _, c := range chain {
		if ends.IsZero() || c.NotAfter.Before(ends) {
			ends = c.NotAfter
		}
	}
	return ends
}

// shown takes note of what the other side of a connection showed. Of several ways to a trusted authority the one that lasts longest counts.
func (d *dialer) shown(address string, s tls.ConnectionState) {
	ends := soonest(s.PeerCertificates)
	for i, chain := range s.VerifiedChains {
		if e := soonest(chain); i == 0 || e.After(ends) {
			ends = e
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ends == nil {
		d.ends = map[string]time.Time{}
	}
	d.ends[address] = ends
}

func (d *dialer) certificates(now time.Time) (all []Certificate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for address, ends := range d.ends {
		if now.Sub(ends) > forgotten {
			delete(d.ends, address)
			continue
		}
		all = append(all, Certificate{Of: address, Ends: ends})
	}
	return all
}
