package kafkastore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// two are two processes on the same topics.
type two struct {
	testing.TB
	cfg  Config
	a, b *Store
	line *lifeline // of a
	far  *lifeline // of b
}

func newTwo(t testing.TB) *two {
	t.Helper()
	x := &two{TB: t, cfg: sharedConfig(t, newPrefix())}
	x.a, x.line = process(t, x.cfg)
	x.b, x.far = process(t, x.cfg)
	return x
}

// started runs f beside the test. The returned function waits for it.
func started(t testing.TB, f func(context.Context) error) (wait func() error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(cancel)
	return func() error { return <-done }
}

// await waits for a trap.
func await(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("the request does not come")
	}
}

func count(k []byte, release bool) func(keyedlog.View) ([]keyedlog.Change, error) {
	return func(v keyedlog.View) ([]keyedlog.Change, error) {
		r, _ := v.Get(k)
		n, _ := strconv.Atoi(string(r.Value))
		return []keyedlog.Change{{Key: k, Value: []byte(strconv.Itoa(n + 1)), Release: release}}, nil
	}
}

func mustFenced(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("error %v, want %v", err, keyedlog.ErrFenced)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The steps of the package's text: an Open of the same writer comes before each request of a claim.
func TestRealOpenDuringAClaim(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name string
		kind kmsg.Key
		nth  int
	}{
		{"before c1", kmsg.InitProducerID, 1}, {"before c2", kmsg.ListOffsets, 1}, {"before c3", kmsg.InitProducerID, 2},
		{"before c4", kmsg.AddPartitionsToTxn, 1}, {"before the records of c4", kmsg.Produce, 1}, {"before the end of c4", kmsg.EndTxn, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			x := newTwo(t)
			k := key(66, "k")
			n := opened(t, x.a, "w")
			at, release := x.line.hold(step.kind, step.nth, false)
			defer release()
			wait := started(t, func(ctx context.Context) error { return try(ctx, n, change(k, "old")) })
			await(t, at)
			m := opened(t, x.b, "w")
			expect(t, m, k, "-")
			release()
			mustFenced(t, wait())
			expect(t, x.b, k, "-")
			write(t, m, change(k, "new"))
			write(t, m, change(k, "newer"))
			expect(t, x.a, k, "newer by w/2")
			mustFenced(t, n.Check(t.Context()))
		})
	}
}

// An old session writes while its writer is being opened elsewhere: between o2 and o4, and once o4 is committed but not answered.
func TestRealWritesDuringAnOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"own", "claim"} {
		begin := func(t *testing.T) (x *two, n keyedlog.Session, k []byte) {
			x = newTwo(t)
			n = opened(t, x.a, "w")
			k = key(66, "k")
			if kind == "own" {
				write(t, n, change(k, "0"))
			}
			return x, n, k
		}
		t.Run(kind+" before o4", func(t *testing.T) {
			x, n, k := begin(t)
			at, release := x.far.hold(kmsg.AddPartitionsToTxn, 1, false)
			defer release()
			var m keyedlog.Session
			wait := started(t, func(ctx context.Context) (err error) { m, err = x.b.Open(ctx, "w"); return err })
			await(t, at)
			write(t, n, change(k, "1")) // its id was initialised, but the newest session is still this one
			release()
			must(t, wait())
			mustFenced(t, try(t.Context(), n, change(k, "2")))
			expect(t, m, k, "1 by w/1")
			write(t, m, change(k, "3"))
		})
		t.Run(kind+", o4 comes between its two looks", func(t *testing.T) {
			x, n, k := begin(t)
			before := shown(t, x.a, k)
			atB, releaseB := x.far.hold(kmsg.AddPartitionsToTxn, 1, false)
			defer releaseB()
			var m keyedlog.Session
			opens := started(t, func(ctx context.Context) (err error) { m, err = x.b.Open(ctx, "w"); return err })
			await(t, atB)
			owners := 1 // which of the initialisations is the owner's: a claim begins with the control id
			if kind == "claim" {
				owners = 2
			}
			atA, releaseA := x.line.hold(kmsg.InitProducerID, owners, false)
			defer releaseA()
			writes := started(t, func(ctx context.Context) error { return try(ctx, n, change(k, "1")) })
			await(t, atA)
			releaseB()
			must(t, opens())
			releaseA()
			mustFenced(t, writes())
			expect(t, m, k, before)
			write(t, m, change(k, "2")) // its id was initialised by the other one, which does not matter
			expect(t, x.a, k, "2 by w/2")
		})
		t.Run(kind+" after o4", func(t *testing.T) {
			x, n, k := begin(t)
			before := shown(t, x.a, k)
			at, release := x.far.hold(kmsg.EndTxn, 1, true)
			defer release()
			var m keyedlog.Session
			wait := started(t, func(ctx context.Context) (err error) { m, err = x.b.Open(ctx, "w"); return err })
			await(t, at)
			x.line.requests()
			mustFenced(t, try(t.Context(), n, change(k, "1")))
			if sent := x.line.requests(); kind == "own" && slices.Contains(sent, kmsg.InitProducerID) {
				t.Errorf("a session that was taken over disturbs the one that took over: %v", sent)
			}
			release()
			must(t, wait())
			expect(t, m, k, before)
			write(t, m, change(k, "3"))
		})
	}
}

// Whoever decided while somebody else wrote decides anew.
func TestRealUpdatesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []kmsg.Key{kmsg.ListOffsets, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn} {
		t.Run(kind.Name(), func(t *testing.T) {
			x := newTwo(t)
			k := key(66, "k")
			update(t, x.b, change(k, "10"))
			at, release := x.line.hold(kind, 1, false)
			defer release()
			wait := started(t, func(ctx context.Context) error { return x.a.Update(ctx, count(k, false)) })
			await(t, at)
			must(t, x.b.Update(t.Context(), count(k, false)))
			release()
			must(t, wait())
			expect(t, x.b, k, "12")
		})
	}
}

// Each request of an update, and each answer, is lost once: the update is there exactly once.
func TestRealLostRequests(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, kind := range []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn, kmsg.ListOffsets, kmsg.Fetch} {
			name := kind.Name()
			if after {
				name += ", answer"
			}
			t.Run(name, func(t *testing.T) {
				x := newTwo(t)
				k, own := key(66, "k"), key(66, "own")
				n := opened(t, x.a, "w")
				write(t, n, change(own, "0"))
				for i, change := range []func() error{
					func() error { return x.a.Update(t.Context(), count(k, true)) },
					func() error { return n.Update(t.Context(), [][]byte{own}, count(own, false)) },
					func() error { return n.Update(t.Context(), [][]byte{own, k}, count(k, true)) },
				} {
					if i == 1 && (kind == kmsg.InitProducerID || kind == kmsg.ListOffsets || kind == kmsg.Fetch) {
						continue // an update of a session's own records has no such request
					}
					x.line.on(kind, 1, after, lose)
					must(t, change())
				}
				if kind == kmsg.EndTxn || kind == kmsg.AddPartitionsToTxn {
					x.line.on(kind, 1, after, lose)
					write(t, n, change(key(66, "free"), "1")) // a claim
					write(t, n, change(own, "1"))
					x.line.on(kind, 1, after, lose)
					write(t, n, change(own, "1"))
					x.line.requests()
					write(t, n, change(own, "1"))
					if sent := x.line.requests(); !slices.Contains(sent, kmsg.InitProducerID) {
						t.Errorf("what was lost may come late and end the next transaction: %v", sent)
					}
				}
				expect(t, x.b, k, "2")
				if kind == kmsg.AddPartitionsToTxn || kind == kmsg.Produce || kind == kmsg.EndTxn {
					expect(t, x.b, own, "1 by w/1")
				}
			})
		}
	}
}

// EndTxn is lost, and before it is asked for again somebody else initialises the id.
func TestRealOutcomeOfALostEnd(t *testing.T) {
	t.Parallel()
	k, other := key(66, "k"), key(66, "other")
	lost := func(t *testing.T, after bool, meanwhile func(x *two)) (x *two, err error) {
		x = newTwo(t)
		update(t, x.b, change(k, "1"), change(other, "1"))
		x.line.on(kmsg.EndTxn, 1, after, lose)
		at, release := x.line.hold(kmsg.EndTxn, 2, false)
		defer release()
		wait := started(t, func(ctx context.Context) error { return x.a.Update(ctx, count(k, false)) })
		await(t, at)
		meanwhile(x)
		release()
		return x, wait()
	}
	t.Run("it was committed", func(t *testing.T) {
		x, err := lost(t, true, func(x *two) { update(t, x.b, change(other, "2")) })
		must(t, err)
		expect(t, x.b, k, "2")
	})
	t.Run("it was not committed", func(t *testing.T) {
		x, err := lost(t, false, func(x *two) { update(t, x.b, change(other, "2")) })
		must(t, err)
		expect(t, x.b, k, "2")
	})
	t.Run("it was committed and written over", func(t *testing.T) {
		x, err := lost(t, true, func(x *two) { must(t, x.b.Update(t.Context(), count(k, false))) })
		must(t, err) // its records are still there
		expect(t, x.b, k, "3")
	})
	t.Run("it was not committed and the key was written", func(t *testing.T) {
		x, err := lost(t, false, func(x *two) { must(t, x.b.Update(t.Context(), count(k, false))) })
		if !errors.Is(err, keyedlog.ErrOutcomeUnknown) {
			t.Errorf("error %v, want %v", err, keyedlog.ErrOutcomeUnknown)
		}
		expect(t, x.b, k, "2")
	})
	t.Run("the context ends before it is known", func(t *testing.T) {
		x := newTwo(t)
		update(t, x.b, change(k, "1"))
		ctx, cancel := context.WithCancel(t.Context())
		x.line.on(kmsg.EndTxn, 1, true, lose)
		x.line.on(kmsg.EndTxn, 2, false, func() error { cancel(); return errLost })
		if err := x.a.Update(ctx, count(k, false)); !errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		expect(t, x.b, k, "2")
		must(t, x.a.Update(t.Context(), count(k, false)))
		expect(t, x.b, k, "3")
	})
}

// A claim is committed without the session knowing. What it decides next about a key of its own that was in it, it decides on what is there.
func TestRealOwnKeyAfterAClaimOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	x := newTwo(t)
	own, free := key(66, "own"), key(72, "free")
	n := opened(t, x.a, "w")
	write(t, n, change(own, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	x.line.on(kmsg.EndTxn, 1, true, func() error { cancel(); return errLost })
	err := n.Update(ctx, [][]byte{own, free}, func(v keyedlog.View) ([]keyedlog.Change, error) {
		changes, err := count(own, false)(v)
		return append(changes, change(free, "1")), err
	})
	if !errors.Is(err, keyedlog.ErrOutcomeUnknown) {
		t.Errorf("error %v, want %v", err, keyedlog.ErrOutcomeUnknown)
	}
	must(t, n.Update(t.Context(), [][]byte{own}, count(own, false)))
	expect(t, x.b, free, "1 by w/1")
	expect(t, x.b, own, "3 by w/1")
}

// The cluster moves the epoch of a transaction that took too long. That is no takeover.
func TestRealFencedWithoutATakeover(t *testing.T) {
	t.Parallel()
	x := newTwo(t)
	k := key(66, "k")
	n := opened(t, x.a, "w")
	write(t, n, change(k, "1"))
	for _, kind := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn} {
		at, release := x.line.hold(kind, 1, false)
		wait := started(t, func(ctx context.Context) error { return n.Update(ctx, [][]byte{k}, count(k, false)) })
		await(t, at)
		must(t, x.b.newProducer(x.b.ownerID("w")).init(t.Context()))
		release()
		must(t, wait())
	}
	expect(t, x.b, k, "4 by w/1")
	must(t, n.Check(t.Context()))
}

// Whoever may not write one of the two records of a partition may not write the other; whoever has one writes the other without a claim.
func TestRealTwins(t *testing.T) {
	t.Parallel()
	x := newTwo(t)
	n, m := opened(t, x.a, "w"), opened(t, x.b, "other")
	state, lme := stateKey("m", 3), lmeKey("m", 3)
	write(t, n, change(state, "1"))
	for _, who := range []func(context.Context) error{
		func(ctx context.Context) error { return try(ctx, m, change(lme, "x")) },
		func(ctx context.Context) error { return x.b.Update(ctx, put(change(lme, "x"))) },
	} {
		if err := who(t.Context()); !errors.Is(err, keyedlog.ErrOwned) {
			t.Errorf("error %v, want %v", err, keyedlog.ErrOwned)
		}
	}
	x.line.requests()
	write(t, n, change(state, "2"), change(lme, "2"))
	for _, kind := range x.line.requests() {
		if kind == kmsg.InitProducerID {
			t.Error("the twin of an own record was claimed")
		}
	}
	expect(t, x.b, lme, "2 by w/1")
	write(t, n, keyedlog.Change{Key: state, Value: []byte("3"), Release: true}, keyedlog.Change{Key: lme, Value: []byte("3"), Release: true})
	write(t, m, change(lme, "4"))
	expect(t, x.a, lme, "4 by other/1")
	if err := try(t.Context(), n, change(state, "5")); !errors.Is(err, keyedlog.ErrOwned) {
		t.Errorf("error %v, want %v", err, keyedlog.ErrOwned)
	}
}

// One update follows the other, in another topic. A reader that sees the second sees the first, although it has asked for the end of the first one's topic before both.
func TestRealReadIsOfOneMoment(t *testing.T) {
	t.Parallel()
	x := newTwo(t)
	first := x.cfg.namespace + pauseTopic
	for topic, leader := range map[string]int32{first: 2, x.cfg.namespace + controlTopic: 3} { // two brokers, so two requests
		kafkatest.Shared(t).CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{leader}}, Configs: map[string]string{"cleanup.policy": "compact"}})
	}
	opened(t, x.b, "w") // makes the other topics
	before, after := key(72, "before"), key(66, "after")
	expect(t, x.a, before, "-")
	asked, held, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	x.line.onTopic(kmsg.ListOffsets, first, true, func() error { close(asked); return nil })
	x.line.onTopic(kmsg.ListOffsets, x.cfg.namespace+controlTopic, false, func() error { close(held); <-goOn; return nil })
	var seen [2]string
	wait := started(t, func(ctx context.Context) error {
		return x.a.Read(ctx, func(v keyedlog.View) error {
			for i, k := range [][]byte{before, after} {
				r, ok := v.Get(k)
				seen[i] = describe(r, ok)
			}
			return nil
		})
	})
	await(t, asked)
	await(t, held)
	update(t, x.b, change(before, "1"))
	update(t, x.b, change(after, "2"))
	close(goOn)
	must(t, wait())
	if seen != [2]string{"1", "2"} {
		t.Errorf("before and after are %v", seen)
	}
}
