package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/txncut"
)

// ConsistentCut is the newest point at which no transaction is torn apart (TornCut), as far as the copies show, or why there is none.
type ConsistentCut struct {
	GivenUp int64 `json:"givenUp"` // offsets, of all copies together
	// Copies are those that are cut; the others keep what they have.
	Copies []CutCopy `json:"copies,omitempty"`
	More   int       `json:"more,omitempty"` // that a report has no room for
	// Readable: clients may read the copies while they are mirrored, so readers may have seen what goes (CutCopy).
	Readable bool `json:"readable,omitempty"`
	// Why is why there is no cut: the copies are stopped as they are then, as with TornAbort. "" if there is one, or if nothing has to be cut.
	Why string `json:"why,omitempty"`

	shallow bool // there is none because more of the copies has to be read
}

// CutCopy is what a consistent cut takes from one copy: [Offset, End). Readers of uncommitted records may have seen all of it, readers of committed ones [Offset, Stable).
type CutCopy struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"` // where the copy ends from then on: its last mirror offset
	End       int64  `json:"end"`
	Stable    int64  `json:"stable"`  // last stable offset before the cut, not below Offset
	Records   int64  `json:"records"` // in the batches that go
	Bytes     int64  `json:"bytes"`   // of the batches that go
}

// words are the cut for a person, with what readers may have seen where there may be any.
func (c CutCopy) words(exposed bool) string {
	line := fmt.Sprintf("consistent cut at %d: gives up [%d,%d), %s, %d bytes", c.Offset, c.Offset, c.End, plural(int(c.Records), "record", "records"), c.Bytes)
	if !exposed {
		return line
	}
	line += fmt.Sprintf("; readers may have seen [%d,%d)", c.Offset, c.End)
	if c.Stable > c.Offset {
		return line + fmt.Sprintf(", those of committed records [%d,%d)", c.Offset, c.Stable)
	}
	return line + ", those of committed records none of it"
}

// CopyReadTeller is a Destination that knows whether clients can read its copies while they are mirrored. Of one that does not tell, they may.
type CopyReadTeller interface {
	CopiesAreRead() bool
}

// copiesAreRead says that readers of the copies are possible.
func (m *Mirror) copiesAreRead() bool {
	d, tells := m.cfg.Destination.(CopyReadTeller)
	return !tells || d.CopiesAreRead()
}

// ErrCutExposed: a consistent cut would take records away that readers of the copies may have seen, and the caller has not said that it may (FailoverOptions.CutReaders, StopOptions.CutReaders).
var ErrCutExposed = errors.New("mirror: readers may have seen what a consistent cut would give up")

// within is the cut if it gives up no more than that (0: no bound), else why there is none.
func (c *ConsistentCut) within(most int64) *ConsistentCut {
	if c == nil || most == 0 || c.GivenUp <= most {
		return c
	}
	return &ConsistentCut{Readable: c.Readable, Why: fmt.Sprintf("it would give up %d offsets, and at most %d may be", c.GivenUp, most)}
}

// exposes says that readers may have seen something of what goes.
func (c *ConsistentCut) exposes() bool { return c != nil && c.Readable && c.GivenUp > 0 }

// refusal is why a stop with the policy is refused, nil if it is not.
func (c *ConsistentCut) refusal(mirror string, allowed bool) error {
	if !c.exposes() || allowed {
		return nil
	}
	return &Error{Code: InvalidClusterMirrorState, Mirror: mirror, Partition: -1, Err: fmt.Errorf("%w: %s", ErrCutExposed, strings.Join(c.lines(3), "; ")),
		Message: "nothing is stopped, because the consistent cut would give up records that readers of the copies may have seen: say that it may (CutReaders), or stop with policy abort. Nothing has changed"}
}

// lines are the copies that are cut, a line for each of at most so many.
func (c *ConsistentCut) lines(most int) (lines []string) {
	for _, x := range c.Copies[:min(len(c.Copies), most)] {
		lines = append(lines, fmt.Sprintf("%s-%d: %s", x.Topic, x.Partition, x.words(c.Readable)))
	}
	if more := len(c.Copies) - len(lines) + c.More; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more copies", more))
	}
	return lines
}

// words are what the cut is, in a line.
func (c *ConsistentCut) words() string {
	switch {
	case c.Why != "":
		return "none, the copies are stopped as they are: " + c.Why
	case c.GivenUp == 0:
		return "gives up nothing"
	}
	s := fmt.Sprintf("gives up %s in %s", plural(int(c.GivenUp), "offset", "offsets"), plural(len(c.Copies)+c.More, "partition", "partitions"))
	if c.Readable {
		s += ", which readers may have seen"
	}
	return s
}

// bounded is what a report has room for.
func (c *ConsistentCut) bounded() *ConsistentCut {
	if c == nil {
		return nil
	}
	const most = 50
	b := *c
	b.Why = shorten(c.Why)
	b.More, b.Copies = c.More+max(0, len(c.Copies)-most), slices.Clone(c.Copies[:min(len(c.Copies), most)])
	return &b
}

// cutBounds are what a consistent cut is to keep within.
type cutBounds struct {
	maxGiveUp int64         // offsets, of all copies together; 0: no bound
	skew      time.Duration // txncut.Options.Skew
	// floors are the lowest offsets that copies may end at besides CopyLook.Floor, by topic and number; a copy without one has no such bound.
	floors map[string][]int64
}

func (o *cutBounds) floor(tp TopicPartition) int64 {
	switch floors := o.floors[tp.Topic]; {
	case len(floors) == 0:
		return 0
	case int(tp.Partition) < len(floors):
		return floors[tp.Partition]
	}
	return math.MaxInt64 // of a partition that the plan did not know
}

// cutFloor is CopyLook.Floor of a partition.
func cutFloor(p *PartitionStatus) int64 {
	if p.LME != nil || p.Episode > 1 || p.WasOpen {
		return copiedEnd(p)
	}
	return p.Start
}

// cut finds the cut of the copies that ok says are in it, and where they are to end, in the order of sorted. Copies of which not all was read are cut only if what was not read cannot change it.
func (l *TransactionLook) cut(ok func(TopicPartition) bool, o cutBounds) (ConsistentCut, map[TopicPartition]int64) {
	c := ConsistentCut{Readable: l.Readable}
	copies := slices.DeleteFunc(l.sorted(), func(x CopyLook) bool { return !ok(x.TopicPartition) })
	var partitions []txncut.Partition
	for i := range copies {
		x := &copies[i]
		if x.Error != "" {
			c.Why = fmt.Sprintf("%s-%d was not read: %s", x.Topic, x.Partition, x.Error)
			return c, nil
		}
		partitions = append(partitions, x.partition())
	}
	found := txncut.Cut(partitions, txncut.Options{Skew: o.skew, MaxGiveUp: o.maxGiveUp})
	if !found.Found() {
		c.Why = noCut(&found)
		return c, nil
	}
	if x := l.hidden(copies, found.Partitions, o.skew); x != nil {
		c.shallow = true
		c.Why = fmt.Sprintf("%s-%d was not looked at below offset %d, where a transaction may lie that the cut has to know of", x.Topic, x.Partition, x.From)
		return c, nil
	}
	points := map[TopicPartition]int64{}
	for i, p := range found.Partitions {
		x := &copies[i]
		points[x.TopicPartition] = p.Offset
		if p.GivenUp() == 0 {
			continue
		}
		floor := min(x.Floor, x.End)
		why := "clients could write that log before it was mirrored, and where they ended is not recorded"
		if x.Floor <= x.Start {
			why = "that is where its log starts"
		}
		if planned := o.floor(x.TopicPartition); planned > floor {
			floor, why = planned, "the plan says that it ends no lower"
		}
		if p.Offset < floor {
			c = ConsistentCut{Readable: l.Readable, Why: fmt.Sprintf("%s-%d would have to be cut at %d, and may not be below %s: %s", p.Topic, p.Number, p.Offset, floorName(floor), why)}
			return c, nil
		}
		records, bytes := x.sizeAt(p.Offset)
		c.Copies = append(c.Copies, CutCopy{Topic: p.Topic, Partition: p.Number, Offset: p.Offset, End: p.End, Stable: max(p.Stable, p.Offset), Records: records, Bytes: bytes})
	}
	c.GivenUp = found.GivenUp
	return c, points
}

func floorName(floor int64) string {
	if floor == math.MaxInt64 {
		return "its end"
	}
	return fmt.Sprint(floor)
}

// noCut says in a line why there is no cut.
func noCut(found *txncut.CutResult) string {
	first, _, _ := strings.Cut(found.String(), "\n")
	return strings.TrimPrefix(first, "no cut: ")
}

// hidden is a copy whose part that was not read may hold what changes the cut, nil if there is none: a COMMIT of a transaction that the cut leaves without its marker somewhere, by the times that both have, or
// data of a transaction whose marker the cut takes away.
func (l *TransactionLook) hidden(copies []CopyLook, cuts []txncut.PartitionCut, skew time.Duration) *CopyLook {
	undecided := map[int64]bool{} // producers
	oldest := int64(math.MaxInt64)
	for i := range copies {
		for _, p := range copies[i].Pieces {
			if p.Outcome == txncut.Open || p.MarkerOffset >= cuts[i].Offset {
				undecided[p.ProducerID] = true
				oldest = min(oldest, max(p.FirstTimestamp, 0))
			}
		}
	}
	if len(undecided) == 0 {
		return nil
	}
	switch {
	case skew < 0:
		oldest = 0
	case skew == 0:
		skew = txncut.DefaultSkew
		fallthrough
	default:
		oldest -= 2 * skew.Milliseconds() // as much for the clocks of two brokers
	}
	for i := range copies {
		x := &copies[i]
		if x.From <= x.Start {
			continue
		}
		if x.edge.time < 0 || x.edge.time >= oldest {
			return x
		}
		for id, at := range x.edge.ended {
			if undecided[id] || at >= cuts[i].Offset {
				return x
			}
		}
		for _, p := range x.Pieces {
			if p.Outcome != txncut.Open && p.MarkerOffset >= cuts[i].Offset && x.edge.wrote[p.ProducerID] && p.Version() != txncut.Version2 {
				return x // when it began tells which COMMITs may be its own
			}
		}
	}
	return nil
}

// planCut puts the consistent cut into a plan, and returns how many offsets it gives up.
func (p *FailoverPlan) planCut(s *Snapshot) int64 {
	in := map[TopicPartition]bool{} // those that are cut, and those that were stopped before
	for i := range s.Partitions {
		if x := &s.Partitions[i]; x.LME != nil && x.LME.Episode == x.Episode {
			in[TopicPartition{x.Topic, x.Partition}] = true
		}
	}
	var cut ConsistentCut
	for i := range p.Partitions {
		x := &p.Partitions[i]
		in[TopicPartition{x.Topic, x.Partition}] = x.Outcome != OutcomeRefused
		if x.Outcome == OutcomeRefused {
			cut.Why = fmt.Sprintf("not every partition can be cut: %s-%d is not stopped", x.Topic, x.Partition)
		}
	}
	for _, x := range p.Topics {
		if x.Outcome == OutcomeRefused && cut.Why == "" {
			cut.Why = fmt.Sprintf("not every partition can be cut: topic %s is not stopped", x.Topic)
		}
	}
	if cut.Why == "" {
		cut.Why = p.TornTransactions.Error
	}
	p.TornTransactions.Cut = &cut
	if cut.Why != "" || s.Transactions == nil {
		return 0
	}
	var points map[TopicPartition]int64
	cut, points = s.Transactions.cut(func(tp TopicPartition) bool { return in[tp] }, cutBounds{maxGiveUp: p.MaxGiveUp, skew: p.ClockSkew})
	cut.shallow = false // nobody reads more for a plan
	for i := range p.Partitions {
		x := &p.Partitions[i]
		tp := TopicPartition{x.Topic, x.Partition}
		if c := cut.of(tp); c != nil {
			status := slices.IndexFunc(s.Partitions, func(p PartitionStatus) bool { return p.Topic == x.Topic && p.Partition == x.Partition })
			x.cut(&s.Partitions[status], c, s.Transactions.left(tp, points[tp], &s.Surroundings), cut.Readable)
			p.Severity = worse(p.Severity, x.Severity)
			p.LossBytes = KnownNumber(max(0, p.LossBytes.value) + c.Bytes)
		}
	}
	return cut.GivenUp
}

// of is what the cut takes from a copy, nil: nothing.
func (c *ConsistentCut) of(tp TopicPartition) *CutCopy {
	if c == nil {
		return nil
	}
	for i := range c.Copies {
		if c.Copies[i].Topic == tp.Topic && c.Copies[i].Partition == tp.Partition {
			return &c.Copies[i]
		}
	}
	return nil
}

// cut has the partition end at a cut, with these transactions open there.
func (x *FailoverPartition) cut(status *PartitionStatus, c *CutCopy, open []PlannedTransaction, exposed bool) {
	x.Reasons = append(x.Reasons, c.words(exposed))
	opens := c.Offset
	if c.Offset == c.End { // what lies behind a cut is given up, and its offsets are used again
		opens = max(opens, status.UsedTo)
	}
	x.OpensAt, x.Aborts = KnownNumber(opens+int64(len(open))+1), open
	n, known := x.Loss.Offsets.Value()
	x.Loss = Loss{Offsets: KnownNumber(n + c.End - c.Offset), AtLeast: x.Loss.AtLeast || !known}
	if size, known := x.LossBytes.Value(); known {
		x.LossBytes = KnownNumber(size + c.Bytes)
	}
	x.Severity = worse(x.Severity, x.Loss.severity())
}

// left are the transactions that are open in a copy which ends there.
func (l *TransactionLook) left(tp TopicPartition, end int64, surroundings *Surroundings) []PlannedTransaction {
	open := []PlannedTransaction{}
	for i := range l.Copies {
		if l.Copies[i].TopicPartition != tp {
			continue
		}
		for _, p := range l.Copies[i].Pieces {
			if p.FirstOffset < end && (p.Outcome == txncut.Open || p.MarkerOffset >= end) {
				open = append(open, PlannedTransaction{p.ProducerID, p.ProducerEpoch, p.FirstOffset, min(p.LastOffset, end-1), surroundings.transactionalID(p.ProducerID)})
			}
		}
	}
	slices.SortFunc(open, func(a, b PlannedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return open
}

// ends is where a plan has a partition end at the lowest, by topic and number: no cut goes below.
func (p *FailoverPlan) ends() map[string][]int64 {
	ends := map[string][]int64{}
	for _, t := range p.Topics {
		ends[t.Topic] = []int64{math.MaxInt64} // what the plan does not know is not cut
	}
	for i := range p.Partitions {
		x := &p.Partitions[i]
		for len(ends[x.Topic]) <= int(x.Partition) {
			ends[x.Topic] = append(ends[x.Topic], math.MaxInt64)
		}
		end := int64(math.MaxInt64)
		if n, known := p.endOf(x).Value(); known {
			end = n
		}
		ends[x.Topic][x.Partition] = end
	}
	return ends
}

// endOf is where a partition is to end, as far as the plan knows.
func (p *FailoverPlan) endOf(x *FailoverPartition) Number {
	if c := p.TornTransactions.Cut.of(TopicPartition{x.Topic, x.Partition}); c != nil {
		return KnownNumber(c.Offset)
	}
	return x.MirrorEnd
}

// cutLine is the verdict on the consistent cut; "" where none is asked for.
func (p *FailoverPlan) cutLine() string {
	cut := p.TornTransactions.Cut
	switch {
	case p.TornPolicy != TornCut || cut == nil:
		return ""
	case cut.exposes() && !p.CutReaders:
		return "REFUSED: the consistent cut " + cut.words() + "; see below which, and say that it may (CutReaders), or plan with policy abort"
	}
	return "CONSISTENT CUT: " + cut.words()
}
