package mirror

import (
	"context"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// unreadReports is a Control whose reports cannot be read: somebody has no right to, or a newer version wrote one.
type unreadReports struct{ Control }

func (unreadReports) Reports(context.Context) (Reports, error) { return Reports{}, errDown }

func TestDescribeSaysThatReportsCannotBeRead(t *testing.T) {
	w, c := describeWorld(t)
	w.has("m", "orders", statemachine.Mirroring, statemachine.Mirroring)
	for what, change := range map[string]func(*AdminConfig){"with a destination": func(*AdminConfig) {}, "without": func(cfg *AdminConfig) { cfg.Destination = nil }} {
		d := describe(t, w, unreadReports{c}, change)
		if !strings.HasSuffix(d.Head, "; REPORTS CANNOT BE READ") || strings.Contains(d.String(), "no process") {
			t.Errorf("%s: %s", what, d)
		}
		notes := strings.Join(d.Notes, "\n")
		if strings.Count(notes, errDown.Error()) != 1 || !strings.Contains(notes, "reports cannot be read") {
			t.Errorf("%s: notes %q", what, d.Notes)
		}
		if taken := strings.Contains(notes, "not taken up"); taken {
			t.Errorf("%s: what was not read is told as if nobody had reported it: %q", what, d.Notes)
		}
	}
	if p := partOf(t, describe(t, w, unreadReports{c}), "orders", 0); p.State != "MIRRORING" || !p.Reported.IsZero() {
		t.Errorf("%+v", p)
	}
}

// Without a destination to ask, what a topic is comes from reports. That they cannot be read is no proof that a topic was never taken up.
func TestVerbsDoNotTakeUnreadReportsForNone(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"), wishOf("u", "m"))
	w.has("m", "t", statemachine.Stopping)
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime}, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o", State: statemachine.Stopping, At: planTime})
	alone := func(cfg *AdminConfig) { cfg.Destination = nil }
	for _, control := range []Control{c, unreadReports{c}} {
		a := w.adminOver(t, control, nil, alone)
		_, err := a.Delete(bg, DeleteOptions{})
		wantCode(t, "delete", err, InvalidClusterMirrorState)
		_, err = a.Start(bg, []string{"t"}, StartOptions{})
		wantCode(t, "start", err, InvalidClusterMirrorState)
	}
	a := w.adminOver(t, unreadReports{c}, nil, alone)
	_, err := a.Pause(bg, []string{"u"}, PauseOptions{})
	wantCode(t, "pause", err, InvalidClusterMirrorState, errDown.Error())
	// A stop needs none of them, and says what it did not see.
	r, err := a.Stop(bg, []string{"u"}, StopOptions{})
	if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], errDown.Error()) {
		t.Errorf("stop: %v %v", r, err)
	}
}
