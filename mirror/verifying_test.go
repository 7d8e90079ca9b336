package mirror_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// verified opens a mirror of topic t whose copies are compared with their source every ten minutes.
func verified(t *testing.T, partitions int32, change ...func(*mirror.Config)) *pair {
	t.Helper()
	return newPair(t, partitions, append([]func(*mirror.Config){func(c *mirror.Config) {
		c.Verifier, c.VerifyRate, c.VerifyInterval = verify.Verifier{}, 10<<20, 10*time.Minute
	}}, change...)...)
}

// passes are the passes over all copies that were told of.
func passes(r *running) (all []mirror.VerificationPassEnded) {
	for _, e := range r.told() {
		if e, ok := e.(mirror.VerificationPassEnded); ok {
			all = append(all, e)
		}
	}
	return all
}

// differences are what was told of copies that are not as their source.
func differences(r *running) (all []mirror.CopyDiffers) {
	for _, e := range r.told() {
		if e, ok := e.(mirror.CopyDiffers); ok {
			all = append(all, e)
		}
	}
	return all
}

func (p *pair) passed(n int) {
	p.t.Helper()
	for range 1000 {
		synctest.Wait()
		if len(passes(p.running)) >= n {
			return
		}
		time.Sleep(time.Second) // virtual
	}
	p.t.Fatalf("%d passes, not %d%s", len(passes(p.running)), n, show(p.Status()))
}

// While topics are mirrored their copies are compared with the source again and again: each pass is told of, and the status says of each copy when, up to where, and with what result.
func TestCopiesAreComparedWhileTheyAreMirrored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 2)
		m.a.fill("t", 0, 20)
		m.a.fill("t", 1, 10)
		m.start("t")
		m.inStepAndSame()
		m.passed(1)
		first := m.Status()
		expect(t, "pass", passes(m.running)[0].Identical, 2)
		expect(t, "copies", []int{first.Verification.Identical, first.Verification.NotCompared, first.Verification.Different}, []int{2, 0, 0})
		p := first.Topics[0].Partitions[0].Verification
		expect(t, "partition", []any{p.Last.Verdict, p.Last.From, p.Last.To, p.Last.FirstWrong, p.Trouble}, []any{mirror.VerifiedIdentical, int64(0), int64(20), int64(mirror.Unknown), ""})
		if age := first.Taken.Sub(first.Verification.Oldest); age < 0 || age > time.Minute || first.Verification.LastPass.IsZero() || first.Verification.Bytes == 0 {
			t.Errorf("%+v", first.Verification)
		}
		m.a.fill("t", 0, 5)
		m.passed(2)
		if between := passes(m.running)[1].Time.Sub(passes(m.running)[0].Time); between < 9*time.Minute || between > 11*time.Minute {
			t.Errorf("the second pass ended %s after the first", between)
		}
		expect(t, "up to", m.Status().Topics[0].Partitions[0].Verification.Last.To, int64(25))
		expect(t, "differences", len(differences(m.running)), 0)
	})
}

func TestNothingIsComparedWithoutARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, func(c *mirror.Config) { c.Verifier = verify.Verifier{} })
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		time.Sleep(30 * time.Minute)
		s := m.Status()
		if s.Verification != nil || s.Topics[0].Partitions[0].Verification != nil || len(passes(m.running)) > 0 {
			t.Errorf("%+v", s.Verification)
		}
	})
	c := config("m", memlog.New(memlog.Config{}), newSide(t, memlog.Config{}))
	c.VerifyRate = 1
	if _, err := mirror.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "VerifyRate needs a Verifier") {
		t.Error(err)
	}
	c.VerifyRate = -1
	if _, err := mirror.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "VerifyRate is negative") {
		t.Error(err)
	}
}

// A damaged copy is an event, once, with where and what, in the status as long as it lasts, and nothing else: nothing is stopped, copied or cut because of it. When it is mended that is told too.
func TestADifferenceIsToldAndNothingIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var damaged atomic.Bool
		damaged.Store(true)
		m := verified(t, 1, func(c *mirror.Config) { c.Verifier = sometimes{verify.Verifier{}, &damaged} })
		m.a.fill("t", 0, 20)
		m.start("t")
		m.inStepAndSame()
		m.passed(2)
		told := differences(m.running)
		expect(t, "events", len(told), 1)
		expect(t, "verdict", told[0].Verified.Verdict, mirror.VerifiedDifferent)
		expect(t, "first", told[0].Verified.FirstWrong, int64(7))
		expectWords(t, told[0].String(), "from offset 7 on", "batch at offset 7 differs in byte", "Nothing was changed", "kafka-mirror --verify --topics t")
		s := m.Status()
		expect(t, "status", []int{s.Verification.Different, s.Verification.Identical, len(s.Verification.Wrong)}, []int{1, 0, 1})
		expect(t, "where", s.Verification.Wrong[0].Offset, int64(7))
		expect(t, "state", s.Topics[0].Partitions[0].State, statemachine.Mirroring)
		m.a.fill("t", 0, 5)
		m.inStepAndSame()
		damaged.Store(false)
		m.passed(3)
		told = differences(m.running)
		expect(t, "events", len(told), 2)
		expectWords(t, told[1].String(), "there is no difference any more")
		expect(t, "mended", m.Status().Verification.Identical, 1)
	})
}

// sometimes damages copies while it is to.
type sometimes struct {
	verify.Verifier
	damaged *atomic.Bool
}

func (s sometimes) VerifyContinuously(ctx context.Context, source mirror.Source, o mirror.ContinuousVerification) {
	copies := o.Copies
	o.Copies = func(ctx context.Context) ([]mirror.CopyToVerify, error) {
		list, err := copies(ctx)
		for i := range list {
			if s.damaged.Load() {
				list[i].Log = damagedLog{list[i].Log}
			}
		}
		return list, err
	}
	s.Verifier.VerifyContinuously(ctx, source, o)
}

// A source that does not answer is no difference: nothing is compared, the status says why, and it goes on when the source is back.
func TestASourceThatDoesNotAnswerIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 2)
		m.a.fill("t", 0, 20)
		m.start("t")
		m.inStepAndSame()
		m.passed(1)
		m.a.SetUnreachable(true)
		time.Sleep(30 * time.Minute)
		s := m.Status()
		expectWords(t, s.Verification.Waits, "cannot be compared: the source does not answer")
		expect(t, "copies", []int{s.Verification.Identical, s.Verification.Different, s.Verification.Hole}, []int{2, 0, 0})
		if age := s.Taken.Sub(s.Verification.Oldest); age < 30*time.Minute {
			t.Errorf("the oldest comparison is %s old", age)
		}
		m.a.SetUnreachable(false)
		m.passed(2)
		expect(t, "waits", m.Status().Verification.Waits, "")
		expect(t, "differences", len(differences(m.running)), 0)
	})
}

// Leaders at the source come and go while copies are compared.
func TestAComparisonGoesOnOverNewLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 1, func(c *mirror.Config) { c.VerifyRate, c.VerifyInterval = 2000, time.Minute })
		m.a.fill("t", 0, 200)
		m.start("t")
		m.inStepAndSame()
		for range 20 {
			if _, err := m.a.ElectLeader("t", 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
		}
		m.passed(2)
		for _, e := range passes(m.running) {
			expect(t, "identical", e.Identical, 1)
		}
		expect(t, "differences", len(differences(m.running)), 0)
	})
}

// A source that has elected uncleanly holds other records than the copy until the mirror has followed it: that is no difference of the copy.
func TestAnUncleanElectionAtTheSourceIsNoDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 1, func(c *mirror.Config) { c.VerifyInterval = time.Second })
		m.a.load("t", 0, 0, 5, records(5, 0, 100))
		m.start("t")
		m.inStepAndSame()
		m.passed(3)
		if _, err := m.a.ElectUnclean("t", 0, 60); err != nil {
			t.Fatal(err)
		}
		m.a.fill("t", 0, 40)
		m.passed(20)
		m.inStepAndSame()
		m.passed(30)
		expect(t, "differences", len(differences(m.running)), 0)
	})
}

// Close and a stop do not wait for a comparison, and a stopped copy, to which clients write, is compared no more.
func TestNothingWaitsForAComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 1, func(c *mirror.Config) { c.VerifyRate = 10 })
		m.a.fill("t", 0, 200)
		m.start("t")
		m.inStepAndSame()
		time.Sleep(10 * time.Second)
		began := time.Now()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		m.b.fill("t", 0, 10)
		m.a.fill("t", 0, 20)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stop took %s", took)
		}
		time.Sleep(30 * time.Minute)
		expect(t, "differences", len(differences(m.running)), 0)
		expect(t, "passes", len(passes(m.running)), 0)
		began = time.Now()
		m.running.close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

// Copying comes first: while the source holds the mirror back, or a copy is behind, nothing is compared.
func TestCopyingComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads int
		m := verified(t, 1, func(c *mirror.Config) { c.FetchRate, c.VerifyInterval = 1000, time.Minute })
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Log.Read" {
				reads++
			}
			return nil
		}})
		m.a.fill("t", 0, 10)
		m.start("t")
		m.inStepAndSame()
		m.passed(1)
		m.a.fill("t", 0, 5000) // more than five minutes of copying
		m.until("behind", func(s mirror.Status) bool { return strings.Contains(s.Verification.Waits, "copying comes first") })
		before := reads
		time.Sleep(2 * time.Minute)
		if reads != before {
			t.Errorf("%d reads of the copy meanwhile", reads-before)
		}
		m.untilInStep()
		n := len(passes(m.running))
		m.passed(n + 1)
	})
}

// What an earlier process found is known to the next one until it has compared the copy itself.
func TestADifferenceIsRememberedByTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var damaged atomic.Bool
		damaged.Store(true)
		control := mirror.NewMemoryControl()
		m := verified(t, 1, func(c *mirror.Config) { c.Control, c.Verifier = control, sometimes{verify.Verifier{}, &damaged} })
		m.a.fill("t", 0, 20)
		m.start("t")
		m.inStepAndSame()
		m.passed(1)
		time.Sleep(time.Minute)
		last := m.Status().Verification.LastPass
		m.running.close()
		m.running = open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) {
			c.Control, c.Verifier, c.VerifyRate, c.VerifyInterval = control, hangingVerifier{}, 1, time.Hour
		})
		t.Cleanup(m.running.close)
		m.until("remembered", func(s mirror.Status) bool { return s.Verification != nil && s.Verification.Different == 1 })
		s := m.Status()
		expect(t, "where", s.Verification.Wrong[0].Offset, int64(7))
		expect(t, "last pass", s.Verification.LastPass.Unix(), last.Unix())
		expect(t, "told again", len(differences(m.running)), 0)
	})
}

// hangingVerifier lists copies and compares nothing.
type hangingVerifier struct{ verify.Verifier }

func (hangingVerifier) VerifyContinuously(ctx context.Context, _ mirror.Source, o mirror.ContinuousVerification) {
	for ctx.Err() == nil {
		_, _ = o.Copies(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Settings that cannot be read leave it open what a cleaner may have taken: the copy cannot be compared, and its status says why.
func TestACopyWhoseCleanupPolicyIsNotKnownIsNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := verified(t, 1)
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Metadata.TopicConfigs" {
				return errors.New("no")
			}
			return nil
		}})
		m.a.fill("t", 0, 20)
		m.start("t")
		m.until("told", func(s mirror.Status) bool {
			if len(s.Topics) == 0 || len(s.Topics[0].Partitions) == 0 {
				return false
			}
			v := s.Topics[0].Partitions[0].Verification
			return v != nil && strings.Contains(v.Trouble, "cleanup.policy is not known")
		})
		expect(t, "not compared", m.Status().Verification.NotCompared, 1)
	})
}
