package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// Config is what a node is made of. Name, Open, Join, OpenSource and Sink have no default. File.Config makes one for a Kafka cluster.
type Config struct {
	// Name is the node's name, for people; processes that stand by for each other have the same. For a Kafka cluster it is the node id.
	Name string
	// Open opens the log of states, wishes and reports. The node closes it.
	Open func(ctx context.Context) (Records, error)
	// ClusterID asks the destination for its cluster id, which metrics have as a label; nil: it is known only when the node has joined.
	ClusterID func(ctx context.Context) (string, error)
	// Join joins the destination. It returns when the node's turn has come: until then it stands by, and says so to Hooks. The node closes what it returns.
	Join func(ctx context.Context, records keyedlog.Log, hooks Hooks) (Destination, error)
	// OpenSource opens the source of a mirror from its settings (kafkasource.Open).
	OpenSource func(ctx context.Context, settings mirror.Settings) (mirror.Source, error)
	// Mirrors says whether a mirror is this node's to run; nil: all are.
	Mirrors func(name string) bool
	// Sink is handed records before a truncation drops them (mirror.FileSink).
	Sink mirror.Sink
	// Options are the settings of all mirrors of the node.
	Options mirror.NodeOptions
	// HTTP is the host:port where Handler is served; empty: nowhere.
	HTTP string
	// Page is the host:port where the status page is served (package statuspage); empty: nowhere. It asks for no password, and any host but one of the loopback (127.0.0.1, ::1, localhost) is
	// refused without PageRemote.
	Page string
	// PageRemote lets Page be an address that other machines reach. The page is shown to whoever can reach it, whatever name he asks for.
	PageRemote bool
	// DrainBound is how long the end waits for steps that are under way [20 s]; giving the place away may take 5 s more.
	DrainBound time.Duration
	// Certificates reads the certificates that the node depends on, once a minute from Run on, for Status and metrics; nil: none are known. It may wait for files.
	Certificates func() Certificates
	// Version is told in reports [this module's version as the build knows it].
	Version string
	// Logger gets every event [none].
	Logger *slog.Logger
	// OnEvent is called for every event of every mirror, from several goroutines. It must return soon. May be nil.
	OnEvent func(mirror.Event)
}

// Records is a keyed log that can be closed.
type Records interface {
	keyedlog.Log
	Close() error
}

// Destination is a destination that this node has joined.
type Destination interface {
	mirror.Destination
	// Standing is why the node does not lead what it should, nil if it does. It asks nobody. ErrThrownOut and ErrLost in it end the node.
	Standing() error
	// Replaced asks the cluster, after the node's place was lost, whether another process under its id has it. false also where that cannot be found out.
	Replaced(ctx context.Context) bool
	// Resign gives the node's place to whoever stands by, after what is under way. What it cannot do costs time only: the place is free when the session ends.
	Resign(ctx context.Context) error
	Close() error
}

// Hooks are how a destination tells the node what happens. They may be called at any time and by any goroutine, and return at once.
type Hooks struct {
	// StandingBy is told the reason while another process has this node's place, and "" when the turn has come.
	StandingBy func(why string)
	// Notice is told everything else: the kind of what happened, and the topic it is about, "" for none.
	Notice func(kind, topic string)
	// Clients is told what happens at a listener for clients, where the destination has one.
	Clients ClientHooks
}

// ClientHooks are told of clients that read mirrored topics through this node. They may be called at any time and by any goroutine, and return at once.
type ClientHooks struct {
	// Connected is told how many there are: at the start, and after each change.
	Connected func(n int)
	// Redirected is told of each partition that one of them was sent on to a broker for.
	Redirected func(broker int32)
	// Refused is told why one was turned away, in a few fixed words (kraft.RefusalReasons).
	Refused func(reason string)
}

// ErrThrownOut: somebody took this node's registration away. It does not come back by itself, and no supervisor should start it again.
var ErrThrownOut = errors.New("node: thrown out of the cluster")

// ErrLost: the node leads nothing any more, for another reason. A new process may begin again.
var ErrLost = errors.New("node: its place in the cluster is lost")

func (c *Config) complete() error {
	var errs []error
	no := func(missing bool, format string, args ...any) {
		if missing {
			errs = append(errs, fmt.Errorf("node.Config: "+format, args...))
		}
	}
	no(c.Name == "", "Name is not set")
	no(c.Open == nil, "Open is not set: states and wishes have to be somewhere")
	no(c.Join == nil, "Join is not set: there is no destination")
	no(c.OpenSource == nil, "OpenSource is not set, as in kafkasource.Open")
	no(c.Sink == nil, "Sink is not set: mirror.FileSink keeps what a failback drops, mirror.Discard drops it")
	no(c.DrainBound < 0, "DrainBound is negative")
	if why := misplacedPage(c.Page, c.PageRemote); why != "" {
		errs = append(errs, errors.New("node.Config: Page "+why+", or set PageRemote"))
	}
	c.DrainBound = cmp.Or(c.DrainBound, 20*time.Second)
	if c.Mirrors == nil {
		c.Mirrors = func(string) bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnEvent == nil {
		c.OnEvent = func(mirror.Event) {}
	}
	if c.Version == "" {
		c.Version = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			c.Version = info.Main.Version
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" && (c.Version == "" || c.Version == "(devel)") {
					c.Version = s.Value[:min(12, len(s.Value))]
				}
			}
		}
	}
	return errors.Join(errs...)
}
