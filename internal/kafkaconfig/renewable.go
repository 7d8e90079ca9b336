package kafkaconfig

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Renewable is a Connection whose security settings may be replaced while clients use it: their next connections, and re-authentications, are made with the new ones. Safe for concurrent use.
type Renewable struct {
	first Connection
	now   atomic.Pointer[Connection]
}

// ParseRenewable makes a Renewable of settings, as Parse makes a Connection.
func ParseRenewable(settings map[string]string) (*Renewable, error) {
	c, err := Parse(settings)
	if err != nil {
		return nil, err
	}
	r := &Renewable{first: c}
	r.now.Store(&c)
	return r, nil
}

// Seeds are the addresses of the first settings.
func (r *Renewable) Seeds() []string { return r.first.Seeds }

// Options are the client's options; they follow Renew.
func (r *Renewable) Options() []kgo.Opt {
	if r.first.mechanism == nil {
		return r.first.options(r.Dial, nil)
	}
	return r.first.options(r.Dial, renewed{r})
}

// Dial connects as the settings say now, without authenticating.
func (r *Renewable) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.now.Load().dial(ctx, network, address)
}

// TLS is what a connection is made with now whose host's name the caller sets. nil: it has no TLS.
func (r *Renewable) TLS() (*tls.Config, error) { return r.now.Load().TLS() }

// Renew replaces the settings. Addresses, time limits and the client's name stay as they were first. With an error nothing has changed: settings that are wrong, or that begin or end the use
// of SASL, which clients that exist cannot follow.
func (r *Renewable) Renew(settings map[string]string) error {
	c, err := r.check(settings)
	if err != nil {
		return err
	}
	r.now.Store(&c)
	return nil
}

// Check says whether Renew would take these settings.
func (r *Renewable) Check(settings map[string]string) error {
	_, err := r.check(settings)
	return err
}

func (r *Renewable) check(settings map[string]string) (Connection, error) {
	c, err := Parse(settings)
	if err == nil && (c.mechanism == nil) != (r.first.mechanism == nil) {
		err = &Error{Setting: SecurityProtocol, Problem: "SASL begins or ends with it, which connections that exist cannot follow", Advice: "start the process again"}
	}
	return c, err
}

// renewed is the mechanism as the settings say now.
type renewed struct{ r *Renewable }

func (m renewed) Name() string { return m.r.now.Load().mechanism.Name() }

func (m renewed) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	return m.r.now.Load().mechanism.Authenticate(ctx, host)
}
