package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// standstill is how long the node's loop may say nothing before the process counts as hung. A loop that waits for a cluster ticks.
const standstill = time.Minute

// alive lets the process's own clock tick beside Run, for /healthz: a mutex that is never given back, or a process that gets no time, stops it.
func (n *Node) alive() (ended func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(standstill / 12)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				n.mu.Lock()
				n.ticked = now
				n.mu.Unlock()
			}
		}
	}()
	var once sync.Once
	return func() { once.Do(func() { close(stop); <-done }) }
}

// Handler serves /healthz, /readyz, /metrics and /status; see the package's text. It may be mounted anywhere, and serves before Run and after it.
func (n *Node) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.collector)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		n.mu.Lock()
		silent := time.Since(n.ticked)
		n.mu.Unlock()
		if silent > standstill {
			plain(w, http.StatusServiceUnavailable, fmt.Sprintf("its loop has stood still for %s\n", silent.Round(time.Second)))
			return
		}
		plain(w, http.StatusOK, "alive\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := n.Status()
		if !s.Ready() {
			plain(w, http.StatusServiceUnavailable, strings.Join(s.Reasons, "\n")+"\n")
			return
		}
		plain(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(n.Status()) // the client is gone
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
