package partition

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
	"pgregory.net/rapid"
)

// chaos is a world that checks the invariants of design.md while a random hand plays with it.
type chaos struct {
	*world
	t        *rapid.T
	history  map[string]bool // every batch that the source ever had
	salt     int
	txn      map[int64]bool // open transactions at the source
	stopping bool           // a stop has been persisted and nothing else since
	compared int            // moments at which the core's knowledge of the log was compared with it …
	partly   int            // … and the core had not read all of it
}

func newChaos(t *rapid.T) *chaos {
	c := &chaos{world: newWorld(), t: t, history: map[string]bool{}, txn: map[int64]bool{}}
	c.cfg.Loss = LossPolicy(rapid.IntRange(0, 2).Draw(t, "loss"))
	c.cfg.Seed = rapid.Uint64().Draw(t, "seed")
	c.log.recovers = rapid.Bool().Draw(t, "recovers")
	c.log.lower = c.says
	c.log.piece = rapid.IntRange(0, 4).Draw(t, "piece")
	c.onEffect = c.check
	return c
}

// says is what a log that can be asked says: all it knows, often less, and now and then what cannot be.
func (c *chaos) says(k Recovered) Recovered {
	switch rapid.IntRange(0, 9).Draw(c.t, "says") {
	case 0, 1, 2, 3:
		k.From = c.log.start + int64(rapid.IntRange(0, int(k.From-c.log.start)).Draw(c.t, "from"))
	case 4:
		k.From = c.log.end + 1
	case 5:
		k.From = c.log.start - 1
	case 6:
		k.Epochs = append(k.Epochs, logtrunc.Entry{Epoch: c.log.leaderEpoch, Start: -1})
	}
	if rapid.Bool().Draw(c.t, "below only") {
		i := slices.IndexFunc(k.Epochs, func(e logtrunc.Entry) bool { return e.Start >= k.From })
		if i >= 0 && k.From >= c.log.start {
			k.Epochs = k.Epochs[:i]
		}
	}
	return k
}

// check looks at every effect before it is carried out.
func (c *chaos) check(e *Effect) {
	switch e.Kind {
	case Persist:
		c.stopping = e.Record.State == statemachine.Stopping || c.stopping && e.Record.State == statemachine.Stopped
	case CheckSource, AskEpoch, AddFetcher, Continue:
		if c.stopping {
			c.t.Fatalf("invariant 8: %v during a stop\n%s", e.Kind, c.out.String())
		}
	case SettleProducerIDs:
		for i := range c.log.batches {
			if id := c.log.batches[i].h.ProducerID; id > e.Offset {
				c.t.Fatalf("invariant 5: producer ids settled above %d, but %d is in the log\n%s", e.Offset, id, c.out.String())
			}
		}
	case Truncate:
		c.mayDrop(e, e.Offset)
	case Reset:
		c.mayDrop(e, c.log.start)
	case OpenLog:
		if c.stored.State == statemachine.Stopping {
			switch {
			case c.stored.FoundOpen: // the clients' log
			case c.lme == nil || c.lme.Episode != c.stored.Episode || c.lme.Offset < 0:
				c.t.Fatalf("invariant 4: opened without a record of where the mirror ended\n%s", c.out.String())
			case c.log.replicated < c.log.end:
				c.t.Fatalf("invariant 4: opened before the marks are replicated\n%s", c.out.String())
			}
		}
	case Append:
		for _, m := range toBatches(e.Bytes) {
			if c.stored.State == statemachine.Mirroring && !c.history[string(m.bytes)] {
				c.t.Fatalf("invariant 1: %s was never in the source\n%s", describeBatch(&m), c.out.String())
			}
		}
	}
}

// mayDrop is invariant 6: what is replicated goes only by consent, by proof, or by the loss policy.
func (c *chaos) mayDrop(e *Effect, from int64) {
	if len(c.log.from(from)) == 0 {
		return
	}
	switch c.stored.State {
	case statemachine.Stopping:
		if from < c.log.replicated {
			c.t.Fatalf("invariant 6: STOPPING drops [%d, %d), replicated up to %d\n%s", from, c.log.end, c.log.replicated, c.out.String())
		}
	case statemachine.Preparing:
		if !c.consented(from, c.log.end) {
			c.t.Fatalf("invariant 6: PREPARING drops [%d, %d) without consent\n%s", from, c.log.end, c.out.String())
		}
	case statemachine.Mirroring:
		if e.Kind == Reset {
			if c.cfg.Loss != LossRestart || c.src.start <= c.log.end {
				c.t.Fatalf("invariant 6: reset although the source starts at %d, our end is %d\n%s", c.src.start, c.log.end, c.out.String())
			}
			return
		}
		if (c.stored.Episode > 1 || c.lme != nil && c.lme.Offset >= 0) && !c.consented(from, c.log.end) {
			c.t.Fatalf("invariant 6: MIRRORING drops [%d, %d) of a log that was open once, without consent\n%s", from, c.log.end, c.out.String())
		}
		for _, ours := range c.log.from(from) {
			for _, theirs := range c.src.from(ours.h.BaseOffset) {
				if bytes.Equal(ours.bytes, theirs.bytes) && ours.h.BaseOffset >= from {
					c.t.Fatalf("invariant 6: MIRRORING drops %s, which the source has\n%s", describeBatch(&ours), c.out.String())
				}
			}
		}
	default:
		c.t.Fatalf("invariant 6: dropped in %v\n%s", c.stored.State, c.out.String())
	}
}

func (c *chaos) consented(from, to int64) bool {
	for _, k := range c.consent {
		if k.From <= from && to <= k.To && k.Episode == c.stored.Episode {
			return true
		}
	}
	return false
}

// invariants looks at the whole after every step.
func (c *chaos) invariants() {
	end := c.log.start
	for i := range c.log.batches {
		h := &c.log.batches[i].h
		if h.BaseOffset < end && i > 0 {
			c.t.Fatalf("invariant 2: batch at %d after one that ends at %d\n%s", h.BaseOffset, end, c.out.String())
		}
		end = h.NextOffset()
		if h.LeaderEpoch > c.log.leaderEpoch {
			c.t.Fatalf("invariant 3: epoch %d at %d, leader epoch %d\n%s", h.LeaderEpoch, h.BaseOffset, c.log.leaderEpoch, c.out.String())
		}
	}
	c.derivedIsRight()
	if c.stored.State == statemachine.Stopped && c.log.owner == OwnerOurs && c.lme != nil && c.lme.Offset >= 0 && c.lme.Episode == c.stored.Episode {
		if open := c.log.producers().InFlight(); len(open) > 0 && !c.clientsWrote() {
			c.t.Fatalf("invariant 5: STOPPED with %v open\n%s", open, c.out.String())
		}
	}
}

// derivedIsRight compares what the core knows of the log, when it knows all of it, with the log.
func (c *chaos) derivedIsRight() {
	k := c.core
	if k.rebuilding || k.dirty || k.busy != (Token{}) || k.upTo != c.log.end || k.log.End != c.log.end || k.log.Start != c.log.start {
		return
	}
	c.compared++
	if k.from > k.log.Start {
		c.partly++
	}
	wrong := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			c.t.Fatalf("the core knows %s %v of a log with %v (known from %d): %v\n%s", what, got, want, k.from, &c.log.batchLog, c.out.String())
		}
	}
	for i := range c.log.batches { // what a gap at the log start or the end was written under may be known too
		at := max(c.log.start, c.log.batches[i].h.BaseOffset)
		wrong(fmt.Sprintf("epoch at %d", at), k.epochs.EpochAt(at), c.log.batches[i].h.LeaderEpoch)
	}
	whole := c.log.producers()
	ours, theirs := k.producers.InFlight(), whole.InFlight()
	wrong("open transactions", len(ours), len(theirs))
	for _, list := range [][]producerstate.Transaction{ours, theirs} {
		slices.SortFunc(list, func(a, b producerstate.Transaction) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	}
	for i := range theirs {
		if ours[i].FirstOffset < c.log.start { // it began with a batch that is gone
			ours[i].FirstOffset, ours[i].FirstTimestamp, theirs[i].FirstOffset, theirs[i].FirstTimestamp = 0, 0, 0, 0
		}
		ours[i].CoordinatorEpoch, theirs[i].CoordinatorEpoch = 0, 0 // of a marker that may not have been read
	}
	wrong("open transactions", ours, theirs)
	if len(c.log.batches) == 0 {
		wrong("records", k.holdsRecords(), false)
		return
	}
	wrong("records", k.holdsRecords(), true)
	wrong("a first record too high", k.firstRecord() > max(c.log.start, c.log.batches[0].h.BaseOffset), false)
	last := &c.log.batches[len(c.log.batches)-1]
	wrong("a reset at the end", k.producers.LastIsReset(), txnabort.IsPIDReset(last.bytes))
	if k.lme == nil || k.lme.Offset < 0 || k.lme.Episode != k.rec.Episode {
		return
	}
	reset := int64(-1) // of this episode's stop
	for _, m := range c.log.from(k.lme.Offset) {
		if txnabort.IsPIDReset(m.bytes) && m.h.BaseOffset >= k.lme.Offset {
			reset = m.h.BaseOffset
		}
	}
	wrong("marks", k.marked(), reset >= 0)
}

func (c *chaos) clientsWrote() bool {
	for i := range c.log.batches {
		if bytes.Contains(c.log.batches[i].bytes, []byte("client")) {
			return true
		}
	}
	return false
}

func (c *chaos) sourceAppend() {
	base := c.src.hw()
	epoch := c.src.view.LeaderEpoch
	c.salt++
	var b []byte
	pid := int64(rapid.IntRange(1, 3).Draw(c.t, "pid"))
	switch rapid.IntRange(0, 3).Draw(c.t, "what") {
	case 0:
		b = data(base, base+int64(rapid.IntRange(0, 4).Draw(c.t, "n")), epoch, 1, -1, 0, 0, false, fmt.Sprint("s", c.salt, "-"))
	case 1:
		if c.txn[pid] {
			b = marker(base, epoch, rapid.Bool().Draw(c.t, "commit"), pid, 0)
			delete(c.txn, pid)
			break
		}
		fallthrough
	case 2:
		c.txn[pid] = true
		b = data(base, base+1, epoch, 2, pid, 0, 0, true, fmt.Sprint("t", c.salt, "-"))
	case 3: // a gap, as compaction leaves it
		base += 2
		b = data(base, base, epoch, 1, -1, 0, 0, false, fmt.Sprint("g", c.salt, "-"))
	}
	m := toBatches(b)[0]
	c.history[string(m.bytes)] = true
	c.src.add(m)
}

func (c *chaos) election(unclean bool) {
	if unclean && c.src.end > c.src.start {
		c.src.cutTo(c.src.end - int64(rapid.IntRange(0, int(min(6, c.src.end-c.src.start))).Draw(c.t, "back")))
		c.src.end2 = 0
		// Transactions that the source forgot are not decided any more.
		c.txn = map[int64]bool{}
		for _, open := range c.src.producers().InFlight() {
			c.txn[open.ProducerID] = true
		}
	}
	c.src.view.LeaderEpoch += int32(rapid.IntRange(1, 4).Draw(c.t, "epochs"))
	c.src.view.LeaderID = int32(rapid.IntRange(1, 3).Draw(c.t, "leader"))
	c.src.cache.TruncateTo(c.src.end)
	c.src.cache.Assign(c.src.view.LeaderEpoch, c.src.end)
}

func (c *chaos) toldDropped(since int) bool {
	for _, n := range c.notes[since:] {
		if n.Kind == RecordsDropped {
			return true
		}
	}
	return false
}

func (c *chaos) consentToAll() {
	c.consent = []Consent{{TopicID: testTopic, From: c.log.start, To: c.log.end + 100, Episode: c.stored.Episode + int32(rapid.IntRange(0, 1).Draw(c.t, "next"))}}
}

func (c *chaos) play() {
	switch rapid.IntRange(0, 18).Draw(c.t, "act") {
	case 0, 1, 2, 3, 4, 5:
		if len(c.pending) > 0 {
			f := noFault
			if rapid.IntRange(0, 7).Draw(c.t, "fault?") == 0 {
				f = fault(rapid.IntRange(1, 3).Draw(c.t, "fault"))
			}
			k := c.pending[0].Kind
			if f != noFault && k == Persist {
				f = failBefore // whether it was written is the shell's to find out
			}
			held, told := len(c.log.batches), len(c.notes)
			c.answer(0, f)
			if f == noFault && (k == Truncate || k == Reset) && len(c.log.batches) < held && c.core.writing == (Token{}) && !c.toldDropped(told) { // while a state is written, it is told afterwards
				c.t.Fatalf("invariant 6: dropped without a word\n%s", c.out.String())
			}
		} else {
			c.wake()
		}
	case 6:
		c.run(rapid.IntRange(1, 40).Draw(c.t, "steps"), nil)
	case 7, 8:
		c.sourceAppend()
	case 9:
		c.election(rapid.Bool().Draw(c.t, "unclean"))
	case 10:
		if len(c.last) > 0 { // an old answer comes once more
			c.step(c.last[rapid.IntRange(max(0, len(c.last)-20), len(c.last)-1).Draw(c.t, "old")])
		}
	case 11:
		if len(c.pending) > 0 && rapid.Bool().Draw(c.t, "took effect") {
			e := c.pending[0]
			c.perform(&e, noFault)
		}
		c.stopping = c.stored.State == statemachine.Stopping || c.stored.State == statemachine.Stopped && c.want == statemachine.WantStopped
		c.crash()
	case 12:
		c.due()
	case 13:
		if rapid.IntRange(0, 2).Draw(c.t, "consent?") == 0 && c.core.writing == (Token{}) { // what comes while a state is written is seen afterwards
			c.consentToAll()
		}
		c.wish(statemachine.Desired(rapid.IntRange(0, 2).Draw(c.t, "want")))
	case 14:
		c.src.raiseStart(min(c.src.hw(), c.src.start+int64(rapid.IntRange(0, 12).Draw(c.t, "trim"))))
		c.src.end = max(c.src.end, c.src.start)
		c.src.cache.RaiseStart(c.src.start)
		if rapid.Bool().Draw(c.t, "told") {
			c.step(Event{Kind: SourceChanged, Source: c.src.look()})
		}
	case 15:
		c.log.lag = rapid.Bool().Draw(c.t, "lag")
		c.log.settle()
		c.step(Event{Kind: ReplicatedMoved, Log: c.log.view()})
	case 16:
		c.src.down = rapid.Bool().Draw(c.t, "down")
	case 18: // somebody else raises the destination's leader epoch
		if c.log.owner == OwnerOurs {
			c.log.leaderEpoch += int32(rapid.IntRange(1, 3).Draw(c.t, "raise"))
		}
	case 17:
		switch rapid.IntRange(0, 2).Draw(c.t, "rare") {
		case 0:
			c.step(Event{Kind: FailPartition, Err: errLost})
		case 1:
			c.step(Event{Kind: Recover})
		case 2:
			if c.log.owner == OwnerOpen { // clients write
				c.log.leaderEpoch++
				c.log.add(toBatches(data(c.log.end, c.log.end+1, c.log.leaderEpoch, 1, -1, 0, 0, false, "client"))[0])
				c.log.settle()
			}
		}
	}
	if len(c.last) > 200 {
		c.last = c.last[100:]
	}
}

// TestInvariantsUnderChaos plays random events, failures, stale answers and crashes; the invariants of design.md hold after each step, and a stop with a dead
// source always ends in STOPPED with nothing open.
func TestInvariantsUnderChaos(t *testing.T) {
	compared, partly := 0, 0
	for range 20 { // a short run may meet no log that is not read whole
		playChaos(t, &compared, &partly)
		if t.Failed() || compared > 0 && partly > 0 {
			return
		}
	}
	t.Errorf("what the core knows of the log was compared %d times, %d times of a log that was not read whole", compared, partly)
}

func playChaos(t *testing.T, compared, partly *int) {
	rapid.Check(t, func(t *rapid.T) { chaosHeals(t, compared, partly) })
}

// chaosHeals plays one life of a partition, from its load to its stop.
func chaosHeals(t *rapid.T, compared, partly *int) {
	c := newChaos(t)
	defer func() { *compared, *partly = *compared+c.compared, *partly+c.partly }()
	c.src.view.LeaderEpoch = int32(rapid.IntRange(0, 5).Draw(t, "epoch"))
	c.src.cache = logtrunc.NewCache(logtrunc.Entry{Epoch: c.src.view.LeaderEpoch})
	c.load()
	c.wish(statemachine.WantMirroring)
	for range rapid.IntRange(1, 150).Draw(t, "length") {
		if c.halted {
			t.Fatalf("halted\n%s", c.out.String())
		}
		c.play()
		c.invariants()
	}
	// The source comes back and everything heals, unless a person is needed.
	c.src.down, c.log.lag = false, false
	c.log.settle()
	c.step(Event{Kind: ReplicatedMoved, Log: c.log.view()})
	c.wish(statemachine.WantMirroring)
	for range 40 {
		c.run(500, nil)
		c.invariants()
		if !c.due() {
			break
		}
	}
	if c.stored.State == statemachine.Mirroring && c.parked != nil {
		c.sameAsSource()
	} else if c.cfg.Loss == LossKeep && strings.HasPrefix(c.stored.ErrorMessage, "destination diverged") {
		// What is kept was rewritten at the source and trimmed there in the middle of a batch: only a person can say what is right.
	} else if c.stored.State != statemachine.Failed || c.stored.RetryAttempt != statemachine.NonRetryable {
		t.Fatalf("neither mirrored nor left to a person: %v (%s)\n%s", c.stored.State, c.stored.ErrorMessage, c.out.String())
	}
	// The source dies, and the mirror is stopped.
	c.src.down = true
	lost := c.stored.ErrorMessage
	c.wish(statemachine.WantStopped)
	for range 60 {
		c.run(500, nil)
		c.invariants()
		if !c.due() {
			break
		}
	}
	if c.stored.State != statemachine.Stopped || c.log.owner != OwnerOpen {
		t.Fatalf("the stop ends in %v (%s), before: %s\n%s", c.stored.State, c.stored.ErrorMessage, lost, c.out.String())
	}
	if open := c.log.producers().InFlight(); len(open) > 0 {
		t.Fatalf("invariant 5: %v open\n%s", open, c.out.String())
	}
	resets := 0
	if c.lme != nil && c.lme.Offset >= 0 && c.lme.Episode == c.stored.Episode && !c.clientsWrote() {
		for i := range c.log.batches {
			b := &c.log.batches[i]
			if b.h.BaseOffset >= c.lme.Offset {
				if b.h.LeaderEpoch <= c.lme.Epoch {
					t.Fatalf("invariant 5: epoch %d after LME %d\n%s", b.h.LeaderEpoch, c.lme.Epoch, c.out.String())
				}
				if txnabort.IsPIDReset(b.bytes) {
					resets++
				}
			}
		}
		if last := c.log.batches[len(c.log.batches)-1]; resets != 1 && !(resets == 0 && txnabort.IsPIDReset(last.bytes)) { // a mirrored one serves too
			t.Fatalf("%d resets behind the LMO: %v\n%s", resets, &c.log.batchLog, c.out.String())
		}
	}
}

// sameAsSource is invariant 1 at rest: every batch of the source from our start on is here, and nothing else that it should have.
func (c *chaos) sameAsSource() {
	theirs := c.src.from(max(c.log.start, c.src.start))
	var ours []modelBatch
	for _, m := range c.log.batches {
		if m.h.LastOffset() >= c.src.start {
			ours = append(ours, m)
		}
	}
	for i := range theirs {
		if i >= len(ours) || !bytes.Equal(ours[i].bytes, theirs[i].bytes) {
			c.t.Fatalf("invariant 1: not the same\n%v\n%v\n%s", &c.log.batchLog, &c.src.batchLog, c.out.String())
		}
	}
	if len(ours) != len(theirs) {
		c.t.Fatalf("invariant 1: more here than there\n%v\n%v\n%s", &c.log.batchLog, &c.src.batchLog, c.out.String())
	}
}
