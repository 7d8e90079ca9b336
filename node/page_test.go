package node

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestStatusPageOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := c.run(t, "9999", func(cfg *Config) { cfg.Mirrors = func(name string) bool { return name != "foreign" } })
		asks := func(host, target string) (int, string) {
			w := httptest.NewRecorder()
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			q.Host = host
			r.Page().ServeHTTP(w, q)
			return w.Code, w.Body.String()
		}
		says := func(when, target string, words ...string) {
			t.Helper()
			status, body := asks("localhost", target)
			for _, w := range words {
				if status != http.StatusOK || !strings.Contains(body, w) {
					t.Errorf("%s: %d, and %q is not on the page:\n%s", when, status, w, body)
				}
			}
		}
		until(t, "it runs", func() bool { return r.Status().State == Running })
		says("no mirror was created", "/", `<h1 class="warning">NO MIRROR runs here</h1>`, "node 9999")
		c.create(t, "dr")
		until(t, "it mirrors", func() bool { return r.mirrors(statemachine.Mirroring) })
		time.Sleep(time.Minute)
		says("it mirrors", "/", "MIRRORING: 1 topic", "PREPARING → MIRRORING", "FAILOVER PLAN  mirror dr")
		says("as JSON", "/page.json", `"head": "MIRRORING: 1 topic"`)
		if status, _ := asks("evil.example.com", "/"); status != http.StatusMisdirectedRequest {
			t.Errorf("a page elsewhere had it shown: %d", status)
		}
		(<-r.mine).lose(nil)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		says("it has ended", "/", "ended")
	})
}

// said gathers what is logged.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) find(pattern *regexp.Regexp) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pattern.FindStringSubmatch(s.text.String())
}

// The page is served where Page says, and nowhere without it; the address of health and metrics does not have it.
func TestStatusPageIsServedWhereItIsTold(t *testing.T) {
	c := newCluster(t)
	log := &said{}
	logger := func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) }
	r := c.run(t, "9999", logger, func(cfg *Config) { cfg.HTTP, cfg.Page = "127.0.0.1:0", "127.0.0.1:0" })
	until(t, "it runs", func() bool { return r.Status().State == Running })
	ask := func(what string) (int, string) {
		address := log.find(regexp.MustCompile(`msg="` + what + `" address=(\S+)`))
		if address == nil {
			t.Fatalf("%s is served nowhere", what)
		}
		client := http.Client{Timeout: 30 * time.Second}
		reply, err := client.Get("http://" + address[1] + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(body)
	}
	if status, body := ask("the status page"); status != http.StatusOK || !strings.Contains(body, "<h1 class=") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := ask("health and metrics"); status != http.StatusNotFound {
		t.Errorf("the address of health and metrics shows the page: %d", status)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}

	quiet := &said{}
	c = newCluster(t)
	r = c.run(t, "9999", func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(quiet, nil)) })
	until(t, "it runs", func() bool { return r.Status().State == Running })
	if quiet.find(regexp.MustCompile("the status page")) != nil {
		t.Error("the page is served, and nobody has asked for it")
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// An address that other machines reach needs a second word.
func TestStatusPageStaysOnThisMachine(t *testing.T) {
	for address, far := range map[string]bool{"": false, "127.0.0.1:9701": false, "127.3.2.1:1": false, "[::1]:9701": false, "localhost:9701": false, "LocalHost:0": false,
		":9701": true, "0.0.0.0:9701": true, "[::]:9701": true, "10.0.0.9:9701": true, "mirror-1:9701": true, "localhost.example.com:9701": true, "[::ffff:10.0.0.9]:1": true} {
		if why := misplacedPage(address, false); (why != "") != far {
			t.Errorf("%q: %q", address, why)
		}
		if why := misplacedPage(address, true); why != "" {
			t.Errorf("%q, which was asked for: %q", address, why)
		}
		_, err := ReadFile(write(t, enough+"mirror.page.listener="+address+"\n"))
		if far != (err != nil && strings.Contains(err.Error(), "mirror.page.listener: can be reached from other machines") && strings.Contains(err.Error(), "mirror.page.remote=true")) {
			t.Errorf("%q in a file: %v", address, err)
		}
		if _, err := ReadFile(write(t, enough+"mirror.page.remote=true\nmirror.page.listener="+address+"\n")); err != nil {
			t.Errorf("%q in a file, which was asked for: %v", address, err)
		}
	}
	for _, address := range []string{"9701", "127.0.0.1", "127.0.0.1:"} {
		if misplacedPage(address, true) == "" {
			t.Errorf("%q is taken", address)
		}
	}
	file, err := ReadFile(write(t, enough+"mirror.page.listener=127.0.0.1:9701\n"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg := file.Config(); cfg.Page != "127.0.0.1:9701" || cfg.PageRemote {
		t.Errorf("%q %t", cfg.Page, cfg.PageRemote)
	}
	if _, err := New(Config{Page: "0.0.0.0:9701", Sink: mirror.Discard}); err == nil || !strings.Contains(err.Error(), "set PageRemote") {
		t.Errorf("%v", err)
	}
	if _, err := ReadFile(write(t, enough+"mirror.page.remote=yes\n")); err == nil || !strings.Contains(err.Error(), "mirror.page.remote: is neither true nor false") {
		t.Errorf("%v", err)
	}
}
