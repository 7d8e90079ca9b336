package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
)

// TestSubcommands: what acls prints for each way to ask, and each mistake of those that are about a node is one line that names the fix.
func TestSubcommands(t *testing.T) {
	s := &session{t: t, shown: strings.NewReplacer()}
	for _, line := range []string{
		"acls --principal User:mirror", "acls --principal User:mirror --source --topics orders,pay* --without-sync", "acls --principal User:mirror --topics orders",
		"acls --principal User:anna --role admin", "acls", "acls --principal anna", "acls --principal User:o'neil",
		"acls --principal User:anna --role boss", "acls --principal User:anna --role viewer --source",
		"acls --principal User:anna --role viewer --topics orders", "acls --principal User:anna --roll viewer", "acls User:anna", "acls --principal User:mirror --config missing.properties",
		"leave", "leave --config missing.properties", "leave --confg x", "leave --config x --now --purge extra",
		"give-up --config missing.properties --mirror dr", "give-up --mirror dr --reason r", "give-up --miror dr",
	} {
		s.run(strings.Fields(line)...)
	}
	golden(t, "subcommands.txt", s.text.String())
}

// recorder is a source that notes which rights are looked for.
type recorder struct {
	*kafkasource.Source
	asked *[]mirror.Right
}

func (r recorder) MissingRights(ctx context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	*r.asked = append(*r.asked, rights...)
	return r.Source.MissingRights(ctx, rights)
}

// TestACLsAtTheSourceAreWhatPreflightLooksFor: no right that a mirror needs at its source is missing in the lines, and none is there that nobody looks for but for the records of a failback.
func TestACLsAtTheSourceAreWhatPreflightLooksFor(t *testing.T) {
	address := startSource(t, "orders").ListenAddrs()[0]
	var asked []mirror.Right
	report := mirror.Preflight(t.Context(), mirror.PreflightConfig{
		Mirror: "dr", Topics: []string{"orders"}, Settings: mirror.Settings{"bootstrap.servers": address},
		OpenSource: func(ctx context.Context, settings mirror.Settings) (mirror.Source, error) {
			source, err := kafkasource.Open(ctx, settings)
			if err != nil {
				return nil, err
			}
			return recorder{source.(*kafkasource.Source), &asked}, nil
		},
	})
	needed := map[string]bool{"Describe group": true} // there is no group here that could be asked for
	for _, r := range asked {
		if r.Operation != "Describe" || r.Resource != "Topic" { // Read has it
			needed[r.Operation+" "+strings.ToLower(r.Resource)] = true
		}
	}
	printed := map[string]bool{}
	for _, g := range atSource([]string{"*"}, true) {
		printed[g.operation+" "+g.resource] = true
	}
	if fmt.Sprint(needed) != fmt.Sprint(printed) || len(asked) == 0 {
		t.Errorf("needed %v, printed %v\n%s", needed, printed, report)
	}
	if named := atSource([]string{"orders"}, true); !slices.Contains(named, grant{"Read", "topic", "__mirror_*"}) {
		t.Errorf("%v", named)
	}
}
