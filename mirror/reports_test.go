package mirror

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func mustOpenReporter(t *testing.T, c Control, owner string) Reporter {
	t.Helper()
	r, err := c.OpenReporter(context.Background(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustReport(t *testing.T, r Reporter, node NodeReport, partitions ...PartitionReport) {
	t.Helper()
	if err := r.Report(context.Background(), node, partitions); err != nil {
		t.Fatal(err)
	}
}

func mustReports(t *testing.T, c Control) Reports {
	t.Helper()
	r, err := c.Reports(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func reportOf(owner string, partition int32, reason string) PartitionReport {
	return PartitionReport{Mirror: "m", Topic: "t", Partition: partition, Owner: owner, Reason: reason}
}

func TestReportsReplaceThoseGivenAndKeepTheRest(t *testing.T) {
	c := NewMemoryControl()
	if r := mustReports(t, c); r.Nodes != nil || r.Partitions != nil {
		t.Errorf("at first %+v", r)
	}
	changed := c.Changed()
	r := mustOpenReporter(t, c, "o")
	mustReport(t, r, NodeReport{Owner: "o", Mirror: "m", PID: 1}, reportOf("o", 2, "two"), reportOf("o", 0, "none"))
	mustReport(t, r, NodeReport{Owner: "o", Mirror: "m", PID: 2, Trouble: []string{"bad \xff"}}, reportOf("o", 2, "two again"))
	mustReport(t, r, NodeReport{Owner: "o", Mirror: "l", PID: 2})
	want := Reports{
		Nodes:      []NodeReport{{Owner: "o", Mirror: "l", PID: 2}, {Owner: "o", Mirror: "m", PID: 2, Trouble: []string{"bad \ufffd"}}},
		Partitions: []PartitionReport{reportOf("o", 0, "none"), reportOf("o", 2, "two again")},
	}
	if got := mustReports(t, c); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	if isClosed(changed) {
		t.Error("reports wake those who wait for the desired state")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := mustReports(t, c); !reflect.DeepEqual(got, want) {
		t.Errorf("after Close %+v", got)
	}
	if err := r.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m"}, nil); !errors.Is(err, keyedlog.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestReporterOfANewProcessFencesTheOldOne(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	old := mustOpenReporter(t, c, "o")
	mustReport(t, old, NodeReport{Owner: "o", Mirror: "m", PID: 1}, reportOf("o", 0, "old"), reportOf("o", 1, "old"))
	next := mustOpenReporter(t, NewControl(log.Again()), "o")
	for what, err := range map[string]error{
		"Report": old.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m", PID: 1}, []PartitionReport{reportOf("o", 0, "zombie")}), "Forget": old.Forget(context.Background(), "m"),
	} {
		if !errors.Is(err, statemachine.ErrFenced) || !strings.Contains(err.Error(), `"o"`) {
			t.Errorf("%s of the old process: %v", what, err)
		}
	}
	mustReport(t, next, NodeReport{Owner: "o", Mirror: "m", PID: 2}, reportOf("o", 0, "new"))
	want := Reports{Nodes: []NodeReport{{Owner: "o", Mirror: "m", PID: 2}}, Partitions: []PartitionReport{reportOf("o", 0, "new"), reportOf("o", 1, "old")}}
	if got := mustReports(t, c); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
}

// TestReportsOfAPartitionThatMoved: the last one written counts, whoever wrote it and whatever the hosts' clocks say, whether the former owner is dead, fenced or alive.
func TestReportsOfAPartitionThatMoved(t *testing.T) {
	for _, former := range []string{"alive", "reopened by the taker", "reopened by itself"} {
		log := keyedlog.NewMemory()
		c := NewControl(log)
		late := func(p PartitionReport, hours int) PartitionReport {
			p.At = firstTime.Add(time.Duration(hours) * time.Hour)
			return p
		}
		a := mustOpenReporter(t, c, "a")
		mustReport(t, a, NodeReport{Owner: "a", Mirror: "m"}, late(reportOf("a", 0, "first"), 9))
		switch former {
		case "reopened by the taker":
			mustOpenReporter(t, NewControl(log.Again()), "a")
		case "reopened by itself":
			a = mustOpenReporter(t, c, "a")
		}
		b := mustOpenReporter(t, NewControl(log.Again()), "b")
		mustReport(t, b, NodeReport{Owner: "b", Mirror: "m"}, late(reportOf("b", 0, "second"), 1))
		if got := mustReports(t, c).Partitions; len(got) != 1 || got[0].Reason != "second" {
			t.Errorf("former owner %s: %+v", former, got)
		}
		if former == "reopened by the taker" {
			continue
		}
		mustReport(t, a, NodeReport{Owner: "a", Mirror: "m"}, late(reportOf("a", 0, "third"), 0))
		if got := mustReports(t, c).Partitions; len(got) != 1 || got[0].Reason != "third" || got[0].Owner != "a" {
			t.Errorf("former owner %s, moved back: %+v", former, got)
		}
		if got := mustReports(t, c).Nodes; len(got) != 2 {
			t.Errorf("nodes %+v", got)
		}
	}
}

func TestForgetTakesOwnAndFencedReportsOfOneMirror(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	of := func(p PartitionReport, mirror string) PartitionReport { p.Mirror = mirror; return p }
	mine, fenced, alive := mustOpenReporter(t, c, "mine"), mustOpenReporter(t, c, "fenced"), mustOpenReporter(t, c, "alive")
	for owner, r := range map[string]Reporter{"mine": mine, "fenced": fenced, "alive": alive} {
		for _, m := range []string{"m", "other"} {
			mustReport(t, r, NodeReport{Owner: owner, Mirror: m}, of(reportOf(owner, int32(len(owner)), ""), m))
		}
	}
	mustOpenReporter(t, c, "fenced")
	if err := mine.Forget(context.Background(), "m"); err != nil {
		t.Fatal(err)
	}
	got := mustReports(t, c)
	if len(got.Nodes) != 4 || len(got.Partitions) != 4 || got.Partitions[0].Owner != "alive" || got.Partitions[1].Mirror != "other" {
		t.Errorf("left: %+v", got)
	}
	if err := mine.Forget(context.Background(), "m"); err != nil { // again
		t.Error(err)
	}
	mustOpenReporter(t, c, "alive")
	if err := mine.Forget(context.Background(), "m"); err != nil {
		t.Error(err)
	}
	got = mustReports(t, c)
	if len(got.Nodes) != 3 || len(got.Partitions) != 3 {
		t.Errorf("left: %+v", got)
	}
	if err := mine.Forget(context.Background(), "never there"); err != nil {
		t.Error(err)
	}
}

func TestReporterRefusesReportsOfOthers(t *testing.T) {
	c := NewMemoryControl()
	if _, err := c.OpenReporter(context.Background(), ""); err == nil {
		t.Error("a reporter without an owner opens")
	}
	r := mustOpenReporter(t, c, "o")
	for what, err := range map[string]error{
		"node":      r.Report(context.Background(), NodeReport{Owner: "p", Mirror: "m"}, nil),
		"partition": r.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m"}, []PartitionReport{reportOf("p", 0, "")}),
		"state":     r.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m"}, []PartitionReport{{Mirror: "m", Topic: "t", Owner: "o", State: 99}}),
		"name":      r.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m\xff"}, nil),
		"topic":     r.Report(context.Background(), NodeReport{Owner: "o", Mirror: "m"}, []PartitionReport{{Mirror: "m", Topic: "\xff", Owner: "o"}}),
	} {
		if err == nil {
			t.Errorf("a report with another %s is written", what)
		}
	}
	if got := mustReports(t, c); got.Nodes != nil || got.Partitions != nil {
		t.Errorf("%+v", got)
	}
}

// One report that cannot be read does not hide the others, and the owner of another one goes on.
func TestReportOfAStateOfANewerVersionIsLeftOut(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	key, err := reportOf("o", 0, "").key().encode()
	if err != nil {
		t.Fatal(err)
	}
	putRecords(t, log, map[string][]byte{string(key): []byte(`{"version":1,"written":1,"topicId":"AAAAAAAAAAAAAAAAAAAAAA","state":"DREAMING","sourceEnd":1,"destinationStart":1,"destinationEnd":1}`)})
	putRecords(t, log, map[string][]byte{string(key) + "x": []byte(`{}`)})
	mine := reportOf("o2", 0, "")
	mine.left = true
	report(t, c, NodeReport{Owner: "o2", Mirror: "m", Seen: planTime}, reportOf("o2", 1, ""))
	report(t, c, NodeReport{Owner: "o2", Mirror: "m", Seen: planTime}, mine)
	r := mustReports(t, c)
	if len(r.Nodes) != 1 || len(r.Partitions) != 1 || r.Partitions[0].Partition != 1 || len(r.Unread) != 2 {
		t.Fatalf("%+v", r)
	}
	if u := r.Unread[1]; u.Mirror != "m" || u.Node || u.Answer || !errors.Is(u.Err, ErrNewerRecord) || !strings.Contains(u.Err.Error(), `report in mirror "m" of topic "t" by "o", partition 0`) {
		t.Errorf("%+v", u)
	}
	// Of a process nothing is known whose report cannot be read, and other mirrors have nothing to do with it.
	node, err := controlKey{recordType: nodeReportRecord, names: []string{"o9", "m9"}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	putRecords(t, log, map[string][]byte{string(node): []byte(`{"version":2}`)})
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m"}); s.SetMirror(MirrorEntry{Name: "m9"}) })
	for name, head := range map[string]string{"m": "NO TOPICS", "m9": "NO TOPICS; REPORTS CANNOT BE READ"} {
		a, err := NewAdmin(AdminConfig{Mirror: name, Control: c, States: (&adminWorld{}).admin(t, c).cfg.States})
		if err != nil {
			t.Fatal(err)
		}
		a.now = func() time.Time { return planTime }
		if d, err := a.Describe(bg); err != nil || d.Head != head || len(d.Notes) == 0 {
			t.Errorf("%s: %v %q %q", name, err, d.Head, d.Notes)
		}
	}
}

// TestIntervalOfAReportIsKept: readers judge by it how long a process may be silent.
func TestIntervalOfAReportIsKept(t *testing.T) {
	c := NewMemoryControl()
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Interval: 10 * time.Minute})
	r, err := c.Reports(context.Background())
	if err != nil || len(r.Nodes) != 1 || r.Nodes[0].Interval != 10*time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
}
