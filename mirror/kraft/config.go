package kraft

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// Config says how a process joins a cluster. NodeID, Controllers, Listen (or Listener), Folder and Remember have no default.
type Config struct {
	// NodeID is this process's broker id: no other broker's, and outside the ranges of any operator's node pools. A process that takes over another one's partitions comes under
	// the same id; the controllers let only one of them in.
	NodeID int32
	// Controllers are the addresses (host:port) of the controllers' listeners, all of them.
	Controllers []string
	// ControllerOptions are the client's options for the controllers' listener, BrokerOptions those for the brokers' inter-broker listener: dialing, TLS, SASL.
	ControllerOptions []kgo.Opt
	BrokerOptions     []kgo.Opt

	// ListenerName is the name of the cluster's inter.broker.listener.name; empty: INTERNAL, if all brokers have one of that name. It has to be a listener
	// of the brokers' own: see Preflight.
	ListenerName string
	// Listen is where this process listens for the brokers: host:port, or a listener that was made already (Listener).
	Listen   string
	Listener net.Listener
	// Advertised is the host:port under which the brokers reach Listen; empty: Listener's own address.
	Advertised string
	// Security is what the brokers speak on that listener.
	Security ListenerSecurity
	// Clients is a listener for clients besides: mirrored topics can then be read while they are mirrored. nil: they are dark, which means that nobody reads them before they are stopped.
	Clients *ClientListener

	// Folder keeps this process's identity. Two processes cannot use one folder at a time.
	Folder string
	// Remember keeps what has to outlive this process and is not in the cluster: configs that a take-over changed, truncations that replicas have not confirmed. Every process
	// that may come under this node id needs the same one; usually what Control stands on.
	Remember keyedlog.Log

	// ReplicationFactor is how many copies stock brokers hold of a topic that is created here; 0 is 3.
	ReplicationFactor int
	// MinInSyncReplicas is how many of them must have a record before it counts as replicated; 0 is 2, and never more than live brokers hold a copy.
	MinInSyncReplicas int
	// Topics are names for which Preflight tries the rights on topics, where rules name topics; empty: a name that no topic has, which only rules for all topics allow.
	Topics []string
	// Peers are the node ids of other mirror processes in this cluster: what they lead is foreign and not open. A process that is registered is recognised without being named here; Peers is
	// needed for one whose registration somebody took away while partitions still have it among their replicas.
	Peers []int32
	// Window is how many bytes of recent batches are kept in memory for followers, over all partitions; 0 is 64 MiB. Followers that keep up need little, and memory that is used
	// again soon is faster than fresh memory: a larger window costs rate and CPU.
	Window int64

	// HeartbeatInterval is 2 s by default, SessionTimeout 9 s: what the controllers' broker.session.timeout.ms is.
	HeartbeatInterval, SessionTimeout time.Duration
	// RequestTimeout bounds one request to a controller or broker; 0 is 10 s.
	RequestTimeout time.Duration
	// UntestedVersion lets the process join a cluster whose metadata.version is above the newest one that was tried.
	UntestedVersion bool

	// Notice is told what happens: see Event. It must return soon. nil: nobody listens.
	Notice func(Event)
	// Logger gets what Notice gets, and what a person may need on top; nil: nothing is logged.
	Logger *slog.Logger

	// intercept stands around every request to controllers and brokers, for tests.
	intercept func(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error)
}

// ListenerSecurity is how brokers that connect to this process show who they are. The zero value is PLAINTEXT: whoever reaches the port may read every mirrored topic, and
// destroy mirrored records: by pretending to be a broker, under the broker epoch of its registration, it makes copies look complete that are not.
type ListenerSecurity struct {
	// Protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, as the brokers' own inter-broker listener has it.
	Protocol string
	// TLS is asked for each connection, so a certificate may be renewed while the process runs.
	TLS func() (*tls.Config, error)
	// PlainPassword says whether a PLAIN login is right. SCRAM needs nothing: its users are in the cluster's own metadata.
	PlainPassword func(user, password string) bool
	// Brokers are the principals of the brokers ("User:admin", "User:CN=broker-1"); nobody else is answered. Needed unless the protocol is PLAINTEXT.
	Brokers []string
	// IsBroker, if it is set, says instead of Brokers whether a principal is a broker's. It is asked for each request, so whom it does not name any more is not answered any more. Brokers is
	// what Preflight looks for then.
	IsBroker func(principal string) bool
}

// Defaults of Config.
const (
	DefaultReplicationFactor = 3
	DefaultMinInSyncReplicas = 2
	DefaultWindow            = 64 << 20
	DefaultHeartbeatInterval = 2 * time.Second
	DefaultSessionTimeout    = 9 * time.Second
	DefaultRequestTimeout    = 10 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	var wrong []error
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("kraft.Config: "+format, args...)) }
	if c.NodeID <= 0 {
		no("NodeID is %d; choose an id that no broker has, outside every operator's node pools", c.NodeID)
	}
	if len(c.Controllers) == 0 {
		no("Controllers is empty; name every controller's listener, host:port")
	}
	if c.Listen == "" && c.Listener == nil {
		no("neither Listen nor Listener is set; brokers have to reach this process")
	}
	if c.Folder == "" {
		no("Folder is empty; the process keeps its identity there")
	}
	if c.Remember == nil {
		no("Remember is not set; give it the keyed log that Control stands on")
	}
	if c.ReplicationFactor < 0 || c.MinInSyncReplicas < 0 || c.Window < 0 {
		no("ReplicationFactor, MinInSyncReplicas and Window cannot be negative")
	}
	for _, address := range c.Controllers {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			no("Controllers names %q; an address is host:port, the port of the controllers' own listener", address)
		}
	}
	if slices.Contains(c.Peers, c.NodeID) {
		no("Peers %v has this process's own NodeID %d; name the others only", c.Peers, c.NodeID)
	}
	if c.RequestTimeout < 0 {
		no("RequestTimeout is %s; leave it 0 for %s", c.RequestTimeout, DefaultRequestTimeout)
	}
	switch c.Security.Protocol = cmp.Or(c.Security.Protocol, "PLAINTEXT"); c.Security.Protocol {
	case "PLAINTEXT":
	case "SSL", "SASL_PLAINTEXT", "SASL_SSL":
		if len(c.Security.Brokers) == 0 && c.Security.IsBroker == nil {
			no("Security.Brokers is empty; name the principals under which the brokers connect")
		}
		if c.Security.Protocol != "SASL_PLAINTEXT" && c.Security.TLS == nil {
			no("Security.TLS is not set for %s", c.Security.Protocol)
		}
	default:
		no("Security.Protocol %q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", c.Security.Protocol)
	}
	if c.Clients != nil {
		clients := *c.Clients
		clients.check(&c, no)
		c.Clients = &clients
	}
	c.ReplicationFactor = cmp.Or(c.ReplicationFactor, DefaultReplicationFactor)
	c.MinInSyncReplicas = cmp.Or(c.MinInSyncReplicas, DefaultMinInSyncReplicas)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, DefaultSessionTimeout)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	if c.HeartbeatInterval < 0 || c.SessionTimeout < 0 {
		no("HeartbeatInterval is %s and SessionTimeout %s; leave them 0 for %s and %s", c.HeartbeatInterval, c.SessionTimeout, DefaultHeartbeatInterval, DefaultSessionTimeout)
	} else if c.HeartbeatInterval >= c.SessionTimeout/2 {
		no("HeartbeatInterval is %s and SessionTimeout %s: one late heartbeat would have this process fenced; make the interval less than half of the controllers' broker.session.timeout.ms, which SessionTimeout has to be",
			c.HeartbeatInterval, c.SessionTimeout)
	}
	if c.Notice == nil {
		c.Notice = func(Event) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(wrong...)
}

// Event is one thing that happened in a Destination, for a person and for programs.
type Event struct {
	Kind      EventKind
	Partition mirror.TopicPartition // Topic "" where none is meant
	Text      string                // what, why, and what to do; Err's text is in it
	Err       error                 // for programs; nil for none
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds.
const (
	Joined       EventKind = iota // the controllers let us in, and we are not fenced
	Fenced                        // the controllers have fenced us, or cannot be reached for longer than a session
	Unregistered                  // somebody took our registration away: this process leads nothing any more, and does not come back by itself
	Violation                     // a stock broker leads a partition that was not handed over
	Unsafe                        // a setting of the cluster could make a stock broker the leader
	ShapeChanged                  // somebody changed a partition's replicas or a reassignment of ours
	TopicGone                     // a mirrored topic was deleted
	HandedOver                    // a stock broker leads a partition now, by our doing
	TakenOver                     // this process leads a partition now that a stock broker led
	SettingKept                   // somebody changed a setting that is held while a topic is mirrored: the topic has it after the stop
	Trouble                       // anything else that needs a person
	StandingBy                    // another process lives under our node id: Join waits (Err is ErrNodeIDTaken), then goes on (no Err)
)

func (k EventKind) String() string {
	return [...]string{"joined", "fenced", "unregistered", "violation", "unsafe", "shape changed", "topic gone", "handed over", "taken over", "setting kept", "trouble", "standing by"}[k]
}

// bounded is the context of one request.
func (c *Config) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.RequestTimeout)
}
