package mirror

import (
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// A plan is consent to what it names: topics that join between a dry run and the real call are not excluded by it.
func TestPlanOfAFilterNamesTheTopicsThatItStops(t *testing.T) {
	for what, exclude := range map[string]func(a *Admin, i Intent, dry bool) (Result, error){
		"alter": func(a *Admin, i Intent, dry bool) (Result, error) {
			return a.AlterConfig(bg, Settings{topicsExcludeSetting: "t.*"}, nil, AlterConfigOptions{Intent: i, DryRun: dry})
		},
		"start": func(a *Admin, i Intent, dry bool) (Result, error) {
			return a.Start(bg, nil, StartOptions{Exclude: []string{"t.*"}, Intent: i, DryRun: dry})
		},
	} {
		a, c := intentWorld(t, []TopicWish{wishOf("t1", "m"), wishOf("t0", "m.stopped"), wishOf("u", "m")}, statemachine.Mirroring, strict)
		dry, err := exclude(a, Intent{}, true)
		if err != nil || !slices.Equal(outcomes(dry), []string{"t1 changed"}) {
			t.Fatalf("%s: %v %v", what, outcomes(dry), err)
		}
		mustUpdate(t, c, func(s *ControlState) {
			s.Set(wishOf("t2", "m"))
			s.Set(wishOf("t-pay", "m.paused"))
		})
		_, err = exclude(a, Intent{Reason: "r", Plan: dry.Plan}, false)
		wantCode(t, what, err, InvalidRequest, dry.Plan, "something else now", "t-pay", "t2")
		if got := nameOf(t, c, "t1"); got != "m" {
			t.Errorf("%s: refused, and t1 is %s", what, got)
		}
		if dry, err = exclude(a, Intent{}, true); err != nil {
			t.Fatal(err)
		}
		r, err := exclude(a, Intent{Reason: "r", Plan: dry.Plan}, false)
		if want := []string{"t-pay changed", "t1 changed", "t2 changed"}; err != nil || !slices.Equal(outcomes(r), want) {
			t.Errorf("%s: %v %v", what, outcomes(r), err)
		}
		for topic, want := range map[string]string{"t-pay": "m.stopped", "t1": "m.stopped", "t2": "m.stopped", "u": "m"} {
			if got := nameOf(t, c, topic); got != want {
				t.Errorf("%s: %s is %s, want %s", what, topic, got, want)
			}
		}
		history, err := a.History(bg)
		if err != nil || len(history) != 1 || !slices.Equal(history[0].Topics, []string{"t-pay", "t1", "t2"}) {
			t.Errorf("%s: history %+v %v", what, history, err)
		}
	}
}

// Partial consents to what the dry run said would be torn, and to no other set.
func TestPlanOfAPartNamesTheSetsThatItTears(t *testing.T) {
	w, c := &adminWorld{}, withSettings(t, Settings{topicSetPrefix + "s": "a|b"}, wishOf("a", "m"), wishOf("b", "m"), wishOf("c", "m"))
	a := w.admin(t, c)
	dry, err := a.Stop(bg, []string{"a"}, StopOptions{Partial: true, DryRun: true})
	if err != nil || len(dry.Notes) != 1 {
		t.Fatalf("%v %v", dry, err)
	}
	mustUpdate(t, c, func(s *ControlState) {
		e, _ := s.Mirror("m")
		e.Settings[topicSetPrefix+"s"] = "a|b|c"
		s.SetMirror(e)
	})
	_, err = a.Stop(bg, []string{"a"}, StopOptions{Partial: true, Intent: Intent{Plan: dry.Plan}})
	wantCode(t, "another set is torn", err, InvalidRequest, "something else now")
	if got := nameOf(t, c, "a"); got != "m" {
		t.Errorf("a is %s", got)
	}
}

// What a deleted mirror of that name has left belongs to the new one: a dry run that did not say so is no consent to it.
func TestPlanOfACreationKnowsWhetherTheNameIsFresh(t *testing.T) {
	w, c := &adminWorld{}, NewMemoryControl()
	a, settings := w.admin(t, c), Settings{bootstrapSetting: "a:9092"}
	dry, err := a.Create(bg, settings, CreateOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(bg, settings, CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Delete(bg, DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = a.Create(bg, settings, CreateOptions{Intent: Intent{Plan: dry.Plan}})
	wantCode(t, "deleted in between", err, InvalidRequest, "something else now")
}

// A set counts as the request leaves it.
func TestTopicSetsOfTheSameRequest(t *testing.T) {
	const s = topicSetPrefix + "s"
	for _, tc := range []struct {
		what   string
		before Settings
		set    Settings
		unset  []string
		words  []string // of the refusal; nil: it is done
	}{
		{"given and torn at once", Settings{}, Settings{s: "t1,t2", topicsExcludeSetting: "t1"}, nil, []string{"topic set s", "without t2", "exclude the whole set", "unset " + s, "(Partial)"}},
		{"widened and torn at once", Settings{s: "t1"}, Settings{s: "t1,t2", topicsExcludeSetting: "t1"}, nil, []string{"without t2"}},
		{"narrowed to what is excluded", Settings{s: "t1,t2"}, Settings{s: "t1", topicsExcludeSetting: "t1"}, nil, nil},
		{"unset", Settings{s: "t1,t2"}, Settings{topicsExcludeSetting: "t1"}, []string{s}, nil},
		{"untouched", Settings{s: "t1,t2"}, Settings{topicsExcludeSetting: "t1"}, nil, []string{"without t2"}},
	} {
		w, c := &adminWorld{}, withSettings(t, tc.before, wishOf("t1", "m"), wishOf("t2", "m"))
		_, err := w.admin(t, c).AlterConfig(bg, tc.set, tc.unset, AlterConfigOptions{})
		if tc.words != nil {
			wantCode(t, tc.what, err, InvalidRequest, tc.words...)
		} else if err != nil || nameOf(t, c, "t1") != "m.stopped" {
			t.Errorf("%s: %v, t1 is %s", tc.what, err, nameOf(t, c, "t1"))
		}
	}
	// A part that was stopped on purpose may be excluded: it tears nothing any more.
	w, c := &adminWorld{}, withSettings(t, Settings{s: "t1,t2"}, wishOf("t1", "m"), wishOf("t2", "m"))
	if _, err := w.admin(t, c).Stop(bg, []string{"t1"}, StopOptions{Partial: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.admin(t, c).AlterConfig(bg, Settings{topicsExcludeSetting: "t1"}, nil, AlterConfigOptions{}); err != nil {
		t.Error(err)
	}
	_, err := w.admin(t, c).Start(bg, nil, StartOptions{Exclude: []string{"t2"}})
	if err != nil {
		t.Error(err)
	}
	c = withSettings(t, Settings{s: "t1,t2"}, wishOf("t1", "m"), wishOf("t2", "m"))
	_, err = w.admin(t, c).Start(bg, nil, StartOptions{Exclude: []string{"t2"}})
	wantCode(t, "by a start", err, InvalidRequest, "without t1", "AlterConfig", "Stop the part")
}
