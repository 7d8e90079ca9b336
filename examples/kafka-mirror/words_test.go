package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/layout"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// goNames are what somebody at a command line cannot type.
var goNames = regexp.MustCompile(`\b(Create|AlterConfig|Recover|Resume|Pause|Describe|Start|Stop|Delete|Abandon|Partial|Purge|AskFailback|KeptFailback|Failback|AllTopics|List|History|LowerFence|Await\w*|Intent\.\w+|Mirror\.\w+)\b`)

// notForPeople are texts of the library that no user of this command gets to see, or whose word is Kafka's.
var notForPeople = regexp.MustCompile(`Config\.(Source|TakeFrom)|this user may Describe|^Pause after a fetch|is not set: it is handed records`)

// TestWordsOfTheLibrary: no text of the library names a verb as Go does once it is printed, and what was said in own words already stays as it is.
func TestWordsOfTheLibrary(t *testing.T) {
	files, err := filepath.Glob("../../mirror/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	changed, faults, err := layout.Reworded(files, inOwnWords, goNames, notForPeople.MatchString)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	if right := "AlterConfigs on 1 topic is not allowed"; inOwnWords(right) != right {
		t.Errorf("a right of Kafka's becomes %q", inOwnWords(right))
	}
	if changed < 20 {
		t.Errorf("only %d texts are said in own words: are these the library's files?", changed)
	}
}

// TestDescribeSaysItInFlags: what a description says to do can be typed, in the table and in the document.
func TestDescribeSaysItInFlags(t *testing.T) {
	const does = "Stop the topic and wait"
	d := mirror.Description{Mirror: "dr", Head: "1 of 1 FAILED: " + does, Taken: time.Unix(1e9, 0), Notes: []string{does}, Nodes: []mirror.DescribedNode{{NodeReport: mirror.NodeReport{
		Mirror: "dr", Owner: "mirror-1", Host: "h", SourceError: "source: metadata: unable to dial: connection refused, which is long enough", Trouble: []string{"orders: " + does},
	}}}, Topics: []mirror.DescribedTopic{{Topic: "orders", MirrorName: "dr", Partitions: []mirror.DescribedPartition{{State: statemachine.Failed.String(), Reason: does, RetryAttempt: statemachine.NonRetryable}}}}}
	for _, document := range []bool{false, true} {
		var out strings.Builder
		p := &program{out: &out, options: options{json: document}}
		_ = p.showDescriptions([]mirror.Description{d}) // its exit status is about protection
		text := out.String()
		if strings.Contains(text, does) || strings.Contains(text, "then Recover") || strings.Count(text, "--stop the topic and wait") < 3 {
			t.Errorf("%s", text)
		}
		if !document && (!strings.Contains(text, "mend what it says, then --recover") || strings.Contains(text, "source: source:")) {
			t.Errorf("%s", text)
		}
	}
}
