package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
)

// The model: a log, a source and a store in memory that answer a core's effects one by one, in whatever order and with whatever faults a test wants.

type modelBatch struct {
	h     batch.Header
	bytes []byte
}

func toBatches(b []byte) []modelBatch {
	var list []modelBatch
	for h, whole := range batch.All(b) {
		list = append(list, modelBatch{h, append([]byte(nil), whole...)})
	}
	return list
}

// batchLog is what the model's two sides have in common.
type batchLog struct {
	batches    []modelBatch
	start, end int64
}

func (l *batchLog) add(b modelBatch) {
	l.batches = append(l.batches, b)
	l.end = b.h.NextOffset()
}

// cutTo drops every batch that holds an offset ≥ offset.
func (l *batchLog) cutTo(offset int64) {
	if offset >= l.end {
		return
	}
	for n := len(l.batches); n > 0 && l.batches[n-1].h.LastOffset() >= offset; n = len(l.batches) {
		offset = min(offset, l.batches[n-1].h.BaseOffset)
		l.batches = l.batches[:n-1]
	}
	l.end = offset
	l.start = min(l.start, offset)
}

func (l *batchLog) raiseStart(to int64) {
	for len(l.batches) > 0 && l.batches[0].h.NextOffset() <= to {
		l.batches = l.batches[1:]
	}
	l.start = max(l.start, to)
}

func (l *batchLog) from(offset int64) []modelBatch {
	for i := range l.batches {
		if l.batches[i].h.NextOffset() > offset {
			return l.batches[i:]
		}
	}
	return nil
}

func (l *batchLog) epochs() *logtrunc.Cache {
	c := logtrunc.NewCache()
	for i := range l.batches {
		c.Assign(l.batches[i].h.LeaderEpoch, max(l.start, l.batches[i].h.BaseOffset))
	}
	return c
}

func (l *batchLog) producers() *producerstate.Manager {
	m := producerstate.New()
	m.Reset(l.start)
	for i := range l.batches {
		if err := m.Observe(l.batches[i].bytes); err != nil {
			panic(err)
		}
	}
	return m
}

func (l *batchLog) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d, %d)", l.start, l.end)
	for i := range l.batches {
		fmt.Fprintf(&b, " %s", describeBatch(&l.batches[i]))
	}
	return b.String()
}

func describeBatch(m *modelBatch) string {
	h := &m.h
	s := fmt.Sprintf("%d-%d/e%d", h.BaseOffset, h.LastOffset(), h.LeaderEpoch)
	switch {
	case txnabort.IsPIDReset(m.bytes):
		s += "/RESET"
	case h.Control():
		if ctl, err := batch.ReadControl(m.bytes, h); err == nil && ctl.Type == batch.ControlCommit {
			s += fmt.Sprintf("/COMMIT:P%d.%d", h.ProducerID, h.ProducerEpoch)
		} else {
			s += fmt.Sprintf("/ABORT:P%d.%d", h.ProducerID, h.ProducerEpoch)
		}
	case h.ProducerID >= 0:
		s += fmt.Sprintf("/P%d.%d", h.ProducerID, h.ProducerEpoch)
		if h.Transactional() {
			s += "T"
		}
	}
	return s
}

// modelLog is a Log.
type modelLog struct {
	batchLog
	replicated  int64
	leaderEpoch int32
	owner       Ownership
	lag         bool // replicas confirm nothing
	lowestCut   int64

	recovers bool                            // it can be asked what of it need not be read
	lower    func(known Recovered) Recovered // what it says instead of all it knows; nil: all
	piece    int                             // batches that one Rebuild feeds at most, 0: all
}

var (
	errFenced     = errors.New("fenced")
	errOutOfOrder = errors.New("batch below the log's end")
	errLost       = errors.New("the answer was lost")
)

func (l *modelLog) view() LogView {
	return LogView{Start: l.start, End: l.end, Replicated: l.replicated, LeaderEpoch: l.leaderEpoch, Owner: l.owner, LowestCut: l.lowestCut}
}

func (l *modelLog) settle() {
	if !l.lag {
		l.replicated = l.end
	}
	l.replicated = min(l.replicated, l.end)
	l.replicated = max(l.replicated, l.start)
}

func (l *modelLog) append(epoch int32, b []byte) error {
	if epoch != l.leaderEpoch || l.owner != OwnerOurs {
		return fmt.Errorf("%w: epoch %d, the log's is %d, %v", errFenced, epoch, l.leaderEpoch, l.owner)
	}
	for _, m := range toBatches(b) {
		if m.h.BaseOffset < l.end && !(l.start == l.end && m.h.LastOffset() >= l.start) {
			return fmt.Errorf("%w: %d < %d", errOutOfOrder, m.h.BaseOffset, l.end)
		}
		if m.h.LeaderEpoch > l.leaderEpoch {
			panic(fmt.Sprintf("invariant 3: epoch %d appended at %d under leader epoch %d", m.h.LeaderEpoch, m.h.BaseOffset, l.leaderEpoch))
		}
		l.add(m)
	}
	l.settle()
	return nil
}

// known is the most that a log may say: every transaction with a batch below From has been ended by a marker that is replicated.
func (l *modelLog) known() Recovered {
	k := Recovered{From: l.end, HighestProducerID: -1}
	open := map[int64]int64{}
	for i := range l.batches {
		h := &l.batches[i].h
		first, isOpen := open[h.ProducerID]
		switch {
		case h.Control() && isOpen:
			delete(open, h.ProducerID)
			if h.NextOffset() > l.replicated {
				k.From = min(k.From, first)
			}
		case !h.Control() && h.Transactional() && !isOpen:
			open[h.ProducerID] = h.BaseOffset
		}
	}
	for _, first := range open {
		k.From = min(k.From, first)
	}
	k.From = max(k.From, l.start)
	k.Epochs = l.epochs().Entries()
	if l.lower != nil {
		k = l.lower(k)
	}
	for i := range l.batches {
		if h := &l.batches[i].h; h.BaseOffset < k.From {
			k.HighestProducerID = max(k.HighestProducerID, h.ProducerID)
		}
	}
	return k
}

// modelSource is a source partition.
type modelSource struct {
	batchLog
	local       int64 // where its own disks begin
	end2        int64 // high watermark where it is not the end of the last batch (a hole), 0: end
	view        SourceView
	down        bool
	answers     map[int32][]logtrunc.Round // epoch answers to give instead of the true ones, in order
	unsupported bool
	blind       bool            // its ends are not told
	cutSize     int             // bytes of the last batch to leave out of replies
	cache       *logtrunc.Cache // as the leader keeps it: an epoch begins at the end where its leader was elected; nil: as the batches say
}

func (s *modelSource) hw() int64 { return max(s.end, s.end2) }

func (s *modelSource) look() SourceView {
	v := s.view
	v.LogStart, v.HighWatermark = s.start, s.hw()
	if s.blind {
		v.LogStart, v.HighWatermark = -1, -1
	}
	return v
}

func (s *modelSource) endOffset(epoch int32) (int32, int64) {
	if a := s.answers[epoch]; len(a) > 0 {
		s.answers[epoch] = a[1:]
		return a[0].Epoch, a[0].End
	}
	if s.cache != nil {
		return s.cache.EndOffsetFor(epoch, s.end)
	}
	c := s.epochs()
	if s.view.LeaderEpoch > c.Latest() {
		c.Assign(s.view.LeaderEpoch, s.end)
	}
	return c.EndOffsetFor(epoch, s.end)
}

// world is one partition with everything around it. A crash replaces the core only.
type world struct {
	cfg     Config
	core    *Core
	log     modelLog
	src     modelSource
	stored  statemachine.PartitionState
	lme     *statemachine.LastMirrorEpoch
	want    statemachine.Desired
	consent []Consent
	wished  bool
	asksCut bool
	cutAt   int64 // what AskCut is answered with, below 0: nothing is to be cut

	now     time.Time
	pending []Effect // in order, not yet answered
	parked  *Effect  // a fetch that waits for something new
	timer   *Effect
	fenced  bool
	notes   []Note
	out     strings.Builder
	last    []Event
	crashed int
	halted  bool

	onEffect func(*Effect) // for checks
}

func newWorld() *world {
	w := &world{now: time.UnixMilli(1_700_000_000_000)}
	w.cfg = Config{Mirror: "a-to-b", Topic: "orders", TopicID: testTopic, Seed: 1}
	w.log = modelLog{}
	w.src.view = SourceView{ClusterID: "A", TopicID: sourceTopic, LeaderID: 1, LeaderEpoch: 0, LME: -1, LMO: -1}
	w.stored = statemachine.NewPartitionState()
	return w
}

var (
	testTopic   = statemachine.TopicID{1, 2, 3}
	sourceTopic = statemachine.TopicID{0xa}
)

// load starts a core on what is stored.
func (w *world) load() {
	w.cfg.Recovers = w.log.recovers
	w.core = New(w.cfg)
	w.pending, w.parked, w.timer, w.last = nil, nil, nil, nil
	w.step(Event{Kind: Loaded, Record: w.stored, LME: copyLME(w.lme), Log: w.log.view()})
	if w.wished {
		w.step(w.wishEvent())
	}
}

func (w *world) wishEvent() Event {
	return Event{Kind: Wish, Want: w.want, Consents: w.consent, Cut: w.asksCut}
}

func (w *world) wish(want statemachine.Desired) {
	w.want, w.wished = want, true
	w.step(w.wishEvent())
}

// step gives the core an event and files what it wants done.
func (w *world) step(ev Event) {
	effects := w.core.Step(w.now, ev)
	if len(effects) == 0 {
		return
	}
	for i := range effects {
		e := effects[i]
		if w.halted {
			panic("an effect after Halt: " + e.Kind.String())
		}
		if w.onEffect != nil {
			w.onEffect(&e)
		}
		w.describe(&e)
		switch e.Kind {
		case Emit:
			w.notes = append(w.notes, e.Note)
		case RemoveFetcher:
			w.parked = nil
			keep := w.pending[:0]
			for _, p := range w.pending {
				if p.Kind != AddFetcher && p.Kind != Continue {
					keep = append(keep, p)
				}
			}
			w.pending = keep
		case ConsentUsed:
			w.consent = nil
		case Halt:
			w.halted = true
		case ScheduleRetry:
			w.timer = &e
		default:
			w.pending = append(w.pending, e)
		}
	}
}

func (w *world) describe(e *Effect) { fmt.Fprintf(&w.out, "%s\n", describeEffect(e)) }

func describeEffect(e *Effect) string {
	switch e.Kind {
	case Emit:
		return "    * " + e.Note.String()
	case Persist:
		s := fmt.Sprintf("%v episode=%d", e.Record.State, e.Record.Episode)
		if e.Record.RetryAttempt != 0 {
			s += fmt.Sprintf(" attempt=%d previous=%v", e.Record.RetryAttempt, e.Record.PreviousState)
		}
		if e.Record.FoundOpen {
			s += " found-open"
		}
		if e.Record.AwaitsCut {
			s += " awaits-cut"
		}
		if e.Record.HoleTo != 0 {
			s += fmt.Sprintf(" hole=[%d,%d)", e.Record.HoleFrom, e.Record.HoleTo)
		}
		if e.LME != nil && e.LME.Offset < 0 {
			s += fmt.Sprintf(" from cluster %s", e.LME.SourceClusterID)
		} else if e.LME != nil {
			s += fmt.Sprintf(" LME=%d LMO=%d of episode %d", e.LME.Epoch, e.LME.Offset, e.LME.Episode)
		}
		return "  Persist " + s
	case CheckSource:
		s := "  CheckSource"
		if e.Prepare {
			s += " prepare"
		}
		if e.Refresh {
			s += " refresh"
		}
		if e.Local {
			s += " local"
		}
		return s
	case AskEpoch, RaiseEpoch:
		return fmt.Sprintf("  %v %d", e.Kind, e.Epoch)
	case AwaitReplicated:
		return fmt.Sprintf("  AwaitReplicated %d within %v", e.Offset, e.Bound)
	case Truncate, Reset:
		return fmt.Sprintf("  %v %d", e.Kind, e.Offset)
	case RaiseStart, SettleProducerIDs, ClampGroups:
		return fmt.Sprintf("  %v %d", e.Kind, e.Offset)
	case Rebuild:
		if e.First {
			return fmt.Sprintf("  Rebuild the batch that holds %d", e.Offset)
		}
		return fmt.Sprintf("  Rebuild from %d", e.Offset)
	case AddFetcher, Continue:
		s := fmt.Sprintf("  %v at %d under epoch %d, last epoch %d", e.Kind, e.Offset, e.Epoch, e.LastEpoch)
		if e.Bound > 0 {
			s += fmt.Sprintf(", after %v", e.Bound.Round(time.Millisecond))
		}
		return s
	case Append:
		s := fmt.Sprintf("  Append under epoch %d:", e.Epoch)
		for _, m := range toBatches(e.Bytes) {
			s += " " + describeBatch(&m)
		}
		return s
	case ScheduleRetry:
		return fmt.Sprintf("  ScheduleRetry after %v", e.Bound.Round(time.Millisecond))
	}
	return "  " + e.Kind.String()
}

// fault is how the answer to one effect goes wrong.
type fault uint8

const (
	noFault    fault = iota
	failBefore       // nothing was done, and an error says so
	failAfter        // it was done, and an error came back
	half             // Append: the first batch was written
)

// answer carries out the pending effect i on the model and gives the core the answer.
func (w *world) answer(i int, f fault) {
	e := w.pending[i]
	w.pending = append(w.pending[:i:i], w.pending[i+1:]...)
	ev, ok := w.perform(&e, f)
	if !ok {
		w.parked = &e
		return
	}
	w.last = append(w.last, ev)
	w.step(ev)
}

// perform carries out an effect. false: it waits for something new at the source.
func (w *world) perform(e *Effect, f fault) (Event, bool) {
	ev := Event{Kind: Done, Token: e.Token}
	if f == failBefore {
		ev.Err = errLost
	}
	doIt := f != failBefore
	switch e.Kind {
	case Persist:
		ev.Kind = Persisted
		if w.fenced {
			ev.Err = statemachine.ErrFenced
			return ev, true
		}
		if doIt {
			if w.stored.StateEpoch != e.ExpectedStateEpoch {
				if f == noFault {
					ev.Err = statemachine.ErrStateEpoch
				}
				return ev, true
			}
			if !statemachine.Legal(w.stored.State, e.Record.State) {
				panic(fmt.Sprintf("illegal move %v → %v", w.stored.State, e.Record.State))
			}
			if e.LME != nil && w.lme != nil && e.LME.Episode == w.lme.Episode && *e.LME != *w.lme {
				panic(fmt.Sprintf("decision 5: the LME of episode %d is written twice, %+v and %+v", e.LME.Episode, *w.lme, *e.LME))
			}
			epoch := w.stored.StateEpoch
			w.stored = e.Record
			w.stored.StateEpoch = epoch + 1
			if e.LME != nil {
				w.lme = copyLME(e.LME)
			}
			ev.StateEpoch = w.stored.StateEpoch
		}
		return ev, true
	case AskCut: // what was recorded before is answered again
		lme := copyLME(e.LME)
		if lme.Offset = w.cutAt; w.cutAt < 0 || !doIt {
			return ev, true
		}
		lme.Cut = w.cutAt < e.LME.Offset
		lme.Epoch = -1
		for _, x := range e.Epochs {
			if x.Start < w.cutAt {
				lme.Epoch = x.Epoch
			}
		}
		if w.lme != nil && w.lme.Episode == lme.Episode && *w.lme != *lme {
			panic(fmt.Sprintf("decision 5: the LME of episode %d is written twice, %+v and %+v", lme.Episode, *w.lme, *lme))
		}
		w.lme = copyLME(lme)
		ev.LME = lme
		if f == failAfter {
			ev.LME, ev.Err = nil, errLost
		}
		ev.Log = w.log.view()
		return ev, true
	case CheckSource:
		ev.Kind = SourceSeen
		if w.src.down {
			ev.Err = context.DeadlineExceeded
		}
		ev.Source = w.src.look()
		if e.Local {
			ev.Source.LocalStart = w.src.local
		}
		if !e.Prepare {
			ev.Source.LME, ev.Source.LMO, ev.Source.Refused = -1, -1, ""
		}
		return ev, true
	case AskEpoch:
		ev.Kind = EpochAnswer
		switch {
		case w.src.down:
			ev.Err = context.DeadlineExceeded
		case w.src.unsupported:
			ev.Err, ev.Source.NoEpochs = errors.New("not supported"), true
		default:
			ev.AnswerEpoch, ev.AnswerEnd = w.src.endOffset(e.Epoch)
		}
		return ev, true
	case AddFetcher, Continue:
		if f == failBefore {
			ev = Event{Kind: Fetched, Token: e.Token, Fetch: Fetch{Code: FetchRetry, Err: errLost, Offset: e.Offset, LeaderEpoch: e.Epoch, LogStart: -1, HighWatermark: -1, LeaderID: -1, CurrentEpoch: -1}}
			return ev, true
		}
		return w.fetch(e)
	}
	if doIt {
		w.onLog(e, f, &ev)
	}
	if e.Kind == Rebuild && !doIt {
		return ev, true
	}
	if f == failAfter || f == half {
		ev.Err, ev.Fenced = errLost, false
	}
	if ev.Err == nil || errors.Is(ev.Err, context.DeadlineExceeded) {
		ev.Log = w.log.view()
	}
	return ev, true
}

// onLog carries out what is done on the log and around it.
func (w *world) onLog(e *Effect, f fault, ev *Event) {
	l := &w.log
	switch e.Kind {
	case Truncate, Reset, RaiseStart:
		if l.owner != OwnerOurs {
			ev.Err = errFenced
			return
		}
	}
	switch e.Kind {
	case Append:
		b := e.Bytes
		if f == half {
			for _, whole := range batch.All(b) {
				b = whole
				break
			}
		}
		ev.Err = l.append(e.Epoch, b)
		ev.Fenced = errors.Is(ev.Err, errFenced)
	case Truncate:
		if e.Unconfirmed && l.replicated > e.Offset {
			ev.Err = errors.New("more is confirmed")
			return
		}
		l.cutTo(e.Offset)
		l.settle()
	case Reset:
		l.batches, l.start, l.end = nil, e.Offset, e.Offset
		l.replicated = e.Offset
	case RaiseStart:
		if e.Offset > l.replicated {
			panic(fmt.Sprintf("log start raised to %d, above what is replicated, %d", e.Offset, l.replicated))
		}
		l.raiseStart(e.Offset)
	case RaiseEpoch:
		l.leaderEpoch = max(l.leaderEpoch, e.Epoch)
	case OpenLog:
		l.owner = OwnerOpen
	case CloseForWrites:
		l.owner = OwnerOurs
	case AwaitReplicated:
		if l.replicated < e.Offset {
			ev.Err = context.DeadlineExceeded
		}
	case AskRecovered:
		ev.Recovered = l.known()
	case Rebuild:
		piece := l.piece
		if e.First && l.recovers {
			piece = 2
		}
		for i, m := range l.from(e.Offset) {
			if piece > 0 && i == piece {
				ev.More = true
				break
			}
			if got := w.core.Step(w.now, Event{Kind: Replayed, Token: e.Token, Bytes: m.bytes}); len(got) > 0 {
				panic("Replayed made effects")
			}
		}
	}
}

func (w *world) fetch(e *Effect) (Event, bool) {
	s := &w.src
	f := Fetch{Offset: e.Offset, LeaderEpoch: e.Epoch, HighWatermark: s.hw(), LastStable: s.hw(), LogStart: s.start, LeaderID: -1, CurrentEpoch: -1}
	ev := Event{Kind: Fetched, Token: e.Token}
	switch {
	case s.down && e.Bound > 0:
		return ev, false
	case s.down:
		f.Code, f.Err, f.HighWatermark, f.LogStart = FetchRetry, context.DeadlineExceeded, -1, -1
	case e.Epoch < s.view.LeaderEpoch:
		f.Code, f.Err, f.LeaderID, f.CurrentEpoch = FetchFencedEpoch, errors.New("FENCED_LEADER_EPOCH"), s.view.LeaderID, s.view.LeaderEpoch
	case e.Epoch > s.view.LeaderEpoch:
		f.Code, f.Err = FetchRetry, errors.New("UNKNOWN_LEADER_EPOCH")
	case e.Offset < s.start || e.Offset > s.hw():
		f.Code, f.Err = FetchOffsetOutOfRange, errors.New("OFFSET_OUT_OF_RANGE")
	default:
		for _, m := range s.from(e.Offset) {
			f.Records = append(f.Records, m.bytes...)
		}
		if s.cutSize > 0 && len(f.Records) > s.cutSize {
			f.Records = f.Records[:len(f.Records)-s.cutSize]
			s.cutSize = 0
		}
		if len(f.Records) == 0 && (e.Offset >= s.hw() || e.Bound > 0) {
			return ev, false // a long poll, or a back-off that is not over
		}
	}
	ev.Fetch = f
	return ev, true
}

// wake answers the fetch that waits when there is something new.
func (w *world) wake() bool {
	if w.parked == nil {
		return false
	}
	e := *w.parked
	ev, ok := w.perform(&e, noFault)
	if !ok {
		return false
	}
	w.parked = nil
	w.last = append(w.last, ev)
	w.step(ev)
	return true
}

// run answers everything in order until nothing is left to do, or so many effects were answered. Waits are not waited for.
func (w *world) run(limit int, held map[EffectKind]bool) {
	for range limit {
		i := 0
		for i < len(w.pending) && held[w.pending[i].Kind] {
			i++
		}
		if i < len(w.pending) {
			w.answer(i, noFault)
			continue
		}
		if !held[Continue] && w.wake() {
			continue
		}
		return
	}
}

// due lets the pending wait pass.
func (w *world) due() bool {
	if w.timer == nil {
		return false
	}
	e := *w.timer
	w.timer = nil
	w.now = w.now.Add(e.Bound)
	w.step(Event{Kind: RetryDue, Token: e.Token})
	return true
}

// crash loses the core and everything in flight; what was replicated and stored stays. The gate is closed after a restart, unless the log is one that comes back open.
func (w *world) crash() {
	w.crashed++
	w.out.WriteString("  -- crash --\n")
	if w.log.owner == OwnerOpen {
		w.log.owner = OwnerOurs
	}
	w.load()
}

// data builds one data batch.
func data(base, last int64, epoch int32, records int, pid int64, pepoch int16, seq int32, txn bool, salt string) []byte {
	s := batch.DataSpec{
		BaseOffset: base, LeaderEpoch: epoch, LastOffsetDelta: int32(last - base), ProducerID: pid, ProducerEpoch: pepoch, BaseSequence: seq,
		Transactional: txn, BaseTimestamp: 1_600_000_000_000,
	}
	for i := range records {
		s.Records = append(s.Records, batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "%s%d", salt, base+int64(i))})
	}
	return batch.AppendData(nil, s)
}

// marker builds a COMMIT or ABORT as a source's coordinator writes it.
func marker(base int64, epoch int32, commit bool, pid int64, pepoch int16) []byte {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: base, LeaderEpoch: epoch, ProducerID: pid, ProducerEpoch: pepoch, BaseSequence: -1, Transactional: true, Timestamp: 1_600_000_000_000,
		Key: key, Value: []byte{0, 0, 0, 0, 0, 3},
	})
}

// fixCRC makes a damaged batch's checksum right again.
func fixCRC(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}
