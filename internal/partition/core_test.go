package partition

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpec2LegalMoves makes the core take every move of spec §2 that it has a reason for, and none that is illegal (the model's store panics at one).
func TestSpec2LegalMoves(t *testing.T) {
	seen := map[string]bool{}
	watch := func(w *world) *world {
		w.onEffect = func(e *Effect) {
			if e.Kind == Emit && e.Note.Kind == StateChanged {
				seen[fmt.Sprintf("%v→%v", e.Note.From, e.Note.To)] = true
			}
		}
		return w
	}
	states := []statemachine.State{
		statemachine.Unknown, statemachine.Preparing, statemachine.EpochFencing, statemachine.Mirroring, statemachine.Pausing, statemachine.Paused, statemachine.Stopping,
		statemachine.Stopped, statemachine.Failed,
	}
	for _, s := range states {
		for _, previous := range states {
			if s != statemachine.Failed && previous != statemachine.Unknown {
				continue
			}
			for want := statemachine.WantMirroring; want <= statemachine.WantStopped; want++ {
				for _, fail := range []bool{false, true} {
					w := watch(newWorld())
					w.src.view.LeaderEpoch = 3
					w.src.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "a"))[0])
					if s != statemachine.Unknown {
						w.stored = statemachine.PartitionState{State: s, StateEpoch: 4, Episode: 1, LeaderEpoch: -1, PreviousState: previous}
						if s == statemachine.Failed {
							w.stored.RetryAttempt, w.stored.ErrorMessage = 1, "broken"
						}
					}
					w.load()
					w.wish(want)
					if fail {
						w.step(Event{Kind: FailPartition, Err: errors.New("broken")})
					}
					w.settle(t)
					got := w.stored.State
					switch {
					case want == statemachine.WantStopped && got != statemachine.Stopped:
						t.Errorf("%v (previous %v), stop wanted: ends in %v\n%s", s, previous, got, w.out.String())
					case want == statemachine.WantMirroring && got != statemachine.Mirroring && !(got == statemachine.Failed && w.stored.RetryAttempt < 0):
						t.Errorf("%v (previous %v), start wanted: ends in %v\n%s", s, previous, got, w.out.String())
					case want == statemachine.WantPaused && got != statemachine.Paused && got != statemachine.Unknown && got != statemachine.Stopped:
						t.Errorf("%v (previous %v), pause wanted: ends in %v\n%s", s, previous, got, w.out.String())
					}
				}
			}
		}
	}
	// EPOCH_FENCING needs a batch above the destination's epoch.
	w := watch(stoppable(t))
	w.src.view.LeaderEpoch = 30
	e := w.parked
	w.parked = nil
	w.step(Event{Kind: Fetched, Token: e.Token, Fetch: Fetch{
		Offset: 20, LeaderEpoch: 30, HighWatermark: 30, LogStart: 0, LeaderID: -1, CurrentEpoch: -1, Records: data(20, 29, 30, 10, -1, 0, 0, false, "x"),
	}})
	w.settle(t)
	for _, move := range strings.Fields("UNKNOWN→PREPARING UNKNOWN→STOPPING PREPARING→MIRRORING PREPARING→STOPPING PREPARING→FAILED MIRRORING→EPOCH_FENCING EPOCH_FENCING→MIRRORING " +
		"EPOCH_FENCING→STOPPING MIRRORING→PAUSING PAUSING→PAUSED PAUSED→MIRRORING MIRRORING→STOPPING PAUSING→STOPPING PAUSED→STOPPING FAILED→STOPPING STOPPING→STOPPED " +
		"STOPPED→PREPARING FAILED→PREPARING FAILED→MIRRORING FAILED→EPOCH_FENCING FAILED→PAUSING FAILED→PAUSED MIRRORING→FAILED STOPPING→FAILED EPOCH_FENCING→FAILED") {
		if !seen[move] {
			t.Errorf("%s was never made", move)
		}
	}
}

// TestStepQueuesWhileAStateIsWritten: nothing but the answer is looked at, what is queued comes in order, and news of one kind does not pile up.
func TestStepQueuesWhileAStateIsWritten(t *testing.T) {
	c := New(Config{TopicID: testTopic})
	c.Step(time.Unix(1, 0), Event{Kind: Loaded, Record: statemachine.NewPartitionState()})
	effects := c.Step(time.Unix(1, 0), Event{Kind: Wish, Want: statemachine.WantMirroring})
	if len(effects) != 1 || effects[0].Kind != Persist {
		t.Fatalf("%v", effects)
	}
	written := effects[0].Token
	for range 1000 {
		for _, k := range []EventKind{SourceChanged, ReplicatedMoved, Wish} {
			if got := c.Step(time.Unix(1, 0), Event{Kind: k, Want: statemachine.WantStopped, Err: errLost}); len(got) > 0 {
				t.Fatalf("%v while a state is written", got)
			}
		}
	}
	if len(c.queue) > 3 {
		t.Fatalf("%d events queue", len(c.queue))
	}
	if got := c.Step(time.Unix(1, 0), Event{Kind: Persisted, Token: Token{StateEpoch: 9, Sequence: written.Sequence}}); len(got) > 0 {
		t.Fatalf("a stale answer was taken: %v", got)
	}
	got := c.Step(time.Unix(1, 0), Event{Kind: Persisted, Token: written, StateEpoch: 1})
	if last := got[len(got)-1]; last.Kind != Persist || last.Record.State != statemachine.Stopping {
		t.Fatalf("the stop that was queued did not follow: %v", got)
	}
}

// TestTokensAreFresh: no two effects share a token, and each carries the state epoch under which it was made.
func TestTokensAreFresh(t *testing.T) {
	seen := map[Token]bool{}
	w := newWorld()
	w.src.view.LeaderEpoch = 3
	w.src.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "a"))[0])
	w.onEffect = func(e *Effect) {
		if e.Token == (Token{}) || seen[e.Token] {
			t.Errorf("%v has token %v", e.Kind, e.Token)
		}
		if e.Token.StateEpoch != w.stored.StateEpoch {
			t.Errorf("%v was made under state epoch %d, its token says %d", e.Kind, w.stored.StateEpoch, e.Token.StateEpoch)
		}
		seen[e.Token] = true
	}
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(100, nil)
	w.wish(statemachine.WantStopped)
	w.settle(t)
	if len(seen) < 20 {
		t.Fatalf("only %d effects", len(seen))
	}
}

// TestNoAllocationPerBatch: a reply of many batches costs what a reply of one costs.
func TestNoAllocationPerBatch(t *testing.T) {
	reply := func(batches int) float64 {
		w := stoppable(t)
		at := int64(20)
		offset := func() int64 { return at }
		token := w.parked.Token
		var records [][]byte
		for range 120 {
			var r []byte
			for range batches {
				r = append(r, data(at, at+9, 5, 10, -1, 0, 0, false, "x")...)
				at += 10
			}
			records = append(records, r)
		}
		end, i := int64(20), 0
		if offset() != int64(20+120*10*batches) {
			t.Fatal("offsets")
		}
		return testing.AllocsPerRun(100, func() {
			e := w.core.Step(w.now, Event{Kind: Fetched, Token: token, Fetch: Fetch{
				Offset: end, LeaderEpoch: 5, HighWatermark: at, LogStart: 0, LeaderID: -1, CurrentEpoch: -1, Records: records[i],
			}})
			i++
			if len(e) != 1 || e[0].Kind != Append {
				t.Fatalf("%v", e)
			}
			end += int64(10 * batches)
			e = w.core.Step(w.now, Event{Kind: Done, Token: e[0].Token, Log: LogView{End: end, Replicated: end, LeaderEpoch: 7}})
			if len(e) != 1 || e[0].Kind != Continue {
				t.Fatalf("%v", e)
			}
			token = e[0].Token
		})
	}
	one, many := reply(1), reply(50)
	if one > 2 || many > 2 {
		t.Errorf("%v allocations for a reply of one batch, %v for one of 50", one, many)
	}
}

// TestNoCopyOfTheStream: what is appended is a slice of what was fetched.
func TestNoCopyOfTheStream(t *testing.T) {
	w := stoppable(t)
	r := append(data(20, 29, 5, 10, -1, 0, 0, false, "x"), data(30, 39, 5, 10, -1, 0, 0, false, "x")...)
	r = append(r, 1, 2, 3)
	e := w.core.Step(w.now, Event{Kind: Fetched, Token: w.parked.Token, Fetch: Fetch{Offset: 20, LeaderEpoch: 5, HighWatermark: 50, LeaderID: -1, CurrentEpoch: -1, Records: r}})
	if len(e) != 1 || e[0].Kind != Append {
		t.Fatalf("%v", e)
	}
	if b := e[0].Bytes; &b[0] != &r[0] || len(b) != len(r)-3 || cap(b) != len(b) {
		t.Errorf("another slice, %d bytes of %d, room for %d", len(b), len(r), cap(b))
	}
}

// TestConsentsOfOthersSayNothing: a failure that a person has to end is not tried again because a consent of another partition came, or one was used up.
func TestConsentsOfOthersSayNothing(t *testing.T) {
	w := newWorld()
	w.src.add(toBatches(data(0, 9, 0, 10, -1, 0, 0, false, "a"))[0])
	w.log.add(toBatches(data(0, 9, 0, 10, -1, 0, 0, false, "b"))[0])
	w.log.settle()
	w.load()
	mine := Consent{TopicID: testTopic, From: 0, To: 5, Episode: 1}
	other := Consent{TopicID: testTopic, Partition: 3, From: 0, To: 10, Episode: 1}
	w.consent = []Consent{mine}
	w.wish(statemachine.WantMirroring)
	w.settle(t)
	if w.stored.RetryAttempt != statemachine.NonRetryable {
		t.Fatalf("%+v", w.stored)
	}
	epoch := w.stored.StateEpoch
	for _, consents := range [][]Consent{{mine, other}, {other}, {}} {
		w.consent = consents
		w.wish(statemachine.WantMirroring)
		w.settle(t)
		if w.stored.StateEpoch != epoch {
			t.Fatalf("tried again for %v\n%s", consents, w.out.String())
		}
	}
	w.consent = []Consent{{TopicID: testTopic, From: 0, To: 10, Episode: 1}}
	w.wish(statemachine.WantMirroring)
	w.settle(t)
	if w.stored.State != statemachine.Mirroring {
		t.Fatalf("%+v\n%s", w.stored, w.out.String())
	}
}

// TestPersistErrors: what means that somebody else decides ends the partition; everything else is tried again.
func TestPersistErrors(t *testing.T) {
	for _, err := range []error{statemachine.ErrFenced, statemachine.ErrNotOwner, statemachine.ErrStateEpoch, statemachine.ErrLMEWritten, &statemachine.IllegalMoveError{}} {
		c := New(Config{})
		c.Step(time.Unix(1, 0), Event{Kind: Loaded, Record: statemachine.NewPartitionState()})
		e := c.Step(time.Unix(1, 0), Event{Kind: Wish, Want: statemachine.WantStopped})
		got := c.Step(time.Unix(1, 0), Event{Kind: Persisted, Token: e[0].Token, Err: fmt.Errorf("writing: %w", err)})
		if len(got) != 1 || got[0].Kind != Halt {
			t.Errorf("%v: %v", err, got)
		}
		if got := c.Step(time.Unix(1, 0), Event{Kind: Wish, Want: statemachine.WantMirroring}); len(got) > 0 {
			t.Errorf("%v after Halt", got)
		}
	}
}

// TestEveryKindHasAName finds a kind without a text form of its own.
func TestEveryKindHasAName(t *testing.T) {
	for k := Persist; k <= Halt; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for k := Loaded; k <= Tuned; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for k := StateChanged; k <= LeaderMoved; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for k := FetchOK; k <= FetchUnsupported; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for k := LossRestart; k <= LossKeep; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for k := OwnerOurs; k <= OwnerForeign; k++ {
		if strings.Contains(k.String(), "(") {
			t.Error(k)
		}
	}
	for _, unknown := range []fmt.Stringer{EffectKind(0), EffectKind(200), EventKind(0), NoteKind(0), FetchCode(99), LossPolicy(9), Ownership(9)} {
		if !strings.Contains(unknown.String(), "(") {
			t.Errorf("%v has the name of something", unknown)
		}
	}
}

// TestTextForms compares every note's and a full status's text with a golden file's.
func TestTextForms(t *testing.T) {
	var b strings.Builder
	for _, n := range []Note{
		{Kind: StateChanged, From: statemachine.Preparing, To: statemachine.Mirroring},
		{Kind: StateChanged, From: statemachine.Mirroring, To: statemachine.Failed, Message: "CRC at 10", NonRetryable: true},
		{Kind: RecordsDropped, Truncated: Truncation{From: 90, To: 100, Reason: "the logs part at 90", Rounds: []logtrunc.Round{{Ask: 5, Epoch: 5, End: 90, Boundary: 90}}}},
		{Kind: RecordsLost, RangeFrom: 100, RangeTo: 150, Message: "deleted at the source"},
		{Kind: Retrying, Attempt: 3, After: 4*time.Second + 123456, Message: "CRC at 10"},
		{Kind: Refetched, Attempt: 1, Offset: 10, Message: "CRC at 10"},
		{Kind: EpochRaised, Epoch: 7},
		{Kind: StartRaised, Offset: 5},
		{Kind: NothingLeft, Offset: 20, Message: "nothing left to read; the source ends at 20, the copy at 15"},
		{Kind: MarkersWritten, Aborts: []Marker{{ProducerID: 7, ProducerEpoch: 1, FirstOffset: 3, Offset: 20}}, ResetAt: 21},
		{Kind: MarkersWritten, ResetAt: -1},
		{Kind: LMERecorded, Epoch: 5, Offset: 20},
		{Kind: LeaderMoved, LeaderID: 2, Epoch: 6},
		{Kind: LogDoubted, Message: "the log is read whole"},
	} {
		fmt.Fprintf(&b, "%v: %v\n", n.Kind, n)
	}
	w := stoppable(t)
	w.src.down = true
	w.wish(statemachine.WantStopped)
	w.run(7, nil)
	fmt.Fprintf(&b, "\n%v", w.core.Status())
	w.settle(t)
	s := w.core.Status()
	s.Denied, s.NoEpochs, s.LostFrom, s.LostTo = true, true, 3, 5
	s.Needs = &Consent{TopicID: testTopic, Partition: 1, From: 2, To: 9, Episode: 2}
	s.Record.ErrorMessage, s.Waiting, s.Record.RetryAttempt = "broken", "for replicas", 2
	fmt.Fprintf(&b, "\n%v", s)
	golden(t, "testdata/text.golden", b.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("%s differs (UPDATE_GOLDEN=1 writes it):\n%s", path, got)
	}
}

// TestPurity: the package has no goroutine, channel, clock, I/O, client, range over a map or variable at package level.
func TestPurity(t *testing.T) {
	fset := token.NewFileSet()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files++
			for _, w := range impurities(fset, f) {
				t.Error(w)
			}
		}
	}
	if files < 8 {
		t.Fatalf("only %d files", files)
	}
	bad := `package p
import ("net"; "time")
var state int
func f(c chan int, m map[int]int) { go f(nil, nil); c <- 1; <-c; time.Sleep(1); time.Now() }
`
	f, err := parser.ParseFile(fset, "bad.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := impurities(fset, f); len(got) < 8 {
		t.Errorf("the check sees only %q", got)
	}
}

func impurities(fset *token.FileSet, f *ast.File) (found []string) {
	say := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%v: %s", fset.Position(n.Pos()), what))
	}
	allowed := map[string]bool{
		`"context"`: true, `"errors"`: true, `"fmt"`: true, `"strings"`: true, `"time"`: true, `"math"`: true, `"math/rand/v2"`: true, `"slices"`: true,
	}
	for _, i := range f.Imports {
		if !allowed[i.Path.Value] && !strings.HasPrefix(i.Path.Value, `"github.com/clustermirror/clustermirror/`) {
			say(i, "imports "+i.Path.Value)
		}
	}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			say(g, "variable at package level")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say(n, "go statement")
		case *ast.ChanType:
			say(n, "channel")
		case *ast.SendStmt:
			say(n, "send")
		case *ast.MapType:
			say(n, "map")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				say(n, "receive")
			}
		case *ast.SelectorExpr:
			if p, ok := n.X.(*ast.Ident); ok && p.Name == "time" {
				switch n.Sel.Name {
				case "Now", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick", "Since", "Until":
					say(n, "time."+n.Sel.Name)
				}
			}
		}
		return true
	})
	return found
}
