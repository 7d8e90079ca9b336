package replicareader

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/logtrunc"
)

// epochs makes entries of pairs: epoch, start, epoch, start …
func epochs(pairs ...int64) (es []logtrunc.Entry) {
	for p := range slices.Chunk(pairs, 2) {
		es = append(es, logtrunc.Entry{Epoch: int32(p[0]), Start: p[1]})
	}
	return es
}

func TestChooseTheLongestCopy(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		name   string
		copies []Copy
		want   int32
		end    int64
	}{
		{"the longest", []Copy{{Broker: 1, End: 10}, {Broker: 2, End: 15}, {Broker: 3, End: 12}}, 2, 15},
		{"the lowest id of several", []Copy{{Broker: 3, End: 15}, {Broker: 2, End: 15}, {Broker: 1, End: 12}}, 2, 15},
		{"the one with more history", []Copy{{Broker: 1, Start: 15, End: 15}, {Broker: 2, Start: 5, End: 15}, {Broker: 3, Start: 3, End: 15}}, 3, 15},
		{"one that can be read", []Copy{{Broker: 1, End: 100, Err: gone}, {Broker: 2, End: 5}}, 2, 5},
		{"one only up to its limit", []Copy{{Broker: 1, End: 100, Unconfirmed: true, Limit: 4}, {Broker: 2, End: 5}}, 2, 5},
		{"a limit above the end is none", []Copy{{Broker: 1, End: 6, Unconfirmed: true, Limit: 40}, {Broker: 2, End: 5}}, 1, 6},
		{"all limited", []Copy{{Broker: 1, End: 100, Unconfirmed: true, Limit: 4}, {Broker: 2, End: 50, Unconfirmed: true, Limit: 4}}, 1, 4},
		{"a limit of 0", []Copy{{Broker: 1, End: 100, Unconfirmed: true}, {Broker: 2, End: 1}}, 2, 1},
		{"empty ones", []Copy{{Broker: 2}, {Broker: 1}}, 1, 0},
		{"a copy that cannot be", []Copy{{Broker: 1, Start: 9, End: 8}, {Broker: 2, Start: -1, End: 9}, {Broker: 3, End: 1}, {Broker: 4, End: 9, Unconfirmed: true, Limit: -1}}, 3, 1},
	} {
		for _, copies := range [][]Copy{tt.copies, reversed(tt.copies)} {
			c, err := Choose(copies)
			if err != nil || c.Broker != tt.want || c.End != tt.end || len(c.Standings) != len(copies) {
				t.Errorf("%s: %+v, %v", tt.name, c, err)
			}
			if !slices.IsSortedFunc(c.Standings, func(a, b Standing) int { return int(a.Broker - b.Broker) }) {
				t.Errorf("%s: %+v", tt.name, c.Standings)
			}
		}
	}
}

func reversed(c []Copy) []Copy {
	c = slices.Clone(c)
	slices.Reverse(c)
	return c
}

func TestChooseNeedsACopy(t *testing.T) {
	gone := errors.New("gone")
	_, err := Choose([]Copy{{Broker: 2, Err: gone}, {Broker: 1, Start: 4, End: 3}})
	var none *NoCopyError
	if !errors.As(err, &none) || !errors.Is(err, gone) || len(none.Copies) != 2 || none.Copies[0].Err == nil {
		t.Errorf("%v", err)
	}
	t.Log(err)
	_, err = Choose(nil)
	if !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
	t.Log(err)
	if c, err := Choose([]Copy{{Broker: 1, End: 5}, {Broker: 1, End: 6}}); err == nil || c.Standings != nil {
		t.Errorf("twice the same: %+v", c)
	}
}

func TestChooseSaysWhoLacksWhat(t *testing.T) {
	gone := errors.New("gone")
	es := epochs(0, 0, 2, 50)
	c, err := Choose([]Copy{
		{Broker: 1, Start: 10, End: 100, Epochs: epochs(0, 10, 2, 50)},
		{Broker: 2, Start: 0, End: 60, Epochs: es},
		{Broker: 3, Start: 20, End: 100, Epochs: epochs(0, 20, 2, 50)},
		{Broker: 4, Start: 0, End: 200, Epochs: epochs(0, 0, 2, 50, 3, 90), Unconfirmed: true, Limit: 80},
		{Broker: 5, Start: 0, End: 0},
		{Broker: 6, Err: gone},
		{Broker: 7, Start: 90, End: 95, Epochs: epochs(2, 90), Unconfirmed: true, Limit: 80},
		{Broker: 8, Start: 0, End: 70},
		{Broker: 9, Start: 0, End: 5, Epochs: epochs(0, 0)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Standing{
		{Broker: 1, Start: 10, End: 100, Common: 100},
		{Broker: 2, Start: 0, End: 60, Lacks: []Range{{60, 100}}, Extra: []Range{{0, 10}}, Common: 60},
		{Broker: 3, Start: 20, End: 100, Lacks: []Range{{10, 20}}, Common: 100},
		{Broker: 4, Start: 0, End: 80, Beyond: Range{80, 200}, Lacks: []Range{{80, 100}}, Extra: []Range{{0, 10}}, Common: 80},
		{Broker: 5, Lacks: []Range{{10, 100}}},
		{Broker: 6, Err: gone},
		{Broker: 7, Start: 80, End: 80, Beyond: Range{90, 95}, Lacks: []Range{{10, 100}}, Common: 80},
		{Broker: 8, Start: 0, End: 70, Lacks: []Range{{70, 100}}, Extra: []Range{{0, 10}}, Common: 70, Unjudged: true},
		{Broker: 9, Start: 0, End: 5, Lacks: []Range{{10, 100}}, Extra: []Range{{0, 5}}, Common: 5},
	}
	for i := range want {
		if !reflect.DeepEqual(c.Standings[i], want[i]) {
			t.Errorf("%+v, want %+v", c.Standings[i], want[i])
		}
	}
	if c.Broker != 1 || c.Start != 10 || !slices.Equal(c.Epochs, epochs(0, 10, 2, 50)) || len(c.Diverged()) != 0 || !errors.Is(c.Failed(), gone) {
		t.Errorf("%+v", c)
	}
}

func TestChooseFindsCopiesThatPart(t *testing.T) {
	for _, tt := range []struct {
		name     string
		longest  Copy
		other    Copy
		diverged bool
		common   int64
	}{
		{"same", Copy{End: 30, Epochs: epochs(1, 0, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0, 3, 12)}, false, 20},
		{"an unfinished epoch goes on elsewhere", Copy{End: 30, Epochs: epochs(1, 0, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0)}, true, 12},
		{"an epoch that the longest lacks", Copy{End: 30, Epochs: epochs(1, 0, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0, 2, 10)}, true, 10},
		{"a higher last epoch than the longest's", Copy{End: 30, Epochs: epochs(1, 0, 2, 10)}, Copy{End: 15, Epochs: epochs(1, 0, 4, 10)}, true, 10},
		{"the longest went on in an epoch that ended", Copy{End: 30, Epochs: epochs(1, 0)}, Copy{End: 15, Epochs: epochs(1, 0, 4, 10)}, true, 10},
		{"nothing in common", Copy{End: 30, Epochs: epochs(5, 0)}, Copy{End: 15, Epochs: epochs(4, 0)}, true, 0},
		{"the longest began again", Copy{Start: 8, End: 30, Epochs: epochs(5, 8)}, Copy{End: 15, Epochs: epochs(4, 0)}, true, 8},
		{"several rounds", Copy{End: 30, Epochs: epochs(1, 0, 3, 10, 5, 20)}, Copy{End: 25, Epochs: epochs(1, 0, 2, 8, 4, 15)}, true, 8},
		{"ends where the next epoch begins", Copy{End: 30, Epochs: epochs(1, 0, 3, 12)}, Copy{End: 12, Epochs: epochs(1, 0)}, false, 12},
		{"ranges that do not meet", Copy{Start: 20, End: 30, Epochs: epochs(9, 20)}, Copy{End: 20, Epochs: epochs(1, 0)}, false, 20},
		{"a log start in between", Copy{Start: 11, End: 30, Epochs: epochs(1, 11, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0, 3, 12)}, false, 20},
		{"other starts, then apart", Copy{Start: 11, End: 30, Epochs: epochs(1, 11, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0, 2, 15)}, true, 12},
		{"apart beyond the limit only", Copy{End: 30, Epochs: epochs(1, 0, 3, 12)}, Copy{End: 20, Epochs: epochs(1, 0, 2, 12), Unconfirmed: true, Limit: 12}, false, 12},
	} {
		tt.longest.Broker, tt.other.Broker = 2, 1
		c, err := Choose([]Copy{tt.longest, tt.other})
		if err != nil || c.Broker != 2 {
			t.Fatalf("%s: %+v, %v", tt.name, c, err)
		}
		if s := c.Standings[0]; s.Diverged != tt.diverged || s.Common != tt.common || s.Unjudged || len(c.Diverged()) > 0 != tt.diverged {
			t.Errorf("%s: %+v, want diverged %t at %d", tt.name, s, tt.diverged, tt.common)
		}
		if s := c.Standings[1]; s.Diverged || s.Lacks != nil || s.Extra != nil {
			t.Errorf("%s: the chosen one: %+v", tt.name, s)
		}
	}
}

func TestChooseDoesNotJudgeBatchesWithoutEpoch(t *testing.T) {
	c, err := Choose([]Copy{{Broker: 1, End: 30, Epochs: epochs(1, 0, 3, 5)}, {Broker: 2, End: 20, Epochs: epochs(2, 10)}}) // broker 2: nothing is known below 10
	if s := c.Standings[1]; err != nil || c.Broker != 1 || !s.Unjudged || s.Diverged || s.Common != 20 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestChooseOnRandomHistories makes two copies of one log, each cut somewhere and written on under epochs of its own: the point where they part is known.
func TestChooseOnRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var common []int32 // epoch of each offset
		epoch := rapid.Int32Range(0, 3).Draw(t, "first epoch")
		grow := func(log []int32, epoch int32, name string) []int32 {
			for range rapid.IntRange(0, 12).Draw(t, name) {
				if rapid.IntRange(0, 3).Draw(t, name+" step") == 0 {
					epoch += 2 // so each side has its own
				}
				log = append(log, epoch)
			}
			return log
		}
		common = grow(common, epoch, "common")
		last := epoch
		if len(common) > 0 {
			last = common[len(common)-1]
		}
		// One leader an epoch: both sides go on under epochs that the other never has.
		logs := [][]int32{grow(slices.Clone(common), last+1, "one"), grow(slices.Clone(common), last+2, "two")}
		copies := make([]Copy, 2)
		for i, log := range logs {
			var cache logtrunc.Cache
			for at, e := range log {
				cache.Assign(e, int64(at))
			}
			copies[i] = Copy{Broker: int32(i + 1), End: int64(len(log)), Epochs: cache.Entries()}
		}
		c, err := Choose(copies)
		if err != nil {
			t.Fatal(err)
		}
		s := c.Standings[2-c.Broker]
		if want := min(len(logs[0]), len(logs[1])) > len(common); s.Diverged != want || s.Common != int64(len(common)) && want {
			t.Fatalf("%v and %v part at %d: %+v", logs[0], logs[1], len(common), s)
		}
	})
}
