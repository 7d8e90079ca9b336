package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/node"
)

// TestLeaveNeedsReasonAndCluster: each way to leave is refused without a reason, and --yes without the cluster that is meant, before anybody is asked.
func TestLeaveNeedsReasonAndCluster(t *testing.T) {
	file := writeFile(t, "node.properties", "node.id=9999", "bootstrap.servers=127.0.0.1:1", "controller.quorum.bootstrap.servers=127.0.0.1:1", "listeners=INTERNAL://127.0.0.1:1", "mirror.node.folder="+t.TempDir())
	for _, way := range [][]string{nil, {"--now"}, {"--purge"}} {
		for says, args := range map[string][]string{
			"leave needs --reason TEXT": {"--yes", "--destination-cluster-id", "east"}, "--yes needs --destination-cluster-id ID": {"--yes", "--reason", "drill"},
		} {
			status, _, complaints := command(t, append(append([]string{"leave", "--config", file}, way...), args...)...)
			if status != 2 || !strings.Contains(complaints, says) {
				t.Errorf("%v: status %d, %s", way, status, complaints)
			}
		}
	}
}

// TestLeaveOfALivingNode: one whose process is alive stays, also where something was left to a successor, as Depart has it.
func TestLeaveOfALivingNode(t *testing.T) {
	var out strings.Builder
	p := &program{out: &out, complaints: &out}
	for _, resigned := range []bool{false, true} {
		if _, err := p.showLeaving(node.LeaveClean, node.Leaving{Remains: kraft.Remains{NodeID: 9999, Registration: kraft.RegisteredAlive, Resigned: resigned}}); exitStatus(err) != 1 || !strings.Contains(err.Error(), "is alive") {
			t.Errorf("resigned %v: %v", resigned, err)
		}
	}
}

// TestConsentToGiveUp: a plan by its name, the cluster's id and --yes, or an answer at a terminal to what was shown.
func TestConsentToGiveUp(t *testing.T) {
	plan := node.GiveUpPlan{ClusterID: "east", Name: "0123"}
	for _, x := range []struct {
		name    string
		o       options
		answers string
		status  int
		says    string
	}{
		{"nobody there", options{}, "", 2, "add --plan 0123"},
		{"yes without a cluster", options{yes: true}, "yes\n", 2, "add --plan 0123"},
		{"a terminal", options{}, "yes\n", 0, "of cluster east by force"},
		{"another answer", options{}, "no\n", 1, "of cluster east by force"},
		{"the cluster", options{yes: true, destinationID: "east"}, "", 0, ""},
		{"another cluster", options{yes: true, destinationID: "west"}, "", 2, "correct the one that is wrong"},
		{"the plan", options{plan: "0123"}, "", 0, ""},
		{"another plan", options{plan: "4567"}, "", 1, "does not fit any more"},
	} {
		var out strings.Builder
		p := &program{options: x.o, out: &out, complaints: &out}
		if x.answers != "" {
			p.terminal = bufio.NewReader(strings.NewReader(x.answers))
		}
		err := p.consentToGiveUp(t.Context(), plan)
		if text := out.String(); exitStatus(err) != x.status || x.says != "" && !strings.Contains(text, x.says) && (err == nil || !strings.Contains(err.Error(), x.says)) {
			t.Errorf("%s: status %d, %v, shown %q", x.name, exitStatus(err), err, text)
		}
	}
}

// TestGiveUpWithoutAMirror: everything that the node led, or the topics that are named.
func TestGiveUpWithoutAMirror(t *testing.T) {
	p := &program{}
	if topics, err := p.topicsToGiveUp(t.Context(), nil); topics != nil || err != nil {
		t.Errorf("%#v, %v: nil is everything", topics, err)
	}
	p.topics = "orders,payments"
	if topics, err := p.topicsToGiveUp(t.Context(), nil); len(topics) != 2 || err != nil {
		t.Errorf("%v, %v", topics, err)
	}
}
