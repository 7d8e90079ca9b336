package kafkastore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// TestRealRightsAndRestarts has a cluster of its own, with an authorizer and three brokers.
func TestRealRightsAndRestarts(t *testing.T) {
	users := make(map[string]string)
	for _, u := range []string{"viewer", "operator", "on-call", "admin-role", "node", "nobody"} {
		users[u] = "secret-" + u
	}
	c := kafkatest.Start(t, kafkatest.Options{
		Brokers: 3, Client: kafkatest.Security{SASL: "PLAIN", Users: users}, Authorizer: true,
		Config: map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}, // a crash is seen soon
	})
	as := func(user string) Config {
		return Config{
			Seeds: c.Bootstrap(), ClientOptions: c.ClientOptions(kafkatest.Credentials{User: user, Password: users[user]}), StatePartitions: 3, Bound: 60 * time.Second,
		}
	}
	// The lines of the package's text.
	allow := func(user string, pattern kadm.ACLPattern, topics, ids []string, operations ...kadm.ACLOperation) {
		t.Helper()
		b := kadm.NewACLs().Allow("User:" + user).AllowHosts("*").ResourcePatternType(pattern).Operations(operations...)
		if topics != nil {
			b.Topics(topics...)
		}
		if ids != nil {
			b.TransactionalIDs(ids...)
		}
		c.CreateACLs(b)
	}
	everything, control := []string{"__mirror_"}, []string{"clustermirror-control"}
	viewers := []string{"viewer", "operator", "on-call", "admin-role"}
	for _, user := range viewers {
		allow(user, kadm.ACLPatternPrefixed, everything, nil, kadm.OpRead)
	}
	for _, user := range viewers[1:] {
		allow(user, kadm.ACLPatternLiteral, []string{pauseTopic, historyTopic}, control, kadm.OpWrite)
	}
	for _, user := range viewers[2:] {
		allow(user, kadm.ACLPatternLiteral, []string{stopTopic}, nil, kadm.OpWrite)
	}
	allow("admin-role", kadm.ACLPatternLiteral, []string{controlTopic}, nil, kadm.OpWrite)
	allow("node", kadm.ACLPatternPrefixed, everything, nil, kadm.OpAll)
	allow("node", kadm.ACLPatternPrefixed, nil, []string{"clustermirror-"}, kadm.OpWrite)

	t.Run("rights", func(t *testing.T) { rights(t, as) })
	t.Run("deafness", func(t *testing.T) { deafness(t, c, as("node"), as("viewer")) })
	t.Run("restarts", func(t *testing.T) { restarts(t, c, as("node")) })
}

func rights(t *testing.T, as func(user string) Config) {
	denied := func(what string, err error, resource, name, right string) {
		t.Helper()
		var access *AccessError
		if !errors.As(err, &access) || access.Resource != resource || access.Name != name || access.Right != right {
			t.Errorf("%s: error %v, want one about %s of %s %s", what, err, right, resource, name)
			return
		}
		if text := err.Error(); !strings.Contains(text, "kafka-acls.sh") || !strings.Contains(text, "--operation "+right+" --"+resource+" "+name) || strings.Contains(text, "secret") {
			t.Errorf("%s: %s", what, text)
		}
	}
	// Before the topics are there, nobody but the node can make them.
	_, err := Open(t.Context(), as("nobody"))
	denied("nobody", err, "topic", controlTopic, "Describe")
	denied("an operator without topics", open(t, as("operator")).Update(t.Context(), put(change(key(72, "k"), "x"))), "topic", pauseTopic, "Create")

	node := open(t, as("node"))
	n := opened(t, node, "node-1")
	control, pause, stop, history, state := key(66, "k"), key(72, "k"), key(71, "k"), key(74, "k"), stateKey("m", 0)
	write(t, n, change(state, "s"), change(key(75, "k"), "r"))
	update(t, node, change(control, "c"), change(history, "h"))
	all := func(want string) {
		t.Helper()
		got := ""
		for _, k := range [][]byte{control, pause, stop, history} {
			got += shown(t, node, k) + " "
		}
		if got != want+" " {
			t.Errorf("control, pause, stop, history are %s, want %s", got, want)
		}
	}
	all("c - - h")

	viewer, operator, onCall, admin := open(t, as("viewer")), open(t, as("operator")), open(t, as("on-call")), open(t, as("admin-role"))
	expect(t, viewer, state, "s by node-1/1")
	try := func(s *Store, changes ...keyedlog.Change) error { return s.Update(t.Context(), put(changes...)) }
	denied("a viewer pauses", try(viewer, change(pause, "1")), "transactional-id", "clustermirror-control", "Write")
	_, err = viewer.Open(t.Context(), "node-1")
	denied("a viewer opens a writer", err, "transactional-id", "clustermirror-owner-node-1", "Write")
	denied("an operator stops", try(operator, change(history, "1"), change(stop, "1"), change(pause, "1")), "topic", stopTopic, "Write")
	denied("an operator creates", try(operator, change(control, "1"), change(history, "1")), "topic", controlTopic, "Write")
	denied("on-call creates", try(onCall, change(control, "1"), change(history, "1")), "topic", controlTopic, "Write")
	denied("on-call writes states", try(onCall, change(stateKey("m", 1), "1")), "topic", stateTopic, "Write")
	denied("an admin writes states", try(admin, change(stateKey("m", 1), "1")), "topic", stateTopic, "Write")
	_, err = admin.Open(t.Context(), "node-1")
	denied("an admin opens a writer", err, "transactional-id", "clustermirror-owner-node-1", "Write")
	all("c - - h") // of what was refused nothing is there
	must(t, n.Check(t.Context()))

	update(t, operator, change(pause, "1"), change(history, "2"))
	all("c 1 - 2")
	update(t, onCall, change(stop, "3"), change(history, "3"))
	update(t, onCall, keyedlog.Change{Key: pause})
	all("c - 3 3")
	update(t, admin, change(control, "4"), keyedlog.Change{Key: stop}, change(history, "4"))
	all("4 - - 4")
	write(t, n, change(state, "s2"))
	expect(t, viewer, state, "s2 by node-1/1")
}

// restarts lets brokers stop and crash while three kinds of updates go on. None of them needs help.
func restarts(t *testing.T, c *kafkatest.Cluster, cfg Config) {
	s := open(t, cfg)
	n := opened(t, s, "counter")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type tally struct {
		done, unknown int
		err           error
	}
	own, claimed, free := key(66, "own"), key(66, "claimed"), key(72, "free")
	counts := make(chan tally, 3)
	progress := make(chan struct{})
	for _, one := range []func(context.Context) error{
		func(ctx context.Context) error { return n.Update(ctx, [][]byte{own}, count(own, false)) },
		func(ctx context.Context) error { return n.Update(ctx, [][]byte{claimed}, count(claimed, true)) },
		func(ctx context.Context) error { return s.Update(ctx, count(free, false)) },
	} {
		go func() {
			var sum tally
			for ctx.Err() == nil {
				err := one(context.WithoutCancel(ctx)) // each comes to its end, within the store's bound
				switch {
				case err == nil:
					sum.done++
				case errors.Is(err, keyedlog.ErrOutcomeUnknown):
					sum.unknown++
				default:
					sum.err = err
					stop()
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
			counts <- sum
		}()
	}
	forward := func(updates int) {
		t.Helper()
		for range updates {
			select {
			case <-progress:
			case <-time.After(90 * time.Second):
				t.Fatal("no update comes to its end")
			case <-ctx.Done():
				return
			}
		}
	}
	forward(5)
	c.Stop(2)
	forward(5)
	c.StartBroker(2)
	forward(5)
	c.Kill(3)
	forward(5)
	c.StartBroker(3)
	forward(5)
	stop()
	want, unknown := 0, 0
	for range 3 {
		sum := <-counts
		if sum.err != nil {
			t.Errorf("an update while brokers come and go: %v", sum.err)
		}
		want, unknown = want+sum.done, unknown+sum.unknown
	}
	got := 0
	for _, k := range [][]byte{own, claimed, free} {
		must(t, s.Read(t.Context(), func(v keyedlog.View) error {
			r, _ := v.Get(k)
			n, err := strconv.Atoi(string(r.Value))
			got += n
			return err
		}))
	}
	t.Logf("%d updates, %d unknown", want, unknown)
	if got < want || got > want+unknown {
		t.Errorf("%d updates are there, %d were acknowledged and %d unknown", got, want, unknown)
	}
}
