package clientlistener

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Observer holds functions that are told of what happens, for metrics. Any may be nil. They are called concurrently and must not block.
type Observer struct {
	// Connections is told how many clients are connected: at the start, and after each change, in their order.
	Connections func(open int)
	// Redirected is told of each partition of a Fetch that was sent on to a follower.
	Redirected func(replica int32)
	// Refused is told of each connection that is closed for what it sent or is, with one of Reasons.
	Refused func(reason string)
}

// Reasons are those for which connections are refused.
var Reasons = []string{reasonFull, reasonCertificate, reasonSize, reasonVersion, reasonHeader, reasonBody, reasonMemory, reasonAnswer}

const (
	reasonFull        = "too many connections"
	reasonCertificate = "client certificate" // the brokers ask for one
	reasonSize        = "request size"
	reasonVersion     = "version not answered"
	reasonHeader      = "request header"
	reasonBody        = "request body"
	reasonMemory      = "memory" // MaxMemory, or its address's share, was in use for TransferBound
	reasonAnswer      = "broker's answer"
)

// Config is how to serve. Zero values are the defaults in brackets.
type Config struct {
	// Listener accepts the clients' connections. The Server closes it.
	Listener net.Listener
	// Topics are the partitions that are led here. It is asked once for each answer, so that what is the same for all partitions of a request is found once. It must not block.
	Topics func() Topics
	// Brokers are the stock brokers that are alive, with the addresses of their listener of the same name. It must not block.
	Brokers func() []Broker
	// SASL says that clients of the listener log in: until a broker has let one in, its requests are kept small.
	SASL bool
	// TLS is what clients are shown; nil: the listener is not encrypted. Each connection asks its GetConfigForClient, so certificates can be renewed.
	TLS *tls.Config
	// BrokerTLS is asked for each connection to a stock broker what to trust there; nil: the connection is not encrypted. An empty ServerName is the broker's host.
	BrokerTLS func() (*tls.Config, error)

	MaxConnections int // [4,000]; one more is closed at once
	// MaxConnectionsPerAddress is how many of them one IP address may have [half of MaxConnections].
	MaxConnectionsPerAddress int
	// MaxMemory bounds, in bytes, what is kept of requests and answers that have to be understood [512 MiB]: an eighth for requests until they are answered, three eighths for answers until they are sent, half for decoding
	// requests. One address may take half of each. Whoever finds it in use waits, and is closed after TransferBound. Not in it are requests and answers of 4 KiB, which the number of connections bounds.
	MaxMemory      int64
	MaxRequestSize int           // bytes [100 MiB, as Kafka's socket.request.max.bytes]; a larger request closes its connection
	DialBound      time.Duration // of connecting to one broker [5 s]; after three times as long the client is let go
	HandshakeBound time.Duration // of TLS with a client, and until its first request [20 s]
	IdleBound      time.Duration // a connection without a request for so long is closed [10 min, as connections.max.idle.ms]
	TransferBound  time.Duration // for every 32 KiB of a request or an answer, once it has begun, and of waiting for memory [30 s]
	AnswerBound    time.Duration // of what a follower is asked for one request [10 s]
	MaxHold        time.Duration // how long an answer to a consumer is held that asks here for the same again and again [5 s, at most what it waits]
	CloseBound     time.Duration // how long Close waits for a callback that does not return [2 s]
	Logger         *slog.Logger  // [nothing is logged]
	Observer       Observer
}

// Limits that no setting moves.
const (
	maxPending      = 128       // requests of a connection that the broker has not answered
	maxRead         = 1 << 20   // bytes of a request that has to be understood
	maxReadUnproven = 64 << 10  // the same, of who has not logged in yet
	maxAnswer       = 4 << 20   // bytes of an answer that has to be understood
	maxQuestions    = 64        // that followers are asked at a time, in the whole server
	shareQuestions  = 16        // of them, for one address
	small           = 4 << 10   // bytes of requests and answers that are not counted
	headSize        = 16 << 10  // bytes of a Produce in which its acks have to stand
	pieceSize       = 32 << 10  // what is passed on at a time
	farOffset       = 1<<62 - 1 // an offset at which no broker has a record
)

// What things take in memory, in multiples of their bytes on the wire.
const (
	keptGrowth   = 3   // a request until it is answered: its buffer, and the probe until that is sent
	decodeGrowth = 100 // a request while it is decoded: the worst are topics without partitions, and unknown tags (KIP-482)
	answerGrowth = 16  // a stock broker's answer, until the one for the client is made of it
	askedGrowth  = 8   // what was asked, in the bytes of the request, until then
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
	set(&c.MaxConnections, 4000)
	set(&c.MaxConnectionsPerAddress, max(1, c.MaxConnections/2))
	set(&c.MaxRequestSize, 100<<20)
	if c.MaxMemory <= 0 {
		c.MaxMemory = 512 << 20
	}
	bound(&c.DialBound, 5*time.Second)
	bound(&c.HandshakeBound, 20*time.Second)
	bound(&c.IdleBound, 10*time.Minute)
	bound(&c.TransferBound, 30*time.Second)
	bound(&c.AnswerBound, 10*time.Second)
	bound(&c.MaxHold, 5*time.Second)
	bound(&c.CloseBound, 2*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Listener == nil || c.Topics == nil || c.Brokers == nil:
		return c, &ConfigError{What: "Listener, Topics and Brokers are needed"}
	case (c.TLS == nil) != (c.BrokerTLS == nil):
		return c, &ConfigError{What: "TLS and BrokerTLS go together: clients are told one security for a listener name, whoever answers under it"}
	}
	return c, nil
}

// ConfigError says what is wrong with a Config.
type ConfigError struct{ What string }

func (e *ConfigError) Error() string { return "client listener: " + e.What }
