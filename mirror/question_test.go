package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

func TestPlanThatDoesNotFitIntoAnAnswerIsAnError(t *testing.T) {
	seed := uint64(7)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	plan := FailbackPlan{Mirror: "m", Severity: SeveritySafe}
	q := FailbackQuestion{Mirror: "m", Number: 3, Asked: firstTime}
	add := func(n int) {
		for range n {
			name := make([]byte, 30)
			for i := range name {
				name[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"[r.IntN(64)]
			}
			plan.Topics = append(plan.Topics, PlanTopic{Topic: string(name), Outcome: OutcomeGo})
			plan.Partitions = append(plan.Partitions, FailbackPartition{Topic: string(name), Outcome: OutcomeGo})
		}
	}
	c := NewMemoryControl()
	writer := mustOpenReporter(t, c, "o")
	add(5000)
	a := q.answer("o", plan, nil)
	if err := writer.Answer(context.Background(), a); err != nil || a.Trouble != "" {
		t.Fatalf("5,000 topics: %v, %q", err, a.Trouble)
	}
	if got, err := mustReports(t, c).Answers[0].Plan(); err != nil || !reflect.DeepEqual(got.TopicNames(), plan.TopicNames()) || len(got.Partitions) != 5000 {
		t.Errorf("it comes back with %d partitions, %v", len(got.Partitions), err)
	}
	add(10_000)
	a = q.answer("o", plan, nil)
	if a.Packed != nil || a.Code != InvalidRequest || !strings.Contains(a.Trouble, "the plan of 15000 topics is too large for a record; plan fewer topics at a time") {
		t.Errorf("%d bytes, %s, %q", len(a.Packed), a.Code, a.Trouble)
	}
	if err := writer.Answer(context.Background(), a); err != nil {
		t.Error(err)
	}
	a.Packed = make([]byte, controlRecordLimit)
	if err := writer.Answer(context.Background(), a); !errors.Is(err, errRecordTooLarge) {
		t.Errorf("an answer of a megabyte: %v", err)
	}
	if err := writer.Answer(context.Background(), FailbackAnswer{Owner: "p"}); err == nil {
		t.Error("an answer of another owner is written")
	}
}

func TestAnswerSaysWhatKindOfTroubleThereIs(t *testing.T) {
	q := FailbackQuestion{Mirror: "m", Number: 3, Asked: firstTime}
	a := q.answer("o", FailbackPlan{}, fmt.Errorf("around: %w", &Error{Code: InvalidConfig, Mirror: "m", Message: "the words"}))
	if a.Code != InvalidConfig || a.Trouble != "the words" || a.Packed != nil || a.At.IsZero() || !q.answeredBy(a) {
		t.Errorf("%+v", a)
	}
	if _, err := a.Plan(); err == nil {
		t.Error("there is a plan")
	}
	a = q.answer("o", FailbackPlan{}, errors.New("dial tcp"))
	if a.Code != OK || a.Trouble != "dial tcp" {
		t.Errorf("%+v", a)
	}
	q.Number++
	if q.answeredBy(a) {
		t.Error("it answers the next question")
	}
}

// What was packed by the first version that packed plans is read for ever.
func TestPackedPlanOfVersion1IsRead(t *testing.T) {
	packed, err := os.ReadFile("testdata/compat/v1/failback-plan.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/compat/v1/failback-plan.json")
	if err != nil {
		t.Fatal(err)
	}
	var want FailbackPlan
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	a := FailbackAnswer{Owner: "o", Packed: packed}
	if got, err := a.Plan(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%s", err, got)
	}
	again, err := want.pack()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (FailbackAnswer{Packed: again}).Plan(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%s", err, got)
	}
	for cut := range len(packed) {
		if _, err := (FailbackAnswer{Packed: packed[:cut]}).Plan(); err == nil {
			t.Fatalf("%d bytes of it are read as a plan", cut)
		}
	}
}

func TestQuestionGoesWithItsMirror(t *testing.T) {
	var s ControlState
	s.SetMirror(MirrorEntry{Name: "m"})
	s.SetQuestion(FailbackQuestion{Mirror: "n", Number: 1})
	s.SetQuestion(FailbackQuestion{Mirror: "m", Number: 1})
	s.SetQuestion(FailbackQuestion{Mirror: "m", Number: 2, Topics: []string{"t"}})
	if q, ok := s.Question("m"); !ok || q.Number != 2 || len(s.Questions) != 2 || s.Questions[0].Mirror != "m" {
		t.Fatalf("%+v", s.Questions)
	}
	copied := s.Clone()
	copied.Questions[0].Topics[0] = "other"
	if s.Questions[0].Topics[0] != "t" {
		t.Error("a copy shares its topics")
	}
	s.RemoveMirror(DeletedMirror{Name: "m"})
	if _, ok := s.Question("m"); ok || len(s.Questions) != 1 {
		t.Errorf("%+v", s.Questions)
	}
}

func TestForgetTakesAnswersToo(t *testing.T) {
	c := NewMemoryControl()
	r := mustOpenReporter(t, c, "o")
	for _, m := range []string{"m", "n"} {
		if err := r.Answer(context.Background(), FailbackAnswer{Owner: "o", Mirror: m, Number: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Forget(context.Background(), "m"); err != nil {
		t.Fatal(err)
	}
	if got := mustReports(t, c).Answers; len(got) != 1 || got[0].Mirror != "n" {
		t.Errorf("%+v", got)
	}
	mustOpenReporter(t, c, "o")
	if err := r.Answer(context.Background(), FailbackAnswer{Owner: "o", Mirror: "n"}); !errors.Is(err, statemachine.ErrFenced) {
		t.Errorf("an answer of a fenced process: %v", err)
	}
}
