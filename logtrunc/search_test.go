package logtrunc

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// source answers as a Kafka leader with this cache and log end does.
type source struct {
	cache *Cache
	end   int64
}

func run(s *Search, src source) {
	for {
		ask, ok := s.Ask()
		if !ok {
			return
		}
		s.Answer(src.cache.EndOffsetFor(ask, src.end))
	}
}

func wantResult(t *testing.T, s *Search, point int64, proved bool) {
	t.Helper()
	if gotPoint, gotProved := s.Result(); gotPoint != point || gotProved != proved {
		t.Errorf("result (%d, %v), want (%d, %v); rounds %+v", gotPoint, gotProved, point, proved, s.Rounds())
	}
	if _, ok := s.Ask(); ok {
		t.Errorf("the search goes on after %+v", s.Rounds())
	}
}

func TestF35UncleanElectionSameLengthOtherBytes(t *testing.T) {
	// destination: e5 0..99. Source: e5 0..89, then e6 from 90, 20 records.
	s := NewSearch(NewCache(entries(5, 0)...), 0, 100)
	run(s, source{NewCache(entries(5, 0, 6, 90)...), 110})
	wantResult(t, s, 90, true)
	if want := []Round{{Ask: 5, Epoch: 5, End: 90, Boundary: 90}}; !slices.Equal(s.Rounds(), want) {
		t.Errorf("rounds %+v, want %+v", s.Rounds(), want)
	}
}

func TestF36TwoQuickElectionsNeedTwoRounds(t *testing.T) {
	ours := NewCache(entries(1, 0, 2, 10, 4, 15)...)
	want := []Round{{Ask: 4, Epoch: 3, End: 21, Boundary: 15}, {Ask: 2, Epoch: 2, End: 13, Boundary: 13}}

	// e4 was copied from the source, so its leader now is of a later epoch, which it entered in its cache at its election though nothing is written under it yet
	s := NewSearch(ours, 0, 20)
	run(s, source{NewCache(entries(1, 0, 2, 10, 3, 13, 5, 21)...), 21})
	wantResult(t, s, 13, true)
	if !slices.Equal(s.Rounds(), want) {
		t.Errorf("rounds %+v, want %+v", s.Rounds(), want)
	}

	// a source that never saw an epoch as high as ours has no answer: no proof, no cut
	lower := source{NewCache(entries(1, 0, 2, 10, 3, 13)...), 21}
	s = NewSearch(ours, 0, 20)
	run(s, lower)
	wantResult(t, s, 20, false)

	// a diverging epoch in its fetch reply is an answer all the same
	s = NewSearch(ours, 0, 20)
	s.Answer(3, 21)
	run(s, lower)
	wantResult(t, s, 13, true)
	if !slices.Equal(s.Rounds(), want) {
		t.Errorf("rounds %+v, want %+v", s.Rounds(), want)
	}
}

func TestF38StaleAnswersNeitherRaiseNorReopen(t *testing.T) {
	// the log was cut to 90 meanwhile: a search sees the log as it is now
	s := NewSearch(NewCache(entries(5, 0)...), 0, 90)
	s.Answer(5, 100) // an answer about the time before
	wantResult(t, s, 90, true)
	s.Answer(5, 80) // "diverges at 80" arrives when nobody asks
	wantResult(t, s, 90, true)
	if len(s.Rounds()) != 1 {
		t.Errorf("rounds %+v, want one", s.Rounds())
	}

	// an answer that names an epoch above the one asked is none to this question: it proves nothing
	s = NewSearch(NewCache(entries(1, 0, 2, 10, 4, 15)...), 0, 20)
	s.Answer(3, 21)
	if ask, _ := s.Ask(); ask != 2 {
		t.Fatalf("asks %d, want 2", ask)
	}
	s.Answer(4, 18)
	wantResult(t, s, 20, false)
}

func TestF40EpochUnknown(t *testing.T) {
	t.Run("a: undefined answer never cuts", func(t *testing.T) {
		for _, answer := range [][2]int64{{-1, -1}, {-1, 0}, {-1, 50}, {3, -1}} {
			s := NewSearch(NewCache(entries(1, 0, 3, 10)...), 0, 40)
			s.Answer(int32(answer[0]), answer[1])
			wantResult(t, s, 40, false)
			if r := s.Rounds(); len(r) != 1 || r[0].Boundary != 40 {
				t.Errorf("rounds %+v, want one with boundary 40", r)
			}
		}
	})
	t.Run("a: undefined in a later round", func(t *testing.T) {
		s := NewSearch(NewCache(entries(1, 0, 3, 10)...), 0, 40)
		s.Answer(2, 20)
		s.Answer(-1, -1)
		wantResult(t, s, 40, false)
	})
	t.Run("b: no epoch in our log", func(t *testing.T) {
		s := NewSearch(NewCache(Entry{Epoch: -1, Start: 0}), 0, 40)
		wantResult(t, s, 40, false)
		wantResult(t, NewSearch(&Cache{}, 40, 40), 40, true) // empty
	})
	t.Run("b: the last batches have none", func(t *testing.T) {
		// e3 0..29, then epoch -1: the cache does not see where e3 ends, and asks for it
		c := NewCache(Entry{Epoch: 3, Start: 0}, Entry{Epoch: -1, Start: 30})
		s := NewSearch(c, 0, 40)
		run(s, source{NewCache(entries(3, 0, 4, 30)...), 60})
		wantResult(t, s, 30, true)
	})
	t.Run("c: the source knows epochs from 9 on only", func(t *testing.T) {
		src := source{NewCache(entries(9, 500)...), 900}
		s := NewSearch(NewCache(entries(5, 300, 7, 600)...), 300, 800)
		run(s, src) // answers (7, 500): the epoch asked and the start of its first
		wantResult(t, s, 500, true)
		s = NewSearch(NewCache(entries(5, 100, 7, 200)...), 100, 400)
		run(s, src)
		wantResult(t, s, 400, true) // all of ours lies before: nothing contradicts it
	})
}

func TestF41LaggingAnswerDoesNotStick(t *testing.T) {
	cache := NewCache(entries(3, 0)...)
	first, second := NewSearch(cache, 0, 219), NewSearch(cache, 0, 219)
	first.Answer(3, 163)
	second.Answer(3, 230)
	wantResult(t, first, 163, true)
	wantResult(t, second, 219, true) // the confirmation differs, so the caller cuts nothing (decision 15)
	if got := cache.Entries(); !slices.Equal(got, entries(3, 0)) {
		t.Errorf("a search changed the cache: %v", got)
	}
}

func TestSpec4FirstContact(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cache      []int64
		start, end int64
		answers    [][2]int64
		point      int64
		proved     bool
		asks       []int32
	}{
		{"same log", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{3, 40}}, 40, true, []int32{3}},
		{"source ahead", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{3, 400}}, 40, true, []int32{3}},
		{"source shorter in the same epoch", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{3, 25}}, 25, true, []int32{3}},
		{"lower epoch known", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{1, 25}}, 10, true, []int32{3}},
		{"lower epoch known, ends below ours", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{1, 7}}, 7, true, []int32{3}},
		{"unknown epoch, then known", []int64{1, 0, 3, 10}, 0, 40, [][2]int64{{2, 25}, {1, 8}}, 8, true, []int32{3, 1}},
		{"unknown epoch skips epochs above it", []int64{1, 0, 4, 10, 6, 20, 8, 30}, 0, 40, [][2]int64{{3, 25}, {1, 12}}, 10, true, []int32{8, 1}},
		{"nothing in common", []int64{4, 0, 6, 20}, 0, 40, [][2]int64{{3, 25}}, 0, true, []int32{6}},
		{"nothing in common, raised start", []int64{4, 15, 6, 20}, 15, 40, [][2]int64{{5, 30}, {3, 25}}, 15, true, []int32{6, 4}},
		{"records below the first known epoch", []int64{4, 10, 6, 20}, 0, 40, [][2]int64{{3, 25}}, 40, false, []int32{6}},
		{"epochs under which nothing was written", []int64{1, 0, 3, 40, 5, 41}, 0, 40, [][2]int64{{1, 40}}, 40, true, []int32{1}},
		{"the first batch begins below the log start", []int64{4, 8}, 10, 40, [][2]int64{{3, 25}}, 10, true, []int32{4}},
		{"empty log with an old epoch", []int64{4, 8}, 10, 10, nil, 10, true, nil},
		{"the source's part ends below our start", []int64{4, 100}, 100, 140, [][2]int64{{4, 60}}, 60, true, []int32{4}},
		{"the source's log is new from 0", []int64{4, 0}, 0, 40, [][2]int64{{4, 0}}, 0, true, []int32{4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSearch(NewCache(entries(tt.cache...)...), tt.start, tt.end)
			var asks []int32
			for _, a := range tt.answers {
				ask, ok := s.Ask()
				if !ok {
					t.Fatalf("over after %+v", s.Rounds())
				}
				if again, _ := s.Ask(); again != ask {
					t.Errorf("asked %d, then %d without an answer", ask, again)
				}
				asks = append(asks, ask)
				s.Answer(int32(a[0]), a[1])
			}
			wantResult(t, s, tt.point, tt.proved)
			if !slices.Equal(asks, tt.asks) {
				t.Errorf("asked %v, want %v", asks, tt.asks)
			}
		})
	}
}

func TestBeforeTheFirstAnswerNothingIsProved(t *testing.T) {
	s := NewSearch(NewCache(entries(1, 0)...), 0, 10)
	if point, proved := s.Result(); point != 10 || proved {
		t.Errorf("result (%d, %v) before any answer", point, proved)
	}
}

func TestRoundsIsACopy(t *testing.T) {
	s := NewSearch(NewCache(entries(1, 0)...), 0, 10)
	s.Answer(1, 5)
	s.Rounds()[0].End = 99
	if s.Rounds()[0].End != 5 {
		t.Error("the caller's slice is the search's own")
	}
}

// history is the two logs of a partition whose elections went different ways. Every epoch was led by one leader, so records of one epoch at one offset are the same.
type history struct {
	ours, theirs []int32 // epochs by offset
	common       int64   // true divergence point
}

// drawHistory draws a common history, and for each side a suffix of epochs of its own; one side may first go on in the last common epoch.
func drawHistory(t *rapid.T) history {
	common, _ := drawLog(t, 0, 0)
	h := history{ours: slices.Clone(common), theirs: slices.Clone(common), common: int64(len(common))}
	last := int32(0)
	if len(common) > 0 {
		last = common[len(common)-1]
		more := rapid.SliceOfN(rapid.Just(last), 0, 3).Draw(t, "more of the last common epoch")
		if rapid.Bool().Draw(t, "ours has more") {
			h.ours = append(h.ours, more...)
		} else {
			h.theirs = append(h.theirs, more...)
		}
	}
	epoch := last
	for range rapid.IntRange(0, 6).Draw(t, "later elections") {
		epoch += rapid.Int32Range(1, 3).Draw(t, "epoch step")
		records := rapid.SliceOfN(rapid.Just(epoch), 1, 4).Draw(t, "records")
		if rapid.Bool().Draw(t, "ours") {
			h.ours = append(h.ours, records...)
		} else {
			h.theirs = append(h.theirs, records...)
		}
	}
	return h
}

func cacheOf(log []int32) *Cache {
	c := &Cache{}
	for i, e := range log {
		c.Assign(e, int64(i))
	}
	return c
}

// higherEpochs makes the source's leader one whose epoch is above every one of ours, as a source that is current is: it answers every question.
func (h *history) higherEpochs() {
	if len(h.ours) > 0 {
		e := h.ours[len(h.ours)-1] + 1
		if n := len(h.theirs); n > 0 {
			e = max(e, h.theirs[n-1]+1)
		}
		h.theirs = append(h.theirs, e)
	}
}

func TestSearchFindsTheTrueDivergencePoint(t *testing.T) {
	rapid.Check(t, searchFindsTheTrueDivergencePoint)
}

func searchFindsTheTrueDivergencePoint(t *rapid.T) {
	h := drawHistory(t)
	h.higherEpochs()
	ours, theirs := cacheOf(h.ours), cacheOf(h.theirs)
	s := NewSearch(ours, 0, int64(len(h.ours)))
	run(s, source{theirs, int64(len(h.theirs))})
	checkRounds(t, s, ours)
	if point, proved := s.Result(); point != h.common || !proved {
		t.Fatalf("result (%d, %v), want (%d, true)\nours   %v\ntheirs %v\nrounds %+v", point, proved, h.common, h.ours, h.theirs, s.Rounds())
	}
}

// TestSearchWithALowerSourceNeverCutsCommonRecords: the source's latest epoch may be below ours (F-36 by end-offset-for-epoch). Then it has no answer and nothing is proved;
// what a fetch reply's diverging epoch says instead (the source's latest epoch and end) leads to the same point.
func TestSearchWithALowerSource(t *testing.T) { rapid.Check(t, searchWithALowerSource) }

func searchWithALowerSource(t *rapid.T) {
	h := drawHistory(t)
	ours, theirs := cacheOf(h.ours), cacheOf(h.theirs)
	src := source{theirs, int64(len(h.theirs))}
	plain := NewSearch(ours, 0, int64(len(h.ours)))
	run(plain, src)
	if point, proved := plain.Result(); proved && point != h.common || !proved && point != int64(len(h.ours)) {
		t.Fatalf("result (%d, %v), common %d\nours   %v\ntheirs %v\nrounds %+v", point, proved, h.common, h.ours, h.theirs, plain.Rounds())
	}
	if len(h.ours) == 0 || len(h.theirs) == 0 {
		return
	}
	diverging := NewSearch(ours, 0, int64(len(h.ours)))
	for {
		ask, ok := diverging.Ask()
		if !ok {
			break
		}
		if ask > theirs.Latest() {
			diverging.Answer(theirs.Latest(), src.end)
		} else {
			diverging.Answer(theirs.EndOffsetFor(ask, src.end))
		}
	}
	checkRounds(t, diverging, ours)
	if point, proved := diverging.Result(); point != h.common || !proved {
		t.Fatalf("result (%d, %v), want (%d, true)\nours   %v\ntheirs %v\nrounds %+v", point, proved, h.common, h.ours, h.theirs, diverging.Rounds())
	}
}

// TestSearchOverCompactedCopies: the copy lacks batches that were compacted away before it was made, so its epochs may start later than the source's, or be missing.
// Every record that is in both stays and every record that only we have goes.
func TestSearchOverCompactedCopies(t *testing.T) { rapid.Check(t, searchOverCompactedCopies) }

func searchOverCompactedCopies(t *rapid.T) {
	h := drawHistory(t)
	h.higherEpochs()
	kept := rapid.SliceOfN(rapid.Bool(), len(h.ours), len(h.ours)).Draw(t, "kept")
	copied := &Cache{}
	for i, e := range h.ours {
		if kept[i] {
			copied.Assign(e, int64(i))
		}
	}
	s := NewSearch(copied, 0, int64(len(h.ours)))
	run(s, source{cacheOf(h.theirs), int64(len(h.theirs))})
	checkRounds(t, s, copied)
	point, proved := s.Result()
	for i := range h.ours {
		common, stays := int64(i) < h.common, int64(i) < point
		if !kept[i] || common == stays {
			continue
		}
		if proved || !stays {
			t.Fatalf("offset %d: common %v, stays %v; result (%d, %v), common %d\nours   %v kept %v\ntheirs %v\nrounds %+v",
				i, common, stays, point, proved, h.common, h.ours, kept, h.theirs, s.Rounds())
		}
	}
}

// TestSearchSurvivesAnyAnswers: nonsense never raises the boundary, never asks the same twice, and ends.
func TestSearchSurvivesAnyAnswers(t *testing.T) { rapid.Check(t, searchSurvivesAnyAnswers) }

func searchSurvivesAnyAnswers(t *rapid.T) {
	start := rapid.Int64Range(0, 10).Draw(t, "start")
	log, c := drawLog(t, start, 0)
	end := start + int64(len(log))
	s := NewSearch(c, start, end)
	for {
		if _, ok := s.Ask(); !ok {
			break
		}
		s.Answer(rapid.Int32Range(-2, 20).Draw(t, "epoch"), rapid.Int64Range(-2, 40).Draw(t, "end"))
	}
	checkRounds(t, s, c)
	if point, proved := s.Result(); point > end || !proved && point != end {
		t.Fatalf("result (%d, %v) of a log [%d, %d)", point, proved, start, end)
	}
}

// checkRounds demands what holds of every search: at most one round per epoch, questions and boundary fall.
func checkRounds(t interface {
	Fatalf(string, ...any)
}, s *Search, c *Cache) {
	rounds := s.Rounds()
	if len(rounds) > len(c.Entries()) {
		t.Fatalf("%d rounds over %d epochs: %+v", len(rounds), len(c.Entries()), rounds)
	}
	for i := 1; i < len(rounds); i++ {
		if rounds[i].Ask >= rounds[i-1].Ask || rounds[i].Boundary > rounds[i-1].Boundary {
			t.Fatalf("round %d does not go down: %+v", i, rounds)
		}
	}
}

func TestCheckRoundsSaysNo(t *testing.T) {
	c := NewCache(entries(1, 0, 2, 10)...)
	for _, rounds := range [][]Round{
		{{Ask: 2, Boundary: 10}, {Ask: 2, Boundary: 5}},
		{{Ask: 2, Boundary: 10}, {Ask: 1, Boundary: 11}},
		{{Ask: 3, Boundary: 10}, {Ask: 2, Boundary: 9}, {Ask: 1, Boundary: 8}},
	} {
		var r refusal
		checkRounds(&r, &Search{rounds: rounds}, c)
		if r.said == "" {
			t.Errorf("rounds %+v pass", rounds)
		}
	}
}

type refusal struct{ said string }

func (r *refusal) Fatalf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }
