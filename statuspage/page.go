package statuspage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Mirror is what the page asks of a mirror. *mirror.Mirror is one. Both may be called at any time, by several goroutines.
type Mirror interface {
	Status() mirror.Status
	Snapshot() mirror.Snapshot
}

// Subject is one mirror that is shown.
type Subject struct {
	Name    string
	Mirror  Mirror // nil: it does not run
	Problem string // why it does not run, or not as it should; "" if all is well
}

// Config is what a Page shows. Mirrors has no default.
type Config struct {
	// Title is whose page it is: "node 9999".
	Title string
	// Mirrors are those to be shown, with different names. It is called at any time by any goroutine, and must return at once.
	Mirrors func() []Subject
	// Trouble is what is wrong with the process itself, one line each; nil: nothing ever is. As Mirrors it must return at once.
	Trouble func() []string
	// Hosts are the names and addresses by which the page may be asked for, without port, besides those of the loopback (localhost, 127.0.0.1, ::1). "*" is any: name it only where everybody
	// who can reach the address may see the page.
	Hosts []string
	// Interval is how long after each other samples of the lag are taken by Run [30 s]. 120 are kept.
	Interval time.Duration
}

// Page is an http.Handler that shows mirrors. Safe for concurrent use.
type Page struct {
	cfg    Config
	recent recent

	mu      sync.Mutex
	history map[string]*history // by mirror
	looks   map[string]*looking // by mirror
}

// lookAgain is how old what is known of a mirror may be before it is asked again.
const lookAgain = 5 * time.Second

// New makes a Page and starts nothing. Errors: Mirrors is not set, or Interval is negative.
func New(cfg Config) (*Page, error) {
	if cfg.Mirrors == nil {
		return nil, errors.New("statuspage.Config: Mirrors is not set: there is nothing to show")
	}
	if cfg.Interval < 0 {
		return nil, errors.New("statuspage.Config: Interval is negative")
	}
	cfg.Interval = cmp.Or(cfg.Interval, 30*time.Second)
	cfg.Hosts = slices.Clone(cfg.Hosts)
	if cfg.Trouble == nil {
		cfg.Trouble = func() []string { return nil }
	}
	return &Page{cfg: cfg, history: map[string]*history{}, looks: map[string]*looking{}}, nil
}

// Run takes a sample of every mirror's lag, now and at each Interval, until ctx ends. Without it the page shows no lag over time.
func (p *Page) Run(ctx context.Context) {
	tick := time.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		p.sample()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Observe notes an event of a mirror. It has the shape of mirror.Config.OnEvent.
func (p *Page) Observe(e mirror.Event) { p.recent.add(e) }

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	if !p.known(r.Host) {
		refuse(w, http.StatusMisdirectedRequest, "this page is to be asked for by an address of the loopback, as http://localhost; other names have to be allowed where it is set up\n")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "this page only shows: GET and HEAD\n")
		return
	}
	asked := question(r)
	v, plan, found := p.view(asked)
	if !found {
		refuse(w, http.StatusNotFound, "no such mirror or topic is known here\n")
		return
	}
	var body bytes.Buffer
	var err error
	switch {
	case asked.plan && plan == nil:
		refuse(w, http.StatusNotFound, "name one mirror that runs here: there is no plan of others\n")
		return
	case asked.json:
		h.Set("Content-Type", "application/json")
		e := json.NewEncoder(&body)
		e.SetIndent("", "  ")
		if asked.plan {
			err = e.Encode(plan)
		} else {
			err = e.Encode(v)
		}
	case asked.plan:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		body.WriteString(plan.String())
	default:
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = writeHTML(&body, v, asked)
	}
	if err != nil {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		refuse(w, http.StatusInternalServerError, "the page cannot be made\n")
		return
	}
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes()) // the client is gone
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// known says whether a request may name this host.
func (p *Page) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(p.cfg.Hosts, func(name string) bool { return name == "*" || strings.EqualFold(name, host) })
}

// asking is what a request wants to see.
type asking struct {
	mirror, topic string
	from          int
	plan, json    bool
	still         bool // the page does not load itself again
}

func question(r *http.Request) asking {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("from")) // what is no number is the beginning
	accept := r.Header.Get("Accept")
	return asking{
		mirror: q.Get("mirror"), topic: q.Get("topic"), from: max(0, from), plan: q.Has("plan"), still: q.Get("refresh") == "off",
		json: strings.HasSuffix(r.URL.Path, ".json") || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html"),
	}
}

// looking is what was seen of a mirror last.
type looking struct {
	mu   sync.Mutex // held while the mirror is asked
	seen *look
}

// look is what is known of a mirror at one moment.
type look struct {
	of       Mirror
	status   mirror.Status
	snapshot mirror.Snapshot
	plan     mirror.FailoverPlan
	planned  planned
}

// look asks a mirror, unless that was done just now.
func (p *Page) look(s Subject) *look {
	p.mu.Lock()
	l := p.looks[s.Name]
	if l == nil {
		l = &looking{}
		p.looks[s.Name] = l
	}
	p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil || l.seen.of != s.Mirror || time.Since(l.seen.snapshot.Taken) >= lookAgain {
		l.seen = &look{of: s.Mirror, status: s.Mirror.Status(), snapshot: s.Mirror.Snapshot()}
		l.seen.plan = mirror.PlanFailover(l.seen.snapshot, mirror.FailoverOptions{})
		l.seen.planned = plannedOf(l.seen.plan)
	}
	return l.seen
}

// together is how many mirrors are asked at the same time for one page.
const together = 8

// lookAt asks all mirrors that run; what does not run has nil.
func (p *Page) lookAt(subjects []Subject) []*look {
	all := make([]*look, len(subjects))
	var running sync.WaitGroup
	free := make(chan struct{}, together)
	for i, s := range subjects {
		if s.Mirror == nil {
			continue
		}
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			all[i] = p.look(s)
		})
	}
	running.Wait()
	return all
}
