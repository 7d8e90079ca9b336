package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	there = "dr"   // the mirror from the east into the west
	back  = "back" // the one that brings the east back

	acts  = 7
	bound = 40 * time.Second // for any one thing that is waited for
)

// life is one run.
type life struct {
	ctx context.Context
	options
	place  *folder
	screen *screen
	stage  *stage
	cmd    *command
	checks checklist
	ledger *ledger

	east, west *side
	nodes      []*mirrorNode
	clients    *clients
	numbers    atomic.Int64 // of records

	mu       sync.Mutex
	starting bool  // the clusters do, for the first time
	watched  *side // where the mirror is that the table shows
	mirror   string
	head     string // its headline

	killed time.Time
	dead   disks            // of the east when it was dead
	ends   map[string]int64 // where the first mirror ended, by partition
	moved  map[string]int64 // where the group was when the clients were moved
	began  map[string]int64 // where its consumer began then
	tail   map[string]bool  // records of the east that nobody copied

	plan     string           // of the failback
	planned  string           // offsets that it gives up, by that plan
	returned map[string]int64 // where the group was when the clients came home
	twice    int              // records read twice until then

	figures []string
}

// story tells the acts, one after the other. What it has started has ended when it returns.
func story(ctx context.Context, o options, place *folder) (err error) {
	l := &life{ctx: ctx, options: o, place: place, ledger: newLedger()}
	l.screen = newScreen(l.rows)
	l.stage = &stage{ctx: ctx, say: l.screen.say}
	l.cmd = &command{place: place, say: l.screen.say}
	done, shown := make(chan struct{}), make(chan struct{})
	defer func() {
		close(done)
		<-shown
		if l.clients != nil {
			l.clients.close()
		}
		l.stage.end()
	}()
	go func() {
		l.screen.live(done)
		close(shown)
	}()
	go l.watch(done)
	failed := guard(func() { err = l.tell() })
	return errors.Join(err, failed)
}

func (l *life) tell() error {
	begun := time.Now()
	all := []func() error{l.begin, l.mirrorUnderLoad, l.eastDies, l.failover, l.failback, l.home}
	if l.failoverOnly {
		all = all[:4]
	}
	for _, act := range append(all, l.compare) {
		if err := act(); err != nil {
			return err
		}
	}
	l.screen.say("\n%s\n", l.checks.String())
	if err := l.checks.err(); err != nil {
		return err
	}
	l.screen.say("OK: %s, in %.0f s", strings.Join(l.figures, ", "), time.Since(begun).Seconds())
	return nil
}

func (l *life) begin() error {
	if err := lookAround(l.ctx, l.screen.say); err != nil {
		return err
	}
	brokers, why, err := l.size()
	if err != nil {
		return err
	}
	l.screen.act(1, "Two clusters", fmt.Sprintf("Two real Kafka clusters start on this machine, %s each (%s), as they come: no plug-in, and no setting for mirrors. Clients will use the east; the west stands by.", count(brokers, "broker"), why))
	l.mu.Lock()
	l.starting = true
	l.mu.Unlock()
	built := make(chan error, 1)
	go func() { built <- l.cmd.build(l.ctx) }()
	east, west, err := startSides(l.stage, brokers, l.place)
	l.mu.Lock()
	l.east, l.west = east, west
	l.mu.Unlock()
	if err = errors.Join(err, <-built); err != nil {
		return err
	}
	l.screen.say("  east is cluster %s, west is cluster %s", l.east.ID(), l.west.ID())
	for _, t := range topics {
		l.east.CreateTopic(topicOf(t, brokers))
	}
	return l.place.write("client.properties", fmt.Sprintf("mirror.state.topic.replication.factor=%d", brokers), "mirror.state.topic.num.partitions=3")
}

func (l *life) mirrorUnderLoad() (err error) {
	l.screen.act(2, "A mirror under load", "Applications work at the east: an idempotent producer, one that writes transactions, and the consumer group "+group+
		". A mirror node joins the west as one more broker, and the mirror "+there+" copies both topics while they are written.")
	if l.clients, err = startClients(l.ctx, l.east, l.ledger, &l.numbers); err != nil {
		return err
	}
	if err := l.place.write("dr.properties", "bootstrap.servers="+strings.Join(l.east.Bootstrap(), ","), "source.cluster.id="+l.east.ID()); err != nil {
		return err
	}
	if err := l.node(l.west); err != nil {
		return err
	}
	l.show(l.west, there)
	if err := l.verbs(l.west, []string{"--create", "--mirror", there, "--mirror-config", "dr.properties"}, []string{"--start", "--mirror", there, "--topics", orders + "," + payments, "--wait"}); err != nil {
		return err
	}
	if err := l.await("the group is known at the west, in every partition", func() (bool, string, error) {
		at, err := committed(l.ctx, l.west)
		return len(at) == partitions() && err == nil, fmt.Sprint(at, err), nil
	}); err != nil {
		return err
	}
	return l.goOn(2)
}

func (l *life) eastDies() error {
	l.screen.act(3, "The east dies", "The mirror is held up for a moment, as by a slow link, so that it is behind; a transaction that it has seen begin is committed meanwhile. "+
		"Then every broker of the east is killed with kill -9, under load.")
	open, err := l.clients.client(kgo.TransactionalID("payments-night"))
	if err != nil {
		return err
	}
	if err := open.BeginTransaction(); err != nil {
		return err
	}
	done, err := l.clients.write(l.ctx, open, payments, 0, 2)
	if err != nil {
		return err
	}
	if err := l.goOn(1); err != nil {
		return err
	}
	node := l.nodes[0]
	if err := node.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	before := l.ledger.writtenAt(l.east.name)
	if err := open.EndTransaction(l.ctx, kgo.TryCommit); err != nil {
		return err
	}
	l.clients.acknowledged(done)
	if err := l.await("the east is ahead of its copy", func() (bool, string, error) {
		more := l.ledger.writtenAt(l.east.name) - before
		return more > 150, fmt.Sprint(more), nil
	}); err != nil {
		return err
	}
	l.killed = time.Now()
	l.east.die()
	if err := node.signal(syscall.SIGCONT); err != nil {
		return err
	}
	l.screen.say("  every broker of the east is killed; the west has what was copied, and lets nobody write to it")
	l.clients.close()
	return errors.Join(l.clients.trouble(), node.err())
}

func (l *life) failover() (err error) {
	l.screen.act(4, "Failover", "The person on call says stop: nothing of the east is needed for it. Transactions that are open in the copy are aborted, its topics open for clients, "+
		"and the applications go on at the west, the group where it was.")
	if err := l.verbs(l.west, []string{"--stop", "--mirror", there, "--all-topics", "--reason", "the east is down", "--destination-cluster-id", l.west.ID(), "--yes", "--wait"}); err != nil {
		return err
	}
	if l.moved, err = committed(l.ctx, l.west); err != nil {
		return err
	}
	if err := spoilGroup(l.ctx, l.spoil, l.west, l.moved); err != nil {
		return err
	}
	if l.clients, err = startClients(l.ctx, l.west, l.ledger, &l.numbers); err != nil {
		return err
	}
	if err := l.await("clients write and read at the west", func() (bool, string, error) {
		return l.clients.works(), "", l.clients.trouble()
	}); err != nil {
		return err
	}
	l.began = l.clients.began()
	took := l.clients.since(l.killed)
	l.screen.say("  the first record was written at the west %.1f s after the kill", took.Seconds())
	if l.ends, err = l.mirrorEnds(l.west, there); err != nil {
		return err
	}
	l.dead = l.east.disks()
	l.tail = map[string]bool{}
	for name, end := range l.ends {
		log := l.dead.longest(name)
		had, err := below(log, end)
		if err != nil {
			return fmt.Errorf("%s on the disks of the east: %w", name, err)
		}
		for id := range idsIn(log[len(had):]) {
			l.tail[id] = true
		}
	}
	l.screen.say("  %s of the east were not copied; they lie on its disks", count(len(l.tail), "record"))
	l.figures = append(l.figures, fmt.Sprintf("failover in %.1f s", took.Seconds()))
	return l.goOn(2)
}

var (
	planned = regexp.MustCompile(`\nplan ([0-9a-f]+)\n`)
	givenUp = regexp.MustCompile(`GIVEN UP HERE: (\d+) offsets`)
)

func (l *life) failback() error {
	l.screen.act(5, "Failback", "The east is started again, with the tail that nobody copied. A mirror node joins it too, and its plan says exactly what the east would give up; with consent to that plan "+
		"the tail is kept in the node's folder, cut, and the east becomes the copy. The applications go on at the west meanwhile.")
	l.east.comeBack()
	if err := l.place.write("back.properties", "bootstrap.servers="+strings.Join(l.west.Bootstrap(), ","), "source.cluster.id="+l.west.ID()); err != nil {
		return err
	}
	if err := l.node(l.east); err != nil {
		return err
	}
	if err := l.verbs(l.east, []string{"--create", "--mirror", back, "--mirror-config", "back.properties"}); err != nil {
		return err
	}
	l.show(l.east, back)
	if err := l.await("the node of the east runs the mirror", func() (bool, string, error) {
		d, err := l.describe(l.east, back)
		return err == nil && d.Mirrors[0].Alive, fmt.Sprint(err), nil
	}); err != nil {
		return err
	}
	about := []string{"--failback", "--mirror", back, "--topics", orders + "," + payments}
	plan, err := l.cmd.verb(l.ctx, l.east, append(about, "--dry-run")...)
	if err != nil {
		return err
	}
	hash, offsets := planned.FindStringSubmatch(plan), givenUp.FindStringSubmatch(plan)
	if hash == nil || offsets == nil {
		return fmt.Errorf("the plan has no name, or does not say what is given up")
	}
	l.plan, l.planned = plan, offsets[1]
	consent := append(about, "--plan", hash[1], "--reason", "the east is back", "--wait")
	l.screen.say("%s", l.cmd.typed(l.east, consent))
	said, err := l.cmd.quiet(l.ctx, l.east, consent...)
	if err != nil {
		return err
	}
	if i := strings.LastIndex(said, "\nfailback, mirror "); i >= 0 { // the plan is shown once more in front of it
		said = said[i:]
	}
	l.screen.say("%s", indent(said))
	return nil
}

func (l *life) home() (err error) {
	l.screen.act(6, "Home again", "A planned switch: the producers stop, everything is read and copied, the east opens, and the applications go on there. Nothing is lost, and nothing is read twice.")
	l.clients.stopProducing()
	stopped := time.Now()
	if err := l.await("the consumer has read everything", func() (bool, string, error) {
		waits := l.ledger.unread(l.west.name)
		return waits == "", waits, l.clients.trouble()
	}); err != nil {
		return err
	}
	l.clients.close()
	at, err := committed(l.ctx, l.west)
	if err != nil {
		return err
	}
	if err := l.await("the east has all records, and the group where it is at the west", func() (bool, string, error) {
		is, err := committed(l.ctx, l.east)
		west, east := l.west.bytesOnDisk(), l.east.bytesOnDisk()
		return err == nil && maps.Equal(is, at) && west == east, fmt.Sprint(is, err, ", the west is at ", at, "; bytes: ", west, east), nil
	}); err != nil {
		return err
	}
	if err := l.verbs(l.east, []string{"--stop", "--mirror", back, "--all-topics", "--reason", "home again", "--destination-cluster-id", l.east.ID(), "--yes", "--wait"}); err != nil {
		return err
	}
	if l.returned, err = committed(l.ctx, l.east); err != nil {
		return err
	}
	l.twice = l.ledger.readTwice()
	if l.clients, err = startClients(l.ctx, l.east, l.ledger, &l.numbers); err != nil {
		return err
	}
	if err := l.await("clients write and read at the east", func() (bool, string, error) {
		return l.clients.works(), "", l.clients.trouble()
	}); err != nil {
		return err
	}
	took := l.clients.since(stopped)
	l.screen.say("  the producers stood still for %.1f s", took.Seconds())
	l.figures = append(l.figures, fmt.Sprintf("home again in %.1f s", took.Seconds()))
	return l.goOn(2)
}

// compare looks at everything when the clients are done.
func (l *life) compare() error {
	l.screen.act(7, "Comparison", "The clients and the mirror nodes end. The .log files on the disks of all brokers are compared byte by byte, and what clients were told with what is there.")
	now := l.clients.at
	l.clients.stopProducing()
	if err := l.await("the consumer has read everything", func() (bool, string, error) {
		waits := l.ledger.unread(now.name)
		return waits == "", waits, l.clients.trouble()
	}); err != nil {
		return err
	}
	l.clients.close()
	var drained error
	for _, n := range l.nodes {
		drained = errors.Join(drained, n.drain())
	}
	l.nodes = nil
	if err := l.settled(now); err != nil {
		return err
	}
	if l.spoil != "" {
		l.screen.say("  -break=%s", l.spoil)
	}
	visible, err := l.visible(now)
	if err != nil {
		return err
	}
	if err := spoilDisks(l.spoil, now); err != nil {
		return err
	}
	west, whole := l.west.disks(), now.disks()
	copied, err := sameUpTo(west, l.dead, l.ends)
	if err == nil {
		l.screen.say("  the first mirror: %s", copied)
	}
	l.checks.check("what the first mirror copied is, on every disk of the west, what the east had on its disks when it died", err)
	l.checks.check("after the failover the group went on exactly where it was moved to, in every partition", wentOn(l.began, l.moved, visible))
	if !l.failoverOnly {
		same, err := sameBeginning(west, whole)
		if err == nil {
			l.screen.say("  both clusters: %s", same)
		}
		l.checks.check("all that the west has is, byte for byte, on every disk of both clusters", err)
		l.checks.check("what the failback gave up is what its plan said, and lies in the node's folder as it lay on the disks of the east", l.keptWhatWasGivenUp())
		l.checks.check("after the switch home the group went on exactly where it was, and read nothing twice", errors.Join(wentOn(l.clients.began(), l.returned, visible), l.nothingTwice()))
	}
	l.checks.check("no record that can be read was skipped by the consumer", l.noneSkipped(visible))
	l.checks.check("no acknowledged record is lost: each is on every disk, or was given up by name", l.noneLost(whole))
	aborted, err := l.endedDifferently(visible)
	l.checks.check("each acknowledged record can be read, or was given up, or is of a transaction that the copy's end cut, which the plan names", err)
	l.screen.say("  %s of transactions that were committed at the east are aborted at the west: their ends were not copied", count(aborted, "record"))
	given := fmt.Sprintf("%d given up into the sink", len(l.tail))
	if l.failoverOnly {
		given = fmt.Sprintf("%d left at the east", len(l.tail))
	}
	l.checks.check("the mirror nodes ended in order when they were told to", drained)
	l.figures = append([]string{count(len(l.ledger.acknowledged()), "record")}, append(l.figures, fmt.Sprintf("%d read twice", l.ledger.readTwice()), given)...)
	return nil
}

// verbs says them one after the other.
func (l *life) verbs(at *side, lines ...[]string) error {
	for _, line := range lines {
		if _, err := l.cmd.verb(l.ctx, at, line...); err != nil {
			return err
		}
	}
	return nil
}

// node starts a mirror node beside a cluster.
func (l *life) node(at *side) error {
	n, err := l.cmd.startNode(at)
	if err != nil {
		return err
	}
	l.nodes = append(l.nodes, n)
	return nil
}

// await asks until done, for at most bound.
func (l *life) await(what string, ask func() (done bool, now string, err error)) error {
	ctx, stop := context.WithTimeout(l.ctx, bound)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		done, now, err := ask()
		if err == nil {
			for _, n := range l.nodes {
				err = errors.Join(err, n.err())
			}
		}
		if done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("within %v not: %s; %s: %w", bound, what, now, ctx.Err())
		}
	}
}

// goOn lets the applications work for some seconds, for less if the run is to be short.
func (l *life) goOn(seconds float64) error {
	begun, while := time.Now(), time.Duration(seconds*float64(time.Second))
	if l.failoverOnly {
		while /= 2
	}
	return l.await("time passes", func() (bool, string, error) { return time.Since(begun) > while, "", l.clients.trouble() })
}

// description is what --describe --json says, as far as the story needs it.
type description struct {
	Mirrors []struct {
		Head   string
		Alive  bool
		Topics []struct {
			TopicName  string
			Partitions []struct {
				PartitionIndex   int32
				LastMirrorOffset *int64
			}
		}
	}
}

func (l *life) describe(at *side, mirror string) (d description, err error) {
	out, err := l.cmd.quiet(l.ctx, at, "--describe", "--mirror", mirror, "--json")
	if json.Unmarshal([]byte(out), &d) == nil && len(d.Mirrors) == 1 {
		return d, nil // an exit status above 0 says how the mirror is
	}
	return d, errors.Join(err, fmt.Errorf("--describe --json prints no mirror: %q", out))
}

// mirrorEnds are the last mirror offsets, by partition.
func (l *life) mirrorEnds(at *side, mirror string) (map[string]int64, error) {
	d, err := l.describe(at, mirror)
	if err != nil {
		return nil, err
	}
	ends := map[string]int64{}
	for _, t := range d.Mirrors[0].Topics {
		for _, p := range t.Partitions {
			if p.LastMirrorOffset == nil {
				return nil, fmt.Errorf("--describe shows no last mirror offset of %s", partitionName(t.TopicName, p.PartitionIndex))
			}
			ends[partitionName(t.TopicName, p.PartitionIndex)] = *p.LastMirrorOffset
		}
	}
	return ends, nil
}

// show puts a mirror into the table.
func (l *life) show(at *side, mirror string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched, l.mirror, l.head = at, mirror, ""
}

// watch asks for the headline of the mirror in the table, as a person would who looks at it all the time.
func (l *life) watch(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		at, mirror := l.watched, l.mirror
		l.mu.Unlock()
		if at == nil {
			continue
		}
		d, err := l.describe(at, mirror)
		l.mu.Lock()
		if err == nil && l.mirror == mirror {
			l.head = d.Mirrors[0].Head
		}
		l.mu.Unlock()
	}
}

// rows are those of the table.
func (l *life) rows() []row {
	l.mu.Lock()
	east, west, mirror, head, starting := l.east, l.west, l.mirror, l.head, l.starting
	l.mu.Unlock()
	var rows []row
	for _, s := range []*side{east, west} {
		if s != nil {
			rows = append(rows, row{s.name, fmt.Sprintf("brokers %s, %d records written, %.2f MB on disk", s.state(), l.ledger.writtenAt(s.name), float64(s.bytesOnDisk())/1e6)})
		}
	}
	if mirror != "" {
		rows = append(rows, row{mirror, head})
	}
	if read := l.ledger.readAt("east") + l.ledger.readAt("west"); read > 0 {
		rows = append(rows, row{group, fmt.Sprintf("%d records read, %d of them twice", read, l.ledger.readTwice())})
	}
	if len(rows) == 0 && starting {
		rows = append(rows, row{"", "both clusters start"})
	}
	return rows
}

func partitions() (n int) {
	for _, t := range topics {
		n += int(t.partitions)
	}
	return n
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
