package mirrortest_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeShowsTheExample: what the README says that the Example prints is what it prints.
func TestReadmeShowsTheExample(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, output, found := strings.Cut(string(example), "\t// Output:\n")
	if !found {
		t.Fatal("the Example has no output")
	}
	output = strings.TrimSuffix(strings.ReplaceAll(output, "\t// ", ""), "}\n")
	if strings.Count(output, "\n") < 5 || !strings.Contains(string(readme), "```\n"+output+"```\n") {
		t.Errorf("the README does not show\n%s", output)
	}
}
