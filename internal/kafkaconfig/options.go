package kafkaconfig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// Connection says how a client reaches a cluster and shows who it is. Printing it shows no secret: there is none in it, only functions that read them.
type Connection struct {
	Seeds          []string      // host:port
	Options        []kgo.Opt     // client id, dialing with or without TLS, SASL, idle time, request timeout; they may be used by several clients
	RequestTimeout time.Duration // request.timeout.ms

	plain     []kgo.Opt // Options without dial and mechanism
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	mechanism sasl.Mechanism // nil: no SASL
	tls       *tlsSettings   // nil: plain text
	dialer    *dialer
}

// TLS is what a connection is made with whose host's name the caller sets: stores are read now. nil: the connection has no TLS.
func (c *Connection) TLS() (*tls.Config, error) {
	if c.tls == nil {
		return nil, nil
	}
	return c.tls.config("")
}

// Parse makes a Connection of settings. It looks at the names that it knows and at all of the sasl., ssl. and security. families; other settings are not its business.
// The error joins an *Error for each thing that is wrong. Files are read, and secrets are resolved, when a connection is made and not here; references in settings that are
// not secret (addresses, paths) are resolved here.
func Parse(settings map[string]string) (Connection, error) {
	var errs []error
	for _, name := range unknownOf(settings) {
		errs = append(errs, refuse(name))
	}
	values := map[string]string{}
	for _, name := range known {
		if secret.IsSetting(name) {
			continue
		}
		v, err := resolve(name, settings[name])
		if err != nil {
			errs = append(errs, err)
		}
		values[name] = strings.TrimSpace(v)
	}
	get := func(name string) string { return values[name] }
	milliseconds := func(name string, otherwise time.Duration) time.Duration {
		d, err := ReadMilliseconds(name, get(name), otherwise)
		if err != nil {
			errs = append(errs, err)
		}
		return d
	}

	var c Connection
	var err error
	if c.Seeds, err = seeds(get(Bootstrap)); err != nil {
		errs = append(errs, err)
	}
	c.RequestTimeout = milliseconds(RequestTimeout, 30*time.Second)
	// Where it is not set, a connection may take no more than a third of a request's time, so that another broker can still be asked when one is silent. With Kafka's 30 s
	// for a request that is Kafka's 10 s.
	d := &dialer{setup: milliseconds(SetupTimeout, min(10*time.Second, c.RequestTimeout/3)), failures: map[string]int{}}
	d.most = milliseconds(SetupTimeoutMax, max(30*time.Second, d.setup))
	if d.most < d.setup {
		errs = append(errs, &Error{Setting: SetupTimeoutMax, Problem: "is below " + SetupTimeout, Advice: "raise it"})
	}
	c.dial, c.dialer = d.dial, d
	c.plain = []kgo.Opt{kgo.RequestTimeoutOverhead(c.RequestTimeout), kgo.ConnIdleTimeout(milliseconds(MaxIdle, 10*time.Minute))}
	if id := get(ClientID); id != "" {
		c.plain = append(c.plain, kgo.ClientID(id))
	}

	protocol := orElse(get(SecurityProtocol), "PLAINTEXT")
	if !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, protocol) {
		errs = append(errs, &Error{Setting: SecurityProtocol, Problem: "is none of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL", Advice: "set one of them"})
		return Connection{}, errors.Join(errs...)
	}
	withSASL, withTLS := strings.HasPrefix(protocol, "SASL_"), strings.HasSuffix(protocol, "SSL")
	for _, name := range identity {
		useless := strings.HasPrefix(name, "ssl.") && !withTLS || strings.HasPrefix(name, "sasl.") && !withSASL
		if useless && strings.TrimSpace(settings[name]) != "" {
			errs = append(errs, &Error{Setting: name, Problem: "has no effect with " + SecurityProtocol + " " + protocol, Advice: "set the protocol that is meant, or leave it out"})
		}
	}
	if withTLS {
		t, wrong := newTLS(get, settings)
		errs = append(errs, wrong...)
		d.tls, c.tls = t, t
	}
	if withSASL {
		m, wrong := newSASL(get, settings[JAAS])
		errs = append(errs, wrong...)
		if m != nil {
			c.mechanism = m
		}
	}
	if len(errs) > 0 {
		return Connection{}, errors.Join(errs...)
	}
	c.Options = c.options(d.dial, c.mechanism)
	return c, nil
}

// options are the client's options with this way to connect and to authenticate.
func (c *Connection) options(dial func(ctx context.Context, network, address string) (net.Conn, error), m sasl.Mechanism) []kgo.Opt {
	options := append(slices.Clone(c.plain), kgo.Dialer(dial))
	if m != nil {
		options = append(options, kgo.SASL(m))
	}
	return options
}

// seeds reads bootstrap.servers.
func seeds(list string) ([]string, error) {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if secret.InAddress(s) {
			return nil, &Error{Setting: Bootstrap, Problem: fmt.Sprintf("address %d of the list has a '@'", len(out)+1), Advice: "write host:port alone; user and password belong to " + JAAS}
		}
		host, port, err := net.SplitHostPort(s)
		n, notNumber := strconv.ParseUint(port, 10, 16)
		if err != nil || notNumber != nil || host == "" || n == 0 {
			return nil, &Error{
				Setting: Bootstrap, Problem: fmt.Sprintf("address %d of the list is not host:port", len(out)+1), Advice: "write host1:9092,host2:9092; an IPv6 address in brackets",
			}
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, &Error{Setting: Bootstrap, Problem: "is not set", Advice: "name at least one broker as host:port"}
	}
	return out, nil
}

// ReadMilliseconds reads a time in whole milliseconds, from 1 ms to 24 days, which is what an int holds. Empty is otherwise.
func ReadMilliseconds(name, value string, otherwise time.Duration) (time.Duration, error) {
	n, err := ReadInt(name, value, otherwise.Milliseconds(), 1)
	return time.Duration(n) * time.Millisecond, err
}

// ReadInt reads a Java int that is not below least. Empty is otherwise.
func ReadInt(name, value string, otherwise, least int64) (int64, error) {
	if value = strings.TrimSpace(value); value == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < least {
		return otherwise, &Error{Setting: name, Problem: "is not a whole number", Advice: fmt.Sprintf("it has to be between %d and 2147483647", least)}
	}
	return n, nil
}

// dialer makes connections. What it may take doubles with each failure to the same address, up to most (KIP-601).
type dialer struct {
	setup, most time.Duration
	tls         *tlsSettings // nil: plain text

	mu       sync.Mutex
	failures map[string]int       // in a row, by address
	ends     map[string]time.Time // until when what was shown there is good, by address
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit(address))
	defer cancel()
	conn, err := d.connect(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failures[address]++
	} else {
		delete(d.failures, address)
	}
	return conn, err
}

func (d *dialer) limit(address string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := d.setup
	for n := d.failures[address]; n > 0 && limit < d.most; n-- {
		limit *= 2
	}
	return min(limit, d.most)
}

func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	var plain net.Dialer
	if d.tls == nil {
		return plain.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config, err := d.tls.config(host)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{NetDialer: &plain, Config: config}).DialContext(ctx, network, address)
	if err != nil {
		return nil, explain(address, err)
	}
	d.shown(address, conn.(*tls.Conn).ConnectionState())
	return &tlsConn{Conn: conn, host: address}, nil
}
