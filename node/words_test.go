package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/layout"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// goNames are names that only somebody who writes Go knows: fields of kraft.Config and what is like them.
var goNames = regexp.MustCompile(`\b(Config|Security|Clients|BrokerOptions|ControllerOptions|NodeID|ListenerName|ReplicationFactor|MinInSyncReplicas|UntestedVersion|SessionTimeout|PlainPassword|Advertised)\b`)

// TestPreflightSpeaksOfProperties: no text of kraft's preflight names a field of Go once it is printed here, and what was said in these words already stays as it is.
func TestPreflightSpeaksOfProperties(t *testing.T) {
	files, err := filepath.Glob("../mirror/kraft/*preflight*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	changed, faults, err := layout.Reworded(append(files, "../mirror/kafkastore/topics.go"), InProperties, goNames, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	if changed < 20 {
		t.Errorf("only %d texts are said in other words: are these kraft's files?", changed)
	}
	if text := InProperties(kraft.ErrFolderInUse.Error()); !strings.Contains(text, "mirror.node.folder") {
		t.Error(text)
	}
}

func TestWhatIsAboutTheFile(t *testing.T) {
	blocks := func(inConfig bool) error {
		r := kraft.Report{Findings: []kraft.Finding{{Kind: kraft.AboutBrokers, Severity: kraft.Blocks, What: "none was reached"}, {Kind: kraft.AboutNodeID, Severity: kraft.Blocks, What: "7 is taken",
			InConfig: inConfig}}}
		return fmt.Errorf("kraft: %w", r.Err())
	}
	if !misfits(blocks(true)) || misfits(blocks(false)) || misfits(errors.New("something else")) {
		t.Error(misfits(blocks(true)), misfits(blocks(false)))
	}
	err := inWords(fmt.Errorf("%w: or set UntestedVersion after", kraft.ErrPreflight))
	if !errors.Is(err, kraft.ErrPreflight) || !strings.Contains(err.Error(), "mirror.untested.version=true") || inWords(nil) != nil {
		t.Error(err)
	}
}
