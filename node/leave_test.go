package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestLeavingNeedsAReason: nothing but a report goes without one, and nobody is asked before.
func TestLeavingNeedsAReason(t *testing.T) {
	for _, how := range []LeaveHow{LeaveClean, LeaveNow, LeavePurge} {
		if _, err := Leave(t.Context(), LeaveConfig{How: how, Records: keyedlog.NewMemory(), ClusterID: "east", Reason: " "}); err == nil || !strings.Contains(err.Error(), "needs a reason") {
			t.Errorf("%s: %v", how, err)
		}
	}
	for _, how := range []LeaveHow{LeaveReport, LeaveClean, LeavePurge} {
		if _, err := Leave(t.Context(), LeaveConfig{How: how, Reason: "moved"}); err == nil || !strings.Contains(err.Error(), "Records is not set") {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// TestLeavingIsInTheHistory: of each mirror that there is, and once where there is none.
func TestLeavingIsInTheHistory(t *testing.T) {
	for _, mirrors := range [][]string{nil, {"dr", "eu"}} {
		log := keyedlog.NewMemory()
		control := mirror.NewControl(log)
		if err := control.Update(t.Context(), func(s *mirror.ControlState) error {
			for _, name := range mirrors {
				s.Mirrors = append(s.Mirrors, mirror.MirrorEntry{Name: name})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		l := Leaving{How: LeaveNow, Remains: kraft.Remains{NodeID: 9999, ClusterID: "east", Registration: kraft.RegisteredAlive}}
		if err := l.record(t.Context(), LeaveConfig{How: LeaveNow, Reason: "its host is stolen", Operator: mirror.Operator{User: "anna"}}, log); err != nil {
			t.Fatal(err)
		}
		history, err := control.History(t.Context())
		if err != nil || len(history) != max(1, len(mirrors)) {
			t.Fatalf("%+v, %v", history, err)
		}
		for i, h := range history {
			if h.Verb != "leave now" || h.Reason != "its host is stolen" || h.Who.User != "anna" || h.Who.Host == "" || len(mirrors) > 0 && h.Mirror != mirrors[i] || !strings.Contains(h.Detail, "node 9999 has left cluster east: it was alive") {
				t.Errorf("%+v", h)
			}
		}
	}
	l := Leaving{How: LeaveNow}
	failing := &failingRecords{Memory: keyedlog.NewMemory()}
	if err := l.record(ended(t), LeaveConfig{How: LeaveNow}, failing); err == nil {
		t.Error("nothing is said of a history that cannot be written")
	}
	l.Done, l.Unrecorded = true, errors.New("no broker answers")
	if !strings.Contains(l.String(), "the history does not have it: no broker answers") {
		t.Error(l)
	}
}

func ended(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}

// TestMeantCluster: what is not meant stays; the kill switch needs nobody who tells the cluster's id.
func TestMeantCluster(t *testing.T) {
	for _, x := range []struct {
		how       LeaveHow
		meant, is string
		stays     bool
	}{
		{LeaveClean, "", "east", true}, {LeaveClean, "east", "east", false}, {LeaveClean, "west", "east", true}, {LeaveClean, "east", "", true},
		{LeaveNow, "", "east", true}, {LeaveNow, "west", "east", true}, {LeaveNow, "east", "", false}, {LeavePurge, "east", "", true},
	} {
		l := Leaving{How: x.how, Remains: kraft.Remains{ClusterID: x.is}}
		if err := l.meant(x.meant); errors.Is(err, ErrStays) != x.stays || (err != nil) != x.stays {
			t.Errorf("%s of %q, meant is %q: %v", x.how, x.is, x.meant, err)
		}
	}
}

// TestWhatStays: what a node leaves in its cluster is named; after a purge less of it.
func TestWhatStays(t *testing.T) {
	l := Leaving{How: LeavePurge, Done: true, Remains: kraft.Remains{NodeID: 9999, InternalTopics: []string{"__mirror_control", "__mirror_state"}, NextProducerID: 6000}}
	for _, x := range []struct {
		purged []string
		says   string
	}{
		{nil, "what stays are states, wishes and history (__mirror_control, __mirror_state; a purge deletes them), and the next producer id 6000"},
		{[]string{"__mirror_control"}, "what stays are states, wishes and history (__mirror_state; a purge deletes them), and"},
		{l.InternalTopics, "what stays are no topics of states, wishes and history, and the next producer id 6000"},
	} {
		if l.Purged = x.purged; !strings.Contains(l.String(), x.says) {
			t.Errorf("it does not say %q:\n%s", x.says, l)
		}
	}
	report := Leaving{How: LeaveReport, Remains: l.Remains}
	if text := report.String(); strings.Contains(text, "nothing in the cluster tells") || !strings.Contains(text, "what stays are states, wishes and history") {
		t.Error(text)
	}
}
