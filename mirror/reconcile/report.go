package reconcile

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Report is the list of a mirror. It is plain data, for JSON too.
type Report struct {
	Mirror               string
	SourceClusterID      string
	DestinationClusterID string
	Taken                time.Time
	Partitions           []PartitionReport
}

// Count are the transactions of a fate, over all partitions: each partition of a transaction counts.
func (r *Report) Count(fate Fate) (n int) {
	for i := range r.Partitions {
		for _, t := range r.Partitions[i].Transactions {
			if t.Source == fate {
				n++
			}
		}
	}
	return n
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// String is the list for a person: first what differs, then what only the source has, then what cannot be known.
func (r *Report) String() string {
	var text strings.Builder
	line := func(format string, args ...any) {
		text.WriteString(mirror.OneLine(fmt.Sprintf(format, args...)) + "\n")
	}
	table := func(head string, rows []string) {
		if len(rows) == 0 {
			return
		}
		line("")
		var b strings.Builder
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, head)
		for _, row := range rows {
			fmt.Fprintln(w, row)
		}
		w.Flush()
		for l := range strings.Lines(b.String()) {
			line("%s", strings.TrimRight(l, " \n"))
		}
	}
	var records, possible int64
	for i := range r.Partitions {
		records, possible = records+r.Partitions[i].Records.Sum(), possible+int64(len(r.Partitions[i].Possible))
	}
	line("RECONCILIATION  mirror %s  source %s  destination %s  %s", r.Mirror, orUnknown(r.SourceClusterID), orUnknown(r.DestinationClusterID), stamp(r.Taken))
	line("%d committed at the source and aborted here, %d possibly; %d aborted on both sides, %d still open at the source, %d unknown; %d records that only the source has",
		r.Count(Committed), possible, r.Count(Aborted), r.Count(Open), r.Count(Unknown), records)
	var transactions, above, notes []string
	for i := range r.Partitions {
		p := &r.Partitions[i]
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		for _, t := range append(append([]Transaction{}, p.Transactions...), p.Possible...) {
			here, span := fmt.Sprintf("ABORT at %d", t.Abort), fmt.Sprintf("%d..%d", t.First, t.Last)
			if t.Abort < 0 {
				here = "unknown"
			}
			if t.First < 0 {
				span = fmt.Sprintf("below %d", p.LMO)
			} else if !t.FirstIsExact {
				span = fmt.Sprintf("%d or below..%d", t.First, t.Last)
			}
			fate := strings.ToUpper(string(t.Source))
			if t.Source == "" {
				fate = "NOT READ YET"
			}
			if t.Marker >= 0 {
				fate += fmt.Sprintf(" at %d, %s", t.Marker, stamp(t.MarkedAt))
			}
			transactions = append(transactions, fmt.Sprintf("%s\t%d\t%d\t%s\t%d\t%s\t%s", name, t.ProducerID, t.ProducerEpoch, span, t.More, here, fate))
			if t.Why != "" {
				notes = append(notes, fmt.Sprintf("%s: producer %d epoch %d: %s", name, t.ProducerID, t.ProducerEpoch, t.Why))
			}
		}
		c := p.Records
		above = append(above, fmt.Sprintf("%s\t%d\t[%d,%d)\t%d\t%d\t%d\t%d\t%s\t%s\t%s", name, p.LMO, max(p.LMO, p.SourceStart), max(p.LMO, p.SourceStart, p.Next), c.NoTransaction, c.Committed, c.Aborted, c.Open, stamp(p.Earliest), stamp(p.Latest), producers(p)))
		for _, g := range p.Gaps {
			notes = append(notes, fmt.Sprintf("%s: [%d,%d) of the %s cannot be known: %s", name, g.From, g.To, g.Side, g.Why))
		}
		if !p.Compared {
			notes = append(notes, fmt.Sprintf("%s: the source was not asked where epoch %d ends: that it still has all below %d is not proved", name, p.LME, p.LMO))
		}
		if !p.Done {
			notes = append(notes, fmt.Sprintf("%s: NOT FINISHED: the source was read up to %d of %d", name, p.Next, p.SourceEnd))
		}
	}
	table("PARTITION\tPRODUCER\tEPOCH\tOFFSETS HERE\tMORE AT SOURCE\tHERE\tAT THE SOURCE", transactions)
	table("PARTITION\tLMO\tONLY AT SOURCE\tNO TXN\tCOMMITTED\tABORTED\tOPEN\tEARLIEST\tLATEST\tPRODUCERS", above)
	for i, n := range notes {
		if i == 0 {
			line("")
		}
		line("%s", n)
	}
	return text.String()
}

func producers(p *PartitionReport) string {
	var ids []string
	for _, x := range p.Producers {
		id := fmt.Sprint(x.ProducerID)
		if x.ProducerID < 0 {
			id = "without id"
		}
		ids = append(ids, id)
	}
	if p.OtherProducers {
		ids = append(ids, "…")
	}
	if len(ids) == 0 {
		return "-"
	}
	return strings.Join(ids, ", ")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
