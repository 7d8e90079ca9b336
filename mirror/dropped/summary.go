package dropped

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clustermirror/clustermirror/internal/recordreader"
	"github.com/clustermirror/clustermirror/mirror"
)

// Counts are numbers of records, by their transaction.
type Counts struct{ None, Committed, Aborted, Open, Unknown int64 }

func (c *Counts) add(s State, n int64) {
	*[...]*int64{&c.None, &c.Committed, &c.Aborted, &c.Open, &c.Unknown}[s] += n
}

func (c Counts) sum() int64 { return c.None + c.Committed + c.Aborted + c.Open + c.Unknown }

// Summary is what a folder holds, as numbers. It is plain data.
type Summary struct {
	Dir     string
	Files   []FileSummary
	Strays  []Stray `json:",omitempty"`
	Unread  []Stray `json:",omitempty"` // places that cannot be read (Folder.Unreadable): what lies there is not counted
	Records Counts  // data records; what two files have alike counts once
}

// FileSummary is what one file holds.
type FileSummary struct {
	File
	Batches  int64
	Records  Counts    // data records, without Again
	Again    int64     // data records that a file before this one has too
	Earliest time.Time // of the batches' largest timestamps, those beyond what JSON can tell as the last that it can (9999-12-31); zero: no data
	Latest   time.Time
	Whys     []string `json:",omitempty"` // of records whose transaction is open or unknown, each once
	Below    []Below  `json:",omitempty"`
	Damage   string   `json:",omitempty"` // why it is not read to its end
}

// Below is a marker of which nothing else was dropped: it ends a transaction whose data are in what both logs have in common, where the copy may have another end for it; or one that wrote nothing here.
type Below struct {
	Kind          string // COMMIT or ABORT
	ProducerID    int64
	ProducerEpoch int16
	Offset        int64
}

const mostWhys, mostBelow = 10, 1000

// Summarize reads the whole folder. Errors: the context's end, and the file system's; damage and what is unreadable are in the summary. A summary that comes with an error is of what was read until then.
func (f *Folder) Summarize(ctx context.Context, o Options) (Summary, error) {
	s := Summary{Dir: f.Dir, Strays: f.Strays}
	at := map[string]int{}
	of := func(file *File) *FileSummary {
		i, known := at[file.Path]
		if !known {
			i, at[file.Path] = len(s.Files), len(s.Files)
			s.Files = append(s.Files, FileSummary{File: *file})
		}
		return &s.Files[i]
	}
	for i := range f.Files {
		if o.Want == nil || o.Want(f.Files[i].TopicPartition) {
			of(&f.Files[i])
		}
	}
	shared := map[string]bool{} // files that a second run has too are counted with the first
	last, done := "", map[string]bool{}
	for b, err := range f.Batches(ctx, o) {
		var damage *DamageError
		if errors.As(err, &damage) {
			s.Files[at[damage.Path]].Damage = damage.Error()
			continue
		}
		var unreadable *UnreadableError
		if errors.As(err, &unreadable) {
			s.Unread = append(s.Unread, Stray{unreadable.Path, unreadable.Err.Error()})
			continue
		}
		if err != nil {
			return s, err
		}
		x := of(b.File)
		if b.File.Path != last {
			done[last], last = true, b.File.Path
			shared[last] = done[last]
		}
		if shared[last] {
			continue
		}
		x.Batches++
		switch {
		case b.Kind != "data":
			if b.Transaction.Below && !b.Again && len(x.Below) < mostBelow {
				x.Below = append(x.Below, Below{b.Kind, b.ProducerID, b.ProducerEpoch, b.Base})
			}
			continue
		case b.Again:
			x.Again += int64(b.Records)
			continue
		}
		x.Records.add(b.Transaction.State, int64(b.BatchInfo.Records))
		s.Records.add(b.Transaction.State, int64(b.BatchInfo.Records))
		if when := recordreader.Time(b.MaxTimestamp); b.MaxTimestamp >= 0 {
			if x.Earliest.IsZero() || when.Before(x.Earliest) {
				x.Earliest = when
			}
			if when.After(x.Latest) {
				x.Latest = when
			}
		}
		if why := b.Transaction.Why; why != "" && len(x.Whys) < mostWhys && !slices.Contains(x.Whys, why) {
			x.Whys = append(x.Whys, why)
		}
	}
	return s, nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// String is the summary for a person.
func (s Summary) String() string {
	var text strings.Builder
	line := func(format string, args ...any) {
		text.WriteString(mirror.OneLine(fmt.Sprintf(format, args...)) + "\n")
	}
	line("DROPPED RECORDS  folder %s  %d in %d files: %d of no transaction, %d committed, %d aborted, %d open when cut, %d unknown",
		s.Dir, s.Records.sum(), len(s.Files), s.Records.None, s.Records.Committed, s.Records.Aborted, s.Records.Open, s.Records.Unknown)
	if len(s.Files) > 0 {
		line("")
		var table strings.Builder
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "PARTITION\tOFFSETS\tN\tBATCHES\tNO TXN\tCOMMITTED\tABORTED\tOPEN\tUNKNOWN\tAGAIN\tEARLIEST\tLATEST")
		for _, f := range s.Files {
			fmt.Fprintf(w, "%s-%d\t[%d,%d)\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", mirror.OneLine(f.Topic), f.Partition, f.From, f.To, f.N, f.Batches, f.Records.None, f.Records.Committed, f.Records.Aborted,
				f.Records.Open, f.Records.Unknown, f.Again, stamp(f.Earliest), stamp(f.Latest))
		}
		w.Flush()
		text.WriteString(table.String())
	}
	for i, n := range s.notes() {
		if i == 0 {
			line("")
		}
		line("%s", n)
	}
	return text.String()
}

// notes are what a person has to know beside the table, the worst first.
func (s Summary) notes() (notes []string) {
	for _, x := range s.Unread {
		notes = append(notes, fmt.Sprintf("CANNOT BE READ, and is not counted: %s: %s", x.Path, x.Why))
	}
	for _, f := range s.Files {
		if f.Damage != "" {
			notes = append(notes, f.Damage+"; what is before that is counted")
		}
	}
	for _, f := range s.Files {
		for _, b := range f.Below {
			notes = append(notes, fmt.Sprintf("%s-%d at %d: %s of producer %d epoch %d, whose records are not in this folder: they are below what was dropped, and the copy may have another end for them",
				f.Topic, f.Partition, b.Offset, b.Kind, b.ProducerID, b.ProducerEpoch))
		}
	}
	for _, f := range s.Files {
		for _, why := range f.Whys {
			notes = append(notes, fmt.Sprintf("%s-%d [%d,%d): a transaction without an end: %s", f.Topic, f.Partition, f.From, f.To, why))
		}
	}
	for _, x := range s.Strays {
		notes = append(notes, fmt.Sprintf("not read: %s: %s", x.Path, x.Why))
	}
	return notes
}
