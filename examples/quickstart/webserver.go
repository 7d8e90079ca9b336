package main

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// webServer notes that what answers is a web server. The client tries again until its time is up, and its error tells of the time only.
type webServer struct{ seen atomic.Bool }

var _ kgo.HookBrokerRead = (*webServer)(nil)

// OnBrokerRead is called by the client after each try to read a response.
func (w *webServer) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err != nil && strings.Contains(err.Error(), "HTTP") {
		w.seen.Store(true)
	}
}

// explain gives an error its cause, if that is a web server.
func (w *webServer) explain(err error, address string) error {
	if err == nil || !w.seen.Load() {
		return err
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return err
	}
	return fmt.Errorf("%s answers in HTTP: that is a web server's port, not a Kafka broker's; Kafka's usual one is %s", address, net.JoinHostPort(host, "9092"))
}
