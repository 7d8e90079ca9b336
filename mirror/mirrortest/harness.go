package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
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

// DR is two clusters and the mirrors between them. Its methods fail the test, and end it, when what they say does not come true; they are for the test's goroutine.
type DR struct {
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
func Start(t testing.TB, cfg Config) *DR {
	t.Helper()
	if cfg.Seed == 0 {
		cfg.Seed = seed(t)
	}
	if cfg.Bound == 0 {
		cfg.Bound = 20 * time.Second
	}
	d := &DR{t: t, cfg: cfg, topics: slices.Sorted(maps.Keys(cfg.Topics)), link: newLink(cfg.Seed, cfg.Faults)}
	t.Cleanup(d.close)
	var err error
	if d.primary, err = NewCluster(ClusterConfig{ID: "primary", Brokers: cfg.Brokers}); err != nil {
		t.Fatal(err)
	}
	if d.standby, err = NewCluster(ClusterConfig{ID: "standby", Brokers: cfg.Brokers}); err != nil {
		t.Fatal(err)
	}
	for _, name := range d.topics {
		if err := d.primary.CreateTopic(name, cfg.Topics[name], nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := d.bounded()
	defer stop()
	if d.running, err = d.run(ctx, "dr", d.primary, d.standby); err != nil {
		t.Fatal(err)
	}
	if len(d.topics) > 0 {
		d.Mirror(d.topics...)
	}
	return d
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

func (d *DR) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d.cfg.Bound)
}

// mostEvents is how many events are kept for a test that fails.
const mostEvents = 100

func (d *DR) event(e mirror.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.events) == mostEvents {
		d.events = d.events[1:]
	}
	d.events = append(d.events, fmt.Sprint(e))
}

// close ends everything, and says how to run the same again when the test has failed.
func (d *DR) close() {
	var failed []error
	if d.running != nil {
		failed = append(failed, d.running.close())
	}
	for _, c := range []*Cluster{d.primary, d.standby} {
		if c != nil {
			failed = append(failed, c.Close())
		}
	}
	if err := errors.Join(failed...); err != nil {
		d.t.Errorf("mirrortest: closing: %v", err)
	}
	if d.t.Failed() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.t.Logf("mirrortest: again with the same faults: CLUSTERMIRROR_SEED=%d\nlast events of the mirrors:\n  %s", d.cfg.Seed, strings.Join(d.events, "\n  "))
	}
}

// Primary is the cluster that clients begin at.
func (d *DR) Primary() *Cluster { return d.primary }

// Standby is the cluster that has the copy.
func (d *DR) Standby() *Cluster { return d.standby }

// Active is the cluster that clients belong at now: the standby from Failover on, the primary again after Home.
func (d *DR) Active() *Cluster {
	if d.phase == mirroring {
		return d.primary
	}
	return d.standby
}

// Link is the network between both.
func (d *DR) Link() *Link { return d.link }

// Seed is the seed in use.
func (d *DR) Seed() uint64 { return d.cfg.Seed }

// Mirror mirrors more topics of the primary, which has to have them, and waits until they are in step.
func (d *DR) Mirror(topics ...string) {
	d.t.Helper()
	ctx, stop := d.bounded()
	defer stop()
	if d.phase != mirroring {
		d.t.Fatal("mirrortest: Mirror: the standby is no copy now; call Failback first")
	}
	for _, name := range topics {
		if _, err := d.primary.memory.Topic(ctx, name); err != nil {
			d.t.Fatalf("mirrortest: the primary has no such topic: %v", err)
		}
	}
	if _, err := d.running.Admin().Start(ctx, topics, mirror.StartOptions{}); err != nil {
		d.t.Fatalf("mirrortest: mirroring %v: %v", topics, err)
	}
	d.topics = slices.Compact(slices.Sorted(slices.Values(append(d.topics, topics...))))
	if err := d.caughtUp(ctx, d.running); err != nil {
		d.t.Fatal(err)
	}
}

// KillPrimary ends the primary as kill -9 does: see Cluster.Kill. Failback revives it.
func (d *DR) KillPrimary() {
	d.t.Helper()
	if d.phase == returned {
		d.t.Fatal("mirrortest: KillPrimary: the primary is the copy now; there is nothing to fail over to it for. Call Home first")
	}
	d.primary.Kill()
}

// AwaitCaughtUp waits until the copy has all that the other cluster has now, and groups without members at the copy are where they are at the other cluster.
func (d *DR) AwaitCaughtUp() {
	d.t.Helper()
	ctx, stop := d.bounded()
	defer stop()
	if d.phase == failedOver {
		d.t.Fatal("mirrortest: nothing is mirrored between Failover and Return")
	}
	if err := d.caughtUp(ctx, d.running); err != nil {
		d.t.Fatal(err)
	}
}

// caughtUp waits until one mirror's copy has all that its source has now.
func (d *DR) caughtUp(ctx context.Context, r *running) error {
	want := map[mirror.TopicPartition]int64{}
	for _, tp := range d.partitions(r.from) {
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
		err = poll(ctx, func() (string, error) { return d.groupsBehind(ctx, r) })
	}
	if err != nil {
		return fmt.Errorf("mirrortest: the mirror from %s is not in step: %w", r.from.id, err)
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
func (d *DR) partitions(c *Cluster) (all []mirror.TopicPartition) {
	for _, name := range d.topics {
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
func (d *DR) groupsBehind(ctx context.Context, r *running) (string, error) {
	listed, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, r.from.inner)
	if err != nil {
		return "", err
	}
	for _, g := range listed.Groups {
		from, to := r.from.kfake.GroupInfo(g.Group), r.to.kfake.GroupInfo(g.Group)
		if from == nil || to != nil && len(to.Members) > 0 {
			continue
		}
		for _, tp := range d.partitions(r.from) {
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

// FailoverReport is what a failover did: mirror's own report, and what only somebody who sees both clusters can know.
type FailoverReport struct {
	mirror.FailoverReport
	Plan mirror.FailoverPlan
	// NotCopied are the records that the other cluster took and the copy does not have, whether or not their transaction was committed there.
	NotCopied []Record
}

// Failover makes the standby the primary, from what it has: it does not wait for the source, which may be dead, alive or cut off.
func (d *DR) Failover() FailoverReport {
	d.t.Helper()
	if d.phase != mirroring {
		d.t.Fatal("mirrortest: Failover: the standby is no copy now; call Failback first")
	}
	r, err := d.failover(d.running)
	if err == nil {
		err = d.end()
	}
	if err != nil {
		d.t.Fatalf("mirrortest: failover: %v\n%s", err, r)
	}
	d.phase = failedOver
	d.finals = map[mirror.TopicPartition]int64{}
	for _, p := range r.Partitions {
		d.finals[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.FinalOffset
	}
	return r
}

func (d *DR) failover(r *running) (report FailoverReport, err error) {
	ctx, stop := d.bounded()
	defer stop()
	report.Plan = mirror.PlanFailover(r.Snapshot(), mirror.FailoverOptions{Topics: d.topics})
	if report.FailoverReport, err = r.ExecuteFailover(ctx, report.Plan); err != nil {
		return report, err
	}
	for _, p := range report.Partitions {
		raw, err := r.from.memory.RawLog(p.Topic, p.Partition)
		if err != nil {
			continue // deleted there since
		}
		report.NotCopied = append(report.NotCopied, d.records(mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}, raw, p.FinalOffset)...)
	}
	return report, nil
}

// records decodes the batches that begin at an offset or above it.
func (d *DR) records(tp mirror.TopicPartition, batches []byte, from int64) (found []Record) {
	d.t.Helper()
	some, err := memlog.DecodeRecords(batches)
	if err != nil {
		d.t.Fatalf("mirrortest: %s-%d: %v", tp.Topic, tp.Partition, err)
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
func (d *DR) Failback() FailbackReport {
	d.t.Helper()
	return FailbackReport{Return: d.Return(), Home: d.Home()}
}

// Return brings the old primary back as a copy of the standby: a plan of what it has to give up, consent to exactly that, the cut, and then it catches up. A dead primary is revived. Clients
// stay at the standby.
func (d *DR) Return() ReturnReport {
	d.t.Helper()
	if d.phase != failedOver {
		d.t.Fatal("mirrortest: Return comes after Failover")
	}
	d.primary.Revive()
	ctx, stop := d.bounded()
	defer stop()
	r, err := d.comeBack(ctx, "home", d.standby, d.primary)
	if err != nil {
		d.t.Fatalf("mirrortest: return: %v\n%s\n%s", err, r.Plan, r.FailbackReport)
	}
	d.phase = returned
	return r
}

// run opens a mirror.
func (d *DR) run(ctx context.Context, name string, from, to *Cluster) (*running, error) {
	return run(ctx, name, from, to, d.link, d.cfg.Seed, d.event)
}

// end closes the mirror.
func (d *DR) end() error {
	r := d.running
	d.running = nil
	return r.close()
}

// comeBack makes a cluster that was written to the copy of the other one, by the mirror of this name.
func (d *DR) comeBack(ctx context.Context, name string, from, to *Cluster) (report ReturnReport, err error) {
	r, err := d.run(ctx, name, from, to)
	if err != nil {
		return report, err
	}
	d.running = r
	for { // as often as a person would, when the source does not answer or somebody writes meanwhile
		report.Plan, err = r.PlanFailback(ctx, d.topics...)
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
		report.GivenUp = append(report.GivenUp, d.records(k.TopicPartition, k.batches, k.from)...)
	}
	return report, d.caughtUp(ctx, r)
}

// Home brings clients home, without loss: producers at the standby are refused, the last records are copied, the primary is opened, and the standby becomes its copy again.
func (d *DR) Home() HomeReport {
	d.t.Helper()
	if d.phase != returned {
		d.t.Fatal("mirrortest: Home comes after Return")
	}
	ctx, stop := d.bounded()
	defer stop()
	d.standby.fence(true)
	defer d.standby.fence(false)
	if err := d.caughtUp(ctx, d.running); err != nil {
		d.t.Fatalf("mirrortest: home: %v", err)
	}
	opened, err := d.failover(d.running)
	if err == nil {
		err = d.end()
	}
	if err != nil {
		d.t.Fatalf("mirrortest: home: %v\n%s", err, opened)
	}
	again, err := d.comeBack(ctx, "dr", d.primary, d.standby)
	if err != nil {
		d.t.Fatalf("mirrortest: home: %v\n%s\n%s", err, again.Plan, again.FailbackReport)
	}
	d.phase = mirroring
	return HomeReport{FailoverReport: opened.FailoverReport, Plan: opened.Plan, Again: again}
}

// Verify compares the bytes of both clusters' logs, and fails the test where they differ: all of them while one is the copy of the other, which it waits for; what was copied after
// a failover. It returns the number of batches that were compared.
func (d *DR) Verify() (batches int64) {
	d.t.Helper()
	if d.phase != failedOver {
		d.AwaitCaughtUp()
	}
	for _, tp := range d.partitions(d.standby) {
		n, err := d.verify(tp)
		if err != nil {
			d.t.Errorf("mirrortest: %s-%d: %v", tp.Topic, tp.Partition, err)
		}
		batches += n
	}
	return batches
}

func (d *DR) verify(tp mirror.TopicPartition) (int64, error) {
	ctx, stop := d.bounded()
	defer stop()
	primary, err := d.primary.memory.OpenLog(ctx, tp)
	if err != nil {
		return 0, err
	}
	standby, err := d.standby.memory.OpenLog(ctx, tp)
	if err != nil {
		return 0, err
	}
	var o mirror.CompareOptions
	if d.phase == failedOver {
		if o.To = d.finals[tp]; o.To == 0 { // nothing was copied
			return 0, nil
		}
	}
	c, err := mirror.Compare(ctx, primary, standby, o)
	if err == nil && !c.Equal() {
		err = fmt.Errorf("primary (a) and standby (b) differ: %s", c)
	}
	return c.Batches, err
}
