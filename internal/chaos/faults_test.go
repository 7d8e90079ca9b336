package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/statemachine"
)

// fault is one kind of trouble. It ends when the trouble is over and its effect was shown; the mirror has to catch up afterwards in any case.
type fault struct {
	kind string
	do   func(w *world)
	slow bool                // it takes half a minute where all else takes seconds
	over func(w *world) bool // it cannot be done any more; nil: it always can
}

// faults is the fixed list. The seed gives the order.
var faults = []fault{
	{"broker killed", (*world).killBroker, false, nil},
	{"broker held up", (*world).holdBroker, false, nil},
	{"mirror killed", (*world).killMirror, false, nil},
	{"mirror taken over", (*world).takeOver, true, nil},
	{"mirror restarted", (*world).restartMirror, false, nil},
	{"network cut", (*world).cutNetwork, false, nil},
	{"network half open", (*world).halfOpen, false, nil},
	{"network black hole", (*world).blackHole, false, nil},
	{"network slow", (*world).slowNetwork, false, nil},
	{"rolling restart", (*world).rollingRestart, true, nil},
	{"unclean election", (*world).uncleanElection, true, nil},
	{"leaders moved", (*world).moveLeaders, false, nil},
	{"records deleted", (*world).deleteRecords, false, nil},
	{"retention", (*world).retention, false, nil},
	{"topic recreated", (*world).recreate, false, nil},
	{"disk full", (*world).fillDisk, false, nil},
	{"mirror paused", (*world).pauseMirror, false, nil},
	{"partitions grown", (*world).growPartitions, false, (*world).grown},
}

// midst is called in the middle of a fault: now and then the mirror is killed there too.
func (w *world) midst() {
	w.t.Helper()
	if w.rng.IntN(3) > 0 {
		return
	}
	w.deep++
	w.killMirror()
}

// aBroker is one that may be taken away: node 1 is the only controller.
func (w *world) aBroker() int32 { return 2 + w.rng.Int32N(2) }

// led is a partition that a broker leads.
func (w *world) led(broker int32) (string, int32, kafkatest.Partition) {
	w.t.Helper()
	for _, topic := range []string{plain, orders, payments} {
		for p := range w.load.partitions[topic].Load() {
			if d := w.c.Describe(topic, p); d.Leader == broker {
				return topic, p, d
			}
		}
	}
	return plain, 0, w.c.MoveLeader(plain, 0, broker)
}

// succeeded waits until another broker leads a partition under a higher epoch.
func (w *world) succeeded(topic string, partition int32, was kafkatest.Partition) kafkatest.Partition {
	w.t.Helper()
	return w.c.WaitPartition(topic, partition, fmt.Sprintf("a leader after broker %d", was.Leader), func(p kafkatest.Partition) bool {
		return p.Leader >= 0 && p.Leader != was.Leader && p.LeaderEpoch > was.LeaderEpoch
	})
}

func (w *world) killBroker() {
	w.whole()
	id := w.aBroker()
	topic, p, was := w.led(id)
	w.c.Kill(id)
	now := w.succeeded(topic, p, was)
	w.midst()
	w.show("broker killed", "kill -9 of broker %d; broker %d leads %s-%d, leader epoch %d → %d", id, now.Leader, topic, p, was.LeaderEpoch, now.LeaderEpoch)
	w.c.StartBroker(id)
	w.whole()
}

func (w *world) holdBroker() {
	w.whole()
	id := w.aBroker()
	topic, p, was := w.led(id)
	w.c.Pause(id)
	now := w.succeeded(topic, p, was)
	w.midst()
	w.c.Resume(id)
	w.show("broker held up", "SIGSTOP of broker %d; broker %d leads %s-%d, leader epoch %d → %d", id, now.Leader, topic, p, was.LeaderEpoch, now.LeaderEpoch)
	w.whole()
}

func (w *world) rollingRestart() {
	w.whole()
	var shown []string
	for _, id := range []int32{2, 3, 1} {
		topic, p, was := w.led(id)
		before := strings.Count(w.c.Log(id), "Kafka Server started")
		w.c.Stop(id)
		w.c.StartBroker(id)
		eventually(w.t, fmt.Sprintf("broker %d says that it started once more", id), func() (bool, string) {
			n := strings.Count(w.c.Log(id), "Kafka Server started")
			return n == before+1, fmt.Sprintf("%d times, before its restart %d", n, before)
		})
		now := w.c.Describe(topic, p)
		if now.LeaderEpoch <= was.LeaderEpoch {
			w.t.Fatalf("%s-%d is led under epoch %d after the restart of its leader, %d before", topic, p, now.LeaderEpoch, was.LeaderEpoch)
		}
		shown = append(shown, fmt.Sprintf("broker %d (%s-%d: epoch %d → %d)", id, topic, p, was.LeaderEpoch, now.LeaderEpoch))
		w.whole()
	}
	w.show("rolling restart", "%s", strings.Join(shown, ", "))
}

func (w *world) killMirror() {
	before := w.one(orders, 0).End
	if err := w.m.Kill(); err != nil {
		w.t.Fatal(err)
	}
	left, err := readCopy(w.m.Dir, orders, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	whole, _, cutErr := cut(left.log)
	if end := endOf(whole, left.Start); end < before {
		w.found = append(w.found, finding{"bytes", orders + "-0", fmt.Sprintf("a process said that the copy ends at %d, and was killed: on disk it ends at %d", before, end)})
	}
	w.startMirror()
	w.show("mirror killed", "kill -9 when orders-0 was copied up to %d; %d bytes were left on disk", before, len(left.log))
	eventually(w.t, "the copy is there again", func() (bool, string) {
		p := w.one(orders, 0)
		return p.State == statemachine.Mirroring && p.End >= before, fmt.Sprintf("it ends at %d, and ended at %d; %s", p.End, before, w.words())
	})
	now, err := readCopy(w.m.Dir, orders, 0)
	kept := 0
	for _, p := range whole {
		kept += len(p.raw)
	}
	if err != nil || cutErr != nil || !bytes.HasPrefix(now.log, left.log[:kept]) {
		w.found = append(w.found, finding{"bytes", orders + "-0", fmt.Sprintf("the copy does not begin with the %d bytes that a killed process had left: %v, %v", kept, err, cutErr)})
	}
}

func (w *world) restartMirror() {
	before := w.m.Pid()
	if err := w.m.close(); err != nil {
		w.t.Fatal(err)
	}
	w.startMirror()
	w.show("mirror restarted", "closed in order, process %d → %d", before, w.m.Pid())
}

// overtaken is one partition of a process that was held up, and whose work another one has taken over.
type overtaken struct {
	before, after    onDisk // the process's own
	successor        onDisk
	sourceStart, end int64 // of the source when the process was held up
}

// judge says what the process added when it went on, and whether that was wrong. It may have been held up in the middle of a call: that one goes on, with what the process knew by then,
// and its successor has the same. Anything else is a change by somebody who had lost the partition.
func (o overtaken) judge() (added int64, problem string) {
	var logs [3][]piece
	for i, d := range []onDisk{o.before, o.after, o.successor} {
		var err error
		if logs[i], _, err = cut(d.log); err != nil {
			return 0, "has a copy that cannot be read: " + err.Error()
		}
	}
	before, after, successor := since(logs[0], o.after.Start), since(logs[1], o.after.Start), logs[2]
	was, is := max(endOf(before, 0), o.after.Start), endOf(after, o.after.Start)
	switch {
	case o.after.Open != o.before.Open:
		return 0, "has opened its copy to clients, or closed it"
	case o.after.LeaderEpoch < o.before.LeaderEpoch || o.after.LeaderEpoch > max(o.before.LeaderEpoch, o.successor.LeaderEpoch):
		return 0, fmt.Sprintf("has changed its leader epoch from %d to %d when it went on; its successor's is %d", o.before.LeaderEpoch, o.after.LeaderEpoch, o.successor.LeaderEpoch)
	case o.after.Start < o.before.Start || o.after.Start > max(o.before.Start, o.sourceStart):
		return 0, fmt.Sprintf("has moved its log's start from %d to %d when it went on; the source's was %d when it was held up", o.before.Start, o.after.Start, o.sourceStart)
	case !beginsWith(after, before):
		return 0, "has changed its copy when it went on"
	case !beginsWith(since(successor, o.after.Start), since(after, o.successor.Start)):
		return 0, "has added to its copy what its successor does not have there"
	case is > max(was, o.end):
		return 0, fmt.Sprintf("has added to its copy, which ends at %d now, when it went on; the source ended at %d when it was held up", is, o.end)
	}
	return is - was, ""
}

// beginsWith says whether a log begins with all of another one.
func beginsWith(log, first []piece) bool {
	return len(first) <= len(log) && slices.EqualFunc(log[:len(first)], first, func(a, b piece) bool { return bytes.Equal(a.raw, b.raw) })
}

// copies reads all partitions of a copy. No process may be at work on it.
func (w *world) copies(dir string) map[clienthistory.Partition]onDisk {
	w.t.Helper()
	metas, err := filepath.Glob(filepath.Join(dir, "topics", "*", "*", "meta"))
	if err == nil && len(metas) == 0 {
		err = errors.New("no partitions")
	}
	all := map[clienthistory.Partition]onDisk{}
	for _, path := range metas {
		folder := filepath.Dir(path)
		n, notNumber := strconv.ParseInt(filepath.Base(folder), 10, 32)
		at := clienthistory.Partition{Topic: filepath.Base(filepath.Dir(folder)), Partition: int32(n)}
		d, unreadable := readCopy(dir, at.Topic, at.Partition)
		all[at], err = d, errors.Join(err, notNumber, unreadable)
	}
	if err != nil {
		w.t.Fatalf("%s: %v", dir, err)
	}
	return all
}

// holdUnlocked holds a process up outside of the moments in which it has the lock of the states' folder, or its place in the queue for it: a process that stands still with the lock keeps
// every other one out until it goes on or is killed. mirror/filestore says so, and names the process.
func (w *world) holdUnlocked(p *process) {
	states := filepath.Join(w.folder, "states")
	eventually(w.t, p.Name+" stands still without the lock of "+states, func() (bool, string) {
		p.Hold()
		for _, path := range []string{states, filepath.Join(states, "lock.next")} {
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				w.t.Fatal(err)
			}
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			f.Close() // and with it the lock
			if err != nil {
				p.Release()
				return false, path + " is locked"
			}
		}
		return true, ""
	})
}

// takeOver holds a mirror's process up for longer than its lease. Another one takes over under its name, on a copy of its disk, and the first one has to see that and change nothing.
func (w *world) takeOver() {
	const lease = 9 * time.Second // three heartbeats of three seconds
	first := w.m
	w.holdUnlocked(first)
	held := time.Now()
	w.disks++
	if err := os.CopyFS(filepath.Join(w.folder, fmt.Sprintf("copy-%d", w.disks)), os.DirFS(first.Dir)); err != nil {
		w.t.Fatal(err)
	}
	before := w.copies(first.Dir)
	starts, ends := w.mustOffsets(true), w.mustOffsets(false)
	w.startMirror()
	w.inStep()
	w.midst()
	eventually(w.t, "the first process was held up for longer than its lease", func() (bool, string) { return time.Since(held) > lease+500*time.Millisecond, "" })
	stood, now := first.Held()
	first.Release()
	took := time.Since(held)
	var says string
	eventually(w.t, "the first process says that it is fenced", func() (bool, string) {
		says = first.do(order{Do: "status"}).Fenced
		return says != "", ""
	})
	w.inStep()
	if err := first.close(); err != nil {
		w.t.Logf("%s closed with: %v", first.Name, err) // it was fenced
	}
	after := w.copies(first.Dir)
	w.m.Hold()
	successor := w.copies(w.m.Dir)
	w.m.Release()
	finished := 0 // appends that had begun before it was held up
	for at := range after {
		if _, had := before[at]; !had {
			w.found = append(w.found, finding{"gate", at.String(), fmt.Sprintf("a process that was held up for %v has a partition that it did not have", took)})
		}
	}
	for at, was := range before {
		is, has := after[at]
		if !has {
			w.found = append(w.found, finding{"gate", at.String(), fmt.Sprintf("a process that was held up for %v has removed its copy", took)})
			continue
		}
		added, problem := overtaken{before: was, after: is, successor: successor[at], sourceStart: starts[at], end: ends[at]}.judge()
		if problem != "" {
			w.found = append(w.found, finding{"gate", at.String(), fmt.Sprintf("a process that was held up for %v %s", took, problem)})
		}
		if added > 0 {
			finished++
		}
	}
	if !stood {
		w.t.Fatalf("%s was not held up to the end, the kernel says %q", first.Name, now)
	}
	w.show("mirror taken over", "held up for %v; %s has gone on; the first one: %s; its %d partitions are what they were, but for %d appends that had begun", took.Round(time.Millisecond), w.m.Name, says, len(after), finished)
	if len(w.found) == 0 {
		os.RemoveAll(first.Dir)
	}
}

// troubled waits until the mirror says that it cannot reach the source, of which this broker is named if one is, or cannot ask it about a partition.
func (w *world) troubled(n int, brokers ...int32) told {
	w.t.Helper()
	return w.told(n, fmt.Sprintf("of trouble with the source %v", brokers), func(e told) bool {
		named := func(id int32) bool { return strings.Contains(e.Text, fmt.Sprintf("source broker %d: ", id)) }
		return e.Kind == "SourceTrouble" && !strings.HasSuffix(e.Text, "answers again") && (len(brokers) == 0 || slices.ContainsFunc(brokers, named)) ||
			e.Kind == "RetryScheduled" && strings.Contains(e.Text, "the source cannot be asked")
	})
}

func (w *world) cutNetwork() {
	n, broken := len(w.events()), 0
	for _, id := range w.c.Brokers() {
		w.c.Proxy(id).SetLink(proxy.Link{Refuse: true})
		broken += w.c.Proxy(id).Reset()
	}
	if broken == 0 {
		w.t.Fatal("no connection was cut")
	}
	e := w.troubled(n)
	w.midst()
	for _, id := range w.c.Brokers() {
		w.c.Proxy(id).SetLink(proxy.Link{})
	}
	w.show("network cut", "%d connections reset; %s", broken, e.Text)
}

// aSource is a broker that the mirror fetches from.
func (w *world) aSource() int32 {
	w.t.Helper()
	return w.c.WaitPartition(plain, w.rng.Int32N(3), "a leader", func(p kafkatest.Partition) bool { return p.Leader >= 0 }).Leader
}

func (w *world) halfOpen() {
	id := w.aSource()
	n := len(w.events())
	p := w.c.Proxy(id)
	broken := p.HalfOpen()
	if broken == 0 {
		w.t.Fatal("no connection was up")
	}
	e := w.troubled(n, id)
	w.show("network half open", "%d connections to broker %d lost their other end; %s", broken, id, e.Text)
}

func (w *world) blackHole() {
	id := w.aSource()
	n := len(w.events())
	p := w.c.Proxy(id)
	p.SetLink(proxy.Link{BlackHole: true})
	passed := func() (sum int64) {
		for _, c := range p.Connections() {
			sum += c.ToClient
		}
		return sum
	}
	began := passed()
	e := w.troubled(n, id)
	w.midst()
	if more := passed() - began; more > 64<<10 { // what was being written when it began
		w.t.Fatalf("%d bytes came through the black hole", more)
	}
	mute := len(slices.DeleteFunc(p.Connections(), func(c proxy.Stat) bool { return !c.Open }))
	p.SetLink(proxy.Link{})
	if mute == 0 {
		w.t.Fatal("no connection is up in the black hole")
	}
	w.show("network black hole", "broker %d: %d connections up; %s", id, mute, e.Text)
}

func (w *world) slowNetwork() {
	const delay = 250 * time.Millisecond
	for _, id := range w.c.Brokers() {
		w.c.Proxy(id).SetLink(proxy.Link{Delay: delay})
	}
	cl := w.c.Client()
	var took time.Duration
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	for range 3 {
		began := time.Now()
		if err := cl.Ping(ctx); err != nil {
			w.t.Fatal(err)
		}
		took = time.Since(began)
	}
	cl.Close()
	w.inStep()
	for _, id := range w.c.Brokers() {
		w.c.Proxy(id).SetLink(proxy.Link{})
	}
	if took < 2*delay {
		w.t.Fatalf("an answer came after %v, the network holds each way back for %v", took, delay)
	}
	w.show("network slow", "an answer takes %v", took.Round(time.Millisecond))
}

// allowUnclean says whether frail may be led by a broker that is not in sync. It may only while a fault wants that: on a busy machine brokers miss their heartbeats, and records that they
// have acknowledged would be lost at the source at any time, without anybody who knows of it.
func (w *world) allowUnclean(allowed bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("unclean elections are allowed: %t", allowed), func() (bool, string) {
		ctx, stop := context.WithTimeout(w.t.Context(), askBound)
		defer stop()
		changed, err := w.c.Admin().AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "unclean.leader.election.enable", Value: kadm.StringPtr(strconv.FormatBool(allowed))}}, frail)
		if err == nil && len(changed) != 1 {
			err = fmt.Errorf("the answer names %d topics", len(changed))
		}
		for _, c := range changed {
			err = errors.Join(err, c.Err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// uncleanElection: broker 3 falls behind, broker 2 writes on alone and dies, broker 3 is elected. What only broker 2 had is lost at the source, and the copy has to follow.
func (w *world) uncleanElection() {
	w.whole()
	led := w.c.MoveLeader(frail, 0, 2)
	// A leader that was moved away has records that its successor had not fetched, until it follows. Held up before that, it would come back with them, and the logs part at them.
	eventually(w.t, "broker 3 follows broker 2", func() (bool, string) {
		log, _, err := cut(w.c.SegmentBytes(frail, 0, 3))
		return slices.ContainsFunc(log, func(p piece) bool { return p.epoch >= led.LeaderEpoch }), fmt.Sprintf("leader epoch %d is not in its log; %v", led.LeaderEpoch, err)
	})
	n := len(w.events())
	w.c.Pause(3)
	w.c.WaitPartition(frail, 0, "broker 2 alone in sync", func(p kafkatest.Partition) bool { return p.Leader == 2 && len(p.ISR) == 1 })
	behind := w.one(frail, 0).End
	eventually(w.t, "the copy has records that only broker 2 has", func() (bool, string) { return w.one(frail, 0).End >= behind+10, w.words() })
	was := w.c.Describe(frail, 0)
	w.c.Kill(2)
	tail := w.one(frail, 0).End
	old, _, err := cut(w.c.SegmentBytes(frail, 0, 2))
	if err != nil {
		w.t.Fatal(err)
	}
	w.midst()
	w.allowUnclean(true)
	at, since := w.load.now(), time.Now()
	w.c.Resume(3)
	now := w.c.WaitPartition(frail, 0, "broker 3 leads", func(p kafkatest.Partition) bool { return p.Leader == 3 && p.LeaderEpoch > was.LeaderEpoch })
	w.allowUnclean(false)
	turn := int64(-1)
	eventually(w.t, "the new leader has written", func() (bool, string) {
		log, _, err := cut(w.c.SegmentBytes(frail, 0, 3))
		i := slices.IndexFunc(log, func(p piece) bool { return p.epoch > was.LeaderEpoch })
		if i >= 0 {
			turn = log[i].base
		}
		return i >= 0, fmt.Sprint(err)
	})
	end := old[len(old)-1].next
	if turn >= end || turn >= tail {
		w.t.Fatalf("the election has lost nothing: broker 3 goes on at %d, broker 2 ended at %d, the copy at %d", turn, end, tail)
	}
	lost := clienthistory.Range{From: turn, To: end}
	w.permits = append(w.permits, permit{clienthistory.Partition{Topic: frail}, lost, since})
	w.load.note(func(h *clienthistory.History) {
		h.Turns = append(h.Turns, clienthistory.Turn{At: at, Partition: clienthistory.Partition{Topic: frail}, From: source, To: source, Offset: turn, Lost: lost})
	})
	e := w.told(n, fmt.Sprintf("that [%d, %d) of frail was dropped", turn, tail), func(e told) bool {
		return e.Kind == "RecordsDropped" && e.Topic == frail && e.From == turn && e.To >= tail
	})
	w.c.StartBroker(2)
	w.whole()
	w.show("unclean election", "frail-0: broker 2 → 3, leader epoch %d → %d, broker 2's [%d, %d) is lost; %s", was.LeaderEpoch, now.LeaderEpoch, turn, end, e.Text)
}

func (w *world) moveLeaders() {
	w.whole()
	var shown []string
	for range 3 {
		topic := []string{plain, orders, payments}[w.rng.IntN(3)]
		p := w.rng.Int32N(w.load.partitions[topic].Load())
		was := w.c.Describe(topic, p)
		to := was.Leader%3 + 1
		now := w.c.MoveLeader(topic, p, to)
		if now.LeaderEpoch <= was.LeaderEpoch {
			w.t.Fatalf("%s-%d: leader epoch %d after the move, %d before", topic, p, now.LeaderEpoch, was.LeaderEpoch)
		}
		shown = append(shown, fmt.Sprintf("%s-%d: broker %d → %d, epoch %d → %d", topic, p, was.Leader, to, was.LeaderEpoch, now.LeaderEpoch))
	}
	w.show("leaders moved", "%s", strings.Join(shown, "; "))
}

func (w *world) deleteRecords() {
	at := clienthistory.Partition{Topic: payments, Partition: w.rng.Int32N(2)}
	w.inStep()
	start, end := w.mustOffsets(true)[at], w.mustOffsets(false)[at]
	to := end - 5
	if to <= start {
		eventually(w.t, "there is something to delete", func() (bool, string) {
			to = w.mustOffsets(false)[at] - 5
			return to > start, fmt.Sprintf("%v ends at %d", at, to+5)
		})
	}
	w.deleted[at] = to
	w.c.DeleteRecords(at.Topic, at.Partition, to)
	if now := w.mustOffsets(true)[at]; now != to {
		w.t.Fatalf("%v starts at %d, DeleteRecords said %d", at, now, to)
	}
	eventually(w.t, "the copy follows the source's start", func() (bool, string) { return w.one(at.Topic, at.Partition).Start >= to, w.words() })
	w.show("records deleted", "%v starts at %d, before at %d, and so does the copy", at, to, start)
}

func (w *world) retention() {
	at := clienthistory.Partition{Topic: short}
	was := w.mustOffsets(true)[at]
	var now int64
	eventually(w.t, "retention removes records of short", func() (bool, string) {
		now = w.mustOffsets(true)[at]
		return now > was, fmt.Sprintf("it starts at %d", now)
	})
	eventually(w.t, "the copy follows retention", func() (bool, string) { return w.one(short, 0).Start >= now, w.words() })
	w.show("retention", "short-0 starts at %d, before at %d, and so does the copy", now, was)
}

func (w *world) recreate() {
	w.inStep()
	eventually(w.t, "there is something to drop", func() (bool, string) {
		p := w.one(reborn, 0)
		return p.End > p.Start, w.words()
	})
	w.endReborn()
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	listed, err := w.c.Admin().ListTopics(ctx, reborn)
	if err != nil {
		w.t.Fatal(err)
	}
	first := listed[reborn].ID
	if _, err := w.c.Admin().DeleteTopic(ctx, reborn); err != nil {
		w.t.Fatal(err)
	}
	w.midst()
	eventually(w.t, "the topic is gone", func() (bool, string) {
		listed, err := w.c.Admin().ListTopics(ctx)
		return err == nil && !listed.Has(reborn), fmt.Sprint(err)
	})
	id := w.c.CreateTopic(kafkatest.Topic{Name: reborn, Replication: 3, Configs: map[string]string{"min.insync.replicas": "2"}})
	if id == first {
		w.t.Fatalf("the new topic has the old one's id %x", id)
	}
	w.bear()
	n := len(w.events())
	var reason string
	asked := false
	eventually(w.t, "the mirror refuses the new topic", func() (bool, string) {
		p := w.one(reborn, 0)
		reason = p.Reason
		if p.RetryAttempt == statemachine.NonRetryable && p.NeedsConsent == nil && !asked {
			w.m.do(order{Do: "recover", Topics: []string{reborn}}) // it saw that the topic was gone, and leaves what comes then to a person
			asked = true
		}
		return p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable && p.NeedsConsent != nil, w.words()
	})
	gone := w.one(reborn, 0)                                                                                                                       // it stands
	w.permits = append(w.permits, permit{clienthistory.Partition{Topic: reborn}, clienthistory.Range{From: gone.Start, To: gone.End}, time.Now()}) // by the operator's consent
	consents := w.m.do(order{Do: "startover", Topic: reborn}).Text
	e := w.told(n, "that reborn was dropped", func(e told) bool { return e.Kind == "RecordsDropped" && e.Topic == reborn })
	w.show("topic recreated", "id %x → %x; FAILED: %s; started over with %s; %s", first[:4], id[:4], reason, consents, e.Text)
}

func (w *world) fillDisk() {
	n := len(w.events())
	largest := int64(0)
	err := filepath.WalkDir(w.m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), "data-") {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				largest = max(largest, info.Size())
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the mirror is at work: another file has taken its place
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.m.do(order{Do: "limit", Bytes: uint64(largest + 1000)})
	var at string
	eventually(w.t, "the copy's disk is full", func() (bool, string) {
		for key, p := range w.status() {
			if strings.Contains(p.Reason, "file too large") {
				at = fmt.Sprintf("%v: %s", key, p.Reason)
				return true, ""
			}
		}
		for _, e := range w.events()[n:] {
			if strings.Contains(e.Text, "file too large") {
				at = e.Text
				return true, ""
			}
		}
		return false, w.words()
	})
	killed := w.deep
	w.midst()
	if killed == w.deep {
		w.m.do(order{Do: "limit"})
	}
	w.show("disk full", "no file may have more than %d bytes; %s", largest+1000, at)
}

func (w *world) pauseMirror() {
	n := len(w.events())
	topics := []string{short, plain}
	w.m.do(order{Do: "pause", Topics: topics})
	eventually(w.t, "short and plain are paused", func() (bool, string) {
		for at, p := range w.status() {
			if slices.Contains(topics, at.Topic) && p.State != statemachine.Paused {
				return false, w.words()
			}
		}
		return true, ""
	})
	end := w.one(short, 0).End
	w.midst()
	var start int64
	eventually(w.t, "retention has overtaken the mirror", func() (bool, string) {
		start = w.mustOffsets(true)[clienthistory.Partition{Topic: short}]
		return start > end, fmt.Sprintf("the source starts at %d, the copy ends at %d", start, end)
	})
	if now := w.one(short, 0).End; now != end {
		w.t.Fatalf("short-0 was paused at %d and is at %d", end, now)
	}
	w.m.do(order{Do: "resume", Topics: topics})
	e := w.told(n, "what retention took from it", func(e told) bool { return e.Kind == "RecordsLost" && e.Topic == short && e.From == end })
	if e.To < start {
		w.found = append(w.found, finding{"report", short + "-0", fmt.Sprintf("the source began at %d when the mirror went on at %d, and it tells less: %s", start, end, e.Text)})
	}
	w.show("mirror paused", "short-0 stood at %d; %s", end, e.Text)
}

// grown says that plain has grown enough.
func (w *world) grown() bool { return w.load.partitions[plain].Load() >= 9 }

func (w *world) growPartitions() {
	l := w.load
	n := l.partitions[plain].Load()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = plain, n+1
	req.Topics = append(req.Topics, rt)
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	resp, err := req.RequestWith(ctx, w.c.AdminClient())
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		w.t.Fatalf("%v, %+v", err, resp)
	}
	w.c.WaitPartition(plain, n, "a leader", func(p kafkatest.Partition) bool { return p.Leader >= 0 && len(p.ISR) == 3 })
	l.partitions[plain].Store(n + 1)
	eventually(w.t, "the new partition is mirrored", func() (bool, string) {
		p := w.one(plain, n)
		return p.State == statemachine.Mirroring && p.End > 0, w.words()
	})
	w.show("partitions grown", "plain has %d, before %d, and the copy too", n+1, n)
}
