package mirror

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txncut"
)

// cutSnapshot is tornSnapshot, looked at down to where the logs start.
func cutSnapshot(readable bool) Snapshot {
	s := tornSnapshot()
	s.Transactions.Readable = readable
	for i := range s.Transactions.Copies {
		c := &s.Transactions.Copies[i]
		c.From = c.Start
		for _, p := range c.Pieces {
			if p.Outcome != txncut.Open {
				c.sizes = append(c.sizes, sizeFrom{p.MarkerOffset, 10, 1000})
			}
		}
		slices.SortFunc(c.sizes, func(a, b sizeFrom) int { return int(a.offset - b.offset) })
	}
	for i := range s.Partitions {
		if p := &s.Partitions[i]; p.Topic == "orders" {
			s.Groups = append(s.Groups, GroupStatus{Group: "shop", Seen: planTime, Partitions: []GroupPartitionStatus{{TopicPartition: TopicPartition{"orders", p.Partition}, Source: 1000, Written: 1000, Here: 1000}}})
		}
	}
	return s
}

// TestAPlanThatCutsSaysWhereGroupsGoOn: no group goes on behind what is cut away.
func TestAPlanThatCutsSaysWhereGroupsGoOn(t *testing.T) {
	for policy, want := range map[TornPolicy]int64{TornAbort: 1000, TornCut: 910} {
		p := PlanFailover(cutSnapshot(false), FailoverOptions{Torn: policy})
		if len(p.GroupPlaces) != 1 || p.GroupPlaces[0].At != KnownNumber(want) {
			t.Errorf("%s: %+v", policy, p.GroupPlaces)
		}
	}
}

// TestNoCutBelowWhereClientsCouldWrite: a log of a later episode, one that was its clients' before, and one whose end is recorded are not cut at all; nor below what a plan has said.
func TestNoCutBelowWhereClientsCouldWrite(t *testing.T) {
	for name, change := range map[string]func(*PartitionStatus){
		"an earlier stop":       func(p *PartitionStatus) { p.Episode, p.LME = 2, &statemachine.LastMirrorEpoch{Offset: 900, Episode: 1} },
		"an earlier episode":    func(p *PartitionStatus) { p.Episode = 2 },
		"clients had it before": func(p *PartitionStatus) { p.WasOpen = true },
		"its end is recorded":   func(p *PartitionStatus) { p.LME = &statemachine.LastMirrorEpoch{Offset: 1000, Episode: p.Episode} },
	} {
		s := cutSnapshot(false)
		for i := range s.Transactions.Copies {
			if c := &s.Transactions.Copies[i]; c.Topic == "orders" {
				p := mirrored("orders", 0, 1000, 1000, time.Minute)
				p.Episode = 1
				if got := cutFloor(&p); got != p.Start {
					t.Errorf("the floor of a first copy is %d", got)
				}
				change(&p)
				c.Floor = cutFloor(&p)
			}
		}
		if cut, points := s.Transactions.cut(everywhere, cutBounds{}); points != nil || cut.GivenUp != 0 || cut.shallow || !strings.Contains(cut.Why, "orders-0 would have to be cut at 910, and may not be below 1000: clients could write that log before") {
			t.Errorf("%s: %+v", name, cut)
		}
	}
	s := cutSnapshot(false)
	for floor, found := range map[int64]bool{909: true, 910: true, 911: false, math.MaxInt64: false} {
		cut, _ := s.Transactions.cut(everywhere, cutBounds{floors: map[string][]int64{"orders": {floor}}})
		if (cut.Why == "") != found || !found && !strings.Contains(cut.Why, "the plan says that it ends no lower") {
			t.Errorf("%d: %+v", floor, cut)
		}
	}
	if cut, _ := s.Transactions.cut(everywhere, cutBounds{floors: map[string][]int64{"orders": nil, "payments": {0}}}); cut.Why != "" {
		t.Errorf("without a plan: %+v", cut)
	}
}

// TestNothingIsCutThatAPlanDoesNotKnow: a topic whose logs were not open when the plan was made, and a partition that came later, end where they end.
func TestNothingIsCutThatAPlanDoesNotKnow(t *testing.T) {
	s := cutSnapshot(false)
	s.Topics = append(s.Topics, TopicSnapshot{Topic: "late", MirrorName: "east"})
	p := PlanFailover(s, FailoverOptions{Torn: TornCut})
	bounds := cutBounds{floors: p.ends()}
	for _, tp := range []TopicPartition{{"late", 0}, {"late", 3}, {"orders", 7}} {
		if got := bounds.floor(tp); got != math.MaxInt64 {
			t.Errorf("%s-%d may be cut to %d", tp.Topic, tp.Partition, got)
		}
	}
}

func everywhere(TopicPartition) bool { return true }

// TestACutIsFoundOnlyWhereEnoughWasRead: what was not read may hold a COMMIT of what the cut leaves undecided, or data of what it takes away. Judged against a look at everything: a cut that is found with less is the same.
func TestACutIsFoundOnlyWhereEnoughWasRead(t *testing.T) {
	build := func(gap int) (logs []*memoryCopy) {
		at := int64(0)
		clock := func() int64 { at += 1000; return at }
		orders, payments := &memoryCopy{}, &memoryCopy{}
		tx := func(c *memoryCopy, id int64, epoch int16) {
			c.add(batch.DataSpec{ProducerID: id, ProducerEpoch: epoch, Transactional: true, BaseTimestamp: clock()}, 100)
		}
		commit := func(c *memoryCopy, id int64, epoch int16) {
			c.commit(id, epoch)
			c.batches[len(c.batches)-1] = batch.AppendControl(nil, batch.ControlSpec{BaseOffset: c.end - 1, ProducerID: id, ProducerEpoch: epoch, BaseSequence: -1, Transactional: true, Timestamp: clock(),
				Key: []byte{0, 0, 0, byte(batch.ControlCommit)}, Value: make([]byte, 6)})
		}
		for e := range int16(100) { // a producer that is done each time
			for _, c := range []*memoryCopy{orders, payments} {
				tx(c, 1, e)
			}
			for _, c := range []*memoryCopy{orders, payments} {
				commit(c, 1, e+1)
			}
		}
		tx(orders, 7, 1) // its data in orders lie deep, and its COMMIT
		for e := range int16(gap) {
			tx(payments, 2, e)
			commit(payments, 2, e+1)
			tx(orders, 3, e)
			commit(orders, 3, e+1)
		}
		tx(payments, 7, 1)
		commit(orders, 7, 2)
		tx(orders, 3, int16(gap))
		commit(orders, 3, int16(gap)+1)
		return []*memoryCopy{orders, payments}
	}
	found, shallow := 0, 0
	for _, gap := range []int{0, 3, 30} {
		for _, most := range []int{1 << 20, 60_000, 20_000, 12_000, 6_000, 2_000} {
			look := TransactionLook{}
			for i, c := range build(gap) {
				x := CopyLook{TopicPartition: TopicPartition{[]string{"orders", "payments"}[i], 0}, End: c.end, From: c.end}
				var open []Transaction
				if i == 1 {
					open = []Transaction{{7, 1, c.end - 1, c.end - 1}}
				}
				x.read(t.Context(), boundedLog{c, time.Second, readChunk}, most, open)
				look.Copies = append(look.Copies, x)
			}
			what := fmt.Sprintf("a gap of %d, %d bytes, down to %d and %d", gap, most, look.Copies[0].From, look.Copies[1].From)
			cut, _ := look.cut(everywhere, cutBounds{skew: time.Millisecond})
			end := look.Copies[0].End
			switch {
			case cut.shallow:
				shallow++
				if look.Copies[0].From == 0 && look.Copies[1].From == 0 {
					t.Errorf("%s: all was read, and it is not enough: %s", what, cut.Why)
				}
			case cut.Why != "" || len(cut.Copies) != 1 || cut.Copies[0].Topic != "orders" || cut.Copies[0].Offset != end-3 || cut.Copies[0].Records != 1:
				t.Errorf("%s: %+v", what, cut)
			default:
				if look.Copies[0].From > 0 {
					found++
				}
			}
			if never, _ := look.cut(everywhere, cutBounds{skew: -1}); look.Copies[0].From > 0 && !never.shallow {
				t.Errorf("%s: clocks are not believed, and what was not read is of no interest: %+v", what, never)
			}
		}
	}
	if found == 0 || shallow == 0 {
		t.Errorf("%d found with a part, %d not", found, shallow)
	}
}

// TestACutOfManyCopiesFitsAReport: and says how many are left out.
func TestACutOfManyCopiesFitsAReport(t *testing.T) {
	c := ConsistentCut{GivenUp: 1000, Why: strings.Repeat("x", 10_000)}
	for i := range int32(1000) {
		c.Copies = append(c.Copies, CutCopy{Topic: "t", Partition: i, Offset: 1, End: 2})
	}
	b := (&TornTransactions{Cut: &c}).valid().Cut
	if len(b.Copies) != 50 || b.More != 950 || len(b.Why) > 2*maxWords || len(c.Copies) != 1000 {
		t.Errorf("%d, %d more, %d", len(b.Copies), b.More, len(b.Why))
	}
	if lines := b.lines(3); len(lines) != 4 || lines[3] != "and 997 more copies" {
		t.Error(lines)
	}
}
