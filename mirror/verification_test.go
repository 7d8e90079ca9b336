package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// pairToFailBack is a pair after a failover at 900, whose old source is back with 50 records more; the mirror back has not begun.
func pairToFailBack(t *testing.T) *pair {
	t.Helper()
	m := newPair(t, 1)
	m.a.load("t", 0, 0, 5, records(5, 0, 900))
	m.start("t")
	m.inStepAndSame()
	m.a.SetUnreachable(true)
	if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
		t.Fatal(err)
	}
	m.b.fill("t", 0, 50)
	m.running.close()
	m.a.load("t", 0, 0, 5, records(5, 0, 950))
	m.a.SetUnreachable(false)
	return m
}

// failBack carries a failback out, of which only the error counts that the failback has.
func (p *pair) failBack(t *testing.T, ctx context.Context, change func(*mirror.Config)) mirror.FailbackReport {
	t.Helper()
	back := open(t, "back", p.b.Cluster, p.a, change)
	t.Cleanup(back.close)
	plan, err := back.PlanFailback(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	report, err := back.ExecuteFailback(ctx, plan)
	if err != nil {
		t.Fatalf("%v\n%s", err, report)
	}
	expect(t, "state", report.Partitions[0].State, statemachine.Mirroring)
	t.Log(report)
	return report
}

// The last step of a failback compares what was copied since the cut, then what was there before, and the report says how much, and how.
func TestFailbackEndsWithAVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		v := m.failBack(t, t.Context(), func(c *mirror.Config) { c.Verifier = verify.Verifier{} }).Verification
		expect(t, "verdict", v.Verdict(), mirror.VerifiedIdentical)
		expect(t, "ranges", len(v.Ranges), 2)
		since, before := v.Ranges[0], v.Ranges[1]
		expect(t, "since the cut", []int64{since.From, since.To, since.SourceEnd, since.CopyEnd, since.Bytewise.Batches}, []int64{900, 951, 951, 951, 51})
		expect(t, "before it", []int64{before.From, before.To, before.Bytewise.Batches}, []int64{0, 900, 900})
		expect(t, "not compared", []int64{since.Uncomparable, since.Unread, before.Uncomparable, before.Unread}, make([]int64, 4))
		expect(t, "bytes", since.Bytewise.Bytes+before.Bytewise.Bytes, int64(len(m.a.raw("t", 0))))
		expectWords(t, v.String(), "IDENTICAL", "byte by byte: 951 batches", "record by record: nothing", "cannot be compared: 0 offsets; not looked at: 0")
	})
}

func TestAFailbackWithoutAVerifierSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report := pairToFailBack(t).failBack(t, t.Context(), func(*mirror.Config) {})
		expect(t, "verdict", report.Verification.Verdict(), mirror.VerifiedNothing)
		expectWords(t, report.String(), "not done: this mirror has no Verifier")
	})
}

// What a verification finds is no error of the failback and undoes nothing of it.
func TestADifferenceUndoesNoFailback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		report := m.failBack(t, t.Context(), func(c *mirror.Config) { c.Verifier = damaging{m, verify.Verifier{}} })
		v := report.Verification
		expect(t, "verdicts", []mirror.VerifiedVerdict{v.Verdict(), v.Ranges[0].Verdict, v.Ranges[1].Verdict}, []mirror.VerifiedVerdict{mirror.VerifiedDifferent, mirror.VerifiedIdentical, mirror.VerifiedDifferent})
		expectWords(t, report.String(), "DIFFERENT", "in 1 of 2 ranges", "batch at offset 7 differs in byte", "nothing behind the difference was looked at")
	})
}

// damaging changes a byte of the copy before it compares.
type damaging struct {
	m    *pair
	with mirror.Verifier
}

func (d damaging) Verify(ctx context.Context, source mirror.Source, copies []mirror.CopyToVerify) []mirror.Verified {
	damaged := copies
	for i := range damaged {
		damaged[i].Log = damagedLog{damaged[i].Log}
	}
	return d.with.Verify(ctx, source, damaged)
}

type damagedLog struct{ mirror.Log }

func (l damagedLog) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	b, err := l.Log.Read(ctx, from, most)
	b, at := bytes.Clone(b), 0
	for info, whole := range mirror.Batches(b) {
		if info.Base == 7 {
			b[at+len(whole)-2] ^= 1
		}
		at += len(whole)
	}
	return b, err
}

// A verification that does not come to an end is given up at its bound: the failback was done before it began.
func TestAVerificationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		began := time.Now()
		report := m.failBack(t, t.Context(), func(c *mirror.Config) {
			c.Verifier, c.VerifyBound = verify.Verifier{Options: verify.Options{BytesPerSecond: 100}}, 7*time.Second
		})
		expect(t, "took", report.Verification.Took, 7*time.Second)
		if since := time.Since(began); report.Took > 5*time.Second || since > 15*time.Second {
			t.Errorf("the failback took %s, all of it %s", report.Took, since)
		}
		v := report.Verification
		expect(t, "verdict", v.Verdict(), mirror.VerifiedNothing)
		expectWords(t, report.String(), "the time for it was over")
	})
}

func TestACancelledFailbackVerifiesNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		ctx, stop := context.WithCancel(t.Context())
		v := m.failBack(t, ctx, func(c *mirror.Config) { c.Verifier = hanging(stop) }).Verification
		expect(t, "why", v.Ranges[0].Reason, context.Canceled.Error())
	})
}

// hanging ends the caller's patience, and then compares until its context ends.
type hanging context.CancelFunc

func (h hanging) Verify(ctx context.Context, _ mirror.Source, copies []mirror.CopyToVerify) []mirror.Verified {
	h()
	<-ctx.Done()
	return []mirror.Verified{mirror.NotCompared(copies[0].TopicPartition, ctx.Err().Error())}
}

// A topic is compared record by record where its policy says that it is compacted; where that cannot be read, a hole could be compaction, and nothing is said.
func TestAVerificationNeedsTheCleanupPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		m.a.configure("t", map[string]string{"cleanup.policy": "compact,delete"})
		var asked []bool
		look := func(copies []mirror.CopyToVerify) {
			for _, c := range copies {
				asked = append(asked, c.Compacted)
			}
		}
		m.failBack(t, t.Context(), func(c *mirror.Config) { c.Verifier = looking(look) })
		expect(t, "compacted", asked, []bool{true, true})
		m = pairToFailBack(t)
		v := m.failBack(t, t.Context(), func(c *mirror.Config) {
			c.Verifier, c.Source = verify.Verifier{}, m.b.Cluster
			m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if c.Operation == "Metadata.TopicConfigs" {
					return errors.New("no")
				}
				return nil
			}})
		}).Verification
		expect(t, "verdict", v.Verdict(), mirror.VerifiedNothing)
		expectWords(t, v.Ranges[0].Reason, "cleanup.policy is not known")
	})
}

// The policy that counts may be the brokers' own: a topic that says nothing is compacted where they are set so, on either side, and one that says something goes by that.
func TestAVerificationKnowsTheBrokersCleanupPolicy(t *testing.T) {
	source, destination := memlog.New(memlog.Config{}), memlog.New(memlog.Config{})
	for _, c := range []*memlog.Cluster{source, destination} {
		for _, topic := range []string{"bare", "own"} {
			if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: topic, Partitions: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SetTopicConfig("own", "cleanup.policy", "delete"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*memlog.Cluster{source, destination} {
		compacted, failed := mirror.CompactedTopics(t.Context(), []string{"bare", "own"}, source, destination)
		if len(failed) > 0 {
			t.Error(failed)
		}
		expect(t, "before", compacted["bare"] || compacted["own"], false)
		c.SetDefaultConfig("cleanup.policy", "compact,delete")
		compacted, _ = mirror.CompactedTopics(t.Context(), []string{"bare", "own"}, source, destination)
		expect(t, "without a setting of its own", compacted["bare"], true)
		expect(t, "with one", compacted["own"], false)
		c.SetDefaultConfig("cleanup.policy", "delete")
	}
}

type looking func([]mirror.CopyToVerify)

func (l looking) Verify(_ context.Context, _ mirror.Source, copies []mirror.CopyToVerify) []mirror.Verified {
	l(copies)
	return nil
}

// The verdict is that of the worst range. It says of how many it is true, unless it is true of all.
func TestAVerdictSaysOfHowManyRangesItIsTrue(t *testing.T) {
	identical, partly, nothing := mirror.Verified{Topic: "t", Verdict: mirror.VerifiedIdentical}, mirror.Verified{Topic: "t", Verdict: mirror.VerifiedPartly}, mirror.NotCompared(mirror.TopicPartition{Topic: "t"}, "it is not in step with its source")
	hole := mirror.Verified{Topic: "t", Verdict: mirror.VerifiedHole}
	for _, c := range []struct {
		ranges []mirror.Verified
		want   string
	}{
		{[]mirror.Verified{identical, nothing, identical}, "NOT COMPARED: 1 of 3 ranges; no difference in the others"},
		{[]mirror.Verified{identical, partly, nothing, nothing}, "NOT COMPARED: 2 of 4 ranges; no difference in the others"},
		{[]mirror.Verified{nothing, nothing}, "NOT COMPARED"},
		{nil, "NOT COMPARED"},
		{[]mirror.Verified{identical, partly}, "NO DIFFERENCE, but not everything was compared, in 1 of 2 ranges"},
		{[]mirror.Verified{partly}, "NO DIFFERENCE, but not everything was compared"},
		{[]mirror.Verified{hole, nothing, identical}, "INCOMPLETE: one side lacks what the other one has, in 1 of 3 ranges; 1 not compared"},
		{[]mirror.Verified{hole}, "INCOMPLETE: one side lacks what the other one has, in 1 of 1 range"},
	} {
		text := mirror.Verification{Mirror: "m", Began: time.Unix(0, 0), Ranges: c.ranges}.String()
		expect(t, "verdict", strings.Split(text, "\n")[1], c.want)
	}
}
