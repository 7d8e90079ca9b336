package main

import (
	"context"
	"slices"

	"github.com/clustermirror/clustermirror/internal/closest"
)

// subcommand is what stands first on the command line, without dashes: it is a node, or is about one, and not about a mirror.
type subcommand struct {
	name, takes, doc string
	run              func(p *program, ctx context.Context, args []string) error
}

// subcommands are all of them, in the order of the help.
func subcommands() []subcommand {
	return []subcommand{
		{"run", "--config FILE [--log text|json] [--preflight]",
			"a mirror node, as node.properties describes it; ends at SIGTERM, after it has handed over; reads the file again at SIGHUP", (*program).runNode},
		{"leave", "--config FILE (--report | [--now | --purge] --reason TEXT [--destination-cluster-id ID --yes])",
			"take a node whose process has ended out of its cluster; --report: only say what there is of it; --now: the kill switch, whatever its process does; --purge: its topics too",
			(*program).leave},
		{"give-up", "--config FILE [--mirror NAME] [--topics NAMES] (--dry-run | --reason TEXT [--plan HASH | --destination-cluster-id ID --yes])",
			"open what a node led that is gone for good, or some topics of it, by force, from the copies of the brokers; where any process can be started under the node id, start it and --stop instead",
			(*program).giveUp},
		{"acls", "--principal User:NAME [--source | --role viewer|operator|on-call|admin] [--topics NAMES] [--without-sync] [--config FILE]",
			"the kafka-acls.sh lines for a node at both clusters, or for who uses the verbs; asks nobody", (*program).acls},
	}
}

// unknownSubcommand names what may have been meant: a subcommand, or a verb without its dashes.
func unknownSubcommand(word string) error {
	known := verbNames()
	for _, s := range subcommands() {
		known = append(known, s.name)
	}
	name := closest.Name(word, known)
	if slices.Contains(verbNames(), name) {
		return usage("what is %q? A verb is an option, with dashes; the closest is --%s (-help lists all)", word, name)
	}
	return usage("what is %q? The closest subcommand is %s, and a verb is an option, as in --describe (-help lists all)", word, name)
}
