package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/node"
)

// grant is one rule, in the words of kafka-acls.sh.
type grant struct {
	operation, resource, name string // resource: "cluster", "topic", "group" or "transactional-id"; name: "" of the cluster; one that ends in * is what names begin with
}

// atSource is what the user in a mirror's settings needs at the source; the preflight looks for the same.
func atSource(topics []string, sync bool) []grant {
	var all []grant
	for _, topic := range topics {
		all = append(all, grant{"Read", "topic", topic}, grant{"DescribeConfigs", "topic", topic}) // Read includes Describe
	}
	if sync {
		all = append(all, grant{"Describe", "group", "*"}, grant{"Describe", "cluster", ""})
	}
	if !slices.Contains(topics, "*") {
		all = append(all, grant{"Read", "topic", "__mirror_*"}) // what mirrors into the source recorded: a failback begins there, and loops are seen
	}
	return all
}

// ofRecords is what the node needs for states, wishes and reports.
var ofRecords = []grant{{"All", "topic", "__mirror_*"}, {"Write", "transactional-id", "clustermirror-*"}}

// role is what somebody who uses the verbs may do. Each has everything of those before it. Package kafkastore says what each right amounts to.
type role struct {
	name, verbs string
	grants      []grant
}

var roles = []role{
	{"viewer", "--list --describe --groups --history --preflight", []grant{{"Read", "topic", "__mirror_*"}}},
	{"operator", "--pause --resume --recover", []grant{{"Write", "transactional-id", "clustermirror-control"}, {"Write", "topic", "__mirror_pause"}, {"Write", "topic", "__mirror_history"}}},
	{"on-call", "--stop", []grant{{"Write", "topic", "__mirror_stop"}}},
	{"admin", "--create --alter --delete --start --promote --abort-promotion --lower-fence --failback --abort-failback", []grant{{"Write", "topic", "__mirror_control"}, {"Describe", "topic", "*"}}}, // a start looks whether the topic is there
}

func roleNames() (names []string) {
	for _, r := range roles {
		names = append(names, r.name)
	}
	return names
}

// ofRole are all grants of a role; nil: there is no such role.
func ofRole(name string) (all []grant) {
	for _, r := range roles {
		all = append(all, r.grants...)
		if r.name == name {
			return all
		}
	}
	return nil
}

// command is the line that grants it.
func (g grant) command(where, principal string) string {
	resource := "--cluster"
	if g.resource != "cluster" {
		name, prefixed := strings.CutSuffix(g.name, "*")
		if prefixed = prefixed && name != ""; !prefixed {
			name = g.name
		}
		if resource = "--" + g.resource + " '" + name + "'"; prefixed {
			resource += " --resource-pattern-type prefixed"
		}
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --command-config ADMIN.properties --add --allow-principal '%s' --operation %s %s", where, principal, g.operation, resource)
}

// acls prints the lines that give a principal what it needs. It asks nobody and changes nothing.
func (p *program) acls(_ context.Context, args []string) error {
	f := flag.NewFlagSet("acls", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	principal := f.String("principal", "", "")
	source := f.Bool("source", false, "")
	as := f.String("role", "", "")
	topics := f.String("topics", "", "")
	dataOnly := f.Bool("without-sync", false, "")
	config := f.String("config", "", "")
	if err := f.Parse(args); err != nil {
		return mistaken(f, err)
	}
	if f.NArg() > 0 {
		return usage("acls: what is %q? Every option begins with dashes, and lists have no blanks", f.Arg(0))
	}
	kind, name, _ := strings.Cut(*principal, ":")
	names := split(*topics)
	if len(names) == 0 {
		names = []string{"*"}
	}
	switch {
	case *principal == "":
		return usage("acls needs --principal User:NAME, the name by which the cluster knows who asks")
	case kind == "" || name == "" || strings.ContainsFunc(*principal, func(r rune) bool { return r == '\'' || r < ' ' }):
		return usage("acls: --principal is User:NAME, as the cluster knows it, without quotes; not %q", *principal)
	case *as != "" && ofRole(*as) == nil:
		return usage("acls: --role is one of %s, not %q", strings.Join(roleNames(), ", "), *as)
	case *as != "" && *source:
		return usage("acls: --role is of the destination, where verbs are recorded; leave --source or --role out")
	case *as != "" && (*topics != "" || *dataOnly):
		return usage("acls: a role is not about topics or the sync of groups; leave --topics and --without-sync out")
	}
	for _, n := range names {
		if strings.ContainsFunc(n, func(r rune) bool { return r == '\'' || r < ' ' }) {
			return usage("acls: %q is no name of a topic", n)
		}
	}
	destination := "DESTINATION:PORT"
	if *config != "" {
		file, err := node.ReadFile(*config)
		if errors.As(err, new(*node.FileError)) {
			return err
		}
		if err != nil {
			return usage("acls: --config: %v", err)
		}
		destination = file.Bootstrap()
	}
	show := func(title, where string, all []grant) {
		fmt.Fprintf(p.out, "# %s\n", title)
		for _, g := range all {
			fmt.Fprintln(p.out, g.command(where, *principal))
		}
	}
	if *as != "" {
		fmt.Fprintf(p.out, "# %s may use:", *principal)
		for _, r := range roles[:slices.Index(roleNames(), *as)+1] {
			fmt.Fprint(p.out, " "+r.verbs)
		}
		fmt.Fprintln(p.out)
		show("Destination cluster: role "+*as, destination, ofRole(*as))
		return nil
	}
	show("Source cluster: the user in the mirror's settings (--mirror-config)", "SOURCE:PORT", atSource(names, !*dataOnly))
	if *source {
		return nil
	}
	fmt.Fprint(p.out, "\n# Destination cluster: the node, on the controllers', the brokers' and the clients' listener. Who holds its credentials is as powerful as a broker (mirror/kraft/SECURITY.md)\n")
	for _, l := range kraft.Rules(*principal, !*dataOnly, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "*" })) {
		fmt.Fprintln(p.out, strings.Replace(l, "BROKER:PORT", destination, 1))
	}
	show("Destination cluster: the node's states, wishes and reports", destination, ofRecords)
	fmt.Fprintf(p.out, "\n# People who use the verbs have roles of their own: kafka-mirror acls --principal User:NAME --role %s\n", strings.Join(roleNames(), "|"))
	return nil
}
