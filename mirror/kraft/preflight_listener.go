package kraft

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
)

// What can be known of the way from the brokers to this process before it is registered: no broker connects before that, and none can be asked to.

// hostPort is an address that brokers are told.
type hostPort struct {
	host string
	port uint16
}

func (a hostPort) String() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// bind opens the listener for the brokers, if it was not given, and says what is advertised. The Finding says why one of both is impossible.
func (d *Destination) bind() (net.Listener, hostPort, *Finding) {
	return bindTo(AboutOwnListener, d.cfg.Listener, d.cfg.Listen, d.cfg.Advertised, "brokers")
}

// bindTo is the same for any listener; whom are those who will connect.
func bindTo(about FindingKind, l net.Listener, listen, advertised, whom string) (net.Listener, hostPort, *Finding) {
	wrong := func(do, format string, args ...any) *Finding {
		return &Finding{Kind: about, Severity: Blocks, What: fmt.Sprintf(format, args...), Do: do, InConfig: l != nil}
	}
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", listen); err != nil {
			return nil, hostPort{}, wrong("end what listens there, or choose another address", "listening for the %s: %v", whom, err)
		}
	}
	if advertised == "" {
		advertised = l.Addr().String()
	}
	host, port, err := net.SplitHostPort(advertised)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err = errors.Join(err, perr); err != nil {
		return l, hostPort{}, wrong("set Advertised to host:port", "advertised address %q: %v", advertised, err)
	}
	if host == "" || net.ParseIP(host).IsUnspecified() {
		return l, hostPort{}, wrong("set Advertised to the host name and port under which they reach this process", "%s cannot connect to the advertised address %q", whom, advertised)
	}
	return l, hostPort{host, uint16(n)}, nil
}

// errNoBrokers: the cluster's brokers have not come yet.
var errNoBrokers = errors.New("kraft: no broker is registered: start the cluster's brokers")

// interBrokerListener is the name and security protocol of the listener that these brokers use among themselves. It has to be one of several: to a client of a listener the brokers name
// every broker that has it, so with a single one clients would come to this process with requests that it does not answer (measured: InitProducerId and Metadata of a franz-go client).
func (c *Config) interBrokerListener(brokers []clustermetadata.Broker) (string, int16, error) {
	ids := []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
	protocol := int16(slices.Index(ids, c.Security.Protocol))
	count, have := map[string]int{}, map[string]int16{}
	for _, b := range brokers {
		for _, l := range b.Listeners {
			count[l.Name]++
			have[l.Name] = l.SecurityProtocol
		}
	}
	name := c.ListenerName
	if name == "" && count["INTERNAL"] == len(brokers) {
		name = "INTERNAL"
	}
	switch {
	case len(brokers) == 0:
		return "", 0, errNoBrokers
	case len(count) == 1:
		for only := range count {
			return "", 0, fmt.Errorf("kraft: the brokers have one listener only, %s: their clients see every broker that has it, so they would be sent to this process, which answers none but brokers; "+
				"give the brokers a listener of their own (listeners, inter.broker.listener.name), with clients on the other", only)
		}
	case name == "":
		return "", 0, errors.New("kraft: the brokers have several listeners, and none of them is called INTERNAL at all of them; set ListenerName to what their inter.broker.listener.name says")
	case count[name] == 0:
		return "", 0, fmt.Errorf("kraft: no broker has a listener %q; set ListenerName to what their inter.broker.listener.name says", name)
	case have[name] != protocol:
		return "", 0, fmt.Errorf("kraft: listener %s of the brokers speaks %s, and Security.Protocol is %s; they have to be the same, because brokers use one security for a listener name", name, ids[have[name]], c.Security.Protocol)
	}
	return name, protocol, nil
}

// ownListener looks at the advertised address and the certificate.
func (p *preflight) ownListener(ctx context.Context) {
	if p.listener == nil || p.advertised.host == "" {
		return // said already
	}
	bounded, stop := p.bounded(ctx)
	defer stop()
	if p.ownAddress(bounded, AboutOwnListener, p.listener, p.advertised, "brokers", "when they follow a first partition") {
		p.certificate(bounded)
	}
}

// ownAddress looks at an address that is advertised. whom are those who are to connect, when is when it shows that they can. false: it cannot be looked up.
func (p *preflight) ownAddress(ctx context.Context, about FindingKind, l net.Listener, advertised hostPort, whom, when string) bool {
	addresses, err := net.DefaultResolver.LookupHost(ctx, advertised.host)
	if err != nil {
		p.addf(about, Blocks, "advertise a name that the "+whom+" can look up, or an IP address", "the advertised host %s: %v", advertised.host, err)
		return false
	}
	if slices.ContainsFunc(addresses, isLoopback) {
		for _, b := range p.brokers {
			if host, ok := p.remote(ctx, b.broker); ok {
				p.addf(about, Warns, "advertise an address of this machine that they reach", "%s is this machine's own loopback address, and broker %d is elsewhere (%s)", advertised, b.broker.ID, host)
				break
			}
		}
	}
	if err := connectToOurselves(ctx, l, advertised); err != nil {
		p.addf(about, Warns, "if "+whom+" reach it although this process does not (a load balancer may be so), nothing is wrong", "connecting to the advertised address %s from here: %v", advertised, err)
	} else {
		p.addf(about, Fine, "", "the advertised address %s leads here; whether it does from the %s too shows only %s", advertised, whom, when)
	}
	return true
}

func isLoopback(address string) bool { return net.ParseIP(address).IsLoopback() }

// remote says where a broker is, if that is not a loopback address.
func (p *preflight) remote(ctx context.Context, b clustermetadata.Broker) (string, bool) {
	names := p.listenerNames()
	for _, l := range b.Listeners {
		if !slices.Contains(names, l.Name) {
			continue
		}
		addresses, err := net.DefaultResolver.LookupHost(ctx, l.Host)
		return l.Host, err != nil || !slices.ContainsFunc(addresses, isLoopback)
	}
	return "", false
}

// listenerNames is the brokers' listener, none if it is not known.
func (p *preflight) listenerNames() []string {
	var name string
	p.d.meta.look(func(im *clustermetadata.Image) { name, _, _ = p.d.brokerListener(im) })
	if name == "" {
		return nil
	}
	return []string{name}
}

// connectToOurselves dials the advertised address and sees whether the connection arrives here. A broker that connects in this moment is turned away and comes again.
func connectToOurselves(ctx context.Context, listener net.Listener, advertised hostPort) error {
	l, ok := listener.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	if !ok {
		return nil // of a kind that cannot be waited for
	}
	deadline, _ := ctx.Deadline()
	_ = l.SetDeadline(deadline)
	defer l.SetDeadline(time.Time{})
	var token [16]byte
	rand.Read(token[:])
	arrived := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				arrived <- err
				return
			}
			var got [16]byte
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, err = io.ReadFull(conn, got[:])
			conn.Close()
			if err == nil && got == token {
				arrived <- nil
				return
			}
		}
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", advertised.String())
	if err == nil {
		_, err = conn.Write(token[:])
		defer conn.Close()
	}
	if err != nil {
		_ = l.SetDeadline(time.Unix(1, 0)) // nobody comes
		<-arrived
		return err
	}
	if <-arrived != nil {
		return errors.New("something else answers there")
	}
	return nil
}

// certificate looks at the one that brokers will be shown.
func (p *preflight) certificate(ctx context.Context) {
	s := p.d.cfg.Security
	if s.TLS == nil {
		return
	}
	leaf, err := ownCertificate(s.TLS, p.advertised.host)
	if err != nil {
		p.addf(AboutOwnListener, Blocks, "look at the certificate and key of Security.TLS", "there is no certificate to show to brokers: %v", err)
		return
	}
	p.validNow(AboutOwnListener, leaf)
	if err := leaf.VerifyHostname(p.advertised.host); err != nil {
		unchecked := 0
		for _, b := range p.brokers {
			if p.checksNoNames(b) {
				unchecked++
			}
		}
		if unchecked > 0 && unchecked == len(p.brokers) {
			p.addf(AboutOwnListener, Warns, "", "the certificate is not for the advertised host: %v; the brokers' %s is empty, so they accept it", err, hostNameCheck)
		} else {
			p.addf(AboutOwnListener, Blocks, "have a certificate made with the advertised host among its subject alternative names", "the certificate is not for the advertised host, and brokers check that: %v", err)
		}
		return
	}
	for _, b := range p.brokers {
		theirs := p.shownBy(ctx, b.broker.ID)
		if len(theirs) > 0 && !slices.ContainsFunc(theirs, func(c *x509.Certificate) bool {
			return bytes.Equal(c.RawIssuer, leaf.RawIssuer) || bytes.Equal(c.RawSubject, leaf.RawIssuer)
		}) {
			p.addf(AboutOwnListener, Warns, "make sure that the brokers' truststore has that issuer", "the certificate was issued by %s, and that of broker %d by %s: brokers may not trust it", leaf.Issuer, b.broker.ID, theirs[0].Issuer)
			return
		}
	}
	p.addf(AboutOwnListener, Fine, "", "the certificate is for %s, until %s; whether the brokers trust its issuer (%s) shows only when they connect", p.advertised.host, leaf.NotAfter.Format(time.DateTime), leaf.Issuer)
}

// validNow looks at when a certificate is valid.
func (p *preflight) validNow(about FindingKind, leaf *x509.Certificate) {
	now := time.Now()
	switch {
	case now.After(leaf.NotAfter):
		p.addf(about, Blocks, "renew it", "the certificate has expired on %s", leaf.NotAfter.Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		p.addf(about, Blocks, "wait, or set this machine's clock", "the certificate is not valid before %s", leaf.NotBefore.Format(time.DateTime))
	}
}

// shownBy are the certificates that a broker shows on its own listener, none if they cannot be seen. What a broker trusts nobody tells; mostly it is the authority that issued its own.
func (p *preflight) shownBy(ctx context.Context, broker int32) []*x509.Certificate {
	address, ok := p.d.address(broker)
	if !ok {
		return nil
	}
	cl, err := kgo.NewClient(append(slices.Clone(p.d.cfg.BrokerOptions), kgo.SeedBrokers(address))...)
	if err != nil {
		return nil
	}
	defer cl.Close()
	dial, _ := cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if cfg, _ := cl.OptValue(kgo.DialTLSConfig).(*tls.Config); cfg != nil {
		dial = (&tls.Dialer{Config: cfg}).DialContext
	}
	if dial == nil {
		return nil
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if secured, ok := conn.(*tls.Conn); ok && secured.HandshakeContext(ctx) == nil {
		return secured.ConnectionState().PeerCertificates
	}
	return nil
}

// checksNoNames: a broker does not look at the name in the certificate of whom it connects to. Kafka's default is to look.
func (p *preflight) checksNoNames(b brokerSeen) bool {
	if b.configs == nil {
		return false
	}
	for _, l := range p.listenerNames() {
		if v, ok := b.configs["listener.name."+strings.ToLower(l)+"."+hostNameCheck]; ok {
			return strings.TrimSpace(v) == ""
		}
	}
	v, ok := b.configs[hostNameCheck]
	return ok && strings.TrimSpace(v) == ""
}

// ownCertificate is what whoever connects to host will be shown.
func ownCertificate(shown func() (*tls.Config, error), host string) (*x509.Certificate, error) {
	cfg, err := shown()
	if err != nil {
		return nil, err
	}
	hello := &tls.ClientHelloInfo{ServerName: host, SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12}}
	var c *tls.Certificate
	switch {
	case cfg == nil:
		return nil, errors.New("the function gave nothing")
	case cfg.GetCertificate != nil:
		if c, err = cfg.GetCertificate(hello); err != nil {
			return nil, err
		}
	}
	if c == nil && len(cfg.Certificates) > 0 {
		c = &cfg.Certificates[0]
	}
	if c == nil || len(c.Certificate) == 0 {
		return nil, errors.New("its configuration holds none")
	}
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	return x509.ParseCertificate(c.Certificate[0])
}
