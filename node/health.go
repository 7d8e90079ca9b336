package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// standstill is how long the loop of a node that runs may say nothing before the process counts as hung: it says something every minute, whatever the cluster does.
const standstill = 2 * time.Minute

// Handler serves /healthz, /readyz, /metrics and /status; see the package's text. It may be mounted anywhere, and serves before Run and after it.
func (n *Node) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.collector)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// Nothing is locked: a lock that is never given back is one of the things that this finds.
		if began := n.ticked.Load(); began != 0 {
			if silent := time.Since(time.Unix(0, began)); silent > standstill {
				plain(w, http.StatusServiceUnavailable, fmt.Sprintf("its loop has stood still for %s\n", silent.Round(time.Second)))
				return
			}
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
