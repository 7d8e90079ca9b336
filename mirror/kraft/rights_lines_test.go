package kraft

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRulesAreThoseOfTheSecurityPage: the page has exactly the lines of the table, in its order.
func TestRulesAreThoseOfTheSecurityPage(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "kafka-acls.sh") && strings.Contains(line, " --add ") {
			lines = append(lines, line)
		}
	}
	if want := Rules("User:mirror", true, nil); !slices.Equal(lines, want) {
		t.Errorf("the page says\n%s\nthe table\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	without := Rules("User:mirror", false, nil)
	if !slices.Equal(without, lines[:len(lines)-1]) {
		t.Errorf("without metadata sync: %s", strings.Join(without, "\n"))
	}
}

// TestRulesOfNamedTopics: rules on topics name them, or what they begin with, and nothing else changes.
func TestRulesOfNamedTopics(t *testing.T) {
	const begin = "kafka-acls.sh --bootstrap-server BROKER:PORT --command-config ADMIN.properties --add --allow-principal 'User:CN=m' --operation "
	var got []string
	for _, line := range Rules("User:CN=m", true, []string{"orders", "eu.*"}) {
		after, ok := strings.CutPrefix(line, begin)
		if !ok {
			t.Fatal(line)
		}
		if !strings.HasSuffix(after, "--cluster") {
			got = append(got, after)
		}
	}
	want := []string{
		"Read --topic 'orders'", "Read --topic 'eu.' --resource-pattern-type prefixed", "Alter --topic 'orders'", "Alter --topic 'eu.' --resource-pattern-type prefixed",
		"AlterConfigs --topic 'orders'", "AlterConfigs --topic 'eu.' --resource-pattern-type prefixed", "Read --group '*'",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
