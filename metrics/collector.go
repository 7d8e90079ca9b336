package metrics

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/rehearsal"
)

// Look is what a Collector asks for at each collection.
type Look struct {
	Node string // the name of the process's node
	// DestinationClusterID is the destination's, "": what the mirrors say, and not known as long as they do not.
	DestinationClusterID string

	State   string          // of the node, see package node: "standing by", "running" …
	Ready   bool            // it leads and follows what it should
	Mirrors []mirror.Status // of the mirrors that run in this process; of two with one name the first counts
	Taken   time.Time
	// Rehearsals are of these mirrors, at most one of each: what rehearsal.Schedule.Last gives.
	Rehearsals []Rehearsals
	// Destination are the certificates on which connections to the destination depend; those of sources are in Mirrors.
	Destination []mirror.Certificate
	// Listener are the certificates that the process's own listeners show.
	Listener []mirror.Certificate
	Version  string // of the program; "": what its build information says
}

// Rehearsals are the last rehearsals of one mirror; nil: there was none.
type Rehearsals struct {
	Mirror     string
	Last, Good *rehearsal.Report
}

// cluster is the destination's id. All mirrors of a process have one destination.
func (l *Look) cluster() string {
	id := l.DestinationClusterID
	for i := range l.Mirrors {
		id = cmp.Or(id, l.Mirrors[i].DestinationClusterID)
	}
	return id
}

// Collector is a prometheus.Collector over mirrors. Safe for concurrent use.
type Collector struct {
	look  func() Look
	began time.Time

	clients *clients

	mu     sync.Mutex
	counts counts
}

// New returns a Collector that asks look at each collection. look must return soon, and may be called at any time.
func New(look func() Look) *Collector {
	return &Collector{look: look, began: time.Now(), counts: newCounts(), clients: newClients()}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range described {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	l := c.look()
	version, revision := built()
	g := gauges{to, l.cluster()}
	g.set(buildInfo, 1, l.Node, cmp.Or(l.Version, version), revision, runtime.Version(), g.cluster)
	g.set(nodeUp, 1, l.Node, g.cluster)
	g.yes(nodeReady, l.Ready, l.Node, g.cluster)
	if l.State != "" {
		g.set(nodeState, 1, l.Node, l.State, g.cluster)
	}
	g.set(nodeStart, float64(c.began.UnixMilli())/1000, l.Node, g.cluster)
	g.set(nodeMirrors, float64(len(l.Mirrors)), l.Node, g.cluster)

	g.certificates(l.Destination, "destination", "")
	g.certificates(l.Listener, "listener", "")
	for _, r := range l.Rehearsals {
		g.rehearsals(&r)
	}
	seen := make(map[string]bool, len(l.Mirrors))
	var names []string
	for i := range l.Mirrors {
		s := &l.Mirrors[i]
		if !seen[s.Mirror] { // one series twice, and the registry would show nothing at all
			seen[s.Mirror] = true
			names = append(names, s.Mirror)
			g.mirror(s)
		}
	}
	c.mu.Lock()
	counted := c.counts.series(names, g.cluster) // sent without the lock: whoever tells of an event does not wait for whoever reads
	c.mu.Unlock()
	for _, m := range append(counted, c.clients.series()...) {
		to <- m
	}
}

// Observe counts an event of a mirror. It has the shape of mirror.Config.OnEvent.
func (c *Collector) Observe(e mirror.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.event(e)
}

// ObserveDestination counts what a destination told (kraft.Event): its kind, and the topic that it is about, "" for none.
func (c *Collector) ObserveDestination(kind, topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.destination(kind, topic, time.Now())
}

// built is the version of the module in whose program this runs, and the revision that it was built from, as far as the build says.
var built = sync.OnceValues(func() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				version = "+changed"
			}
		}
	}
	if strings.HasSuffix(info.Main.Version, "+dirty") {
		version = "" // it says so itself
	}
	return cmp.Or(info.Main.Version, "unknown") + version, cmp.Or(revision, "unknown")
})

// gauges sends gauges.
type gauges struct {
	to      chan<- prometheus.Metric
	cluster string // the destination's id
}

func (g gauges) set(d *prometheus.Desc, value float64, labels ...string) {
	g.to <- constant(d, prometheus.GaugeValue, value, labels...)
}

func (g gauges) yes(d *prometheus.Desc, is bool, labels ...string) { g.set(d, one(is), labels...) }

// one is 1 or 0.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// constant is one value. A label that is no text is made one: it would end the process otherwise.
func constant(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, kind, value, valid(labels...)...)
}

// valid makes labels such that Prometheus takes them.
func valid(labels ...string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}
