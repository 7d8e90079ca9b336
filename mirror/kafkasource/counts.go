package kafkasource

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Counts is what a Source asked of its brokers since New, its fetchers included. A test of back-off reads it.
type Counts struct {
	Connects       int64 // connections opened, successful or not
	ConnectsFailed int64 // of those: not opened, or given up before the first request (TLS, SASL)
	Requests       int64 // requests written, those that open a connection included
	Fetches        int64 // of those: Fetch
	Metadata       int64 // of those: Metadata
	Ahead          int64 // of the Fetch requests: those that were sent before it was known where they would have to go on (Config.ReadAheadBytes)
	AheadLost      int64 // of those: whose reply was of no use
}

// Counts is what was asked so far. Safe for concurrent use.
func (s *Source) Counts() Counts {
	return Counts{
		Connects:       s.counter.connects.Load(),
		ConnectsFailed: s.counter.connectsFailed.Load(),
		Requests:       s.counter.requests.Load(),
		Fetches:        s.counter.fetches.Load(),
		Metadata:       s.counter.metadata.Load(),
		Ahead:          s.counter.ahead.Load(),
		AheadLost:      s.counter.aheadLost.Load(),
	}
}

// counter is a client hook.
type counter struct {
	connects, connectsFailed, requests, fetches, metadata atomic.Int64
	ahead, aheadLost                                      atomic.Int64
	lastFailed                                            atomic.Bool // the last connection opened came to nothing
}

var (
	_ kgo.HookBrokerConnect = (*counter)(nil)
	_ kgo.HookBrokerWrite   = (*counter)(nil)
	_ kgo.HookBrokerConnect = (*dialCounter)(nil)
	_ kgo.HookBrokerRead    = (*dialCounter)(nil)
)

// OnBrokerConnect counts a connection.
func (c *counter) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.connects.Add(1)
	c.lastFailed.Store(err != nil)
	if err != nil {
		c.connectsFailed.Add(1)
	}
}

// OnBrokerWrite counts a request.
func (c *counter) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	c.requests.Add(1)
	switch kmsg.Key(key) {
	case kmsg.Fetch:
		c.fetches.Add(1)
	case kmsg.Metadata:
		c.metadata.Add(1)
	}
}

// dialCounter counts one fetcher's connections, so that it notices a new one, and measures the way to its broker.
type dialCounter struct {
	*counter
	dials      atomic.Int64
	lastFailed atomic.Bool
	greeted    atomic.Int64 // nanoseconds
}

// roundTrip is how long the broker's answer to the first request of the last connection took, 0 if there was none. A connection begins with it, so nothing is before
// it on the line, it is short, and the broker has nothing to look up for it.
func (c *dialCounter) roundTrip() time.Duration { return time.Duration(c.greeted.Load()) }

// OnBrokerRead takes note of the answer to a connection's first request.
func (c *dialCounter) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, wait, read time.Duration, err error) {
	if err == nil && kmsg.Key(key) == kmsg.ApiVersions {
		c.greeted.Store(int64(wait + read))
	}
}

// OnBrokerConnect counts a connection.
func (c *dialCounter) OnBrokerConnect(meta kgo.BrokerMetadata, took time.Duration, conn net.Conn, err error) {
	c.dials.Add(1)
	c.lastFailed.Store(err != nil)
	c.counter.OnBrokerConnect(meta, took, conn, err)
}
