package txncut

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
)

// TestScripts: a script is a transcript, a command, "----", and what came of it. Run with -rewrite after a change and read the diff.
//
//	copy t-0 [floor=n] [end=n] [from=n] [incomplete]    one partition's copy: its batches, one a line, each with its offsets, who wrote it and when; prints its pieces
//	  0-4 P7.1 @100          data of a transaction of producer 7, epoch 1, at 100 ms
//	  5 COMMIT P7.2 @110     or ABORT
//	  6-7 plain @120         data of no transaction; reset; emptied in front of a batch: as compaction leaves it; open in front of data: in flight at from, below it
//	find [skew=duration]
//	cut [skew=duration] [most=n]
//	chain of=n               why the n-th of the last cut's list is undone
//	apply                    the copies end where the last cut said
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		s := &script{batches: map[string][]byte{}}
		datadriven.RunTest(t, path, s.do)
	})
}

type script struct {
	partitions []Partition
	batches    map[string][]byte
	cut        CutResult
}

func (s *script) do(t *testing.T, d *datadriven.TestData) string {
	o := Options{}
	var most int64
	if d.HasArg("skew") {
		var text string
		d.ScanArgs(t, "skew", &text)
		skew, err := time.ParseDuration(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		o.Skew = skew
	}
	d.MaybeScanArgs(t, "most", &most)
	o.MaxGiveUp = most
	switch d.Cmd {
	case "copy":
		return s.copy(t, d)
	case "find":
		r := Find(s.partitions, o)
		var b strings.Builder
		for _, torn := range r.Torn {
			fmt.Fprintln(&b, torn)
		}
		for _, u := range r.Unseen {
			fmt.Fprintln(&b, u)
		}
		if b.Len() == 0 {
			return "nothing\n"
		}
		return b.String()
	case "cut":
		s.cut = Cut(s.partitions, o)
		return s.cut.String()
	case "chain":
		var of int
		d.ScanArgs(t, "of", &of)
		var b strings.Builder
		for _, u := range s.cut.Chain(of - 1) {
			fmt.Fprintf(&b, "%v in %v is %v %v in %v\n", u.Piece.name(), u.Marker, u.Why, u.Cause.Piece.name(), u.Cause.At)
		}
		return b.String()
	case "apply":
		for i, p := range s.cut.Partitions {
			s.partitions[i].End = p.Offset
		}
		return "done\n"
	}
	d.Fatalf(t, "unknown command")
	return ""
}

func (s *script) copy(t *testing.T, d *datadriven.TestData) string {
	p := Partition{Complete: !d.HasArg("incomplete")}
	topic, number, _ := strings.Cut(d.CmdArgs[0].Key, "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	p.Topic, p.Number = topic, int32(n)
	var from int64
	d.MaybeScanArgs(t, "floor", &p.Floor)
	d.MaybeScanArgs(t, "from", &from)
	var inFlight []producerstate.Transaction
	var b []byte
	for line := range strings.Lines(d.Input) {
		l := s.line(t, d, strings.Fields(line))
		if l.open {
			inFlight = append(inFlight, producerstate.Transaction{ProducerID: l.id, ProducerEpoch: l.epoch, FirstOffset: l.first, LastOffset: l.last, FirstTimestamp: l.at})
			continue
		}
		b = append(b, l.bytes...)
	}
	r := NewReader(from, inFlight...)
	if err := r.Observe(b); err != nil {
		d.Fatalf(t, "%v", err)
	}
	p.End, p.Pieces = r.Next(), r.Pieces()
	d.MaybeScanArgs(t, "end", &p.End)
	s.partitions = append(s.partitions, p)
	var out strings.Builder
	fmt.Fprintf(&out, "[%d, %d)\n", p.Floor, p.End)
	for _, q := range p.Pieces {
		fmt.Fprintf(&out, "  %s %v\n", pieceText(q), q.Version())
	}
	return out.String()
}

// line is one line of a copy.
type line struct {
	open        bool
	first, last int64
	id          int64
	epoch       int16
	at          int64
	bytes       []byte
}

func (s *script) line(t *testing.T, d *datadriven.TestData, words []string) (l line) {
	empty := false
	for words[0] == "emptied" || words[0] == "open" {
		empty, l.open = empty || words[0] == "emptied", l.open || words[0] == "open"
		words = words[1:]
	}
	if _, err := fmt.Sscanf(words[0], "%d-%d", &l.first, &l.last); err != nil {
		if l.first, err = strconv.ParseInt(words[0], 10, 64); err != nil {
			d.Fatalf(t, "%q: %v", words, err)
		}
		l.last = l.first
	}
	kind := "data"
	for _, w := range words[1:] {
		switch {
		case strings.HasPrefix(w, "@"):
			l.at, _ = strconv.ParseInt(w[1:], 10, 64)
		case strings.HasPrefix(w, "P"):
			if _, err := fmt.Sscanf(w, "P%d.%d", &l.id, &l.epoch); err != nil {
				d.Fatalf(t, "%q: %v", words, err)
			}
		default:
			kind = w
		}
	}
	switch kind {
	case "data":
		l.bytes = dataBatch(l.first, l.last, l.id, l.epoch, l.at)
	case "plain":
		spec := batch.DataSpec{BaseOffset: l.first, LastOffsetDelta: int32(l.last - l.first), ProducerID: -1, BaseTimestamp: l.at, Records: []batch.Record{{}}}
		l.bytes = batch.AppendData(nil, spec)
	case "COMMIT":
		l.bytes = markerBatch(l.first, l.id, l.epoch, Committed, l.at)
	case "ABORT":
		l.bytes = markerBatch(l.first, l.id, l.epoch, Aborted, l.at)
	case "reset":
		l.bytes = txnabort.PIDReset(l.first, 1, l.at)
	default:
		d.Fatalf(t, "%q: what is %s", words, kind)
	}
	if empty {
		l.bytes = emptied(l.bytes)
	}
	return l
}
