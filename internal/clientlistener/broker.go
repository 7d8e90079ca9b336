package clientlistener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// ErrClientCertificate: the brokers ask clients of this listener for a certificate. Whoever stands between cannot show them the client's (mutual TLS), and would make everybody one principal by showing its own.
var ErrClientCertificate = errors.New("the brokers ask clients of this listener for a certificate (ssl.client.auth), and a client's certificate cannot be passed through")

// Dial connects to a stock broker's listener as a client of it that has no certificate. trusted nil: without TLS. It ends with ctx.
func Dial(ctx context.Context, address string, trusted func() (*tls.Config, error)) (net.Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || trusted == nil {
		return raw, err
	}
	secured, err := secure(ctx, raw, address, trusted)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return secured, nil
}

func secure(ctx context.Context, raw net.Conn, address string, trusted func() (*tls.Config, error)) (net.Conn, error) {
	cfg, err := trusted()
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, errors.New("BrokerTLS gave nothing")
	}
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	asked := false
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		return new(tls.Certificate), nil
	}
	secured := tls.Client(raw, cfg)
	err = secured.HandshakeContext(ctx)
	if asked { // a broker that only wishes for one goes on without; to it each client would be nobody
		return nil, fmt.Errorf("%s: %w", address, ErrClientCertificate)
	}
	return secured, err
}

// connect connects to one of the stock brokers that are alive: the next one in turn, or if it does not answer another one.
func (c *connection) connect(ctx context.Context) (net.Conn, error) {
	s := c.server
	brokers := s.config.Brokers()
	if len(brokers) == 0 {
		return nil, errors.New("no broker is alive")
	}
	all, stop := context.WithTimeout(ctx, 3*s.config.DialBound)
	defer stop()
	var errs []error
	for i := range brokers {
		b := brokers[(c.spread+uint64(i))%uint64(len(brokers))]
		one, stop := context.WithTimeout(all, s.config.DialBound)
		conn, err := Dial(one, b.Address, s.config.BrokerTLS)
		stop()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("broker %d: %w", b.ID, err))
		if errors.Is(err, ErrClientCertificate) || all.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}
