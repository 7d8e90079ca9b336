package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// logins counts connections and logins of all clients of a source. A login that begins no connection is a re-authentication (KIP-368).
type logins struct{ opened, connections, handshakes atomic.Int64 }

// open is kafkasource.Open with a client that counts.
func (l *logins) open(_ context.Context, settings mirror.Settings) (mirror.Source, error) {
	cfg, err := FromSettings(settings)
	if err != nil {
		return nil, err
	}
	l.opened.Add(1)
	cfg.ClientOptions = append(cfg.ClientOptions, kgo.WithHooks(l))
	return New(cfg)
}

// OnBrokerConnect counts a connection that was tried.
func (l *logins) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	l.connections.Add(1)
}

// OnBrokerWrite counts a login.
func (l *logins) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if kmsg.Key(key) == kmsg.SASLHandshake {
		l.handshakes.Add(1)
	}
}

func (l *logins) again() int64 { return l.handshakes.Load() - l.connections.Load() }

// TestF77RotatedAndWrongPasswords: sessions of two seconds, the password changed at the broker and in the file that the settings refer to, then a wrong one for a while.
// One mirror with one source, opened from the settings that it was created with, lives through it all.
func TestF77RotatedAndWrongPasswords(t *testing.T) {
	const topic = "f77"
	c := kafkatest.Start(t, kafkatest.Options{Client: kafkatest.Security{
		SASL: "SCRAM-SHA-256", Users: map[string]string{"mirror": "first", "other": "fourth"}, SessionLifetime: 2 * time.Second,
	}})
	c.CreateTopic(kafkatest.Topic{Name: topic})
	file := filepath.Join(t.TempDir(), "secrets.properties")
	credentials := func(user, password string) {
		t.Helper()
		// As one should: a new file takes the old one's place at once.
		text := []byte("user=" + user + "\npassword=" + password + "\n")
		if err := errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	credentials("mirror", "first")
	seen := new(logins)
	dst := memlog.New(memlog.Config{ClusterID: "memory"})
	var mu sync.Mutex
	var events []mirror.Event
	m, err := mirror.Open(t.Context(), mirror.Config{
		Name: "m", OpenSource: seen.open, Destination: dst, Store: dst.StateStore(), Sink: mirror.Discard, Seed: 1,
		RefreshInterval: 500 * time.Millisecond, FetchBackoff: 200 * time.Millisecond, Fetch: mirror.FetchOptions{MaxWait: 200 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second},
		OnEvent: func(e mirror.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, e := range events {
				t.Logf("%s %v", e.Where().Time.Format("05.000"), e)
			}
		}
	}()
	if _, err := m.Admin().Create(t.Context(), mirror.Settings{
		"bootstrap.servers": c.Bootstrap()[0], "request.timeout.ms": "5000", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
		"sasl.jaas.config": jaas("scram.Scram", "${file:"+file+":user}", "${file:"+file+":password}"),
	}, mirror.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Admin().Start(t.Context(), []string{topic}, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	until := func(what string, ok func(p mirror.PartitionStatus) bool) mirror.PartitionStatus {
		t.Helper()
		var p mirror.PartitionStatus
		deadline := time.Now().Add(30 * time.Second)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, s := range m.Status().Topics {
				if s.Topic == topic && len(s.Partitions) == 1 {
					p = s.Partitions[0]
				}
			}
			if ok(p) {
				return p
			}
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %s, end %d, lag %d, %q; %d connections, %d logins", what, p.State, p.End, p.LagOffsets, p.Reason, seen.connections.Load(), seen.handshakes.Load())
			}
			<-tick.C
		}
	}
	written := int64(0)
	copied := func(when string) {
		t.Helper()
		written = c.Produce(topic, 0, fmt.Sprintf("record %d", written)) + 1
		until(when, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Mirroring && p.End == written && p.LagOffsets == 0 && p.SourceEnd == written
		})
	}
	copied("copied with the first password")
	opened := seen.opened.Load()

	// Re-authentications while it copies, then more with passwords that are changed meanwhile.
	connections, before := seen.connections.Load(), seen.again()
	for seen.again() < before+4 {
		copied("copied during re-authentications")
	}
	// They happen on the connections that are there. (A broker ends one whose request was under way for longer than the second that is left of its session.)
	if n, again := seen.connections.Load()-connections, seen.again()-before; n >= again {
		t.Errorf("%d new connections during %d re-authentications", n, again)
	}
	for _, who := range [][2]string{{"mirror", "second"}, {"mirror", "third"}, {"other", "fourth"}} { // the last one is another user, which needs another connection
		if who[0] == "mirror" {
			c.SetPassword("SCRAM-SHA-256", who[0], who[1])
		}
		credentials(who[0], who[1])
		for before := seen.again(); seen.again() < before+2; {
			copied("copied after the credentials were changed to those of " + who[0] + ", the " + who[1])
		}
	}

	// A wrong password: one reason that says what to do, an unknown lag, and tries that get fewer.
	trouble := func() (reports int, last string) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if s, ok := e.(mirror.SourceTrouble); ok && s.Err != nil {
				reports, last = reports+1, s.Err.Error()
			}
		}
		return reports, last
	}
	reportsBefore, _ := trouble()
	connections = seen.connections.Load()
	began := time.Now()
	credentials("other", "wrong-marker")
	refused := func(p mirror.PartitionStatus) bool {
		return strings.Contains(p.Reason, "check user, password or token") && p.LagOffsets == mirror.Unknown
	}
	p := until("refused", refused)
	t.Logf("%s: %s", p.State, p.Reason)
	written = c.Produce(topic, 0, "while the password is wrong") + 1
	until("tried six times more", func(p mirror.PartitionStatus) bool { return seen.connections.Load() >= connections+6 })
	p = until("refused", refused)
	if p.End != written-1 {
		t.Errorf("end %d without a right password", p.End)
	}
	took := time.Since(began)
	// A round of a fetcher and of a look at the source are two connections each at most; both pause longer each time.
	if n := float64(seen.connections.Load() - connections); n > 6+8*took.Seconds() {
		t.Errorf("%v connections in %v", n, took)
	}
	reports, said := trouble()
	if n := reports - reportsBefore; n > 4 || n < 1 || !strings.Contains(said, "SASL_AUTHENTICATION_FAILED") {
		t.Errorf("%d reports of trouble in %v, the last one: %s", n, took, said)
	}
	if strings.Contains(said+p.Reason, "marker") {
		t.Errorf("the password is told: %s; %s", said, p.Reason)
	}

	credentials("other", "fourth")
	until("copied after the right password came back", func(p mirror.PartitionStatus) bool {
		return p.State == statemachine.Mirroring && p.End == written && p.LagOffsets == 0
	})
	copied("copied at the end")
	if n := seen.opened.Load() - opened; n != 0 {
		t.Errorf("the source was opened %d times more", n)
	}
	t.Logf("%d records, %d connections, %d logins", written, seen.connections.Load(), seen.handshakes.Load())
}
