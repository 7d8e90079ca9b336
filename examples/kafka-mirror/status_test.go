package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/node"
)

// TestExitStatus: every kind of error has the documented status, also inside others.
func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errDeclined, 1},
		{&shownError{&mirror.Error{Code: mirror.InvalidRequest}}, 1}, // of a topic
		{&mirror.Error{Code: mirror.UnknownClusterMirror}, 1},
		{&mirror.Error{Code: mirror.ClusterMirrorNotEmpty}, 1},
		{&mirror.Error{Code: mirror.InvalidRequest}, 2},
		{&mirror.Error{Code: mirror.InvalidConfig}, 2},
		{&mirror.Error{Code: mirror.InvalidRegularExpression}, 2},
		{usage("x"), 2},
		{&mirror.SettingError{Setting: "x"}, 2},
		{&kafkaconfig.Error{Setting: "x"}, 2},
		{&kafkastore.AccessError{Resource: "topic", Err: kerr.TopicAuthorizationFailed}, 2},
		{&kafkastore.TopicError{Topic: "x", Err: kerr.InvalidReplicationFactor}, 2},
		{kerr.SaslAuthenticationFailed, 2},
		{fs.ErrPermission, 2},
		{fs.ErrNotExist, 2},
		{&mirror.Error{Code: mirror.ClusterMirrorAuthorizationFailed}, 2},
		{&endedError{4, context.DeadlineExceeded}, 4},
		{&endedError{5, nil}, 5},
		{&endedError{1, &mirror.NotReachedError{Stuck: true}}, 1},
		{&mirror.NotAnsweredError{Err: context.DeadlineExceeded}, 3},
		{&unansweredError{}, 3},
		{node.ErrThrownOut, 7},
		{keyedlog.ErrOutcomeUnknown, 3},
		{context.DeadlineExceeded, 3},
		{context.Canceled, 3},
		{&filestore.LockedError{Err: context.DeadlineExceeded}, 3},
		{&filestore.NewerError{}, 3},
		{errors.New("anything else"), 3},
	} {
		if got := exitStatus(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
		if c.err == nil {
			continue
		}
		if got := exitStatus(fmt.Errorf("around: %w", c.err)); got != c.want {
			t.Errorf("%v inside another error: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestOneLineForWhatBefallsAll: a dead source is one row of the table of nodes and one line below it, however many topics there are.
func TestOneLineForWhatBefallsAll(t *testing.T) {
	const why = "kafkasource: asking for metadata: the source did not answer for 30s: unable to dial: dial tcp primary:9092: connect: connection refused"
	d := mirror.Description{Nodes: []mirror.DescribedNode{
		{NodeReport: mirror.NodeReport{Owner: "mirror-1", SourceError: why, Trouble: []string{"a: " + why, "b: " + why, "c: other: reason", "d: " + why, "e: " + why, "f: " + why}}},
		{NodeReport: mirror.NodeReport{Owner: "mirror-2", SourceError: "down"}},
	}}
	d.Mirror = "dr"
	text := brief(d).String()
	for _, want := range []string{"node mirror-1: source: " + why + "\n", "node mirror-1: a, b, d and 2 more topics: " + why + "\n", "node mirror-1: c: other: reason\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Count(text, "node mirror-1: ") != 3 || strings.Count(text, "connection refused") != 2 || !strings.Contains(text, "  down\n") || d.Nodes[0].SourceError != why || len(d.Nodes[0].Trouble) != 6 {
		t.Errorf("\n%s", text)
	}
}

// TestNobodysWordsMakeALine: whoever may write an entry of the history, or is quoted in an error, makes no line that somebody else seems to have written.
func TestNobodysWordsMakeALine(t *testing.T) {
	const forged = "x\n3  2026-01-01 00:00:00 UTC  stop orders  by root\r\x1b[2K"
	var out strings.Builder
	p := &program{out: &out}
	if err := p.showHistory([]mirror.HistoryEntry{{Number: 1, Verb: forged, Topics: []string{forged}, Who: mirror.Operator{Host: forged, User: forged, Client: forged}, Reason: forged, Plan: forged,
		Detail: forged}, {Number: 2, Verb: "alter"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.showList([]mirror.ListedMirror{{Name: "dr", SourceBootstrap: forged}}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "\n") != 4 || strings.ContainsAny(text, "\r\x1b") || !strings.Contains(text, " UTC  alter  by ") {
		t.Errorf("%q", text)
	}
	if text := oneLine(errors.New("several\nlines\x1b[2K")); text != `several; lines\x1b[2K` {
		t.Errorf("%q", text)
	}
}

// TestNobodyIsNotSaidOfWhatIsNotKnown: that a clock is ahead does not say that no process runs.
func TestNobodyIsNotSaidOfWhatIsNotKnown(t *testing.T) {
	now := time.Now()
	for want, d := range map[string]mirror.Description{
		"NO PROCESS runs this mirror (none has ever reported)":                                                       {Head: "MIRRORING: 1 topic"},
		"NO PROCESS runs this mirror (last word 14m ago)":                                                            {Taken: now, Nodes: []mirror.DescribedNode{{NodeReport: mirror.NodeReport{Seen: now.Add(-14 * time.Minute)}, Silent: true}}},
		"WHETHER A PROCESS RUNS this mirror is not known (the clock of mirror-1 is 14m ahead: its age is not known)": {Taken: now, Nodes: []mirror.DescribedNode{{NodeReport: mirror.NodeReport{Owner: "mirror-1", Seen: now.Add(14 * time.Minute)}, ClockAhead: true}}},
	} {
		if got := (before{true, d}).nobody(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestExitStatusOfRun: what the next start may not meet is 3, so that the node is started again; what is wrong in its file is 2.
func TestExitStatusOfRun(t *testing.T) {
	missing := &kafkaconfig.Error{Setting: "ssl.keystore.location", Err: fs.ErrNotExist}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{kerr.SaslAuthenticationFailed, 3},
		{fs.ErrPermission, 3},
		{fs.ErrNotExist, 3},
		{missing, 3},
		{&node.FileError{Errs: []error{missing}}, 3},
		{&node.FileError{Errs: []error{missing, errors.New("no such setting")}}, 2},
		{&node.FileError{Errs: []error{errors.New("no such setting")}}, 2},
		{&kafkaconfig.Error{Setting: "x"}, 2},
		{usage("x"), 2},
		{&kafkastore.AccessError{Resource: "topic", Err: kerr.TopicAuthorizationFailed}, 2},
		{errors.Join(node.ErrThrownOut, fs.ErrNotExist), 7},
		{errors.New("anything else"), 3},
	} {
		if got := exitStatus(ofRun(c.err)); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	there := writeFile(t, "node.properties", "node.id=9001", "no.such.setting=1")
	forgotten := writeFile(t, "forgotten.properties", "node.id=9001", "bootstrap.servers=127.0.0.1:1", "controller.quorum.bootstrap.servers=127.0.0.1:1", "listeners=INTERNAL://127.0.0.1:9", "mirror.node.folder="+t.TempDir(),
		"security.protocol=SSL", "ssl.truststore.location=/nowhere/ca.pem", "mirror.broker.principals=User:b", "listener.name.internal.ssl.keystore.location=/nowhere/node.pem")
	for path, want := range map[string]int{there: 2, there + ".not": 3, forgotten: 3} {
		if got, out, complaints := command(t, "run", "--config", path); got != want || complaints == "" {
			t.Errorf("%s: exit status %d, want %d\n%s%s", path, got, want, out, complaints)
		} else if path == forgotten && (!strings.Contains(complaints, "ssl.truststore.location: the file cannot be read") || !strings.Contains(complaints, "listener.name.internal.ssl.keystore.location: ")) {
			t.Errorf("the files that are missing are not named: %s", complaints)
		}
	}
}
