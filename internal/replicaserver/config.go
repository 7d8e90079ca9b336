package replicaserver

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// SecurityProtocol is how a listener is secured (Kafka: SecurityProtocol, with its ids).
type SecurityProtocol int16

// The security protocols.
const (
	Plaintext     SecurityProtocol = 0
	SSL           SecurityProtocol = 1
	SASLPlaintext SecurityProtocol = 2
	SASLSSL       SecurityProtocol = 3
)

func (p SecurityProtocol) String() string {
	switch p {
	case Plaintext:
		return "PLAINTEXT"
	case SSL:
		return "SSL"
	case SASLPlaintext:
		return "SASL_PLAINTEXT"
	case SASLSSL:
		return "SASL_SSL"
	}
	return fmt.Sprintf("SecurityProtocol(%d)", int16(p))
}

func (p SecurityProtocol) tls() bool  { return p == SSL || p == SASLSSL }
func (p SecurityProtocol) sasl() bool { return p == SASLPlaintext || p == SASLSSL }

// ScramCredential is what is stored of a user who logs in by SCRAM (RFC 5802; Kafka: UserScramCredentialRecord).
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// SASL holds the mechanisms of a SASL listener; one that is nil is not offered. The functions are called concurrently, must not block, and must not keep or log what they are given.
type SASL struct {
	// Plain says whether the password is the user's. It compares in constant time (crypto/subtle).
	Plain func(user, password string) bool
	// ScramSHA256 and ScramSHA512 look a user's credential up; false if there is none.
	ScramSHA256, ScramSHA512 func(user string) (ScramCredential, bool)
}

// Observer holds functions that are told of what happens, for metrics. Any may be nil. They are called concurrently and must not block.
type Observer struct {
	// Request is told of each answered request: its name ("Fetch"), version, how long it took with its wait, and the bytes of its answer.
	Request func(kind string, version int16, took time.Duration, sent int)
	// Connections is told how many connections are open, after each change.
	Connections func(open int)
	// Sessions is told how many fetch sessions there are, after each change. A lock is held: it must not ask the Server.
	Sessions func(sessions int)
	// ReadBack is told of each finished reading of batches that were not in memory.
	ReadBack func(took time.Duration, bytes int, err error)
	// Refused is told of each connection that is closed for what it sent or is, with the reason in one or two fixed words.
	Refused func(reason string)
}

// Config is how to serve. Zero values are the defaults in brackets.
type Config struct {
	// Listener accepts the brokers' connections. The Server closes it.
	Listener net.Listener
	// NodeID is this process's broker id.
	NodeID int32
	// ClusterID is the cluster that this process is a broker of; a Fetch that names another one is refused. "": not checked.
	ClusterID string
	// Topics are the partitions that are led here.
	Topics Topics
	// Security is the listener's protocol [Plaintext].
	Security SecurityProtocol
	// TLS is for SSL and SASLSSL. Each connection asks its GetConfigForClient or GetCertificate, so certificates can be renewed while the server runs.
	// A client's certificate is asked for if its ClientAuth says so; only a verified one (ClientCAs) has a principal.
	TLS *tls.Config
	// SASL is for SASLPlaintext and SASLSSL.
	SASL SASL
	// Allowed says whether a principal may speak as a broker: "User:admin", "User:CN=broker-1,O=Acme", "User:ANONYMOUS". It is asked at each request, so it may change. nil: nobody.
	Allowed func(principal string) bool

	MaxConnections int // [1,000]; one more is closed at once
	// MaxConnectionsPerAddress is how many of them one IP address may have [half of MaxConnections]: a host that floods the listener shuts nobody else out. It is large, for all brokers may come
	// through one address.
	MaxConnectionsPerAddress int
	MaxRequestSize           int           // bytes [8 MiB]; a larger request closes its connection. 64 KiB from one who is not yet authenticated and allowed.
	MaxResponseBytes         int           // bytes of batches in one answer [64 MiB], besides the rule that the first batch is always answered
	MaxWait                  time.Duration // the longest wait of a Fetch [30 s]
	MaxSessions              int           // fetch sessions [1,000]
	SessionEviction          time.Duration // a session that was not used for so long gives way to a new one when there are MaxSessions [2 min]
	MaxReadBacks             int           // readings back at a time in the whole server [8]
	ReadBackBound            time.Duration // of one reading back [20 s]
	HandshakeBound           time.Duration // from accepting a connection until it is authenticated and allowed [20 s]; a quarter of it while half of MaxConnections are there
	IdleBound                time.Duration // a connection without a request for so long is closed [10 min, as connections.max.idle.ms]
	TransferBound            time.Duration // for receiving one request once it has begun, and for sending one answer [60 s]
	Logger                   *slog.Logger  // [slog.Default]
	Observer                 Observer
}

// Limits that no setting moves.
const (
	maxLoginRequest   = 64 << 10 // bytes of a request before authentication
	maxPartitions     = 200_000  // of one session
	readBacksAtOnce   = 4        // of one session
	maxReadBackMemory = 16 << 20 // bytes that were read back for one session and not yet answered, besides one partition's
)

func (c Config) withDefaults() (Config, error) {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	bound := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&c.MaxConnections, 1000)
	set(&c.MaxConnectionsPerAddress, max(1, c.MaxConnections/2))
	set(&c.MaxRequestSize, 8<<20)
	set(&c.MaxResponseBytes, 64<<20)
	set(&c.MaxSessions, 1000)
	set(&c.MaxReadBacks, 8)
	bound(&c.MaxWait, 30*time.Second)
	bound(&c.SessionEviction, 2*time.Minute)
	bound(&c.ReadBackBound, 20*time.Second)
	bound(&c.HandshakeBound, 20*time.Second)
	bound(&c.IdleBound, 10*time.Minute)
	bound(&c.TransferBound, 60*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Listener == nil || c.Topics == nil:
		return c, &ConfigError{What: "Listener and Topics are needed"}
	case c.Security < Plaintext || c.Security > SASLSSL:
		return c, &ConfigError{What: fmt.Sprintf("%v is no security protocol of Kafka", c.Security)}
	case c.Security.tls() && c.TLS == nil:
		return c, &ConfigError{What: c.Security.String() + " needs TLS: set Config.TLS with the certificate that the brokers are to see"}
	case c.Security.sasl() && len(c.mechanisms()) == 0:
		return c, &ConfigError{What: c.Security.String() + " needs a mechanism: set Plain, ScramSHA256 or ScramSHA512 in Config.SASL, as sasl.mechanism.inter.broker.protocol says"}
	}
	if c.Allowed == nil {
		c.Allowed = func(string) bool { return false }
	}
	return c, nil
}

// ConfigError says what is wrong with a Config.
type ConfigError struct{ What string }

func (e *ConfigError) Error() string { return "replica server: " + e.What }

// mechanisms are the SASL mechanisms on offer, by Kafka's names.
func (c *Config) mechanisms() []string {
	var names []string
	if c.SASL.Plain != nil {
		names = append(names, mechanismPlain)
	}
	if c.SASL.ScramSHA256 != nil {
		names = append(names, mechanismScram256)
	}
	if c.SASL.ScramSHA512 != nil {
		names = append(names, mechanismScram512)
	}
	return names
}
