package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Of the listener for clients. A node without one has none of them.
var (
	clientConnections = series("client_connections", "Clients that are connected to the node's listener for clients.")
	clientRedirected  = series("client_redirected_partitions_total", "Partitions that consumers asked the node for, and were sent on to a broker.")
	clientRefused     = series("client_connections_refused_total", "Connections of clients that were turned away, by reason.", "reason")
)

// refusalReasons are those of kraft, which are there as 0 before the first one.
var refusalReasons = []string{"too many connections", "client certificate", "request size", "version not answered", "request header", "request body", "memory", "broker's answer"}

// clients are what a listener for clients told. Safe for concurrent use.
type clients struct {
	there      atomic.Bool
	connected  atomic.Int64
	redirected atomic.Int64

	mu      sync.Mutex
	refused map[string]int
}

func newClients() *clients {
	c := &clients{refused: map[string]int{}}
	for _, reason := range refusalReasons {
		c.refused[reason] = 0
	}
	return c
}

// ObserveClients is told how many clients are connected to the node's listener for clients. From the first time on its series are there.
func (c *Collector) ObserveClients(connected int) {
	c.clients.connected.Store(int64(connected))
	c.clients.there.Store(true)
}

// ObserveRedirected counts a partition that a consumer was sent on to a broker for.
func (c *Collector) ObserveRedirected(int32) { c.clients.redirected.Add(1) }

// ObserveRefused counts a client's connection that was turned away (kraft.RefusalReasons).
func (c *Collector) ObserveRefused(reason string) {
	c.clients.mu.Lock()
	defer c.clients.mu.Unlock()
	c.clients.refused[reason]++
}

func (c *clients) series() []prometheus.Metric {
	if !c.there.Load() {
		return nil
	}
	all := []prometheus.Metric{
		constant(clientConnections, prometheus.GaugeValue, float64(c.connected.Load())),
		constant(clientRedirected, prometheus.CounterValue, float64(c.redirected.Load())),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for reason, n := range c.refused {
		all = append(all, constant(clientRefused, prometheus.CounterValue, float64(n), reason))
	}
	return all
}
