package mirror

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// intents are the verbs with an Intent, each where it changes something.
var intents = []struct {
	name string
	run  func(a *Admin, i Intent, dry bool) (Result, error)
	// strict: it opens, discards or deletes.
	strict bool
	// What there is when the verb is used: it changes something then.
	wishes []TopicWish
	state  statemachine.State
}{
	{"alter", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.AlterConfig(bg, Settings{"client.id": "x"}, nil, AlterConfigOptions{Intent: i, DryRun: dry})
	}, false, nil, statemachine.Unknown},
	{"alter that stops", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.AlterConfig(bg, Settings{topicsExcludeSetting: "t"}, nil, AlterConfigOptions{Intent: i, DryRun: dry})
	}, true, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring},
	{"start", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Start(bg, []string{"t"}, StartOptions{Intent: i, DryRun: dry})
	}, false, nil, statemachine.Unknown},
	{"start again", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Start(bg, []string{"t"}, StartOptions{Intent: i, DryRun: dry})
	}, false, []TopicWish{wishOf("t", "m.stopped")}, statemachine.Stopped},
	{"start with consent", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Start(bg, []string{"t"}, StartOptions{Intent: i, DryRun: dry, Consents: []Consent{{TopicID: adminTopicID("t"), From: 1, To: 2, Episode: 1}}})
	}, true, nil, statemachine.Unknown},
	{"start that adopts", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Start(bg, []string{"t"}, StartOptions{Intent: i, DryRun: dry})
	}, true, []TopicWish{wishOf("t", "other.stopped")}, statemachine.Stopped},
	{"start that stops", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Start(bg, []string{"u"}, StartOptions{Intent: i, DryRun: dry, Exclude: []string{"t"}})
	}, true, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring},
	{"stop", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Stop(bg, []string{"t"}, StopOptions{Intent: i, DryRun: dry})
	}, true, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring},
	{"pause", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Pause(bg, []string{"t"}, PauseOptions{Intent: i, DryRun: dry})
	}, false, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring},
	{"resume", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Resume(bg, []string{"t"}, ResumeOptions{Intent: i, DryRun: dry})
	}, false, []TopicWish{wishOf("t", "m.paused")}, statemachine.Paused},
	{"recover", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Recover(bg, []string{"t"}, RecoverOptions{Intent: i, DryRun: dry})
	}, false, []TopicWish{wishOf("t", "m")}, statemachine.Failed},
	{"delete", func(a *Admin, i Intent, dry bool) (Result, error) {
		return a.Delete(bg, DeleteOptions{Intent: i, DryRun: dry})
	}, true, []TopicWish{wishOf("t", "m.stopped")}, statemachine.Stopped},
}

func intentWorld(t *testing.T, wishes []TopicWish, state statemachine.State, change ...func(*AdminConfig)) (*Admin, Control) {
	w, c := &adminWorld{}, controlWith(t, wishes...)
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092"}})
	})
	w.has("m", "t", state)
	return w.adminOver(t, c, nil, change...), c
}

func strict(c *AdminConfig) { c.Strict = true }

func TestStrictAdminAsksForReasonAndPlace(t *testing.T) {
	for _, verb := range intents {
		for _, tc := range []struct {
			intent Intent
			word   string // of the refusal, "" for none
		}{
			{Intent{}, "Reason"},
			{Intent{DestinationClusterID: "here"}, "Reason"},
			{Intent{Reason: "because"}, "Plan"},
			{Intent{Reason: "because", DestinationClusterID: "here"}, ""},
		} {
			a, c := intentWorld(t, verb.wishes, verb.state, strict)
			before := mustRead(t, c)
			if r, err := verb.run(a, tc.intent, true); err != nil || r.Plan == "" {
				t.Fatalf("%s: dry run %+v: %v", verb.name, tc.intent, err) // that is how one gets a plan
			}
			r, err := verb.run(a, tc.intent, false)
			if !verb.strict || tc.word == "" {
				if err != nil || reflect.DeepEqual(mustRead(t, c), before) {
					t.Errorf("%s %+v: %v", verb.name, tc.intent, err)
				}
				continue
			}
			wantCode(t, verb.name, err, InvalidRequest, tc.word)
			if !reflect.DeepEqual(mustRead(t, c), before) || len(r.Topics) > 0 {
				t.Errorf("%s %+v: refused, and something was written", verb.name, tc.intent)
			}
		}
		a, _ := intentWorld(t, verb.wishes, verb.state, strict)
		dry, err := verb.run(a, Intent{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := verb.run(a, Intent{Reason: "because", Plan: dry.Plan}, false); err != nil || r.Plan != dry.Plan {
			t.Errorf("%s with the plan of its dry run: %v %v", verb.name, r, err)
		}
	}
	// A place that nobody can confirm is no confirmation, and a plan that fits any store is none either.
	a, c := intentWorld(t, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring, strict, func(c *AdminConfig) { c.Destination = nil })
	dry, err := a.Stop(bg, []string{"t"}, StopOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Stop(bg, []string{"t"}, StopOptions{Intent: Intent{Reason: "because", Plan: dry.Plan}})
	wantCode(t, "a plan for any store", err, InvalidRequest, "any store")
	born(t, c, planTime.Add(-time.Hour))
	_, err = a.Stop(bg, []string{"t"}, StopOptions{Intent: Intent{Reason: "because", DestinationClusterID: "here"}})
	wantCode(t, "unknown destination", err, InvalidRequest, "dry run")
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: "here"})
	if r, err := a.Stop(bg, []string{"t"}, StopOptions{Intent: Intent{Reason: "because", DestinationClusterID: "here"}}); err != nil {
		t.Errorf("%v %v", r, err)
	}
}

// born records when the mirror was created.
func born(t *testing.T, c Control, at time.Time) {
	t.Helper()
	mustUpdate(t, c, func(s *ControlState) {
		entry, _ := s.Mirror("m")
		entry.Created = at
		s.SetMirror(entry)
	})
}

// TestPlanFitsOneStore: where no cluster id is known, a plan of one store is no plan of another one that looks like it.
func TestPlanFitsOneStore(t *testing.T) {
	for _, strictly := range []bool{true, false} {
		world := func(created time.Time) (*Admin, Control) {
			a, c := intentWorld(t, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring, func(c *AdminConfig) { c.Destination, c.Strict = nil, strictly })
			born(t, c, created)
			return a, c
		}
		first, _ := world(planTime.Add(-time.Hour))
		second, c := world(planTime.Add(-time.Hour + 1))
		dry, err := first.Stop(bg, nil, StopOptions{AllTopics: true, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = second.Stop(bg, nil, StopOptions{AllTopics: true, Intent: Intent{Reason: "r", Plan: dry.Plan}})
		wantCode(t, "the plan of another store", err, InvalidRequest, "another store")
		if got := nameOf(t, c, "t"); got != "m" {
			t.Errorf("mirror.name %q", got)
		}
		if _, err := first.Stop(bg, nil, StopOptions{AllTopics: true, Intent: Intent{Reason: "r", Plan: dry.Plan}}); err != nil {
			t.Error(err)
		}
	}
}

// TestDestinationIsAskedBeforeReportsAreBelieved: what a process said long ago is no proof of what is here now.
func TestDestinationIsAskedBeforeReportsAreBelieved(t *testing.T) {
	for _, verb := range []string{verbStop, verbRecover} {
		run := func(a *Admin, id string) (Result, error) {
			if verb == verbStop {
				return a.Stop(bg, []string{"t"}, StopOptions{Intent: Intent{DestinationClusterID: id}})
			}
			return a.Recover(bg, []string{"t"}, RecoverOptions{Intent: Intent{DestinationClusterID: id}})
		}
		world := func(seen time.Time, change ...func(*AdminConfig)) *Admin {
			a, c := intentWorld(t, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring, change...)
			born(t, c, planTime.Add(-200*24*time.Hour))
			report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: seen, DestinationID: "there"})
			return a
		}
		old := planTime.Add(-100 * 24 * time.Hour)
		_, err := run(world(old), "there")
		wantCode(t, verb+" of what was reported", err, InvalidRequest, "there", "here", "itself")
		r, err := run(world(old, func(c *AdminConfig) { c.DestinationClusterID = "here" }), "here")
		if err != nil || r.Clusters.DestinationID != "here" || len(r.Notes) > 0 {
			t.Errorf("%s of what is here: %v %v", verb, r, err)
		}
		// Where nobody else can say it, the report does, with its age.
		for what, change := range map[string]func(*AdminConfig){
			"no destination": func(c *AdminConfig) { c.Destination = nil },
			"a deaf one":     func(c *AdminConfig) { c.Destination = &adminWorld{broken: errDown} },
		} {
			r, err = run(world(old, change), "there")
			if err != nil || r.Clusters.DestinationID != "there" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "process o said it, 100d ago") {
				t.Errorf("%s, %s: %v %v", verb, what, r, err)
			}
			_, err = run(world(old, change), "here")
			wantCode(t, verb+", "+what, err, InvalidRequest, "process o, 100d ago, has there", "here")
			// What was said before the mirror was created was said of another one.
			r, err = run(world(planTime.Add(-201*24*time.Hour), change), "")
			if err != nil || r.Clusters.DestinationID != "" || len(r.Notes) > 0 {
				t.Errorf("%s, %s: %v %v", verb, what, r, err)
			}
		}
	}
}

// hangingLookup never answers.
type hangingLookup struct{ asked int }

func (h *hangingLookup) ClusterID(ctx context.Context) (string, error) { return "", h.hang(ctx) }

func (h *hangingLookup) Topic(ctx context.Context, _ string) (Topic, error) {
	return Topic{}, h.hang(ctx)
}

func (h *hangingLookup) hang(ctx context.Context) error {
	h.asked++
	<-ctx.Done()
	return ctx.Err()
}

// TestAHangingDestinationIsWaitedForOnce: however many topics a verb is about.
func TestAHangingDestinationIsWaitedForOnce(t *testing.T) {
	var topics []string
	var wishes []TopicWish
	for i := range 40 {
		topics = append(topics, fmt.Sprintf("t%02d", i))
		wishes = append(wishes, wishOf(topics[i], "m"))
	}
	for name, verb := range map[string]func(ctx context.Context, a *Admin) error{
		"describe": func(ctx context.Context, a *Admin) error {
			d, err := a.Describe(ctx)
			if err == nil && !strings.Contains(strings.Join(d.Notes, "\n"), "could not look up t00, t01, t02, t03, t04 and 35 more: ") {
				t.Errorf("notes %q", d.Notes)
			}
			return err
		},
		"start": func(ctx context.Context, a *Admin) error { return refusedOnly(a.Start(ctx, topics, StartOptions{})) },
		"pause": func(ctx context.Context, a *Admin) error { return refusedOnly(a.Pause(ctx, topics, PauseOptions{})) },
		"resume": func(ctx context.Context, a *Admin) error {
			return refusedOnly(a.Resume(ctx, nil, ResumeOptions{AllTopics: true}))
		},
		"stop": func(ctx context.Context, a *Admin) error { return refusedOnly(a.Stop(ctx, topics, StopOptions{})) },
		"stop of others": func(ctx context.Context, a *Admin) error {
			return refusedOnly(a.Stop(ctx, []string{"x", "y", "z"}, StopOptions{}))
		},
		"delete": func(ctx context.Context, a *Admin) error { return refusedOnly(a.Delete(ctx, DeleteOptions{})) },
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &hangingLookup{}
			a := (&adminWorld{}).adminOver(t, controlWith(t, wishes...), nil, func(c *AdminConfig) { c.Destination = h })
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			began := time.Now()
			if err := verb(ctx, a); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > askBound || h.asked != 1 {
				t.Errorf("%s: took %s, asked %d times", name, took, h.asked)
			}
		})
	}
}

// refusedOnly is an error that is no refusal.
func refusedOnly(_ Result, err error) error {
	if codeOf(err) != -1 {
		return nil
	}
	return err
}

func TestWrongClusterIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for _, verb := range intents {
		for what, tc := range map[string]struct {
			intent Intent
			config func(*AdminConfig)
			words  []string
		}{
			"source of the intent":      {intent: Intent{SourceClusterID: "X"}, words: []string{"X", "there"}},
			"destination of the intent": {intent: Intent{DestinationClusterID: "Y"}, words: []string{"Y", "here"}},
			"source of the config":      {config: func(c *AdminConfig) { c.SourceClusterID = "X" }, words: []string{"X", "there"}},
			"destination of the config": {config: func(c *AdminConfig) { c.DestinationClusterID = "Y" }, words: []string{"Y", "here"}},
		} {
			change := []func(*AdminConfig){}
			if tc.config != nil {
				change = append(change, tc.config)
			}
			a, c := intentWorld(t, verb.wishes, verb.state, change...)
			before := mustRead(t, c)
			for _, dry := range []bool{true, false} {
				_, err := verb.run(a, tc.intent, dry)
				wantCode(t, verb.name+", "+what, err, InvalidRequest, tc.words...)
			}
			if !reflect.DeepEqual(mustRead(t, c), before) {
				t.Errorf("%s, %s: something was written", verb.name, what)
			}
		}
		// The right ones are fine, and shown.
		a, _ := intentWorld(t, verb.wishes, verb.state)
		r, err := verb.run(a, Intent{SourceClusterID: "there", DestinationClusterID: "here"}, false)
		bootstrap := "a:9092"
		if err != nil || r.Clusters != (Clusters{SourceID: "there", SourceBootstrap: bootstrap, DestinationID: "here"}) || len(r.Notes) > 0 && strings.Contains(r.Notes[0], "compared") {
			t.Errorf("%s: %+v %v %v", verb.name, r.Clusters, r.Notes, err)
		}
	}
}

func TestAnIDThatCannotBeComparedIsSaid(t *testing.T) {
	w, c := &adminWorld{broken: errDown}, controlWith(t, wishOf("t", "m"))
	r, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{Intent: Intent{SourceClusterID: "X", DestinationClusterID: "Y"}})
	if err != nil || len(r.Notes) != 2 || !strings.Contains(r.Notes[0], "X") || !strings.Contains(r.Notes[1], "Y") {
		t.Errorf("%v %v", r.Notes, err)
	}
}

func TestPlanIsTheSameForTheSameOnly(t *testing.T) {
	for _, verb := range intents {
		a, c := intentWorld(t, verb.wishes, verb.state)
		first, err := verb.run(a, Intent{Reason: "one"}, true)
		if err != nil {
			t.Fatal(err)
		}
		// What moves by itself is no part of it.
		report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: "here"}, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o", DestinationEnd: 7, At: planTime})
		mustUpdate(t, c, func(s *ControlState) {
			s.Set(wishOf("somebody else's", "other"))
			if w, ok := s.Topic("t"); ok {
				w.Recover += 3
				s.Set(w)
			}
		})
		second, err := verb.run(a, Intent{Reason: "two", Plan: first.Plan}, true)
		if err != nil || second.Plan != first.Plan {
			t.Errorf("%s: plan %s, then %s: %v", verb.name, first.Plan, second.Plan, err)
		}
	}
}

func TestPlanThatDoesNotFitIsRefusedAndSaysWhy(t *testing.T) {
	stop := func(a *Admin, plan string, o StopOptions, topics ...string) (Result, error) {
		o.Intent.Plan = plan
		return a.Stop(bg, topics, o)
	}
	for what, tc := range map[string]struct {
		change func(t *testing.T, a *Admin, c Control)
		topics []string
		word   string
	}{
		"the desired state is another": {func(t *testing.T, _ *Admin, c Control) {
			mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("t", "m.stopped")) })
		}, []string{"t", "u"},
			"it would do something else now"},
		"the topic has gone": {func(t *testing.T, _ *Admin, c Control) { mustUpdate(t, c, func(s *ControlState) { s.Remove("u") }) }, []string{"t", "u"}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"another request":    {func(*testing.T, *Admin, Control) {}, []string{"t"}, "another request"},
		"another cluster": {func(t *testing.T, _ *Admin, c Control) {
			mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "elsewhere"}) })
		}, []string{"t", "u"}, "other clusters"},
	} {
		a, c := intentWorld(t, []TopicWish{wishOf("t", "m"), wishOf("u", "m")}, statemachine.Mirroring)
		dry, err := stop(a, "", StopOptions{DryRun: true}, "t", "u")
		if err != nil {
			t.Fatal(err)
		}
		tc.change(t, a, c)
		before := mustRead(t, c)
		for _, again := range []bool{true, false} {
			r, err := stop(a, dry.Plan, StopOptions{DryRun: again}, tc.topics...)
			wantCode(t, what, err, InvalidRequest, tc.word, dry.Plan, "Nothing has changed")
			if len(r.Topics) > 0 {
				t.Errorf("%s: results %v", what, r)
			}
		}
		if !reflect.DeepEqual(mustRead(t, c), before) {
			t.Errorf("%s: something was written", what)
		}
	}
	a, _ := intentWorld(t, []TopicWish{wishOf("t", "m")}, statemachine.Mirroring)
	_, err := stop(a, "yesterday's", StopOptions{}, "t")
	wantCode(t, "no plan", err, InvalidRequest, "of any dry run")
}

func TestPlanHashesKeepTheirPartsApart(t *testing.T) {
	all := map[string]string{}
	for _, words := range [][]string{nil, {""}, {"a"}, {"a", "b"}, {"ab"}, {"a,b"}, {"1:a"}, {"a", ""}, {"", "a"}} {
		h := planHash(words, nil, nil)
		if other, ok := all[h]; ok {
			t.Errorf("%q and %s have the plan %s", words, other, h)
		}
		all[h] = fmt.Sprintf("%q", words)
	}
}

func TestAcceptance2_11TopicSets(t *testing.T) {
	settings := Settings{topicSetPrefix + "billing": "bill.*,invoices", topicSetPrefix + "shop": "cart"}
	wishes := []TopicWish{wishOf("billed", "m"), wishOf("bills", "m.paused"), wishOf("invoices", "m"), wishOf("billed-old", "m.stopped"), wishOf("bill-of-others", "other"), wishOf("cart", "m")}
	for _, tc := range []struct {
		what  string
		run   func(a *Admin) (Result, error)
		words []string // of the refusal
	}{
		{"a part", func(a *Admin) (Result, error) { return a.Stop(bg, []string{"billed", "cart"}, StopOptions{}) }, []string{"billing", "billed", "without bills, invoices", "Partial"}},
		{"a part by pattern", func(a *Admin) (Result, error) { return a.Stop(bg, nil, StopOptions{Patterns: []string{"bill.*"}}) }, []string{"billing", "without invoices"}},
		{"a part by exclusion", func(a *Admin) (Result, error) {
			return a.Start(bg, []string{"new"}, StartOptions{Exclude: []string{"invoices"}})
		}, []string{"billing", "without billed, bills"}},
		{"a part by a filter", func(a *Admin) (Result, error) {
			return a.AlterConfig(bg, Settings{topicsExcludeSetting: "invoices"}, nil, AlterConfigOptions{})
		}, []string{"billing", "without billed, bills"}},
		{"the whole set", func(a *Admin) (Result, error) {
			return a.Stop(bg, []string{"billed", "bills", "invoices"}, StopOptions{})
		}, nil},
		{"another set", func(a *Admin) (Result, error) { return a.Stop(bg, []string{"cart"}, StopOptions{}) }, nil},
		{"all", func(a *Admin) (Result, error) { return a.Stop(bg, nil, StopOptions{AllTopics: true}) }, nil},
		{"what is stopped already", func(a *Admin) (Result, error) { return a.Stop(bg, []string{"billed-old"}, StopOptions{}) }, nil},
	} {
		w, c := &adminWorld{}, withSettings(t, settings, wishes...)
		before := mustRead(t, c)
		r, err := tc.run(w.admin(t, c))
		if tc.words == nil {
			if err != nil {
				t.Errorf("%s: %v", tc.what, err)
			}
			continue
		}
		wantCode(t, tc.what, err, InvalidRequest, tc.words...)
		if !reflect.DeepEqual(mustRead(t, c), before) || len(r.Topics) > 0 {
			t.Errorf("%s: refused, and something was written", tc.what)
		}
	}
	w, c := &adminWorld{}, withSettings(t, settings, wishes...)
	r, err := w.admin(t, c).Stop(bg, []string{"billed"}, StopOptions{Partial: true})
	if err != nil || !slices.Equal(outcomes(r), []string{"billed changed"}) || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "without bills, invoices") {
		t.Errorf("a part that is meant: %v %v %v", outcomes(r), r.Notes, err)
	}
	// The same again stops nothing new, so it tears nothing.
	if r, err := w.admin(t, c).Stop(bg, []string{"billed"}, StopOptions{}); err != nil {
		t.Errorf("again: %v %v", r, err)
	}
	// Sets that cannot be read stop no failover.
	c = withSettings(t, Settings{topicSetPrefix + "billing": "a("}, wishes...)
	if r, err := w.admin(t, c).Stop(bg, []string{"billed"}, StopOptions{}); err != nil || len(r.Notes) != 1 {
		t.Errorf("sets that cannot be read: %v %v", r, err)
	}
}

func TestResultForAPerson(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("a", "m"), wishOf("b", "m.stopped"))
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092", topicSetPrefix + "x": "a|c", "sasl.jaas.config": "${env:LOGIN}"}})
		s.Set(wishOf("c", "m"))
	})
	dry, _ := w.admin(t, c).Stop(bg, []string{"a", "b", "missing"}, StopOptions{Partial: true, DryRun: true})
	real, _ := w.admin(t, c).Stop(bg, []string{"a", "b", "missing"}, StopOptions{Partial: true})
	golden(t, "../results/stop.txt", []byte(dry.String()+"\n"+real.String()))
	if strings.Contains(real.String(), "LOGIN") {
		t.Error("a secret's reference is shown")
	}
}

func TestOperatorIsFilledFromTheProcess(t *testing.T) {
	o := Operator{}.complete()
	if o.User == "" || o.Client == "" {
		t.Errorf("%+v", o)
	}
	if o := (Operator{Host: "h", User: "u", Client: "c"}).complete(); o != (Operator{Host: "h", User: "u", Client: "c"}) {
		t.Errorf("%+v", o)
	}
}

// TestHistoryOfAHugeStopIsOneSmallRecord: a failover must not fail because of what is written about it.
func TestHistoryOfAHugeStopIsOneSmallRecord(t *testing.T) {
	var wishes []TopicWish
	for i := range historyTopics + 7 {
		wishes = append(wishes, wishOf(fmt.Sprintf("t%05d", i), "m"))
	}
	w, c := &adminWorld{}, controlWith(t, wishes...)
	r, err := w.admin(t, c).Stop(bg, nil, StopOptions{AllTopics: true})
	history, _ := w.admin(t, c).History(bg)
	if err != nil || len(r.Topics) != len(wishes) || len(history) != 1 || len(history[0].Topics) != historyTopics || history[0].Detail != "and 7 more topics" {
		t.Errorf("%v, %d results, history %d", err, len(r.Topics), len(history))
	}
}

// TestNoTextForgesALine: whoever may write a note, an error or a setting must not write a line of a result or of a description.
func TestNoTextForgesALine(t *testing.T) {
	const forged = "x\n2026-01-01 stop by root\r\x1b[2K\u202e\u2028"
	r := Result{Verb: "stop", Mirror: forged, Notes: []string{forged}, Topics: []TopicResult{{Topic: forged, Err: errors.New(forged)}}, Clusters: Clusters{SourceBootstrap: forged}}
	d := Description{Mirror: forged, Head: forged, Notes: []string{forged}, Settings: Settings{"client.id": forged}, Nodes: []DescribedNode{{NodeReport: NodeReport{Owner: forged, Host: forged,
		SourceError: forged, Trouble: []string{forged}}}}, Topics: []DescribedTopic{{Topic: forged, Partitions: []DescribedPartition{{State: "FAILED", Reason: forged}}, Origin: &TopicOrigin{Upstream: []string{forged}}}}}
	for what, text := range map[string]string{"result": r.String(), "description": d.String(), "plan": FailoverPlan{Mirror: forged, SourceError: forged, Topics: []PlanTopic{{Topic: forged, Reason: forged}}}.String()} {
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "2026") || strings.ContainsAny(line, "\r\x1b\u202e\u2028") {
				t.Errorf("%s: %q", what, line)
			}
		}
		if !strings.Contains(text, `x\n2026-01-01 stop by root\r\x1b[2K\u202e\u2028`) {
			t.Errorf("%s hides what is there:\n%s", what, text)
		}
	}
	if got := OneLine("a tab\there, ö, 東京"); got != `a tab\there, ö, 東京` {
		t.Errorf("%q", got)
	}
}
