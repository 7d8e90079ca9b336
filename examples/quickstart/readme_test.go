package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	number = regexp.MustCompile(`\d+`)
	took   = regexp.MustCompile(`(failover in|took) [\d.]+(µs|ms|s)`)
	ages   = regexp.MustCompile(`<?\d+s ago`)
)

// masked is a text without what differs from run to run: numbers, and how wide columns are because of them.
func masked(text string) []string {
	text = ages.ReplaceAllString(took.ReplaceAllString(text, "$1 #"), "# ago")
	return strings.Split(spaces.ReplaceAllString(number.ReplaceAllString(strings.TrimSpace(text), "#"), " "), "\n")
}

// transcriptIn says whether a transcript is what was printed: its parts, between lines with an ellipsis, are there as they stand, in order, and the last one is the end.
func transcriptIn(transcript, printed string) bool {
	rest := masked(printed)
	parts := strings.Split(transcript, "\n…\n")
	for i, part := range parts {
		want := masked(part)
		at := 0
		for at+len(want) <= len(rest) && !slices.Equal(rest[at:at+len(want)], want) {
			at++
		}
		if at+len(want) > len(rest) || i == len(parts)-1 && at+len(want) != len(rest) {
			return false
		}
		rest = rest[at+len(want):]
	}
	return true
}

func TestReadmeShowsARealRun(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "\n```")
	i := slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, "\nOK: ") })
	if i < 0 {
		t.Fatal("README.md has no transcript")
	}
	out, complaints, code := run(t)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, complaints)
	}
	if !transcriptIn(blocks[i], out) {
		t.Errorf("README.md shows\n%s\nand a run printed\n%s", blocks[i], out)
	}
}

func TestTranscriptSaysNo(t *testing.T) {
	const printed = "a 1\nb  22\nc\nOK: 3 in failover in 1ms\n"
	for transcript, want := range map[string]bool{
		"a 7\nb 1\n…\nOK: 9 in failover in 2µs": true,
		"b 1\nc\nOK: 4 in failover in 2µs":      true,
		"a 7\nb 1\n…\nOK: 9 of failover in 2µs": false,
		"b 1\na 7\n…\nOK: 9 in failover in 2µs": false,
		"a 7\nc\n…\nOK: 9 in failover in 2µs":   false,
		"a 7\nb 1":                              false,
		"a 7\n…\nd":                             false,
	} {
		if transcriptIn(transcript, printed) != want {
			t.Errorf("%q: %v", transcript, !want)
		}
	}
}
