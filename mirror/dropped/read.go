package dropped

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/recordreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/txncut"
)

// Options are how a folder is read. Zero values are the defaults in brackets.
type Options struct {
	Want         func(mirror.TopicPartition) bool // which partitions [all]
	MaxBatch     int                              // bytes that a batch may take, as it lies there and decompressed [256 MiB]
	Transactions int                              // markers of one run that are remembered; the end of later transactions is Unknown [1,000,000]
}

func (o Options) withDefaults() Options {
	o.MaxBatch, o.Transactions = cmp.Or(o.MaxBatch, 256<<20), cmp.Or(o.Transactions, 1_000_000)
	return o
}

// State is what became of a record's transaction, as far as what was dropped tells.
type State uint8

// The states.
const (
	None      State = iota // of no transaction
	Committed              // a COMMIT was dropped too
	Aborted                // an ABORT was dropped too
	Open                   // neither was there when the log was cut
	Unknown                // it may have ended in something that is not there; Transaction.Why says in what
)

var stateNames = [...]string{"none", "committed", "aborted", "open", "unknown"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText writes the state's name. A state that is none has an error.
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(stateNames) {
		return nil, fmt.Errorf("dropped: %s is no state of a transaction", s)
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the state's name.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("dropped: %.20q is no state of a transaction", b)
	}
	*s = State(i)
	return nil
}

// Transaction is what is known of the transaction that a batch is of, or that a marker ends.
type Transaction struct {
	State  State
	Marker int64  // offset of the marker, -1: none is there
	Whole  bool   // it is known to have begun within the run
	Below  bool   // a marker's: all data of the transaction lie below the run
	Why    string // of Open and Unknown
}

// Batch is one batch that was dropped.
type Batch struct {
	File *File
	mirror.BatchInfo
	Kind        string // as mirror.Kind says it: data, COMMIT, ABORT …
	Transaction Transaction
	Again       bool   // a run before this one has the same batch
	Bytes       []byte // exactly what was dropped; the caller's
	at          int64  // byte of the file
}

// Record is one record that was dropped. Its bytes are the caller's.
type Record struct {
	mirror.TopicPartition
	Offset        int64
	Timestamp     time.Time
	LogAppendTime bool // the broker set the timestamp
	Key, Value    []byte
	Headers       []Header
	LeaderEpoch   int32
	ProducerID    int64 // -1: not idempotent
	ProducerEpoch int16
	Kind          string // as mirror.Kind says it: of what is not data the key and value are Kafka's own
	Transaction   Transaction
	Again         bool // a run before this one has the same record
	File          *File
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Batches reads what was dropped, partition by partition and run by run, in the order of offsets.
// A file that cannot be read to its end gives a *DamageError where it stops; iterating goes on with the next file. So it does after an error of the file system. The end of ctx is the last thing given.
// First of all each of Folder.Unreadable is given as an error, those of partitions that are not wanted aside.
func (f *Folder) Batches(ctx context.Context, o Options) iter.Seq2[Batch, error] {
	o = o.withDefaults()
	return func(yield func(Batch, error) bool) {
		for _, e := range f.unreadable(o) {
			if !yield(Batch{}, e) {
				return
			}
		}
		for files := range f.partitions() {
			if o.Want != nil && !o.Want(files[0].TopicPartition) {
				continue
			}
			runs := runsOf(files)
			for i, r := range runs {
				r.hidden = f.hidden(r.files[0].TopicPartition)
				if !r.batches(ctx, runs[:i], o, yield) {
					return
				}
			}
		}
	}
}

// unreadable are the places that may hold something of what is wanted.
func (f *Folder) unreadable(o Options) (all []*UnreadableError) {
	for _, e := range f.Unreadable {
		if tp, one := f.partitionOf(e); !one || o.Want == nil || o.Want(tp) {
			all = append(all, e)
		}
	}
	return all
}

// hidden is a place that may hold something of a partition, nil: none is known.
func (f *Folder) hidden(tp mirror.TopicPartition) *UnreadableError {
	for _, e := range f.Unreadable {
		at, one := f.partitionOf(e)
		if parts := f.below(e); one && at == tp || !one && len(parts) == 1 && (parts[0] == tp.Topic || parts[0] == ".") {
			return e
		}
	}
	return nil
}

// partitionOf is the one partition that an unreadable place may hold something of; ok is false if that may be several, or none.
func (f *Folder) partitionOf(e *UnreadableError) (tp mirror.TopicPartition, ok bool) {
	parts := f.below(e)
	if len(parts) < 2 {
		return tp, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	return mirror.TopicPartition{Topic: parts[0], Partition: int32(n)}, err == nil
}

// below are the names that lead to an unreadable place from the folder.
func (f *Folder) below(e *UnreadableError) []string {
	path, _ := filepath.Rel(f.Dir, e.Path)
	return strings.Split(filepath.ToSlash(path), "/")
}

// partitions gives the files of each partition.
func (f *Folder) partitions() iter.Seq[[]*File] {
	return func(yield func([]*File) bool) {
		for i := 0; i < len(f.Files); {
			var files []*File
			for tp := f.Files[i].TopicPartition; i < len(f.Files) && f.Files[i].TopicPartition == tp; i++ {
				files = append(files, &f.Files[i])
			}
			if !yield(files) {
				return
			}
		}
	}
}

// Records reads what was dropped record by record, control records too. Order and errors are those of Batches; a batch whose records cannot be read gives a *DamageError too, and what follows it is given.
func (f *Folder) Records(ctx context.Context, o Options) iter.Seq2[Record, error] {
	o = o.withDefaults()
	reader := recordreader.New(o.MaxBatch)
	return func(yield func(Record, error) bool) {
		for b, err := range f.Batches(ctx, o) {
			if err != nil {
				if !yield(Record{}, err) {
					return
				}
				continue
			}
			h, _, err := batch.Next(b.Bytes)
			if err != nil {
				panic("dropped: a batch that was checked cannot be read: " + err.Error())
			}
			records, err := reader.Records(b.Bytes, &h)
			if err != nil {
				if errors.Is(err, recordreader.ErrSize) {
					err = fmt.Errorf("the records of the batch: %w", ErrTooLarge)
				}
				if !yield(Record{}, &DamageError{b.File.Path, b.at, h.BaseOffset, err}) {
					return
				}
				continue
			}
			for i := range records {
				if !yield(b.record(&h, &records[i]), nil) {
					return
				}
			}
		}
	}
}

func (b *Batch) record(h *batch.Header, r *batch.Record) Record {
	x := Record{
		TopicPartition: b.File.TopicPartition, Offset: h.BaseOffset + int64(r.OffsetDelta), Timestamp: time.UnixMilli(recordreader.Timestamp(h, r)), LogAppendTime: h.LogAppendTime(),
		Key: r.Key, Value: r.Value, LeaderEpoch: h.LeaderEpoch, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
		Kind: b.Kind, Transaction: b.Transaction, Again: b.Again, File: b.File,
	}
	for _, y := range r.Headers {
		x.Headers = append(x.Headers, Header(y))
	}
	return x
}

// batches gives those of one run. earlier are the runs that were given before.
func (r *run) batches(ctx context.Context, earlier []*run, o Options, yield func(Batch, error) bool) bool {
	ended, err := r.transactions(ctx, o)
	if err != nil {
		yield(Batch{}, err)
		return false
	}
	given := newGiven(earlier, r, o.MaxBatch)
	defer given.close()
	for _, file := range r.files {
		f, err := openFile(file, o.MaxBatch)
		if err != nil {
			if !yield(Batch{}, err) {
				return false
			}
			continue
		}
		for {
			at := f.at
			h, b, err := f.read()
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				if !yield(Batch{}, err) || ctx.Err() != nil {
					f.close()
					return false
				}
				break
			}
			for info := range mirror.Batches(b) {
				x := Batch{File: file, BatchInfo: info, Kind: mirror.Kind(b), Bytes: b, at: at, Again: given.has(h.BaseOffset, b)}
				x.Transaction = ended.of(&h, x.Kind)
				if !yield(x, nil) {
					f.close()
					return false
				}
			}
		}
		f.close()
	}
	return true
}

// given says which batches were given already: it follows the runs that overlap, in step.
type given struct{ runs []*follower }

type follower struct {
	files []*File // that were not opened yet
	f     *fileReader
	most  int
	base  int64 // of the batch
	head  []byte
}

func newGiven(earlier []*run, of *run, most int) *given {
	g := &given{}
	for _, r := range earlier {
		if r.from() < of.to() && of.from() < r.to() {
			g.runs = append(g.runs, &follower{files: r.files, most: most, base: -1})
		}
	}
	return g
}

// has compares the header: the checksum in it covers the rest.
func (g *given) has(base int64, b []byte) bool {
	found := false
	for _, r := range g.runs {
		for r.base < base && r.advance() {
		}
		found = found || r.base == base && string(r.head) == string(b[:batch.HeaderSize])
	}
	return found
}

func (g *given) close() {
	for _, r := range g.runs {
		if r.f != nil {
			r.f.close()
		}
	}
}

// advance goes to the next batch that was given; false: there is none.
func (r *follower) advance() bool {
	for {
		if r.f == nil {
			if len(r.files) == 0 {
				return false
			}
			var err error
			if r.f, err = openFile(r.files[0], r.most); err != nil {
				r.f = nil
			}
			r.files = r.files[1:]
			continue
		}
		h, b, err := r.f.read()
		if err != nil {
			r.f.close()
			r.f = nil
			continue
		}
		r.base, r.head = h.BaseOffset, b[:batch.HeaderSize]
		return true
	}
}

// span is what a run has of one transaction.
type span struct {
	first, last int64 // offsets of the data
	Transaction
}

// ends are the transactions of one run.
type ends struct {
	spans   map[int64][]span // by producer, in the order of offsets
	markers map[int64]bool   // offset of each marker that ends one of the spans: whether that is whole
	first   map[int64]int64  // offset of each producer's first marker, as far as the run can be read without a break
}

// scan is the first reading of a run.
type scan struct {
	*ends
	reader *txncut.Reader
	ended  map[int64]int64 // offset of each producer's first marker since the reader began: what begins behind it, began here
	whole  bool            // nothing lies below where the reader began
}

// settle takes over what was found. What has no end is as open says.
func (s *scan) settle(open Transaction) {
	for _, p := range s.reader.Pieces() {
		x := span{p.FirstOffset, p.LastOffset, open}
		switch p.Outcome {
		case txncut.Committed:
			x.Transaction = Transaction{State: Committed, Marker: p.MarkerOffset}
		case txncut.Aborted:
			x.Transaction = Transaction{State: Aborted, Marker: p.MarkerOffset}
		}
		end, ended := s.ended[p.ProducerID]
		x.Whole = s.whole || ended && end < p.FirstOffset
		if p.Outcome != txncut.Open {
			s.markers[p.MarkerOffset] = x.Whole
		}
		s.spans[p.ProducerID] = append(s.spans[p.ProducerID], x)
	}
}

// broken: nothing is known of what lies between what was read and at.
func (s *scan) broken(at int64, why string) {
	s.settle(Transaction{State: Unknown, Marker: -1, Why: why})
	if s.first == nil {
		s.first = s.ended
	}
	s.reader, s.ended, s.whole = txncut.NewReader(at), map[int64]int64{}, false
}

// transactions reads a run for its markers. The error is the context's: what cannot be read is told by whoever reads the run.
func (r *run) transactions(ctx context.Context, o Options) (*ends, error) {
	s := &scan{&ends{spans: map[int64][]span{}, markers: map[int64]bool{}}, txncut.NewReader(r.from()), map[int64]int64{}, r.from() == 0}
	markers := 0
	for _, file := range r.files {
		f, err := openFile(file, o.MaxBatch)
		if err != nil {
			s.broken(file.To, "a file that may have its end cannot be opened: "+file.Path)
			continue
		}
		for markers < o.Transactions {
			h, b, err := f.read()
			if err == io.EOF {
				break
			}
			if err := ctx.Err(); err != nil {
				f.close()
				return nil, err
			}
			if err == nil {
				err = s.reader.Observe(b)
			}
			if err != nil {
				s.broken(file.To, fmt.Sprintf("file %s, which may have its end, cannot be read from offset %d on", file.Path, f.next))
				break
			}
			if kind := mirror.Kind(b); kind == "COMMIT" || kind == "ABORT" {
				if _, known := s.ended[h.ProducerID]; !known {
					s.ended[h.ProducerID] = h.BaseOffset
				}
				if markers++; markers == o.Transactions {
					s.broken(r.to(), fmt.Sprintf("it has no end up to offset %d, and behind that none was looked for: there are more than Options.Transactions", h.BaseOffset))
				}
			}
		}
		f.close()
	}
	switch {
	case r.after != nil:
		s.settle(Transaction{State: Unknown, Marker: -1, Why: fmt.Sprintf("it has no end up to offset %d, and the next file begins at %d: if that is of the same log, what was between is not here", r.to(), r.after.From)})
	case r.hidden != nil:
		s.settle(Transaction{State: Unknown, Marker: -1, Why: fmt.Sprintf("it has no end up to offset %d, and %s, which may have it, cannot be read", r.to(), r.hidden.Path)})
	default:
		s.settle(Transaction{State: Open, Marker: -1, Why: fmt.Sprintf("it has no COMMIT and no ABORT up to offset %d, where the log ended when it was cut", r.to())})
	}
	if s.first == nil {
		s.first = s.ended
	}
	return s.ends, nil
}

// of is what is known of the transaction of a batch.
func (e *ends) of(h *batch.Header, kind string) Transaction {
	switch {
	case kind == "COMMIT" || kind == "ABORT":
		t := Transaction{State: Committed, Marker: h.BaseOffset}
		if kind == "ABORT" {
			t.State = Aborted
		}
		whole, ends := e.markers[h.BaseOffset]
		first, known := e.first[h.ProducerID]
		t.Whole, t.Below = whole, !ends && known && first == h.BaseOffset
		return t
	case h.Control() || !h.Transactional() || h.RecordCount == 0:
		return Transaction{State: None, Marker: -1}
	}
	known := e.spans[h.ProducerID]
	i, _ := slices.BinarySearchFunc(known, h.BaseOffset, func(s span, base int64) int { return cmp.Compare(s.last, base) })
	if i < len(known) && known[i].first <= h.BaseOffset {
		return known[i].Transaction
	}
	return Transaction{State: Unknown, Marker: -1, Why: "its end was not looked for: there are more than Options.Transactions before it"}
}
