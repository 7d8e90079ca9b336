package mirror

import (
	"strings"
	"testing"
)

// TestF66ADenyThatTheMirrorMadeIsSpokenOfAtAStop: a fence at the source is followed, and is still there when the copy has been opened.
func TestF66ADenyThatTheMirrorMadeIsSpokenOfAtAStop(t *testing.T) {
	rule := func(name, pattern, permission, operation string) ACL {
		return ACL{"TOPIC", name, pattern, "User:it's", "*", operation, permission}
	}
	rules := []ACL{rule("orders", "LITERAL", "DENY", "WRITE"), rule("or", "PREFIXED", "DENY", "DESCRIBE_CONFIGS"), rule("*", "LITERAL", "DENY", "ALL"), rule("orders", "LITERAL", "ALLOW", "WRITE"),
		rule("other", "LITERAL", "DENY", "WRITE"), {"GROUP", "orders", "LITERAL", "User:it's", "*", "READ", "DENY"}}
	c := controlWith(t, wishOf("orders", "m"), wishOf("else", "m"))
	if err := c.Update(bg, func(s *ControlState) error {
		for _, a := range rules {
			s.setProvenance(Provenance{Mirror: "m", Kind: ruleProvenance, Name: a.stored()})
		}
		s.setProvenance(Provenance{Mirror: "m2", Kind: ruleProvenance, Name: rule("orders", "LITERAL", "DENY", "READ").stored()})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const line = `kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties --remove --deny-principal 'User:it'\''s' --deny-host '*' --operation `
	want := []string{line + "Write --topic 'orders' --resource-pattern-type literal", line + "DescribeConfigs --topic 'or' --resource-pattern-type prefixed", line + "All --topic '*' --resource-pattern-type literal"}
	check := func(what string, notes []string, want ...string) {
		t.Helper()
		found := 0
		for _, note := range notes {
			if strings.Contains(note, "DENY") {
				found++
			}
		}
		for _, w := range want {
			if !strings.Contains(strings.Join(notes, "\n")+"\n", w+"\n") {
				t.Errorf("%s: %q is missing in %q", what, w, notes)
			}
		}
		if found != len(want) {
			t.Errorf("%s: %d notes of DENY, want %d: %q", what, found, len(want), notes)
		}
	}
	a := (&adminWorld{}).admin(t, c)
	d, err := a.Describe(bg)
	if err != nil {
		t.Fatal(err)
	}
	check("mirrored", d.Notes)
	for _, dry := range []bool{true, false} {
		r, err := a.Stop(bg, []string{"orders"}, StopOptions{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		check("stop", r.Notes, want...)
	}
	if d, err = a.Describe(bg); err != nil {
		t.Fatal(err)
	}
	check("stopped", d.Notes, want...)
}
