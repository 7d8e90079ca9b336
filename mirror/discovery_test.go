package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// set alters the settings of mirror m at a cluster.
func set(t *testing.T, s *side, name, value string) {
	t.Helper()
	want(t, s, func(state *mirror.ControlState) {
		e, _ := state.Mirror("m")
		e.Name = "m"
		next := mirror.Settings{name: value}
		for k, v := range e.Settings {
			if k != name {
				next[k] = v
			}
		}
		e.Settings = next
		state.SetMirror(e)
	})
}

func wishes(t *testing.T, s *side) (names []string) {
	t.Helper()
	for _, w := range wanted(t, s).Topics {
		names = append(names, w.Topic+"="+w.MirrorName)
	}
	return names
}

func (r *running) untilWishes(s *side, names ...string) {
	r.t.Helper()
	slices.Sort(names)
	r.until(fmt.Sprint("wanted ", names), func(mirror.Status) bool { return slices.Equal(wishes(r.t, s), names) })
}

func TestSpec6DiscoveryFollowsThePatterns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, name := range []string{"orders.eu", "orders.us", "payments", "__mirror_state", "__consumer_offsets"} {
			a.local(name, 1)
		}
		m := follow(t, "m", a, b)
		defer m.close()
		time.Sleep(5 * time.Minute)
		if got := wishes(t, b); len(got) != 0 {
			t.Fatalf("without patterns: %v", got)
		}
		set(t, b, "mirror.topics.include", `orders\..*`)
		m.untilWishes(b, "orders.eu=m", "orders.us=m")
		a.local("orders.apac", 1)
		a.fill("orders.apac", 0, 2)
		m.untilWishes(b, "orders.apac=m", "orders.eu=m", "orders.us=m")
		m.untilInStep()

		// A topic that was stopped is not found again, and neither is one that another mirror has.
		if _, err := m.Admin().Stop(t.Context(), []string{"orders.eu"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "payments", MirrorName: "other.stopped"}) })
		set(t, b, "mirror.topics.include", ".*") // F-71: internal topics are never matched
		time.Sleep(5 * time.Minute)
		m.untilWishes(b, "orders.apac=m", "orders.eu=m.stopped", "orders.us=m", "payments=other.stopped")

		// What is excluded later is stopped, and it needs no source.
		a.SetUnreachable(true)
		set(t, b, "mirror.topics.exclude", `__.*,orders\.us`)
		m.untilWishes(b, "orders.apac=m", "orders.eu=m.stopped", "orders.us=m.stopped", "payments=other.stopped")
		h, err := b.Control().History(t.Context())
		if err != nil || len(h) < 3 {
			t.Fatalf("history %v, %v", h, err)
		}
		if last := h[len(h)-1]; last.Mirror != "m" || !slices.Equal(last.Topics, []string{"orders.us"}) || last.Who.Host == "" {
			t.Errorf("last entry %+v", last)
		}
	})
}

// opened is one connection to a cluster in memory: Close ends it and leaves the cluster alone.
type opened struct {
	mirror.Source
	mirror.LastMirrorEpochReader
	closed chan struct{}
}

var errConnectionClosed = errors.New("connection closed")

func (o opened) Close() error {
	close(o.closed)
	return nil
}

func (o opened) OpenFetcher(ctx context.Context, broker int32, options mirror.FetchOptions) (mirror.Fetcher, error) {
	f, err := o.Source.OpenFetcher(ctx, broker, options)
	return openedFetcher{f, o.closed}, err
}

type openedFetcher struct {
	mirror.Fetcher
	closed chan struct{}
}

func (f openedFetcher) Fetch(ctx context.Context) ([]mirror.FetchedPartition, error) {
	select {
	case <-f.closed:
		return nil, errConnectionClosed
	default:
		return f.Fetcher.Fetch(ctx)
	}
}

// opener opens clusters by their bootstrap.servers.
func opener(opens *atomic.Int64, clusters map[string]*side) func(*mirror.Config) {
	return func(c *mirror.Config) {
		c.Source = nil
		c.OpenSource = func(_ context.Context, s mirror.Settings) (mirror.Source, error) {
			opens.Add(1)
			if c := clusters[s["bootstrap.servers"]]; c != nil {
				return opened{c.Cluster, c.Cluster, make(chan struct{})}, nil
			}
			return nil, fmt.Errorf("no such address: %q", s["bootstrap.servers"])
		}
	}
}

func TestSpec1_5ConnectionSettingsReconnectAndOthersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		var opens atomic.Int64
		m := follow(t, "m", a, b, opener(&opens, map[string]*side{"one": a, "two": a}))
		defer m.close()
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m"}) })
		time.Sleep(time.Minute)
		if s := m.Status(); len(s.Topics) != 1 || s.Topics[0].Err == nil {
			t.Errorf("without settings: %s", show(s))
		} else {
			expectWords(t, s.Topics[0].Err.Error(), "create the mirror")
		}
		if s := wanted(t, b); len(s.Mirrors) != 0 {
			t.Errorf("nobody has created it: %+v", s.Mirrors)
		}
		set(t, b, "bootstrap.servers", "one")
		m.untilInStep()
		if opens.Load() != 1 {
			t.Errorf("%d opened", opens.Load())
		}
		set(t, b, "mirror.topics.include", "nothing")
		set(t, b, "mirror.groups.exclude", "x")
		time.Sleep(5 * time.Minute)
		if opens.Load() != 1 {
			t.Errorf("%d opened: a filter reconnects", opens.Load())
		}
		set(t, b, "bootstrap.servers", "nowhere")
		m.until("the reason is shown", func(s mirror.Status) bool { return one(s, "t", 0).Reason != "" || m.Snapshot().SourceError != "" })
		set(t, b, "bootstrap.servers", "two")
		a.fill("t", 0, 4)
		m.until("copied over the new connection", func(mirror.Status) bool { return b.log("t", 0).End() == 7 })
	})
}

func TestF33TheAddressIsAlteredToAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := three(t)
		c.local("t", 1)
		c.fill("t", 0, 30)
		var opens atomic.Int64
		m := follow(t, "m", a, b, opener(&opens, map[string]*side{"one": a, "other": c}))
		set(t, b, "bootstrap.servers", "one")
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m"}) })
		m.untilInStep()
		kept := b.raw("t", 0)
		set(t, b, "bootstrap.servers", "other")
		p := m.untilFailed("t", 0, "source cluster id A != C")
		if p.RetryAttempt != statemachine.NonRetryable {
			t.Errorf("retried: %d", p.RetryAttempt)
		}
		// Nor after a restart, nor for a topic that was never copied.
		m.close()
		m = follow(t, "m", a, b, opener(&opens, map[string]*side{"one": a, "other": c}))
		defer m.close()
		c.local("u", 1)
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "u", MirrorName: "m"}) })
		time.Sleep(10 * time.Minute)
		if got := b.raw("t", 0); string(got) != string(kept) {
			t.Error("something was copied from C")
		}
		for _, topic := range m.Status().Topics {
			if topic.Topic == "u" {
				if topic.Err == nil {
					t.Error("u is taken from C")
				} else {
					expectWords(t, topic.Err.Error(), "source cluster id A != C")
				}
			}
		}
	})
}

// A mirror that is deleted and created again under its name owes nothing to the cluster that the old one read from, also in a process that has run all the time.
func TestSpec1_4AMirrorCreatedAgainReadsFromItsOwnSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := three(t)
		c.local("u", 1)
		c.fill("u", 0, 7)
		var opens atomic.Int64
		m := follow(t, "m", a, b, opener(&opens, map[string]*side{"one": a, "other": c}))
		defer m.close()
		set(t, b, "bootstrap.servers", "one")
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m"}) })
		m.untilInStep()
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m.stopped"}) })
		m.until("stopped", func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		})
		want(t, b, func(s *mirror.ControlState) {
			s.Remove("t")
			s.RemoveMirror(mirror.DeletedMirror{Name: "m", At: time.Now()})
		})
		m.until("buried", func(mirror.Status) bool { return len(eventsOf[mirror.MirrorDeleted](m)) > 0 })
		reported := func() int {
			r, err := b.Control().Reports(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(r.Nodes) + len(r.Partitions)
		}
		m.until("its reports are gone", func(mirror.Status) bool { return reported() == 0 })
		time.Sleep(24 * time.Hour)
		if n := reported(); n != 0 {
			t.Errorf("%d reports of a deleted mirror", n)
		}

		set(t, b, "bootstrap.servers", "other")
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "u", MirrorName: "m"}) })
		m.until("copied from its own source", func(mirror.Status) bool {
			l, err := b.OpenLog(t.Context(), mirror.TopicPartition{Topic: "u"})
			return err == nil && l.End() == 7
		})
		m.until("recorded", func(mirror.Status) bool {
			s := wanted(t, b)
			e, _ := s.Mirror("m")
			return e.SourceClusterID == "C"
		})
		m.until("reported again", func(mirror.Status) bool { return reported() > 0 })
	})
}

// closedControl is a Control whose storage was closed: it answers with an error at once, and says all the time that something has changed.
type closedControl struct {
	mirror.Control
	reads *atomic.Int64
}

func (c closedControl) Read(context.Context) (mirror.ControlState, error) {
	c.reads.Add(1)
	return mirror.ControlState{}, errors.New("closed")
}

func (c closedControl) Changed() <-chan struct{} {
	changed := make(chan struct{})
	close(changed)
	return changed
}

func TestAControlThatFailsAtOnceIsNotAskedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		var reads atomic.Int64
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = closedControl{b.Control(), &reads} })
		time.Sleep(time.Minute)
		m.close()
		if n := reads.Load(); n == 0 || n > 70 {
			t.Errorf("%d reads in a minute", n)
		}
	})
}

func TestSpec7StoredSettingsCountWhileTheMirrorRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		var mu sync.Mutex
		var options []mirror.FetchOptions
		last := func() mirror.FetchOptions {
			mu.Lock()
			defer mu.Unlock()
			return options[len(options)-1]
		}
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) {
			c.Control, c.Fetch.MinBytes = b.Control(), 7
			c.Source = noting{c.Source, c.Source.(mirror.LastMirrorEpochReader), func(o mirror.FetchOptions) {
				mu.Lock()
				defer mu.Unlock()
				options = append(options, o)
			}}
		})
		defer m.close()
		m.start("t")
		m.untilInStep()
		if o := last(); o.MinBytes != 7 || o.PartitionMaxBytes != 0 {
			t.Errorf("as Config says: %+v", o)
		}
		set(t, b, "fetch.max.bytes", "12345") // the name of a later draft
		m.until("fetched with the new bound", func(mirror.Status) bool { return last().PartitionMaxBytes == 12345 && last().MinBytes == 7 })
		a.fill("t", 0, 2)
		m.untilInStep()

		// What is to happen at a loss is altered while the source is away.
		a.SetUnreachable(true)
		a.fill("t", 0, 10)
		a.trim("t", 0, 12)
		set(t, b, "mirror.loss.policy", "fail")
		time.Sleep(time.Minute)
		a.SetUnreachable(false)
		m.untilFailed("t", 0, "[5, 12) were deleted")
		set(t, b, "mirror.loss.policy", "restart")
		want(t, b, func(s *mirror.ControlState) {
			w, _ := s.Topic("t")
			w.Recover++
			s.Set(w)
		})
		m.untilInStep()
		if l := b.log("t", 0); l.Start() != 12 || l.End() != 15 {
			t.Errorf("the copy is [%d, %d)", l.Start(), l.End())
		}

		// A value that cannot be read changes nothing, and is told of.
		set(t, b, "mirror.loss.policy", "hope")
		m.until("told", func(mirror.Status) bool {
			for _, e := range eventsOf[mirror.TopicTrouble](m) {
				if e.Err != nil && strings.Contains(e.Err.Error(), "mirror.loss.policy") {
					return true
				}
			}
			return false
		})
	})
}

// noting notes how fetchers are opened.
type noting struct {
	mirror.Source
	mirror.LastMirrorEpochReader
	note func(mirror.FetchOptions)
}

func (n noting) OpenFetcher(ctx context.Context, broker int32, o mirror.FetchOptions) (mirror.Fetcher, error) {
	n.note(o)
	return n.Source.OpenFetcher(ctx, broker, o)
}

// TestAcceptance2_13DiscoverySaysTheCautions: a topic that is found and deserves a second look is mirrored, and the event says why and what to do.
func TestAcceptance2_13DiscoverySaysTheCautions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("_schemas", 1)
		a.local("orders", 1)
		m := follow(t, "m", a, b)
		defer m.close()
		set(t, b, "mirror.topics.include", ".*")
		m.untilWishes(b, "_schemas=m", "orders=m")
		m.untilInStep()
		found := map[string]string{}
		for _, e := range eventsOf[mirror.WishRecorded](m) {
			found[e.Topic] = e.Reason
		}
		const reason = "the source has it, and it matches mirror.topics.include"
		caution, _ := mirror.CautionOf("_schemas")
		if found["orders"] != reason || found["_schemas"] != reason+"; caution: "+caution.String() {
			t.Errorf("%q", found)
		}
	})
}
