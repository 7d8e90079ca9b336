package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// Config says what Start makes. Zero values are the defaults in brackets.
type Config struct {
	// Topics of the primary that are mirrored, with their partitions.
	Topics map[string]int32
	// Brokers of each cluster [1].
	Brokers int
	// Seed of everything random: faults of the link, jitter of the mirror [$CLUSTERMIRROR_SEED, or a new one]. It is printed when the test fails.
	Seed uint64
	// Faults of the link from the beginning [none].
	Faults Faults
	// Bound is the longest that a method waits before it fails the test [20 s].
	Bound time.Duration
}

// Pair is two clusters and the mirrors between them. Its methods fail the test, and end it, when what they say does not come true; they are for the test's goroutine.
type Pair struct {
	t      testing.TB
	cfg    Config
	topics []string

	primary, standby *Cluster
	link             *Link
	running          *running // the mirror; none between Failover and Return
	phase            phase
	finals           map[mirror.TopicPartition]int64 // last mirror offsets of the last failover

	mu     sync.Mutex
	events []string
}

type phase uint8

const (
	mirroring  phase = iota // the standby is the copy
	failedOver              // both are open; the primary may be dead
	returned                // the primary is the copy
)

// Start starts two clusters with the topics at the primary, and a mirror of them into the standby. It returns when the mirror is in step. Everything ends with the test.
func Start(t testing.TB, cfg Config) *Pair {
	t.Helper()
	if cfg.Seed == 0 {
		cfg.Seed = seed(t)
	}
	if cfg.Bound == 0 {
		cfg.Bound = 20 * time.Second
	}
	pair := &Pair{t: t, cfg: cfg, topics: slices.Sorted(maps.Keys(cfg.Topics)), link: newLink(cfg.Seed, cfg.Faults)}
	t.Cleanup(pair.close)
	var err error
	if pair.primary, err = newCluster("primary", cfg.Brokers); err != nil {
		t.Fatal(err)
	}
	if pair.standby, err = newCluster("standby", cfg.Brokers); err != nil {
		t.Fatal(err)
	}
	for _, name := range pair.topics {
		if err := pair.primary.CreateTopic(name, cfg.Topics[name], nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := pair.bounded()
	defer stop()
	if pair.running, err = pair.run(ctx, "there", pair.primary, pair.standby); err != nil {
		t.Fatal(err)
	}
	if len(pair.topics) > 0 {
		pair.Mirror(pair.topics...)
	}
	return pair
}

// seed is the one that is asked for by the environment, or a new one.
func seed(t testing.TB) uint64 {
	text := os.Getenv("CLUSTERMIRROR_SEED")
	if text == "" {
		return rand.Uint64()>>1 + 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		t.Fatalf("CLUSTERMIRROR_SEED is %q, not a number above 0", text)
	}
	return n
}

func (pair *Pair) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), pair.cfg.Bound)
}

// mostEvents is how many events are kept for a test that fails.
const mostEvents = 100

func (pair *Pair) event(e mirror.Event) {
	pair.mu.Lock()
	defer pair.mu.Unlock()
	if len(pair.events) == mostEvents {
		pair.events = pair.events[1:]
	}
	pair.events = append(pair.events, fmt.Sprint(e))
}

// close ends everything, and says how to run the same again when the test has failed.
func (pair *Pair) close() {
	var failed []error
	if pair.running != nil {
		failed = append(failed, pair.running.close())
	}
	for _, c := range []*Cluster{pair.primary, pair.standby} {
		if c != nil {
			failed = append(failed, c.close())
		}
	}
	if err := errors.Join(failed...); err != nil {
		pair.t.Errorf("mirrortest: closing: %v", err)
	}
	if pair.t.Failed() {
		pair.mu.Lock()
		defer pair.mu.Unlock()
		pair.t.Logf("mirrortest: again with the same faults: CLUSTERMIRROR_SEED=%d\nlast events of the mirrors:\n  %s", pair.cfg.Seed, strings.Join(pair.events, "\n  "))
	}
}

// Primary is the cluster that clients begin at.
func (pair *Pair) Primary() *Cluster { return pair.primary }

// Standby is the cluster that has the copy.
func (pair *Pair) Standby() *Cluster { return pair.standby }

// Active is the cluster that clients belong at now: the standby from Failover on, the primary again after Home.
func (pair *Pair) Active() *Cluster {
	if pair.phase == mirroring {
		return pair.primary
	}
	return pair.standby
}

// Link is the network between both.
func (pair *Pair) Link() *Link { return pair.link }

// Seed is the seed in use.
func (pair *Pair) Seed() uint64 { return pair.cfg.Seed }

// need fails the test where a cluster that a step asks for something is killed.
func (pair *Pair) need(step string, clusters ...*Cluster) {
	pair.t.Helper()
	for _, c := range clusters {
		if c.alive() != nil {
			pair.t.Fatalf("mirrortest: %s: the %s is killed; Revive it first", step, c.id)
		}
	}
}

// lines are plans and reports for a test that fails, each on lines of its own; a step that failed before there was one has none.
func lines(of ...fmt.Stringer) (text string) {
	for _, s := range of {
		if !reflect.ValueOf(s).IsZero() {
			text += "\n" + s.String()
		}
	}
	return text
}

// Mirror mirrors more topics of the primary, which has to have them, and waits until they are in step.
func (pair *Pair) Mirror(topics ...string) {
	pair.t.Helper()
	ctx, stop := pair.bounded()
	defer stop()
	if pair.phase != mirroring {
		pair.t.Fatal("mirrortest: Mirror: the standby is no copy now; call Failback first")
	}
	pair.need("Mirror", pair.primary, pair.standby)
	for _, name := range topics {
		if _, err := pair.primary.memory.Topic(ctx, name); err != nil {
			pair.t.Fatalf("mirrortest: the primary has no such topic: %v", err)
		}
	}
	if _, err := pair.running.Admin().Start(ctx, topics, mirror.StartOptions{}); err != nil {
		pair.t.Fatalf("mirrortest: mirroring %v: %v", topics, err)
	}
	pair.topics = slices.Compact(slices.Sorted(slices.Values(append(pair.topics, topics...))))
	if err := pair.caughtUp(ctx, pair.running); err != nil {
		pair.t.Fatal(err)
	}
}

// KillPrimary ends the primary as kill -9 does: see Cluster.Kill. Failback revives it.
func (pair *Pair) KillPrimary() {
	pair.t.Helper()
	if pair.phase == returned {
		pair.t.Fatal("mirrortest: KillPrimary: the primary is the copy now; there is nothing to fail over to it for. Call Home first")
	}
	pair.primary.Kill()
}

// AwaitCaughtUp waits until the copy has all that the other cluster has now, and groups without members at the copy are where they are at the other cluster.
func (pair *Pair) AwaitCaughtUp() {
	pair.t.Helper()
	ctx, stop := pair.bounded()
	defer stop()
	if pair.phase == failedOver {
		pair.t.Fatal("mirrortest: nothing is mirrored between Failover and Return")
	}
	pair.need("AwaitCaughtUp", pair.running.to)
	if err := pair.caughtUp(ctx, pair.running); err != nil {
		pair.t.Fatal(err)
	}
}

// caughtUp waits until one mirror's copy has all that its source has now.
func (pair *Pair) caughtUp(ctx context.Context, r *running) error {
	want := map[mirror.TopicPartition]int64{}
	for _, tp := range pair.partitions(r.from) {
		log, err := r.from.memory.OpenLog(ctx, tp)
		if err != nil {
			return err
		}
		want[tp] = log.End()
	}
	missing := func(s mirror.Status) (found []string) {
		at := map[mirror.TopicPartition]*mirror.PartitionStatus{}
		for i := range s.Topics {
			for j := range s.Topics[i].Partitions {
				p := &s.Topics[i].Partitions[j]
				at[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p
			}
		}
		for _, tp := range slices.SortedFunc(maps.Keys(want), byName) {
			switch p := at[tp]; {
			case p == nil:
				found = append(found, fmt.Sprintf("%s-%d is not mirrored", tp.Topic, tp.Partition))
			case p.Replicated < want[tp] || p.LagOffsets != 0 || p.Halted:
				found = append(found, fmt.Sprintf("%s-%d: %s, end %d of %d %s", tp.Topic, tp.Partition, p.State, p.Replicated, want[tp], p.Reason))
			}
		}
		return found
	}
	err := poll(ctx, func() (string, error) { return strings.Join(missing(r.Status()), "; "), nil })
	if err == nil {
		err = poll(ctx, func() (string, error) { return pair.groupsBehind(ctx, r) })
	}
	if err != nil {
		return fmt.Errorf("mirrortest: the mirror from %s is not in step: %w", r.from.id, errors.Join(err, r.from.alive(), r.to.alive()))
	}
	return nil
}

// poll asks until nothing is missing, or says what is when ctx ends.
func poll(ctx context.Context, missing func() (string, error)) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		what, err := missing()
		if what == "" && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err == nil {
				err = errors.New(what)
			}
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// partitions lists what is mirrored, as a cluster has it.
func (pair *Pair) partitions(c *Cluster) (all []mirror.TopicPartition) {
	for _, name := range pair.topics {
		t, err := c.memory.Topic(context.Background(), name)
		for p := range t.Partitions {
			if err == nil {
				all = append(all, mirror.TopicPartition{Topic: name, Partition: p})
			}
		}
	}
	return all
}

// groupsBehind names a group that is not at the copy where it is at the source, "" where there is none.
func (pair *Pair) groupsBehind(ctx context.Context, r *running) (string, error) {
	listed, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, r.from.inner)
	if err != nil {
		return "", err
	}
	for _, g := range listed.Groups {
		from, to := r.from.kfake.GroupInfo(g.Group), r.to.kfake.GroupInfo(g.Group)
		if from == nil || to != nil && len(to.Members) > 0 {
			continue
		}
		for _, tp := range pair.partitions(r.from) {
			at, committed := from.Commits[tp.Topic][tp.Partition]
			log, err := r.to.memory.OpenLog(ctx, tp)
			if err != nil || !committed {
				continue
			}
			want := max(min(at.Offset, log.Replicated()), log.Start())
			if to != nil && to.Commits[tp.Topic] != nil {
				if have, ok := to.Commits[tp.Topic][tp.Partition]; ok && have.Offset == want {
					continue
				}
			}
			if !left(r.Status().Metadata.FollowedGroups, g.Group, tp, at.Offset) {
				return fmt.Sprintf("%s is not at %d of %s-%d yet", g.Group, want, tp.Topic, tp.Partition), nil
			}
		}
	}
	return "", nil
}

// left says that the mirror has seen where a group is at the source, and leaves it where it is at the copy: somebody has moved it there, or it has members.
func left(followed []mirror.GroupStatus, group string, tp mirror.TopicPartition, at int64) bool {
	return slices.ContainsFunc(followed, func(g mirror.GroupStatus) bool {
		return g.Group == group && slices.ContainsFunc(g.Partitions, func(p mirror.GroupPartitionStatus) bool {
			return p.TopicPartition == tp && p.Source == at && p.Skipped != ""
		})
	})
}

// Record is a record of one partition.
type Record struct {
	Topic     string
	Partition int32
	memlog.Record
}

// String says where it is, and its value.
func (r Record) String() string {
	return fmt.Sprintf("%s-%d offset %d: %q", r.Topic, r.Partition, r.Offset, r.Value)
}

// FailoverReport is what a failover did: mirror's own report, and what only somebody who sees both clusters can know.
type FailoverReport struct {
	mirror.FailoverReport
	Plan mirror.FailoverPlan
	// NotCopied are the records that the other cluster took and the copy does not have, whether or not their transaction was committed there.
	NotCopied []Record
}

// Failover makes the standby the primary, from what it has: it does not wait for the source, which may be dead, alive or cut off.
func (pair *Pair) Failover() FailoverReport {
	pair.t.Helper()
	if pair.phase != mirroring {
		pair.t.Fatal("mirrortest: Failover: the standby is no copy now; call Failback first")
	}
	pair.need("Failover", pair.standby)
	r, err := pair.failover(pair.running)
	if err == nil {
		err = pair.end()
	}
	if err != nil {
		pair.t.Fatalf("mirrortest: failover: %v%s", err, lines(r.Plan, r.FailoverReport))
	}
	pair.phase = failedOver
	pair.finals = map[mirror.TopicPartition]int64{}
	for _, p := range r.Partitions {
		pair.finals[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.FinalOffset
	}
	return r
}

func (pair *Pair) failover(r *running) (report FailoverReport, err error) {
	ctx, stop := pair.bounded()
	defer stop()
	report.Plan = mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{Topics: pair.topics})
	if report.FailoverReport, err = r.ExecuteFailover(ctx, report.Plan); err != nil {
		return report, err
	}
	for _, p := range report.Partitions {
		raw, err := r.from.memory.RawLog(p.Topic, p.Partition)
		if err != nil {
			continue // deleted there since
		}
		report.NotCopied = append(report.NotCopied, pair.records(mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}, raw, p.FinalOffset)...)
	}
	return report, nil
}

// records decodes the batches that begin at an offset or above it.
func (pair *Pair) records(tp mirror.TopicPartition, batches []byte, from int64) (found []Record) {
	pair.t.Helper()
	some, err := memlog.DecodeRecords(batches)
	if err != nil {
		pair.t.Fatalf("mirrortest: %s-%d: %v", tp.Topic, tp.Partition, err)
	}
	for _, r := range some {
		if r.Offset >= from {
			found = append(found, Record{tp.Topic, tp.Partition, r})
		}
	}
	return found
}

// ReturnReport is how the old primary became a copy.
type ReturnReport struct {
	mirror.FailbackReport
	Plan    mirror.FailbackPlan
	GivenUp []Record // what it had and the new primary had not, now cut
}

// HomeReport is how clients were brought home.
type HomeReport struct {
	mirror.FailoverReport // of the primary
	Plan                  mirror.FailoverPlan
	Again                 ReturnReport // the standby is the copy again
}

// FailbackReport is both.
type FailbackReport struct {
	Return ReturnReport
	Home   HomeReport
}

// Failback is Return and Home.
func (pair *Pair) Failback() FailbackReport {
	pair.t.Helper()
	return FailbackReport{Return: pair.Return(), Home: pair.Home()}
}

// Return brings the old primary back as a copy of the standby: a plan of what it has to give up, consent to exactly that, the cut, and then it catches up. A dead primary is revived. Clients
// stay at the standby.
func (pair *Pair) Return() ReturnReport {
	pair.t.Helper()
	if pair.phase != failedOver {
		pair.t.Fatal("mirrortest: Return comes after Failover")
	}
	pair.need("Return", pair.standby)
	pair.primary.Revive()
	ctx, stop := pair.bounded()
	defer stop()
	r, err := pair.comeBack(ctx, "home", pair.standby, pair.primary)
	if err != nil {
		pair.t.Fatalf("mirrortest: return: %v%s", err, lines(r.Plan, r.FailbackReport))
	}
	pair.phase = returned
	return r
}

// run opens a mirror.
func (pair *Pair) run(ctx context.Context, name string, from, to *Cluster) (*running, error) {
	return run(ctx, name, from, to, pair.link, pair.cfg.Seed, pair.event)
}

// end closes the mirror.
func (pair *Pair) end() error {
	r := pair.running
	pair.running = nil
	return r.close()
}

// comeBack makes a cluster that was written to the copy of the other one, by the mirror of this name.
func (pair *Pair) comeBack(ctx context.Context, name string, from, to *Cluster) (report ReturnReport, err error) {
	r, err := pair.run(ctx, name, from, to)
	if err != nil {
		return report, err
	}
	pair.running = r
	for { // as often as a person would, when the source does not answer or somebody writes meanwhile
		report.Plan, err = r.PlanFailback(ctx, pair.topics...)
		if err == nil {
			if report.FailbackReport, err = r.ExecuteFailback(ctx, report.Plan); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			return report, err
		}
		pause := time.NewTimer(retryInitial)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	for _, k := range r.sink.take() {
		report.GivenUp = append(report.GivenUp, pair.records(k.TopicPartition, k.batches, k.from)...)
	}
	return report, pair.caughtUp(ctx, r)
}

// Home brings clients home, without loss: producers at the standby are refused, the last records are copied, the primary is opened, and the standby becomes its copy again.
func (pair *Pair) Home() HomeReport {
	pair.t.Helper()
	if pair.phase != returned {
		pair.t.Fatal("mirrortest: Home comes after Return")
	}
	pair.need("Home", pair.standby, pair.primary)
	ctx, stop := pair.bounded()
	defer stop()
	pair.standby.fence(true)
	defer pair.standby.fence(false)
	if err := pair.caughtUp(ctx, pair.running); err != nil {
		pair.t.Fatalf("mirrortest: home: %v", err)
	}
	opened, err := pair.failover(pair.running)
	if err == nil {
		err = pair.end()
	}
	if err != nil {
		pair.t.Fatalf("mirrortest: home: %v%s", err, lines(opened.Plan, opened.FailoverReport))
	}
	again, err := pair.comeBack(ctx, "there", pair.primary, pair.standby)
	if err != nil {
		pair.t.Fatalf("mirrortest: home: %v%s", err, lines(again.Plan, again.FailbackReport))
	}
	pair.phase = mirroring
	return HomeReport{FailoverReport: opened.FailoverReport, Plan: opened.Plan, Again: again}
}

// Verify compares the bytes of both clusters' logs, and fails the test where they differ: all of them while one is the copy of the other, which it waits for; what was copied after
// a failover. It returns the number of batches that were compared.
func (pair *Pair) Verify() (batches int64) {
	pair.t.Helper()
	pair.need("Verify", pair.standby)
	if pair.phase != failedOver {
		pair.AwaitCaughtUp()
	}
	for _, tp := range pair.partitions(pair.standby) {
		n, err := pair.verify(tp)
		if err != nil {
			pair.t.Errorf("mirrortest: %s-%d: %v", tp.Topic, tp.Partition, err)
		}
		batches += n
	}
	return batches
}

func (pair *Pair) verify(tp mirror.TopicPartition) (int64, error) {
	ctx, stop := pair.bounded()
	defer stop()
	primary, err := pair.primary.memory.OpenLog(ctx, tp)
	if err != nil {
		return 0, err
	}
	standby, err := pair.standby.memory.OpenLog(ctx, tp)
	if err != nil {
		return 0, err
	}
	var o mirror.CompareOptions
	if pair.phase == failedOver {
		if o.To = pair.finals[tp]; o.To == 0 { // nothing was copied
			return 0, nil
		}
	}
	c, err := mirror.Compare(ctx, primary, standby, o)
	if err == nil && !c.Equal() {
		err = fmt.Errorf("primary (a) and standby (b) differ: %s", c)
	}
	return c.Batches, err
}
