package statuspage_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statuspage"
)

// A service that runs a mirror shows it on a page of its own, which only this machine can reach.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	source, standby := memlog.New(memlog.Config{ClusterID: "primary"}), memlog.New(memlog.Config{ClusterID: "standby"})
	if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 2}); err != nil {
		fmt.Println(err)
		return
	}
	var m *mirror.Mirror
	page, err := statuspage.New(statuspage.Config{
		Title:   "billing",
		Mirrors: func() []statuspage.Subject { return []statuspage.Subject{{Name: "dr", Mirror: m}} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err = mirror.Open(ctx, mirror.Config{Name: "dr", Source: source, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard, OnEvent: page.Observe})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	go page.Run(ctx) // the lag over time

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go server.Serve(listener)

	if _, err := m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	if err := m.Await(ctx, func(s mirror.Status) bool {
		return len(s.Topics) == 1 && len(s.Topics[0].Partitions) == 2 && s.AtRisk().UnknownAge == 0
	}); err != nil {
		fmt.Println(err)
		return
	}
	reply, err := http.Get("http://" + listener.Addr().String() + "/?mirror=dr&topic=orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reply.Body.Close()
	fmt.Println(reply.Status, reply.Header.Get("Content-Type"))
	// Output: 200 OK text/html; charset=utf-8
}

type answer struct {
	strings.Builder
	header http.Header
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(int)     {}

// A mirror's night on its page: in step, the source gone, failed over. What is not known any more is never a number, and has its age beside it.
func TestANightOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, standby := memlog.New(memlog.Config{ClusterID: "A"}), memlog.New(memlog.Config{ClusterID: "B"})
		if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		var m *mirror.Mirror
		page, err := statuspage.New(statuspage.Config{Mirrors: func() []statuspage.Subject { return []statuspage.Subject{{Name: "dr", Mirror: m}} }})
		if err != nil {
			t.Fatal(err)
		}
		m, err = mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: source, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard, OnEvent: page.Observe})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go page.Run(ctx)
		shows := func(when string, words ...string) {
			t.Helper()
			time.Sleep(time.Minute + time.Second) // not at the moment of a sample
			r, err := http.NewRequest("GET", "http://localhost/", nil)
			if err != nil {
				t.Fatal(err)
			}
			a := &answer{header: http.Header{}}
			page.ServeHTTP(a, r)
			for _, w := range words {
				if absent, not := strings.CutPrefix(w, "no "); not == strings.Contains(a.String(), strings.TrimSpace(absent)) {
					t.Errorf("%s: the page is wrong about %q:\n%s", when, w, a.String()[strings.Index(a.String(), "<h1"):])
				}
			}
		}
		shows("nothing is wanted", `<h1 class="good">NO TOPICS</h1>`, "there is no copy")
		if _, err := m.Admin().Start(t.Context(), []string{"orders"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := source.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte("1 apple")}); err != nil {
			t.Fatal(err)
		}
		shows("in step", `<h1 class="good">MIRRORING: 1 topic</h1>`, "Age of the oldest copy: now 0s", "none: each copy holds everything then known at the source", "<polyline", "SAFE", "no What is wrong", "PREPARING → MIRRORING")
		source.SetUnreachable(true)
		time.Sleep(4 * time.Minute)
		shows("the source is gone", `<h1 class="bad">MIRRORING: 1 topic; the source does not answer</h1>`, "What is wrong", "Age of the oldest copy: now 4m", "Offsets not copied: now unknown", "<rect",
			`<dt>Not copied</dt><dd>unknown</dd>`, "1, last seen 5m ago", "LOSS UNKNOWN", "its source does not say any more where it ends")
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		shows("failed over", `<h1 class="good">FAILED OVER: 1 topic</h1>`, "there is no copy", "2 STOPPED", "STOPPING → STOPPED", "MIRROR_PID_RESET at")
	})
}
