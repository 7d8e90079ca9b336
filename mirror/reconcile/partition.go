package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/recordreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/txncut"
)

// Position is where mirroring ended, as the destination has recorded it.
type Position struct {
	LME int32 // -1: unknown
	LMO int64
}

// Options are how a partition is read. Zero values are the defaults in brackets.
type Options struct {
	EndOfEpoch func(ctx context.Context, epoch int32) (mirror.EpochEnd, error) // asks the source where an epoch ends (mirror.Source.EndOffsetForEpoch) [it is not asked, and the report says so]
	Lookback   int64                                                           // offsets below LMO in which the beginnings of transactions are looked for [100,000]
	Chunk      int                                                             // bytes of a read [1 MiB]
	MaxBytes   int64                                                           // of the source, then it ends early [no bound]
	Producers  int                                                             // that are listed by id [20]
	Now        func() time.Time                                                // [time.Now]
	Resume     *PartitionReport                                                // goes on from where that ended; both sides are taken to be as they were
}

// Fate is how a transaction ended at the source.
type Fate string

// The fates.
const (
	Committed Fate = "committed"
	Aborted   Fate = "aborted"
	Open      Fate = "open" // no marker up to the high watermark
	Unknown   Fate = "unknown"
)

// Transaction is one that was open when the mirror was stopped, so that the copy has it aborted.
type Transaction struct {
	ProducerID    int64
	ProducerEpoch int16
	Abort         int64     // offset of the ABORT here; -1: the marks of the stop are gone
	AbortedAt     time.Time // by the clock of who stopped it
	First, Last   int64     // offsets of its records below LMO, as far as was looked; -1: none was found
	FirstIsExact  bool      // false: it may begin below First
	More          int64     // records of it that only the source has
	Source        Fate
	Marker        int64     // offset at the source; -1: none
	MarkedAt      time.Time // by the source's clock
	Version       string    // v1, v2 or unknown: of the protocol of transactions, as far as a COMMIT tells
	Why           string    `json:",omitempty"` // of an unknown fate
}

// Counts are numbers of records, by what became of their transactions at the source.
type Counts struct{ NoTransaction, Committed, Aborted, Open int64 }

// Sum is all of them.
func (c Counts) Sum() int64 { return c.NoTransaction + c.Committed + c.Aborted + c.Open }

// Producer is one that wrote at the source at or above LMO. -1: records without a producer id.
type Producer struct {
	ProducerID  int64
	Records     int64
	First, Last int64
}

// Gap is a range of which nothing can be known.
type Gap struct {
	Side     string // source or destination
	From, To int64
	Why      string
}

// Pending is a transaction of the source that is open as far as it was read.
type Pending struct {
	ProducerID    int64
	ProducerEpoch int16
	Records       int64
}

// PartitionReport is the list of one partition. It is plain data.
type PartitionReport struct {
	mirror.TopicPartition
	Position
	SourceStart, SourceEnd int64     // log start and high watermark, at SourceAsked
	SourceAsked            time.Time // by the clock of who asks
	Start, End             int64     // of the copy, at Asked
	Asked                  time.Time
	Reset                  int64     // offset of the MIRROR_PID_RESET here; -1: it is not there
	StoppedAt              time.Time // the reset's time
	Parted                 int64     // below this offset the source still has what it had; LMO unless it lost records
	Compared               bool      // the source was asked where LME ends
	Transactions           []Transaction
	Possible               []Transaction // committed at the source, began below LMO; whether the copy has them aborted is not known
	Records                Counts        // at the source at or above LMO, up to Next
	Earliest, Latest       time.Time     // of the batches' largest timestamps; zero: there is no record
	Producers              []Producer
	OtherProducers         bool // there are more
	Gaps                   []Gap
	Next                   int64 // how far the source was read
	Done                   bool
	Pending                []Pending
	Seen                   []int64 // producer ids whose first marker was read; only where the marks of the stop are gone
}

// most that is listed of what only a damaged or hostile log has many of.
const mostGaps, mostPossible = 100, 1000

// Partition makes the list of one partition. The sides are not closed. Errors: a side's, or a log that holds no batches; with one the report is of what was read until then.
func Partition(ctx context.Context, source, destination verify.Side, at Position, o Options) (PartitionReport, error) {
	o.Lookback, o.Chunk, o.Producers = cmp.Or(o.Lookback, 100_000), cmp.Or(o.Chunk, 1<<20), cmp.Or(o.Producers, 20)
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &run{o: o, source: source, here: destination, pending: map[int64]*Pending{}, seen: map[int64]bool{}, unresolved: map[int64]int{}}
	if o.Resume == nil {
		r.PartitionReport = PartitionReport{TopicPartition: source.Partition(), Position: at, Reset: -1, Parted: at.LMO}
		if err := r.begin(ctx); err != nil {
			return r.PartitionReport, err
		}
	} else {
		r.PartitionReport = *o.Resume
		r.Transactions, r.Producers, r.Possible, r.Gaps = slices.Clone(r.Transactions), slices.Clone(r.Producers), slices.Clone(r.Possible), slices.Clone(r.Gaps)
		if r.Done {
			return r.PartitionReport, nil
		}
	}
	for _, p := range r.Pending {
		r.pending[p.ProducerID] = &p
	}
	for _, id := range r.Seen {
		r.seen[id] = true
	}
	for i, t := range r.Transactions {
		if t.Source == "" {
			r.unresolved[t.ProducerID] = i
		}
	}
	err := r.readSource(ctx)
	r.end()
	return r.PartitionReport, err
}

// run is one reading.
type run struct {
	PartitionReport
	o            Options
	source, here verify.Side
	pending      map[int64]*Pending
	seen         map[int64]bool
	unresolved   map[int64]int // index in Transactions, by producer id
}

// begin asks both sides for their bounds, and reads the copy.
func (r *run) begin(ctx context.Context) error {
	here, err := r.here.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("reconcile: %s-%d: the copy: %w", r.Topic, r.Partition, err)
	}
	r.Start, r.End, r.Asked = here.Start, here.End, r.o.Now()
	if err := r.marks(ctx); err != nil {
		return err
	}
	if err := r.beginnings(ctx); err != nil {
		return err
	}
	there, err := r.source.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("reconcile: %s-%d: the source: %w", r.Topic, r.Partition, err)
	}
	r.SourceStart, r.SourceEnd, r.SourceAsked = there.Start, there.End, r.o.Now()
	r.Parted = min(r.Parted, r.SourceEnd)
	if r.o.EndOfEpoch != nil && r.LME >= 0 {
		end, err := r.o.EndOfEpoch(ctx, r.LME)
		switch {
		case errors.Is(err, mirror.ErrUnsupported):
		case err != nil:
			return fmt.Errorf("reconcile: %s-%d: asking the source where epoch %d ends: %w", r.Topic, r.Partition, r.LME, err)
		case end.End >= 0:
			r.Compared = true
			r.Parted = min(r.Parted, end.End)
		}
	}
	r.Parted = max(r.Parted, 0)
	if r.Parted < r.LMO {
		r.gap("source", r.Parted, r.LMO, "the source lost what it had there, and the copy has it: a truncation, or an unclean election")
	}
	if r.SourceStart > r.LMO {
		r.gap("source", r.LMO, r.SourceStart, "the source's log begins behind it (retention, or records were deleted)")
	}
	r.Next = max(r.Parted, r.SourceStart)
	return nil
}

func (r *run) gap(side string, from, to int64, why string) {
	if n := len(r.Gaps); n >= mostGaps && r.Gaps[n-1].Side == side { // one that has what lies between too claims less
		r.Gaps[n-1].To = to
		return
	}
	r.Gaps = append(r.Gaps, Gap{side, from, to, why})
}

// marks reads what the stop wrote: ABORT markers and the reset behind them.
func (r *run) marks(ctx context.Context) error {
	if r.Start > r.LMO {
		r.gap("destination", r.LMO, r.Start, "the copy's log begins behind it (retention, or records were deleted), so what was aborted at the stop is not known")
		return nil
	}
	var found []Transaction
	other := int64(-1)
	err := r.read(ctx, r.here, r.LMO, r.End, func(h *batch.Header, b []byte) bool {
		switch kind := mirror.Kind(b); {
		case h.BaseOffset < r.LMO:
		case kind == "ABORT":
			found = append(found, Transaction{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, Abort: h.BaseOffset, AbortedAt: recordreader.Time(h.MaxTimestamp), First: -1, Last: -1, Marker: -1})
		case kind == "MIRROR_PID_RESET":
			r.Reset, r.StoppedAt, r.Transactions = h.BaseOffset, recordreader.Time(h.MaxTimestamp), found
			return false
		default:
			other = h.BaseOffset
			return false
		}
		return true
	})
	if err == nil && r.Reset < 0 {
		why := "the copy does not have the marks of the stop"
		if other >= 0 {
			why += fmt.Sprintf(": other records are at %d, so it was mirrored or written again since", other)
		}
		r.gap("destination", r.LMO, max(other, r.End), why)
	}
	return err
}

// beginnings looks for where the transactions began that the stop ended.
func (r *run) beginnings(ctx context.Context) error {
	from := max(r.Start, r.LMO-r.o.Lookback)
	if len(r.Transactions) == 0 || from >= r.LMO {
		return nil
	}
	reader, ended := txncut.NewReader(from), map[int64]int64{}
	var bad error
	err := r.read(ctx, r.here, from, r.LMO, func(h *batch.Header, b []byte) bool {
		if h.NextOffset() > r.LMO {
			return false
		}
		if kind := mirror.Kind(b); kind == "COMMIT" || kind == "ABORT" {
			ended[h.ProducerID] = h.BaseOffset
		}
		bad = reader.Observe(b)
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("reconcile: %s-%d: the copy: %w", r.Topic, r.Partition, err)
	}
	for _, p := range reader.Pieces() {
		for i := range r.Transactions {
			if t := &r.Transactions[i]; t.ProducerID == p.ProducerID && p.Outcome == txncut.Open {
				_, known := ended[p.ProducerID]
				t.First, t.Last, t.FirstIsExact = p.FirstOffset, p.LastOffset, known || from == 0
			}
		}
	}
	return nil
}

// read gives the batches of [from, to), whole and checked, until f is false.
func (r *run) read(ctx context.Context, side verify.Side, from, to int64, f func(h *batch.Header, b []byte) bool) error {
	for from < to {
		b, err := side.Read(ctx, from, r.o.Chunk)
		if err != nil {
			return fmt.Errorf("reconcile: %s-%d at %d: %w", r.Topic, r.Partition, from, err)
		}
		if len(b) == 0 {
			return nil
		}
		asked := from
		for len(b) > 0 {
			h, n, err := batch.Next(b)
			if err == nil {
				err = batch.Check(b[:n], &h)
			}
			if err != nil {
				return fmt.Errorf("reconcile: %s-%d at %d: %w", r.Topic, r.Partition, from, err)
			}
			if h.NextOffset() > from {
				from = h.NextOffset()
				if h.BaseOffset >= to || !f(&h, b[:n]) {
					return nil
				}
			}
			b = b[n:]
		}
		if from == asked {
			return fmt.Errorf("reconcile: %s-%d: a read at %d gives batches that end at %d or below", r.Topic, r.Partition, from, from)
		}
	}
	return nil
}

// readSource reads the source from Next on.
func (r *run) readSource(ctx context.Context) error {
	read := int64(0)
	stopped := false
	err := r.read(ctx, r.source, r.Next, r.SourceEnd, func(h *batch.Header, b []byte) bool {
		if h.BaseOffset > r.Next {
			r.gap("source", r.Next, h.BaseOffset, "nothing is there (compaction)")
		}
		r.observe(h, b)
		r.Next = h.NextOffset()
		read += int64(len(b))
		stopped = r.o.MaxBytes > 0 && read >= r.o.MaxBytes
		return !stopped
	})
	r.Done = err == nil && (!stopped || r.Next >= r.SourceEnd)
	if r.Done && r.Next < r.SourceEnd {
		r.gap("source", r.Next, r.SourceEnd, "nothing is there (compaction)")
		r.Next = r.SourceEnd
	}
	return err
}

func (r *run) observe(h *batch.Header, b []byte) {
	kind := mirror.Kind(b)
	switch {
	case h.Control() && h.RecordCount == 0:
		r.resolve(h, Unknown, "compaction emptied its marker")
	case kind == "COMMIT":
		r.marker(h, Committed)
	case kind == "ABORT":
		r.marker(h, Aborted)
	case h.Control():
	default:
		r.data(h)
	}
}

func (r *run) data(h *batch.Header) {
	if i, there := r.unresolved[h.ProducerID]; there && h.Transactional() && r.Transactions[i].ProducerEpoch != h.ProducerEpoch {
		r.resolve(h, Unknown, fmt.Sprintf("the source has a later transaction of its producer at %d and no marker before it", h.BaseOffset))
	}
	if h.BaseOffset < r.LMO || h.RecordCount == 0 {
		return
	}
	n := int64(h.RecordCount)
	if when := recordreader.Time(h.MaxTimestamp); h.MaxTimestamp >= 0 {
		if r.Earliest.IsZero() || when.Before(r.Earliest) {
			r.Earliest = when
		}
		if when.After(r.Latest) {
			r.Latest = when
		}
	}
	r.producer(h, n)
	if !h.Transactional() {
		r.Records.NoTransaction += n
		return
	}
	p := r.pending[h.ProducerID]
	if p == nil {
		p = &Pending{ProducerID: h.ProducerID}
		r.pending[h.ProducerID] = p
	}
	p.ProducerEpoch, p.Records = h.ProducerEpoch, p.Records+n
	if i, there := r.unresolved[h.ProducerID]; there {
		r.Transactions[i].More += n
	}
}

func (r *run) producer(h *batch.Header, n int64) {
	i := slices.IndexFunc(r.Producers, func(p Producer) bool { return p.ProducerID == h.ProducerID })
	switch {
	case i < 0 && len(r.Producers) == r.o.Producers:
		r.OtherProducers = true
		return
	case i < 0:
		i = len(r.Producers)
		r.Producers = append(r.Producers, Producer{ProducerID: h.ProducerID, First: h.BaseOffset})
	}
	r.Producers[i].Records += n
	r.Producers[i].Last = h.LastOffset()
}

func (r *run) marker(h *batch.Header, fate Fate) {
	p := r.pending[h.ProducerID]
	if r.Reset < 0 && p == nil && !r.seen[h.ProducerID] && fate == Committed && len(r.Possible) < mostPossible {
		r.Possible = append(r.Possible, Transaction{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, Abort: -1, First: -1, Last: -1, Source: Committed, Marker: h.BaseOffset, MarkedAt: recordreader.Time(h.MaxTimestamp), Version: "unknown"})
	}
	if r.Reset < 0 {
		r.seen[h.ProducerID] = true
	}
	r.resolve(h, fate, "")
	if p != nil {
		if fate == Committed {
			r.Records.Committed += p.Records
		} else {
			r.Records.Aborted += p.Records
		}
		delete(r.pending, h.ProducerID)
	}
}

// resolve says how the transaction ended of the producer whose marker, or what stands for it, this is.
func (r *run) resolve(h *batch.Header, fate Fate, why string) {
	i, there := r.unresolved[h.ProducerID]
	if !there {
		return
	}
	delete(r.unresolved, h.ProducerID)
	t := &r.Transactions[i]
	t.Source, t.Why, t.Version = fate, why, "unknown"
	if fate == Unknown {
		return
	}
	t.Marker, t.MarkedAt = h.BaseOffset, recordreader.Time(h.MaxTimestamp)
	p := txncut.Piece{ProducerEpoch: t.ProducerEpoch, MarkerEpoch: h.ProducerEpoch, Outcome: txncut.Aborted}
	if fate == Committed {
		p.Outcome = txncut.Committed
	}
	t.Version = p.Version().String()
	if j := slices.IndexFunc(r.Gaps, func(g Gap) bool { return g.Side == "source" && g.From < h.BaseOffset && g.To > r.LMO }); j >= 0 {
		g := r.Gaps[j]
		t.Source, t.Why = Unknown, fmt.Sprintf("the first marker that is there is %s at %d, but [%d,%d) is not: its own may have been in it", fate, h.BaseOffset, g.From, g.To)
	} else if r.Parted < r.LMO && (t.Last < 0 || !t.FirstIsExact || t.Last >= r.Parted) {
		t.Source, t.Why = Unknown, fmt.Sprintf("the source has it %s at %d, but lost what it had from %d on: records of it may be gone there", fate, h.BaseOffset, r.Parted)
	}
}

// end says what is left open.
func (r *run) end() {
	r.Pending, r.Seen, r.Records.Open = nil, nil, 0
	for _, p := range r.pending {
		r.Records.Open += p.Records
		r.Pending = append(r.Pending, *p)
	}
	for id := range r.seen {
		r.Seen = append(r.Seen, id)
	}
	slices.SortFunc(r.Pending, func(a, b Pending) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	slices.Sort(r.Seen)
	if !r.Done {
		return
	}
	for _, i := range r.unresolved {
		t := &r.Transactions[i]
		t.Source, t.Version = Open, "unknown"
		if j := slices.IndexFunc(r.Gaps, func(g Gap) bool { return g.Side == "source" && g.To > r.LMO || g.Side == "source" && r.Parted < r.LMO }); j >= 0 {
			t.Source, t.Why = Unknown, fmt.Sprintf("the source has no marker of it, but [%d,%d) is not there: its own may have been in it", r.Gaps[j].From, r.Gaps[j].To)
		}
	}
}
