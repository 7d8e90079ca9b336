package mirror_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// failedOver is a source A whose topics "t" and "u" are served by B now. Each has a record in partition 0 that was never copied.
func failedOver(t *testing.T) (a, b *side) {
	t.Helper()
	m := newPair(t, 1)
	m.a.local("u", 1)
	m.a.fill("t", 0, 10)
	m.a.fill("u", 0, 5)
	m.start("t", "u")
	m.untilInStep()
	m.a.SetUnreachable(true)
	if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
		t.Fatal(err)
	}
	m.a.SetUnreachable(false)
	m.a.fill("t", 0, 1)
	m.a.fill("u", 0, 1)
	m.running.close()
	return m.a, m.b
}

// onlyHere is an Admin of the mirror "back" that reaches the destination and nothing else.
func onlyHere(t *testing.T, dst *side, change ...func(*mirror.AdminConfig)) *mirror.Admin {
	t.Helper()
	cfg := mirror.AdminConfig{Mirror: "back", Control: dst.Control(), States: dst.StateStore(), Destination: dst.Cluster, DestinationAssumed: true, Operator: mirror.Operator{User: "kim", Host: "desk"}}
	for _, f := range change {
		f(&cfg)
	}
	a, err := mirror.NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// openBack runs the mirror "back" from B to A.
func openBack(t *testing.T, a, b *side) *running {
	t.Helper()
	back := open(t, "back", b.Cluster, a, func(c *mirror.Config) { c.Control = a.Control() })
	back.until("recorded", func(mirror.Status) bool {
		s, err := a.Control().Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, there := s.Mirror("back")
		return there
	})
	return back
}

func bounded(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

func answersIn(t *testing.T, c mirror.Control) []mirror.FailbackAnswer {
	t.Helper()
	r, err := c.Reports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Answers
}

func questionsIn(t *testing.T, c mirror.Control) []mirror.FailbackQuestion {
	t.Helper()
	s, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Questions
}

// A first failback from a place that reaches the destination only: the topics are in no mirror, the question goes to the process that runs it, and the plan that comes back is the one that is
// carried out.
func TestFailbackByWayOfTheControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a, func(c *mirror.AdminConfig) { c.Strict = true })
		before := a.raw("t", 0)
		began := time.Now()
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t", "u"}, mirror.AskFailbackOptions{Intent: mirror.Intent{Reason: "the site is back"}})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the answer took %s", took)
		}
		synctest.Wait()
		expect(t, "questions", len(questionsIn(t, a.Control())), 0)
		direct, err := back.PlanFailback(t.Context(), "t", "u")
		if err != nil {
			t.Fatal(err)
		}
		direct.Taken = plan.Taken
		direct.Groups.Seen, direct.Settings.Seen = plan.Groups.Seen, plan.Settings.Seen
		for i := range direct.Partitions {
			direct.Partitions[i].SourceSeen = plan.Partitions[i].SourceSeen
		}
		expect(t, "plan", plan.Hash(), direct.Hash())
		expect(t, "dropped", plan.Dropped, 2)
		expect(t, "the copy is changed", string(a.raw("t", 0)), string(before))

		if _, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{}); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), "a failback, which gives records up, needs a reason") {
			t.Errorf("without a reason: %v", err)
		}
		dry, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, dry.String(), "source B → destination A", "dry run of failback, mirror back", "t: would be recorded", "u: would be recorded")
		if back.Status().Topics != nil {
			t.Error("a dry run has begun something")
		}
		_, err = admin.Failback(t.Context(), plan, mirror.ConsentOptions{Intent: mirror.Intent{Reason: "the site is back"}})
		if !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), "needs the plan of a dry run") {
			t.Errorf("without a place: %v", err)
		}
		done, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{Intent: mirror.Intent{Reason: "the site is back", Plan: dry.Plan}})
		if err != nil || done.Plan != dry.Plan {
			t.Fatalf("%v\n%s", err, done)
		}
		back.untilInStep()
		for _, topic := range []string{"t", "u"} {
			expect(t, topic, string(a.raw(topic, 0)), string(b.raw(topic, 0)))
			p := back.one(topic, 0)
			f := plan.Partitions[map[string]int{"t": 0, "u": 1}[topic]]
			expect(t, "cut of "+topic, []mirror.Number{mirror.KnownNumber(p.DroppedFrom), mirror.KnownNumber(p.DroppedTo)}, []mirror.Number{f.From, f.To})
		}
		h, err := admin.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := h[len(h)-1]
		if last.Verb != "failback" || last.Reason != "the site is back" || last.Who.User != "kim" || !strings.HasPrefix(last.Detail, "failback plan "+plan.Hash()+" consents:") {
			t.Errorf("%+v", last)
		}
		// All members, once there are some.
		if plan, err = admin.AskFailback(bounded(t, time.Minute), nil, mirror.AskFailbackOptions{}); err != nil || len(plan.Topics) != 2 || plan.Dropped != 0 {
			t.Errorf("%v\n%s", err, plan)
		}
	})
}

func TestFailbackWithoutAReasonSaysWhichPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a)
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{}); err != nil {
			t.Fatal(err)
		}
		h, err := admin.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "reason", h[len(h)-1].Reason, "failback of plan "+plan.Hash())
	})
}

// Nobody runs the mirror: that is said, with the last word of whoever did. A process that comes in time answers all the same, once; one that comes late reads no logs for it and says so. Who
// answers takes the question back.
func TestQuestionThatNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		admin := onlyHere(t, a)
		_, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if !errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			t.Errorf("no such mirror: %v", err)
		}
		if _, err := admin.Create(t.Context(), mirror.Settings{"bootstrap.servers": "b:9092"}, mirror.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = admin.AskFailback(bounded(t, time.Minute), nil, mirror.AskFailbackOptions{})
		if !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), "no topic is in this mirror yet") {
			t.Errorf("nothing named: %v", err)
		}
		var none *mirror.NotAnsweredError
		_, err = admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if !errors.As(err, &none) || !errors.Is(err, context.DeadlineExceeded) || none.Alive || !none.Heard.IsZero() || !strings.Contains(err.Error(), "NO PROCESS runs this mirror (none has ever reported)") {
			t.Fatalf("%v", err)
		}
		time.Sleep(5 * time.Minute) // virtual, as below
		back := openBack(t, a, b)
		back.until("answered", func(mirror.Status) bool { return len(answersIn(t, a.Control())) == 1 })
		first := answersIn(t, a.Control())[0]
		if !first.Asked.Equal(none.Asked) || len(first.Packed) == 0 {
			t.Errorf("%+v", first)
		}
		back.until("taken back", func(mirror.Status) bool { return len(questionsIn(t, a.Control())) == 0 })
		back.close()
		if err := a.Control().Update(t.Context(), func(s *mirror.ControlState) error { // as a version leaves it that takes none back
			s.SetQuestion(mirror.FailbackQuestion{Mirror: "back", Number: first.Number, Asked: first.Asked, Topics: []string{"t"}})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		back = openBack(t, a, b)
		time.Sleep(time.Minute)
		if again := answersIn(t, a.Control()); len(again) != 1 || !again[0].At.Equal(first.At) {
			t.Errorf("answered again after a restart: %+v", again)
		}
		expect(t, "questions", len(questionsIn(t, a.Control())), 0)
		back.close()

		time.Sleep(14 * time.Minute)
		_, err = admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if !errors.As(err, &none) || none.Alive || none.Owner != "back" || !strings.Contains(err.Error(), "NO PROCESS runs this mirror (last word 15m ago, of process back") {
			t.Errorf("%v", err)
		}
		time.Sleep(mirror.QuestionLife)
		back = openBack(t, a, b)
		defer back.close()
		time.Sleep(time.Minute)
		if late := answersIn(t, a.Control()); len(late) != 1 || late[0].Packed != nil || !strings.Contains(late[0].Trouble, "the question is too old by its clock") {
			t.Errorf("a question that is too old: %+v", late)
		}
		expect(t, "questions", len(questionsIn(t, a.Control())), 0)
	})
}

// A newer question takes the place of one that is still worked on: the work for that one ends, and whoever asked is told.
func TestNewerQuestionReplacesAnOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		var mu sync.Mutex
		hang, ended := true, 0
		b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, call memlog.Call) error {
			mu.Lock()
			stuck := hang && call.Operation == "Source.Offsets"
			mu.Unlock()
			if !stuck {
				return nil
			}
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			ended++
			return ctx.Err()
		}})
		back := openBack(t, a, b)
		defer back.close()
		first := make(chan error, 1)
		go func() {
			_, err := onlyHere(t, a).AskFailback(bounded(t, time.Hour), []string{"t"}, mirror.AskFailbackOptions{})
			first <- err
		}()
		time.Sleep(30 * time.Second)
		select {
		case err := <-first:
			t.Fatalf("answered: %v", err)
		default:
		}
		// The mirror follows its desired state meanwhile.
		if _, err := back.Admin().Start(t.Context(), []string{"new"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		back.until("followed", func(s mirror.Status) bool { return len(s.Topics) == 1 })
		_, err := onlyHere(t, a).AskFailback(bounded(t, 30*time.Second), []string{"u"}, mirror.AskFailbackOptions{})
		var none *mirror.NotAnsweredError
		if !errors.As(err, &none) || !none.Alive || !strings.Contains(err.Error(), "runs the mirror and is not done") {
			t.Errorf("while it works: %v", err)
		}
		if err := <-first; !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), "kim on host desk asked at") {
			t.Errorf("the first one: %v", err)
		}
		mu.Lock()
		hang = false
		if ended == 0 {
			t.Error("the work for the first question goes on")
		}
		mu.Unlock()
		plan, err := onlyHere(t, a).AskFailback(bounded(t, time.Minute), []string{"u"}, mirror.AskFailbackOptions{})
		if err != nil || len(plan.Topics) != 1 || plan.Topics[0].Topic != "u" {
			t.Errorf("%v\n%s", err, plan)
		}
	})
}

func TestQuestionWhileTheSourceIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		b.SetUnreachable(true)
		began := time.Now()
		_, err := onlyHere(t, a).AskFailback(bounded(t, time.Hour), []string{"t"}, mirror.AskFailbackOptions{})
		if !errors.Is(err, &mirror.Error{Code: mirror.InvalidClusterMirrorState}) || !strings.Contains(err.Error(), "process back cannot plan a failback") || time.Since(began) > 20*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestFailbackRefusesPlansThatAreNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a)
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		refused, err := admin.AskFailback(bounded(t, time.Minute), []string{"t", "nowhere"}, mirror.AskFailbackOptions{})
		if err != nil || refused.Severity != mirror.SeverityRefused {
			t.Fatalf("%v\n%s", err, refused)
		}
		before, err := a.Control().Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for words, change := range map[string]func(p *mirror.FailbackPlan){
			`the plan is for mirror "m"`:                            func(p *mirror.FailbackPlan) { p.Mirror = "m" },
			"source cluster ids differ: the desired state has B":    func(p *mirror.FailbackPlan) { p.SourceClusterID = "X" },
			"the plan names X":                                      func(p *mirror.FailbackPlan) { p.DestinationClusterID = "X" },
			"the plan has refused parts":                            func(p *mirror.FailbackPlan) { *p = refused },
			"the plan names no topic":                               func(p *mirror.FailbackPlan) { p.Topics, p.Partitions = nil, nil },
			"which no topic of this request has at the destination": func(p *mirror.FailbackPlan) { p.Partitions[0].TopicID[3]++ },
		} {
			p := plan
			p.Partitions = append([]mirror.FailbackPartition(nil), plan.Partitions...)
			change(&p)
			for _, dry := range []bool{true, false} {
				r, err := admin.Failback(t.Context(), p, mirror.ConsentOptions{DryRun: dry})
				if code := new(mirror.Error); !errors.As(err, &code) || !strings.Contains(err.Error(), words) || len(r.Topics) > 0 {
					t.Errorf("want %q: %v", words, err)
				}
				if strings.Contains(words, "refused parts") && !errors.Is(err, mirror.ErrPlanRefused) {
					t.Errorf("%v", err)
				}
			}
		}
		after, err := a.Control().Read(t.Context())
		if err != nil || after.Version != before.Version {
			t.Errorf("something was written: %v", err)
		}
		if _, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{Intent: mirror.Intent{DestinationClusterID: "X"}}); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
			t.Errorf("another cluster is meant: %v", err)
		}
		if _, err := admin.AskFailback(bounded(t, time.Minute), []string{"a/b"}, mirror.AskFailbackOptions{}); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
			t.Errorf("a bad name: %v", err)
		}
		if p := back.one("t", 0); p.State != statemachine.Unknown {
			t.Errorf("something has begun: %s", p.State)
		}
	})
}

// A range that has grown since the plan was made is refused by the mirror, and keeps everything.
func TestFailbackOfALogThatHasGrownDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a)
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a.fill("t", 0, 1)
		before := a.raw("t", 0)
		if _, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{}); err != nil {
			t.Fatal(err)
		}
		back.untilFailed("t", 0, "would drop")
		expect(t, "log", string(a.raw("t", 0)), string(before))
	})
}

// Whose clock is behind that of the process is told so at once, with both times.
func TestQuestionFromAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		behind := time.Now().Add(-mirror.QuestionLife - time.Minute)
		admin := onlyHere(t, a)
		admin.SetClock(func() time.Time { return behind })
		began := time.Now()
		_, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if took := time.Since(began); !errors.Is(err, &mirror.Error{Code: mirror.InvalidClusterMirrorState}) || took > 10*time.Second {
			t.Fatalf("after %s: %v", took, err)
		}
		expectWords(t, err.Error(), "the question is too old by its clock: it was asked at "+behind.UTC().Format("2006-01-02 15:04:05 UTC"), "and there it is "+began.UTC().Format("2006-01-02 15:"),
			"a question is answered for 10m", "Set the clocks of both hosts")
		synctest.Wait()
		expect(t, "questions", len(questionsIn(t, a.Control())), 0)
	})
}

// stubborn is a Control that takes every report, and answers only as its own says.
type stubborn struct {
	mirror.Control
	takes func(mirror.FailbackAnswer) bool

	mu      sync.Mutex
	reports int
	tries   int
}

type stubbornReporter struct {
	mirror.Reporter
	*stubborn
}

func (s *stubborn) OpenReporter(ctx context.Context, owner string) (mirror.Reporter, error) {
	r, err := s.Control.OpenReporter(ctx, owner)
	return stubbornReporter{r, s}, err
}

func (r stubbornReporter) Report(ctx context.Context, node mirror.NodeReport, partitions []mirror.PartitionReport) error {
	r.mu.Lock()
	r.stubborn.reports += len(partitions)
	r.mu.Unlock()
	return r.Reporter.Report(ctx, node, partitions)
}

func (r stubbornReporter) Answer(ctx context.Context, answer mirror.FailbackAnswer) error {
	r.mu.Lock()
	r.tries++
	takes := r.takes(answer)
	r.mu.Unlock()
	if !takes {
		return errors.New("the storage takes no record of that size")
	}
	return r.Reporter.Answer(ctx, answer)
}

// A plan that can never be recorded is answered with words; where even those are refused it ends. Neither makes anything else be reported anew.
func TestAnswerThatCannotBeRecorded(t *testing.T) {
	for what, takes := range map[string]func(mirror.FailbackAnswer) bool{
		"the plan is too large": func(a mirror.FailbackAnswer) bool { return len(a.Packed) == 0 },
		"nothing is taken":      func(mirror.FailbackAnswer) bool { return false },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := failedOver(t)
				control := &stubborn{Control: a.Control(), takes: takes}
				back := open(t, "back", b.Cluster, a, func(c *mirror.Config) { c.Control = control })
				defer back.close()
				if _, err := back.Admin().Start(t.Context(), []string{"v"}, mirror.StartOptions{}); err != nil {
					t.Fatal(err)
				}
				b.local("v", 1)
				back.until("mirrored", func(s mirror.Status) bool {
					return len(s.Topics) == 1 && len(s.Topics[0].Partitions) == 1 && s.Topics[0].Partitions[0].State == statemachine.Mirroring
				})
				time.Sleep(time.Minute)
				control.mu.Lock()
				control.reports = 0
				control.mu.Unlock()
				_, err := onlyHere(t, a).AskFailback(bounded(t, 2*time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
				control.mu.Lock()
				defer control.mu.Unlock()
				if control.reports > 2 || control.tries > 6 {
					t.Errorf("%d reports of one partition in which nothing happens, %d tries", control.reports, control.tries)
				}
				if takes(mirror.FailbackAnswer{}) {
					if err == nil || !strings.Contains(err.Error(), "the plan cannot be recorded") || !strings.Contains(err.Error(), "the storage takes no record of that size") {
						t.Errorf("%v", err)
					}
				} else if none := new(mirror.NotAnsweredError); !errors.As(err, &none) || !none.Alive {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// Who asked takes the question back too: who answered may run a version that does not.
func TestWhoAskedTakesTheQuestionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := failedOver(t)
		admin := onlyHere(t, a)
		if _, err := admin.Create(t.Context(), mirror.Settings{"bootstrap.servers": "b:9092"}, mirror.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
			asked <- err
		}()
		synctest.Wait()
		q := questionsIn(t, a.Control())
		expect(t, "questions", len(q), 1)
		process, err := a.Control().OpenReporter(t.Context(), "old")
		if err != nil {
			t.Fatal(err)
		}
		defer process.Close()
		if err := process.Report(t.Context(), mirror.NodeReport{Owner: "old", Mirror: "back", Host: "h", Version: "v0.9", Seen: time.Now()}, nil); err != nil {
			t.Fatal(err)
		}
		if err := process.Answer(t.Context(), mirror.FailbackAnswer{Owner: "old", Mirror: "back", Number: q[0].Number, Asked: q[0].Asked, Trouble: "for a reason"}); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err == nil || !strings.Contains(err.Error(), "process old cannot plan a failback: for a reason") {
			t.Errorf("%v", err)
		}
		expect(t, "questions", len(questionsIn(t, a.Control())), 0)
		_, err = admin.AskFailback(bounded(t, 2*time.Second), []string{"t"}, mirror.AskFailbackOptions{})
		if err == nil || !strings.Contains(err.Error(), "It runs version v0.9, this program is") {
			t.Errorf("a process that does not answer: %v", err)
		}
	})
}

// The plan of a dry run is found again by its hash, for exactly the topics that it is about: a plan of some topics is none for all.
func TestKeptFailback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a)
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		refused := func(hash string, topics []string, words string) {
			t.Helper()
			if _, err := admin.KeptFailback(t.Context(), hash, topics); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s %v: %v", hash, topics, err)
			}
		}
		kept := func(topics ...string) {
			t.Helper()
			if got, err := admin.KeptFailback(t.Context(), plan.Hash(), topics); err != nil || got.Hash() != plan.Hash() {
				t.Errorf("%v: %v", topics, err)
			}
		}
		kept("t")
		refused(plan.Hash(), []string{"t", "u"}, "is not about topic u")
		refused(plan.Hash(), []string{"u"}, "is not about topic u")
		refused("0000", []string{"t"}, "plan 0000 is not kept")
		refused(plan.Hash(), nil, "no topic is in this mirror yet")
		if _, err := admin.Start(t.Context(), []string{"t", "u"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		refused(plan.Hash(), nil, "is not about topic u")
		if plan, err = admin.AskFailback(bounded(t, time.Minute), []string{"t", "u"}, mirror.AskFailbackOptions{}); err != nil {
			t.Fatal(err)
		}
		kept()
		refused(plan.Hash(), []string{"t"}, "is about topic u too")
		other := onlyHere(t, a, func(c *mirror.AdminConfig) { c.Mirror = "other" })
		if _, err := other.KeptFailback(t.Context(), plan.Hash(), nil); !errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			t.Errorf("no such mirror: %v", err)
		}
	})
}

// A mirror that was created just now is run when its process reports, and not before; a deleted one is gone when its states are.
func TestAwaitRunAndAwaitDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		admin := onlyHere(t, a)
		if _, err := admin.AwaitRun(bounded(t, time.Minute), nil); !errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			t.Errorf("no such mirror: %v", err)
		}
		if _, err := admin.Create(t.Context(), mirror.Settings{"bootstrap.servers": "b:9092"}, mirror.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var told []bool
		d, err := admin.AwaitRun(bounded(t, time.Minute), func(d mirror.Description) { told = append(told, d.Alive) })
		if !errors.Is(err, context.DeadlineExceeded) || d.Alive || d.Mirror != "back" || len(told) != 1 {
			t.Errorf("%v: told %v", err, told)
		}
		time.AfterFunc(20*time.Second, func() {
			process, err := a.Control().OpenReporter(t.Context(), "o")
			if err == nil {
				err = process.Report(t.Context(), mirror.NodeReport{Owner: "o", Mirror: "back", Host: "h", Seen: time.Now()}, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
		told = nil
		if d, err = admin.AwaitRun(bounded(t, time.Minute), func(d mirror.Description) { told = append(told, d.Alive) }); err != nil || !d.Alive || len(told) != 2 || !told[1] {
			t.Errorf("%v: told %v", err, told)
		}

		back := openBack(t, a, b)
		defer back.close()
		plan, err := admin.AskFailback(bounded(t, time.Minute), []string{"t"}, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{}); err != nil {
			t.Fatal(err)
		}
		back.untilInStep()
		if _, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil); err != nil {
			t.Fatal(err)
		}
		var left []int
		note := func(n int) { left = append(left, n) }
		if err := admin.AwaitDeleted(bounded(t, 5*time.Second), false, note); !errors.Is(err, context.DeadlineExceeded) || len(left) != 1 || left[0] == 0 || !strings.Contains(err.Error(), "1 state still kept") {
			t.Errorf("%v: %v", left, err)
		}
		if _, err := admin.Delete(t.Context(), mirror.DeleteOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
		if err := admin.AwaitDeleted(bounded(t, time.Minute), true, note); err != nil || left[len(left)-1] != 0 {
			t.Errorf("%v: %v", left, err)
		}
	})
}
