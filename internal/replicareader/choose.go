package replicareader

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/logtrunc"
)

// Copy is what Ends and Epochs say of one broker's copy.
type Copy struct {
	Broker     int32
	Start, End int64
	Epochs     []logtrunc.Entry // as Reader.Epochs; nil: not known, or the copy is empty
	// Unconfirmed says that this copy did not confirm the truncation to Limit: what it holds from Limit on may be what the truncation was to remove.
	Unconfirmed bool
	Limit       int64
	Err         error // why nothing is known of it; Start to Limit do not count then
}

// Range is [From, To) of offsets.
type Range struct{ From, To int64 }

// Choice is the copy that is the log.
type Choice struct {
	Broker     int32
	Start, End int64            // End is at most the copy's limit
	Epochs     []logtrunc.Entry // below End
	Standings  []Standing       // of every copy, the chosen one too, by broker
}

// Diverged lists the copies that part from the chosen one.
func (c Choice) Diverged() []Standing {
	return slices.DeleteFunc(slices.Clone(c.Standings), func(s Standing) bool { return !s.Diverged })
}

// Standing is how one copy stands to the chosen one.
type Standing struct {
	Broker     int32
	Err        error   // it could not be read: nothing else counts
	Start, End int64   // up to its limit
	Beyond     Range   // what it holds from its limit on, which goes; empty: nothing
	Lacks      []Range // what the chosen one holds and this one does not: below its log start, above its end
	Extra      []Range // what this one holds and the chosen one does not: only ever below the chosen one's log start
	Diverged   bool    // it has other batches than the chosen one at the offsets from Common on
	Common     int64   // where they part, at most both ends; without Diverged the smaller end
	Unjudged   bool    // epochs are missing on one side (not told, or batches without one), so nothing is said about divergence
}

// Choose says which copy is the log after a leader without a store was lost: the one with the highest end up to its limit; of several, the one with the lowest log start, as it
// holds more; of several, the lowest broker id. It is a pure function. A copy that could not be read does not stand in the way: whether to go on without it is the caller's to
// say.
//
// A copy diverges when the end-offset rule (KIP-101, KIP-279: logtrunc.Search, asked by the side with the lower last epoch) finds that both part below the smaller of their
// ends. Copies whose batches of the same epoch differ are not found by it (Reader.Compare does), and a hole that compaction left behind a copy's last batch of an epoch may be
// taken for a part of another epoch: a divergence of a compacted topic's copies is worth a Compare. One that such a hole of the chosen copy hides comes of a truncation that the
// other copy has not followed, as only leaders that are lost have written to both: its Limit tells. The longest copy is chosen even if another one ends in a higher epoch; it is
// then Diverged.
//
// Limits are ends of batches. Errors: *NoCopyError; a broker that is given twice.
func Choose(copies []Copy) (Choice, error) {
	copies = slices.Clone(copies)
	slices.SortFunc(copies, func(a, b Copy) int { return cmp.Compare(a.Broker, b.Broker) })
	best := -1
	for i := range copies {
		c := &copies[i]
		if i > 0 && copies[i-1].Broker == c.Broker {
			return Choice{}, fmt.Errorf("broker %d is given twice to choose from; give each replica once", c.Broker)
		}
		if c.Err == nil && (c.Start < 0 || c.Start > c.End || c.Unconfirmed && c.Limit < 0) {
			c.Err = fmt.Errorf("a copy of [%d,%d) with limit %d cannot be", c.Start, c.End, c.Limit)
		}
		if c.Err == nil && (best < 0 || better(*c, copies[best])) {
			best = i
		}
	}
	if best < 0 {
		return Choice{}, &NoCopyError{Copies: copies}
	}
	chosen := judge(copies[best])
	choice := Choice{Broker: chosen.broker, Start: chosen.start, End: chosen.end, Epochs: chosen.cache.Entries()}
	for _, c := range copies {
		choice.Standings = append(choice.Standings, standing(c, chosen))
	}
	return choice, nil
}

// better says that a, which may be trusted as far as b, is the longer log.
func better(a, b Copy) bool {
	as, ae := a.trusted()
	bs, be := b.trusted()
	return ae > be || ae == be && as < bs
}

// trusted is what of a copy counts. A copy that starts above its limit is empty there, as a log that is cut below its start is.
func (c *Copy) trusted() (start, end int64) {
	if c.Unconfirmed && c.Limit < c.End {
		return min(c.Start, c.Limit), c.Limit
	}
	return c.Start, c.End
}

// judged is a copy up to its limit.
type judged struct {
	broker     int32
	start, end int64
	cache      *logtrunc.Cache
}

func judge(c Copy) judged {
	j := judged{broker: c.Broker, cache: logtrunc.NewCache(c.Epochs...)}
	j.start, j.end = c.trusted()
	j.cache.TruncateTo(j.end)
	return j
}

// unknown says that a copy holds something under epochs that nobody told.
func (j judged) unknown() bool { return j.start < j.end && j.cache.Latest() == logtrunc.Unknown }

func standing(c Copy, chosen judged) Standing {
	if c.Err != nil {
		return Standing{Broker: c.Broker, Err: c.Err}
	}
	j := judge(c)
	s := Standing{Broker: j.broker, Start: j.start, End: j.end, Common: min(j.end, chosen.end)}
	if c.End > j.end {
		s.Beyond = Range{max(j.end, c.Start), c.End}
	}
	s.Lacks, s.Extra = without(chosen, j), without(j, chosen)
	if s.Unjudged = j.unknown() || chosen.unknown(); !s.Unjudged && max(j.start, chosen.start) < s.Common {
		common, proved := commonPoint(j, chosen)
		if s.Unjudged = !proved; proved && common < s.Common {
			s.Diverged, s.Common = true, common
		}
	}
	return s
}

// without is what a holds outside b's range.
func without(a, b judged) (rs []Range) {
	if a.start >= a.end {
		return nil
	}
	if b.start >= b.end {
		return []Range{{a.start, a.end}}
	}
	if a.start < b.start {
		rs = append(rs, Range{a.start, min(a.end, b.start)})
	}
	if a.end > b.end {
		rs = append(rs, Range{max(a.start, b.end), a.end})
	}
	return rs
}

// commonPoint is where two logs part by their epochs, at most both ends, and whether that is proved. The one whose last epoch is the lower asks: the other one's answers are
// then defined.
func commonPoint(a, b judged) (point int64, proved bool) {
	if a.cache.Latest() > b.cache.Latest() {
		a, b = b, a
	}
	search := logtrunc.NewSearch(a.cache, a.start, a.end)
	for epoch, ok := search.Ask(); ok; epoch, ok = search.Ask() {
		search.Answer(b.cache.EndOffsetFor(epoch, b.end))
	}
	point, proved = search.Result()
	return min(point, b.end), proved
}

// Failed lists the errors of the copies that could not be read, joined; nil if there are none.
func (c Choice) Failed() error {
	var all []error
	for _, s := range c.Standings {
		all = append(all, s.Err)
	}
	return errors.Join(all...)
}
