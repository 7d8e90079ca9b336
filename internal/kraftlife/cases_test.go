package kraftlife_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/fence"
)

// The tests of this file are cases of the field from end to end: Kafka as the source, Kafka as the destination, the plan printed before and the report after. What a plan says is held against two
// pictures of the cluster, one from before and one from after, that are taken without any code of plans: their difference is the plan's list, line by line, and nothing else.

// resetType is the type of a MIRROR_PID_RESET (spec §5), as it stands in a log.
const resetType = 7

// holds are the settings of a topic that a process has for itself while it leads the topic, and no longer (go doc mirror/kraft): the only changes that no plan lists.
var holds = [][2]string{{"min.insync.replicas", "1"}, {"unclean.leader.election.enable", "false"}}

// planFailover prints what a failover would do, and holds it: nothing has changed at the destination.
func planFailover(t *testing.T, r *lives.Running) mirror.FailoverPlan {
	t.Helper()
	plan := mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{})
	t.Logf("before:\n%s", plan)
	return plan
}

// carryOut does what was planned, prints the report, and compares the destination with what it was: every line of the plan has come true, and nothing else has changed.
func carryOut(t *testing.T, r *lives.Running, plan mirror.FailoverPlan) (mirror.FailoverReport, lives.Picture) {
	t.Helper()
	before := lives.TakePicture(t, r.To.Cluster)
	report, err := r.ExecuteFailover(lives.Limited(t), plan)
	t.Logf("after:\n%s", report)
	if err != nil {
		t.Fatal(err)
	}
	after := lives.TakePicture(t, r.To.Cluster)
	sameLines(t, "the failover", before.Changes(t, after), failoverLines(t, plan))
	return report, after
}

// failoverLines are what a plan says that will be different at the destination.
func failoverLines(t *testing.T, plan mirror.FailoverPlan) (lines []string) {
	t.Helper()
	for _, x := range plan.Partitions {
		if x.Outcome != mirror.OutcomeStop {
			continue
		}
		name := fmt.Sprintf("%s-%d", x.Topic, x.Partition)
		next := number(t, name, x.MirrorEnd)
		for _, a := range x.Aborts {
			lines = append(lines, fmt.Sprintf("%s: ABORT of producer %d epoch %d at %d", name, a.ProducerID, a.ProducerEpoch, next))
			next++
		}
		lines = append(lines, fmt.Sprintf("%s: control record of type %d at %d", name, resetType, next))
		if opens := number(t, name, x.OpensAt); opens != next+1 {
			t.Errorf("the plan opens %s at %d, behind %d", name, opens, next)
		}
		for _, held := range holds { // the topics here have one partition each
			lines = append(lines, fmt.Sprintf("%s of topic %s: %s is gone", held[0], x.Topic, held[1]))
		}
	}
	for _, g := range plan.GroupPlaces {
		if !g.Stays && g.At != g.Place {
			lines = append(lines, fmt.Sprintf("group %s on %s-%d: %s, then %s", g.Group, g.Topic, g.Partition, g.At, g.Place))
		}
	}
	slices.Sort(lines)
	return lines
}

func number(t *testing.T, what string, n mirror.Number) int64 {
	t.Helper()
	v, ok := n.Value()
	if !ok {
		t.Fatalf("%s: a number that the plan needs is unknown", what)
	}
	return v
}

func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	t.Logf("%s has changed:\n  %s", what, strings.Join(got, "\n  "))
	if !slices.Equal(got, want) {
		t.Errorf("%s was to change:\n  %s", what, strings.Join(want, "\n  "))
	}
}

func sscanf(s, format string, into ...any) bool {
	n, err := fmt.Sscanf(s, format, into...)
	return err == nil && n == len(into)
}

// says holds a plan's or a report's text against what must be read in it.
func says(t *testing.T, text fmt.Stringer, words ...string) {
	t.Helper()
	for _, w := range words {
		if s := text.String(); !strings.Contains(s, w) {
			t.Errorf("it does not say %q:\n%s", w, s)
		}
	}
}

// openTransaction is the start of F-46 and F-47: 0–4 in a transaction of a producer that has not ended it, 5 of nobody, all of it mirrored; then the mirror loses sight of the source, and fails over.
func openTransaction(t *testing.T, name string) (a, b *kafkatest.Cluster, left *kgo.Client, there *lives.Running, at *lives.Joined) {
	t.Helper()
	a, b = small(t), standby(t)
	a.CreateTopic(kafkatest.Topic{Name: name})
	at = lives.Join(t, b)
	there = lives.Open(t, name, a, at)
	there.Set(ownSettings)
	there.Start(name)
	left = lives.Client(a, kgo.TransactionalID(name))
	lives.Begin(t, left)
	lives.Produce(t, left, name, 0, lives.Values("in a transaction", 5)...)
	lives.Produce(t, lives.Client(a, lives.Plain...), name, 0, "plain")
	lives.Commit(t, a, name, name, 0, 6, -1)
	copied := there.Same(name, 0, 6)
	lives.Eventually(t, "the group is where the source has it", func() (bool, string) {
		got := lives.CommittedAt(t, b, name, name, 0)
		return got == 6, fmt.Sprint(got)
	})
	id, epoch, err := left.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stable := lives.OffsetOf(t, a, lives.LastStable, name, 0); stable != 0 {
		t.Fatalf("read_committed readers of the source stand at %d", stable)
	}
	there.Link.Cut()

	plan := planFailover(t, there)
	says(t, plan, fmt.Sprintf("ABORT for producer %d epoch %d", id, epoch))
	ofID := "" // the last look at transactional ids may have been before the transaction began
	if x := plan.Partitions[0]; len(x.Aborts) > 0 && x.Aborts[0].TransactionalID != "" {
		ofID = name
	}
	if x := plan.Partitions[0]; !slices.Equal(x.Aborts, []mirror.PlannedTransaction{{ProducerID: id, ProducerEpoch: epoch, FirstOffset: 0, LastOffset: 4, TransactionalID: ofID}}) || x.OpensAt != mirror.KnownNumber(8) {
		t.Errorf("the plan: %+v", x)
	}
	report, now := carryOut(t, there, plan)
	says(t, report, fmt.Sprintf("ABORT at 6 for producer %d epoch %d, open since 0", id, epoch), "1 of 1 partition open for clients")
	if log := now.Log(name, 0); !bytes.HasPrefix(log, copied) {
		t.Errorf("what was mirrored changed: %s", lives.Difference(log, copied))
	}
	// Without manual work: readers do not stand still.
	if stable, end := lives.OffsetOf(t, b, lives.LastStable, name, 0), lives.OffsetOf(t, b, lives.Latest, name, 0); stable != 8 || end != 8 {
		t.Errorf("last stable offset %d, end %d, want 8", stable, end)
	}
	return a, b, left, there, at
}

// tens writes batches of ten records of about a kilobyte each.
func tens(t *testing.T, c *kafkatest.Cluster, topic, name string, batches int) {
	t.Helper()
	cl := lives.Client(c)
	defer cl.Close()
	for range batches {
		lives.Produce(t, cl, topic, 0, lives.Values(name+strings.Repeat(" ", 1000), 10)...)
	}
}

// The tail of the source is replaced by another one of the same length, and more: offsets alone do not show it.
func TestF35UncleanElectionLeavesEqualLengthAndOtherBytes(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f35-unclean"
	a.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Set(ownSettings)
	r.Start(topic)
	tens(t, a, topic, "on both", 9) // 0..89
	lives.Freeze(t, a, topic, 3)
	tens(t, a, topic, "on broker 2 only", 1) // 90..99
	copied := r.Same(topic, 0, 100)
	planFailover(t, r)
	before := lives.TakePicture(t, b)

	lives.FreezeLeader(t, a, topic, 2)
	lives.Elect(t, a, topic, 3)
	tens(t, a, topic, "on broker 3, other", 1) // 90..99: as long as before
	now := r.Same(topic, 0, 100)
	if bytes.Equal(now, copied) || len(now) == 0 {
		t.Fatal("the source's tail is what it was")
	}
	tens(t, a, topic, "on broker 3, other", 1) // 100..109
	now = r.Same(topic, 0, 110)
	var dropped []mirror.RecordsDropped
	for _, e := range r.Told() {
		if x, ok := e.(mirror.RecordsDropped); ok {
			t.Logf("report: %s", x)
			dropped = append(dropped, x)
		}
	}
	if len(dropped) != 1 || dropped[0].From != 90 || dropped[0].To != 100 {
		t.Errorf("dropped: %v, want [90,100)", dropped)
	}
	if p := lives.One(r.Status(), topic, 0); p.DroppedFrom != 90 || p.DroppedTo != 100 {
		t.Errorf("the status says that [%d,%d) was dropped", p.DroppedFrom, p.DroppedTo)
	}
	want := append(lives.Written(t, topic, 0, a.SegmentBytes(topic, 0, 3), 90), topic+"-0: [90,100) is gone")
	slices.Sort(want)
	sameLines(t, "the election", before.Changes(t, lives.TakePicture(t, b)), want)
	tail := since(t, before.Log(topic, 0), 90)
	if from, to, batches := r.Sink.Of(topic, 0); from != 90 || to != 100 || !bytes.Equal(batches, tail) {
		t.Errorf("[%d,%d) and %d bytes were kept, want [90,100) and the %d bytes that lay on disk", from, to, len(batches), len(tail))
	}

	a.Resume(2)
	a.WaitReady()
	a.WaitISR(topic, 0, 2, 3)
	report, after := carryOut(t, r, planFailover(t, r))
	if x := report.Partitions[0]; x.FinalOffset != 110 || !bytes.HasPrefix(after.Log(topic, 0), now) {
		t.Errorf("%+v", x)
	}
}

func TestF46OpenTransactionAtFailover(t *testing.T) {
	_, b, _, _, _ := openTransaction(t, "f46-open")
	lives.SameCommitted(t, b, "f46-open", 0, 5)
	if got := lives.CommittedAt(t, b, "f46-open", "f46-open", 0); got != 6 {
		t.Errorf("the group is at %d", got)
	}
}

// Where the mirror wrote its ABORT at 6 the source had its COMMIT.
func TestF47AbortMeetsTheSourcesCommitAtFailback(t *testing.T) {
	topic := "f47-meets"
	a, b, left, there, at := openTransaction(t, topic)
	there.End()
	at.Leave()
	lives.Finish(t, a, left, kgo.TryCommit, topic, 0) // 6
	lives.SameCommitted(t, a, topic, 0, 0, 1, 2, 3, 4, 5)
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("of the standby", 3)...) // 8..10
	lives.SameCommitted(t, b, topic, 0, 5, 8, 9, 10)

	before, source := lives.TakePicture(t, a), lives.TakePicture(t, b)
	var id int64
	var epoch int16 // of the marker: above that of the records, where the producer has transactions v2 (F-52)
	if written := lives.Written(t, topic, 0, before.Log(topic, 0), 6); len(written) != 1 || !sscanf(written[0], topic+"-0: COMMIT of producer %d epoch %d at 6", &id, &epoch) {
		t.Fatalf("the old source has %v from 6 on", written)
	}
	old := lives.Join(t, a)
	back := lives.Open(t, "f47-back", b, old)
	back.Set(ownSettings)
	plan := goHome(t, back, before, source, topic)
	says(t, plan, fmt.Sprintf("producer %d epoch %d: committed here at 6, aborted at the source", id, epoch), "common point 6; this cluster gives up 6..6")
	if d := plan.Partitions[0].Disagreements; !slices.Equal(d, []mirror.Disagreement{{ProducerID: id, ProducerEpoch: epoch, CommitAt: 6}}) {
		t.Errorf("transactions that ended differently: %+v", d)
	}

	// Nobody who saw it aborted sees it committed later, on either side.
	back.Failover()
	lives.SameCommitted(t, a, topic, 0, 5, 8, 9, 10)
	lives.SameCommitted(t, b, topic, 0, 5, 8, 9, 10)
}

// goHome plans a failback, prints the plan, does what was planned, and prints the report. before is a picture of the cluster that becomes the copy, source one of the cluster that it is a copy of then.
// Planning changes nothing; the failback changes what the plan says and nothing else, and what it gives up is kept, byte for byte.
func goHome(t *testing.T, back *lives.Running, before, source lives.Picture, topic string) mirror.FailbackPlan {
	t.Helper()
	plan, err := back.PlanFailback(lives.Limited(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("before:\n%s", plan)
	sameLines(t, "planning", before.Changes(t, lives.TakePicture(t, back.To.Cluster)), nil)
	report, err := back.ExecuteFailback(lives.Limited(t), plan)
	t.Logf("after:\n%s", report)
	if err != nil {
		t.Fatal(err)
	}
	lives.Eventually(t, "the copy is the log of the source", func() (bool, string) {
		d := lives.Difference(lives.TakePicture(t, back.To.Cluster).Log(topic, 0), source.Log(topic, 0))
		return d == "", d
	})
	sameLines(t, "the failback", before.Changes(t, lives.TakePicture(t, back.To.Cluster)), failbackLines(t, plan, source))
	keptWhatIsGone(t, back, plan, before)
	return plan
}

// failbackLines are what a plan says that will be different in the cluster that becomes the copy. source is a picture of the one that it is a copy of then.
func failbackLines(t *testing.T, plan mirror.FailbackPlan, source lives.Picture) (lines []string) {
	t.Helper()
	for _, x := range plan.Partitions {
		name := fmt.Sprintf("%s-%d", x.Topic, x.Partition)
		if x.Outcome == mirror.OutcomeDrop {
			lines = append(lines, fmt.Sprintf("%s: [%s,%s) is gone", name, x.From, x.To))
		}
		lines = append(lines, lives.Written(t, x.Topic, x.Partition, source.Log(x.Topic, x.Partition), number(t, name, x.CommonPoint))...)
		for _, held := range holds {
			lines = append(lines, fmt.Sprintf("%s of topic %s: %s, which was not there", held[0], x.Topic, held[1]))
		}
	}
	slices.Sort(lines)
	return lines
}

// keptWhatIsGone: the sink was handed the very bytes that the plan gives up.
func keptWhatIsGone(t *testing.T, back *lives.Running, plan mirror.FailbackPlan, before lives.Picture) {
	t.Helper()
	for _, x := range plan.Partitions {
		if x.Outcome != mirror.OutcomeDrop {
			continue
		}
		tail := since(t, before.Log(x.Topic, x.Partition), number(t, x.Topic, x.From))
		if from, to, batches := back.Sink.Of(x.Topic, x.Partition); mirror.KnownNumber(from) != x.From || mirror.KnownNumber(to) != x.To || !bytes.Equal(batches, tail) {
			t.Errorf("%s-%d: [%d,%d) and %d bytes were kept, want [%s,%s) and the %d bytes that lay on disk", x.Topic, x.Partition, from, to, len(batches), x.From, x.To, len(tail))
		}
	}
}

// A long transaction: the last stable offset stands at 200 while the log goes on to 1663. The copy is in step all the same, and says both. A planned move is held up by the transaction, by name; it
// ends it only where it was told to, or where its producer does.
func TestF54LastStableOffsetStandsStillWhileTheLogGoesOn(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f54-stable"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	plainly := lives.Client(a, lives.Plain...)
	lives.Produce(t, plainly, topic, 0, lives.Values("before", 200)...) // 0..199
	long := lives.Client(a, kgo.TransactionalID(topic))
	lives.Begin(t, long)
	lives.Produce(t, long, topic, 0, "open") // 200
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Set(ownSettings)
	r.Start(topic)
	for range 2 {
		lives.Produce(t, plainly, topic, 0, lives.Values("behind it", 731)...) // 201..1662
	}
	r.Same(topic, 0, 1663)
	id, epoch, err := long.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stable, end := lives.OffsetOf(t, a, lives.LastStable, topic, 0), lives.OffsetOf(t, a, lives.Latest, topic, 0); stable != 200 || end != 1663 {
		t.Fatalf("the source's last stable offset is %d, its high watermark %d", stable, end)
	}
	p := lives.One(r.Status(), topic, 0)
	if p.LastStable != 200 || p.End != 1663 || p.SourceEnd != 1663 || p.LagOffsets != 0 {
		t.Errorf("last stable offset %d, end %d, the source's %d, lag %d", p.LastStable, p.End, p.SourceEnd, p.LagOffsets)
	}
	if len(p.InFlight) != 1 || p.InFlight[0].ProducerID != id || p.InFlight[0].ProducerEpoch != epoch || p.InFlight[0].FirstOffset != 200 {
		t.Errorf("in flight: %+v; the producer is %d with epoch %d", p.InFlight, id, epoch)
	}
	plan := planFailover(t, r)
	says(t, plan, fmt.Sprintf("read_committed readers stand at 200, held by producer %d", id), fmt.Sprintf("ABORT for producer %d", id), "SAFE")

	before := lives.TakePicture(t, b)
	gateway := fence.Hook{Name: "the gateway", RaiseF: func(context.Context, []string) error { return nil }, LowerF: func(context.Context, []string) error { return nil }} // nobody writes plainly any more
	o := mirror.PromoteOptions{Fence: gateway, Quiet: 500 * time.Millisecond, TransactionWait: time.Second}
	report, err := r.Promote(lives.Limited(t), o)
	t.Logf("after:\n%s", report)
	t.Log(err)
	if !errors.Is(err, mirror.ErrGivenUp) || report.Stopped || !strings.Contains(err.Error(), fmt.Sprintf("producer %d", id)) {
		t.Errorf("a promotion with the transaction open: %v", err)
	}
	sameLines(t, "a promotion that was given up", before.Changes(t, lives.TakePicture(t, b)), nil)

	// The producer ends it, and there is nothing more in the way.
	lives.Finish(t, a, long, kgo.TryCommit, topic, 0) // 1663
	r.Same(topic, 0, 1664)
	if p := lives.One(r.Status(), topic, 0); p.LastStable != 1664 || len(p.InFlight) != 0 {
		t.Errorf("after the COMMIT: last stable offset %d, in flight %+v", p.LastStable, p.InFlight)
	}
	plan = planFailover(t, r)
	before = lives.TakePicture(t, b)
	report, err = r.Promote(lives.Limited(t), o)
	t.Logf("after:\n%s", report)
	if err != nil || !report.Proved {
		t.Errorf("the promotion: %v", err)
	}
	sameLines(t, "the promotion", before.Changes(t, lives.TakePicture(t, b)), failoverLines(t, plan))
	if stable, end := lives.OffsetOf(t, b, lives.LastStable, topic, 0), lives.OffsetOf(t, b, lives.Latest, topic, 0); stable != 1665 || end != 1665 {
		t.Errorf("last stable offset %d, end %d, want 1665", stable, end)
	}
}

// since is lives.Since of a log that can be read.
func since(t *testing.T, log []byte, start int64) []byte {
	t.Helper()
	rest, err := lives.Since(log, start)
	if err != nil {
		t.Fatal(err)
	}
	return rest
}

// The source is killed, and a topic of the standby cannot be opened: its only broker there does not answer. Everything else is open in bounded time, what is not is named with its reason, and the same
// command again ends what is left.
func TestF83FailoverWithTheSourceGone(t *testing.T) {
	a, b := small(t), standby(t)
	const started, already, stuck, foreign = 49, "f83-00", "f83-07", "f83-other"
	var topics []string
	once := lives.Client(a)
	for i := range started {
		topic := fmt.Sprintf("f83-%02d", i)
		topics = append(topics, topic)
		a.CreateTopic(kafkatest.Topic{Name: topic})
		lives.Produce(t, once, topic, 0, lives.Values(topic, 3)...)
	}
	b.CreateTopic(kafkatest.Topic{Name: stuck, Assignment: [][]int32{{3}}})
	b.CreateTopic(kafkatest.Topic{Name: foreign, Replication: 3})
	r := lives.Open(t, "f83", a, lives.Join(t, b))
	r.Set(ownSettings)
	r.Start(topics...)
	for _, topic := range topics {
		r.InStep(topic, 0, 3)
	}
	if _, err := r.Mirror.Failover(lives.Limited(t), mirror.FailoverOptions{Topics: []string{already}}); err != nil {
		t.Fatal(err)
	}
	before := lives.TakePicture(t, b)

	a.Kill(1)
	t.Cleanup(func() { a.StartBroker(1) })
	lives.Freeze(t, b, foreign, 3)
	r.Until("the source does not answer", topics[1], 0, func(p mirror.PartitionStatus) bool { return p.Reason != "" })
	all := append([]string{foreign}, topics...)
	plan := mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{Topics: all})
	t.Logf("before:\n%s", plan)
	outcomes := map[mirror.Outcome]int{}
	for _, x := range plan.Topics {
		outcomes[x.Outcome]++
	}
	if want := map[mirror.Outcome]int{mirror.OutcomeStop: started - 1, mirror.OutcomeDone: 1, mirror.OutcomeRefused: 1}; !maps.Equal(outcomes, want) {
		t.Errorf("%v, want %v", outcomes, want)
	}
	run := func(plan mirror.FailoverPlan, bound time.Duration) (open int, report mirror.FailoverReport) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), bound)
		defer stop()
		report, err := r.ExecuteFailover(ctx, plan)
		t.Logf("after:\n%s", report)
		if !errors.Is(err, mirror.ErrIncomplete) {
			t.Fatal(err)
		}
		if len(report.Topics) != 1 || report.Topics[0].Topic != foreign || !errors.Is(report.Topics[0].Err, &mirror.Error{Code: mirror.TopicNotInClusterMirror}) {
			t.Errorf("refused: %v", report.Topics)
		}
		for _, x := range report.Partitions {
			switch {
			case x.Err == nil:
				open++
				if x.FinalOffset != 3 || x.OpensAt != 4 {
					t.Errorf("%+v", x)
				}
				if got := x.Missing.String(); x.Topic != already && got != "unknown, none missing when last seen" {
					t.Errorf("%s: the loss is %q", x.Topic, got)
				}
			case x.Topic != stuck:
				t.Errorf("%s: %v", x.Topic, x.Err)
			}
		}
		return open, report
	}
	open, report := run(plan, 30*time.Second) // the record of the stop alone took 15 to 24 s here: it is written while a broker of the standby stands still
	if open != started-1 {
		t.Errorf("%d are open", open)
	}
	says(t, report, stuck+"-0", "NOT OPEN", "48 of 49 partitions open for clients; 1 topic refused")
	open, report = run(mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{Topics: all}), 5*time.Second)
	for _, x := range report.Partitions {
		if x.Topic != stuck && !x.AlreadyDone {
			t.Errorf("%s was open already: %+v", x.Topic, x)
		}
	}
	if open != started-1 {
		t.Errorf("again: %d are open", open)
	}

	b.Resume(3)
	b.WaitReady()
	lives.Eventually(t, "the last one is open", func() (bool, string) {
		open, report := run(mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{Topics: all}), 20*time.Second)
		return open == started, report.String()
	})
	sameLines(t, "the failover", before.Changes(t, lives.TakePicture(t, b)), failoverLines(t, plan))
	lives.Produce(t, lives.Client(b), stuck, 0, "of a client")
}

// The source comes back after an unclean election: of what the recorded offset allows it had replaced a part, and both sides used one leader epoch for different records. Only the difference is copied.
func TestF84FailbackWithoutCopyingEverythingAgain(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f84-failback"
	a.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	at := lives.Join(t, b)
	there := lives.Open(t, topic, a, at)
	there.Set(ownSettings)
	there.Start(topic)
	tens(t, a, topic, "on both", 88) // 0..879
	lives.Freeze(t, a, topic, 3)
	tens(t, a, topic, "on broker 2 only", 2) // 880..899
	copied := there.Same(topic, 0, 900)
	there.Link.Cut()
	tens(t, a, topic, "on broker 2 only, never copied", 10) // 900..999
	report, _ := carryOut(t, there, planFailover(t, there))
	if x := report.Partitions[0]; x.FinalOffset != 900 || x.OpensAt != 901 {
		t.Errorf("%+v", x)
	}
	there.End()
	at.Leave()

	lives.FreezeLeader(t, a, topic, 2)
	lives.Elect(t, a, topic, 3)
	tens(t, a, topic, "of the old source", 2) // 880..899
	a.Resume(2)
	a.WaitReady()
	a.WaitISR(topic, 0, 2, 3)
	sameEpoch(t, a, b, topic)
	tens(t, b, topic, "of the standby", 4)                                            // 901..940
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("of the standby", 9)...) // 941..949
	tens(t, a, topic, "of the old source", 5)                                         // 900..949
	lives.Produce(t, lives.Client(a), topic, 0, "of the old source")                  // 950

	before, source := lives.TakePicture(t, a), lives.TakePicture(t, b)
	below := len(source.Log(topic, 0)) - len(since(t, source.Log(topic, 0), 880))
	old := lives.Join(t, a)
	back := lives.Open(t, "f84-back", b, old)
	back.Set(ownSettings)
	plan := goHome(t, back, before, source, topic)
	received := back.Link.Received()
	says(t, plan, "common point 880; this cluster gives up 880..950", "offset 900")
	if x := plan.Partitions[0]; x.CommonPoint != mirror.KnownNumber(880) || x.LMO != mirror.KnownNumber(900) || plan.Dropped != 71 {
		t.Errorf("common point %s, last mirror offset %s, %d dropped; want 880, 900 and 71", x.CommonPoint, x.LMO, plan.Dropped)
	}
	if difference := int64(len(since(t, source.Log(topic, 0), 880))); received < difference || received > difference+int64(below)/4 {
		t.Errorf("%d bytes came from the source for a difference of %d; %d bytes are the same on both sides", received, difference, below)
	} else {
		t.Logf("%d bytes came from the source, for a difference of %d; %d bytes are the same on both sides", received, difference, below)
	}
	if now := lives.TakePicture(t, a).Log(topic, 0); !bytes.HasPrefix(now, copied[:below]) {
		t.Errorf("below 880 something has changed: %s", lives.Difference(now[:below], copied[:below]))
	}

	// Producers may move.
	carryOut(t, back, planFailover(t, back))
	lives.Produce(t, lives.Client(a), topic, 0, "home again")
	if end := lives.OffsetOf(t, a, lives.Latest, topic, 0); end != 952 {
		t.Errorf("the log at home ends at %d after one record behind the reset at 950", end)
	}
}

// sameEpoch moves leaders until both clusters lead the topic under the same leader epoch.
func sameEpoch(t *testing.T, a, b *kafkatest.Cluster, topic string) {
	t.Helper()
	for range 20 {
		x, y := a.Describe(topic, 0), b.Describe(topic, 0)
		switch {
		case x.LeaderEpoch < y.LeaderEpoch:
			a.MoveLeader(topic, 0, other(x))
		case x.LeaderEpoch > y.LeaderEpoch:
			b.MoveLeader(topic, 0, other(y))
		default:
			return
		}
	}
	t.Fatal("the leader epochs do not meet")
}

// other is a replica that is not the leader.
func other(p kafkatest.Partition) int32 {
	return p.Replicas[(slices.Index(p.Replicas, p.Leader)+1)%len(p.Replicas)]
}
