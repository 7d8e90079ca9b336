package kraft

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

var orders = mirror.TopicPartition{Topic: "orders"}

func oneBatch(offset int64) []byte {
	return batch.AppendData(nil, batch.DataSpec{BaseOffset: offset, LeaderEpoch: 0, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: []batch.Record{{Value: []byte("x")}}})
}

func inShape(p clustermetadata.Partition) bool {
	return p.Leader == us && slices.Equal(p.ISR, []int32{us}) && len(p.ELR)+len(p.Adding)+len(p.Removing) == 0 && len(p.Replicas) == 4
}

// TestCreationCutShortIsFinished: the caller's context ends after each request of a creation. Whoever comes next, by OpenLog, by Owner, or nobody but what tidies up, finds the partition in its
// shape, and until then nothing is appended.
func TestCreationCutShortIsFinished(t *testing.T) {
	finish := map[string]func(context.Context, *Destination) error{
		"OpenLog": func(ctx context.Context, d *Destination) error { _, err := d.OpenLog(ctx, orders); return err },
		"Owner":   func(ctx context.Context, d *Destination) error { _, _, err := d.known(orders).Owner(ctx); return err },
		"nobody":  func(ctx context.Context, d *Destination) error { d.tidyOnce(ctx); return nil },
	}
	for after, key := range map[string]kmsg.Key{"the creation": kmsg.CreateTopics, "the addition": kmsg.AlterPartitionAssignments, "everybody was in sync": kmsg.AlterPartition} {
		for who, f := range finish {
			t.Run(after+", then "+who, func(t *testing.T) {
				c, d := startFake(t)
				ctx, cut := context.WithCancel(t.Context())
				after := func(_ context.Context, req kmsg.Request) error {
					if req.Key() == key.Int16() && ctx.Err() == nil {
						cut()
						return errLost
					}
					return nil
				}
				c.hook(func() { c.after = after })
				if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 1}); err == nil {
					t.Fatal("the creation was not cut short")
				}
				c.hook(func() { c.after = nil })
				if err := d.meta.caughtUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				if inShape(c.of("orders")) {
					t.Fatal("it is in its shape already")
				}
				if l := d.known(orders); l != nil {
					if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err == nil {
						t.Error("appended before it is in its shape")
					}
				} else if who == "Owner" {
					d.log(orders)
				}
				if _, err := d.CreateTopic(t.Context(), mirror.TopicSpec{Name: "orders", Partitions: 1}); !errors.Is(err, mirror.ErrTopicExists) {
					t.Errorf("created again: %v", err)
				}
				if err := f(within(t, 5*time.Second), d); err != nil {
					t.Error(err)
				}
				// What was created is looked at by itself too, and then that finishes it.
				if err := d.meta.wait(within(t, 5*time.Second), "the shape", func(im *clustermetadata.Image) bool { p, _ := im.Partition("orders", 0); return inShape(p) }); err != nil {
					t.Error(err)
				}
				if p := c.of("orders"); !inShape(p) {
					t.Fatalf("not its shape: %+v", p)
				}
				if err := d.unsafeToFence(); err != nil {
					t.Error(err)
				}
				l, err := d.OpenLog(within(t, 5*time.Second), orders)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestAnotherTakeOverKeepsItsSettings: a peer that tidies up, and sees no mirror process among the replicas yet, does not put the settings back that a take-over under way stands on.
func TestAnotherTakeOverKeepsItsSettings(t *testing.T) {
	log := keyedlog.NewMemory()
	c, taker := startFake(t, func(cfg *Config) { cfg.Remember = log })
	peer := c.process(func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Again() })
	c.topic("orders", []int32{1, 2, 3})
	c.set("orders", minInSync, "2")
	if err := taker.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached, goOn := make(chan struct{}), make(chan struct{})
	before := func(_ context.Context, req kmsg.Request) error {
		if r, ok := req.(*kmsg.AlterPartitionAssignmentsRequest); ok && slices.Contains(r.Topics[0].Partitions[0].Replicas, us) && c.count(kmsg.AlterPartitionAssignments) == 0 {
			close(reached)
			<-goOn
		}
		return nil
	}
	c.hook(func() { c.before = before })
	l := taker.log(orders)
	done := make(chan error)
	go func() { done <- l.CloseForWrites(within(t, 10*time.Second)) }()
	<-reached
	peer.tidyOnce(within(t, 5*time.Second))
	if reason := taker.unsafeTopic("orders"); reason != "" {
		t.Error(reason)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if p := c.of("orders"); !inShape(p) {
		t.Errorf("not its shape: %+v", p)
	}
	m, err := taker.remembered.of(t.Context(), "orders", l.id)
	if err != nil || len(m.Takers) > 0 || m.Configs[minInSync] == nil || *m.Configs[minInSync] != "2" {
		t.Errorf("%+v is remembered, %v", m, err)
	}
}

// TestTakeOverEndsSafe: settings that somebody changed, or brokers that may be elected, do not go unseen by a take-over, also where the partition is led already.
func TestTakeOverEndsSafe(t *testing.T) {
	c, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	l := d.known(orders)
	c.set("orders", minInSync, "2")
	if err := l.CloseForWrites(within(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if reason := d.unsafeTopic("orders"); reason != "" {
		t.Error(reason)
	}
	c.change("orders", func(p *clustermetadata.Partition) { p.ELR = []int32{1} })
	if err := l.CloseForWrites(within(t, 5*time.Second)); err == nil {
		t.Error("closed although broker 1 may be elected")
	}
	if _, _, err := l.Owner(within(t, 5*time.Second)); err == nil {
		t.Error("ours although broker 1 may be elected")
	}
}

// TestAdoptedSettingsAreTheTopicsOwn: of a topic of which nothing is remembered, what it says for itself and no mirror process has set is what is to be put back.
func TestAdoptedSettingsAreTheTopicsOwn(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{us, 1, 2, 3})
	c.set("orders", minInSync, "2")
	d := c.process()
	if _, err := d.OpenLog(within(t, 5*time.Second), orders); err != nil {
		t.Fatal(err)
	}
	m, err := d.remembered.of(t.Context(), "orders", c.of("orders").TopicID)
	if err != nil || m.Configs[minInSync] == nil || *m.Configs[minInSync] != "2" || m.Configs[uncleanElection] != nil {
		t.Errorf("%+v is remembered, %v", m, err)
	}
	if p := c.of("orders"); !inShape(p) || d.unsafeTopic("orders") != "" {
		t.Errorf("not its shape: %+v, %s", p, d.unsafeTopic("orders"))
	}
}

// TestInSyncChangeBacksOff: an answer that no repetition changes ends a change of the in-sync replicas, and another error is not repeated without a pause.
func TestInSyncChangeBacksOff(t *testing.T) {
	for _, reason := range []*kerr.Error{kerr.ClusterAuthorizationFailed, kerr.StaleBrokerEpoch, kerr.UnknownServerError} {
		c, d := startFake(t)
		instead := func(req kmsg.Request) kmsg.Response {
			if req.Key() != kmsg.AlterPartition.Int16() {
				return nil
			}
			resp := kmsg.NewPtrAlterPartitionResponse()
			resp.ErrorCode = reason.Code
			return resp
		}
		c.hook(func() { c.instead = instead })
		repeats, bound := reason == kerr.UnknownServerError, 20*time.Second
		if repeats {
			bound = time.Second // ends it
		}
		_, err := d.CreateTopic(within(t, bound), mirror.TopicSpec{Name: "orders", Partitions: 1})
		if err == nil || !repeats && !errors.Is(err, reason) {
			t.Errorf("%v: %v", reason, err)
		}
		if n := c.count(kmsg.AlterPartition); n > 15 || !repeats && n != 1 {
			t.Errorf("%v: asked %d times", reason, n)
		}
	}
}

// TestAFenceIsNotHeldUp: a take-over that its leader keeps out, a hand-over and a gift that wait for followers do not keep a fence waiting.
func TestAFenceIsNotHeldUp(t *testing.T) {
	for what, begin := range map[string]func(context.Context, *fake, *Destination, func()) error{
		"take-over": func(ctx context.Context, c *fake, d *Destination, ready func()) error {
			c.hook(func() { c.keepsOut = true })
			c.topic("orders", []int32{1, 2, 3})
			if err := d.meta.caughtUp(ctx); err != nil {
				return err
			}
			l := d.log(orders)
			ready()
			return l.CloseForWrites(ctx)
		},
		"hand-over": func(ctx context.Context, _ *fake, d *Destination, ready func()) error {
			if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
				return err
			}
			ready()
			return d.known(orders).Open(ctx)
		},
		"gift": func(ctx context.Context, _ *fake, d *Destination, ready func()) error {
			if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
				return err
			}
			ready()
			return d.Give(ctx, orders, other)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, d := startFake(t)
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			ended := make(chan error, 1)
			ready := make(chan struct{})
			go func() { ended <- begin(ctx, c, d, func() { close(ready) }) }()
			<-ready
			for len(d.known(orders).work) == 0 || what == "take-over" && c.count(kmsg.Fetch) < 3 { // until it is under way for good
				if pause(ctx, 5) != nil {
					t.Fatal("it was never under way: ", <-ended)
				}
			}
			began := time.Now()
			if err := d.barrier.exclude(ctx); err != nil {
				t.Fatalf("a fence waited for %v: %v", time.Since(began), err)
			}
			select {
			case err := <-ended:
				t.Errorf("the fence came after it had ended: %v", err)
			default:
			}
			d.barrier.include()
			stop()
			<-ended
		})
	}
}

// everybodyHas says what followers that have the whole log have asked for.
func everybodyHas(l *Log) {
	for id := int32(1); id <= 3; id++ {
		l.log.Fetch(replicaserver.FetchQuery{Broker: id, BrokerEpoch: 7, LeaderEpoch: -1, Offset: l.log.End(), LastFetchedEpoch: -1, MaxBytes: 1 << 20})
	}
}

// TestNothingIsAppendedToAGift: while a partition is being given to another mirror process nothing is appended here any more; when that has failed it goes on.
func TestNothingIsAppendedToAGift(t *testing.T) {
	c, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	l := d.known(orders)
	everybodyHas(l)
	during := make(chan error, 100)
	before := func(_ context.Context, req kmsg.Request) error {
		if req.Key() == kmsg.AlterPartitionAssignments.Int16() {
			during <- l.Append(within(t, 5*time.Second), 0, oneBatch(0))
		}
		return nil
	}
	instead := func(req kmsg.Request) kmsg.Response {
		if req.Key() != kmsg.AlterPartitionAssignments.Int16() {
			return nil
		}
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	}
	c.hook(func() { c.before, c.instead = before, instead })
	if err := d.Give(within(t, 5*time.Second), orders, other); err == nil {
		t.Error("it was given away")
	}
	if err := <-during; !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("appended while it was being given away: %v", err)
	}
	c.hook(func() { c.before, c.instead = nil, nil })
	if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err != nil {
		t.Error(err)
	}
}

// TestGrowingTouchesNoOtherLog: growing a topic keeps its settings from being put back, and who asks for the shape of a log that is begun already does not empty it.
func TestGrowingTouchesNoOtherLog(t *testing.T) {
	c, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	l := d.known(orders)
	if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err != nil {
		t.Fatal(err)
	}
	inUse := make(chan bool, 1)
	before := func(_ context.Context, req kmsg.Request) error {
		if req.Key() == kmsg.CreatePartitions.Int16() {
			inUse <- d.settingsInUse("orders")
		}
		return nil
	}
	c.hook(func() { c.before = before })
	if _, err := d.GrowTopic(within(t, 5*time.Second), "orders", 2); err != nil {
		t.Error(err)
	}
	if !<-inUse {
		t.Error("its settings may be put back while it grows")
	}
	if err := d.shape(within(t, 5*time.Second), "orders", 0, 2); err != nil {
		t.Error(err)
	}
	if end := l.End(); end != 1 {
		t.Errorf("its log ends at %d", end)
	}
	second := d.known(mirror.TopicPartition{Topic: "orders", Partition: 1})
	if p, err := d.partition(second.tp); err != nil || !inShape(p) {
		t.Errorf("the new partition is not in its shape: %+v, %v", p, err)
	}
}
