package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/closest"
	"github.com/clustermirror/clustermirror/mirror"
)

// options are those of the command line.
type options struct {
	verb                                    string
	bootstrap, commandConfig, store, mirror string
	mirrorConfig, unset, topics, pattern    string
	reason, plan, sourceID, destinationID   string
	droppedDir, into                        string
	allTopics, partial, purge, abandon      bool
	print, replay, every                    bool
	skip, throttle                          int64
	dryRun, json, yes, wait, timeoutGiven   bool
	timeout, drain                          time.Duration
	fence, fenceConfig, torn                string
	abortTransactions                       bool
	bound                                   time.Duration
	maxGiveUp                               int64
	maxGiveUpGiven, cutReaders              bool
}

// verb is what one may ask for, with the options that belong to it beside those of all verbs.
type verb struct {
	name, takes, doc string
}

const (
	intent = " dry-run reason plan source-cluster-id destination-cluster-id yes"
	chosen = "mirror topics topics-pattern all-topics wait" + intent
)

var verbs = []verb{
	{"create", "mirror mirror-config wait" + intent, "make a mirror, without topics"},
	{"list", "", "all mirrors of the destination"},
	{"describe", "mirror", "how a mirror is, or without --mirror all of them"},
	{"groups", "mirror", "groups of the source that are followed, and how far each is at the destination"},
	{"alter", "mirror mirror-config unset" + intent, "set settings of a mirror (--mirror-config), unset others (--unset)"},
	{"delete", "mirror purge abandon wait" + intent, "take a mirror away; its topics stay as they are"},
	{"start", chosen, "mirror topics"},
	{"stop", chosen + " partial drain torn max-give-up cut-readers", "make topics writable at the destination: the failover"},
	{"promote", "mirror topics all-topics partial fence fence-config bound abort-transactions" + intent, "a planned move without loss: keep clients from writing at the source, copy the rest, stop, and prove it by offsets"},
	{"abort-promotion", "mirror fence fence-config", "take a promotion back that is under way, as a crash leaves it, and lower its fence"},
	{"lower-fence", "mirror fence fence-config", "lower at the source what a promotion has left up, once the source is a copy or is given up: clients may write there then"},
	{"pause", chosen, "stop fetching; the topics stay read-only"},
	{"resume", chosen, "fetch again"},
	{"recover", chosen, "try failed partitions again now"},
	{"failback", chosen, "make this cluster the copy of the one that took over; what that one does not have is given up here, after consent"},
	{"abort-failback", chosen, "give a failback up: before the first cut its topics are opened as they were found, behind it they stay closed, as a copy"},
	{"preflight", "mirror mirror-config topics", "what stands in the way of a mirror, at both clusters: rights, names, shapes; changes nothing"},
	{"verify", "mirror topics throttle", "compare source and copy, byte by byte, while the mirror runs: its logs below the ends that both have; reads both clusters and changes nothing"},
	{"reconcile", "mirror topics", "after a failover, with the old source back: what it committed and the copy has aborted, and what only it has"},
	{"dropped", "topics print replay into every skip yes", "what was given up and is kept in folder DIR, behind the verb; --print shows the records, --replay writes them into a topic"},
	{"history", "mirror", "who did what, when and why"},
	{"settings", "", "all settings: name, default, what it is; needs no cluster"},
}

// forAll are the options of every verb.
const forAll = "bootstrap-server command-config store json timeout"

// usageError is a mistake on the command line or in a file. Its text says how to mend it.
type usageError string

func (e usageError) Error() string { return string(e) }

func usage(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

func (o *options) flags() (*flag.FlagSet, map[string]*bool) {
	f := flag.NewFlagSet("kafka-mirror", flag.ContinueOnError)
	f.SetOutput(io.Discard) // a mistake is one line, not a page
	asked := map[string]*bool{}
	for _, v := range verbs {
		if v.name != "dropped" {
			asked[v.name] = f.Bool(v.name, false, v.doc)
		}
	}
	asked["dropped"] = new(bool) // the one that takes a value
	f.Func("dropped", "folder `DIR`", func(dir string) error {
		o.droppedDir, *asked["dropped"] = dir, true
		return nil
	})
	f.StringVar(&o.bootstrap, "bootstrap-server", "", "`HOST:PORT` of brokers of the destination cluster, separated by commas")
	f.StringVar(&o.commandConfig, "command-config", "", "properties `FILE` with Kafka's client settings (security.protocol, sasl.*, ssl.* …), and how topics of the desired state are created")
	f.StringVar(&o.store, "store", "", "folder `DIR` with the desired state, instead of --bootstrap-server")
	f.StringVar(&o.mirror, "mirror", "", "`NAME` of the mirror")
	f.StringVar(&o.mirrorConfig, "mirror-config", "", "properties `FILE` with settings of the mirror")
	f.StringVar(&o.unset, "unset", "", "`NAMES` of settings, separated by commas")
	f.StringVar(&o.topics, "topics", "", "`NAMES` of topics, separated by commas")
	f.StringVar(&o.pattern, "topics-pattern", "", "regular expression `RE` (RE2, the whole name); --start and --stop put it into the mirror's filters")
	f.BoolVar(&o.allTopics, "all-topics", false, "all topics, without those that the mirror excludes")
	f.BoolVar(&o.partial, "partial", false, "stop a part of a topic set on purpose")
	f.DurationVar(&o.drain, "drain", 0, "longest `TIME` that partitions whose source answers go on copying before they are stopped [0]")
	f.StringVar(&o.torn, "torn", string(mirror.TornAbort), "`POLICY` for transactions that the stop would tear apart, committed in some partitions and aborted in others: abort, refuse or consistent-cut [abort]")
	f.Int64Var(&o.maxGiveUp, "max-give-up", 0, "with --torn consistent-cut give up `N` offsets at most, of all partitions together; beyond it transactions are aborted [no limit]")
	f.BoolVar(&o.cutReaders, "cut-readers", false, "with --torn consistent-cut give up also what readers of the copies may have seen")
	f.StringVar(&o.fence, "fence", "acl", "`KIND` of what keeps clients from writing at the source: acl, quota or none [acl]")
	f.StringVar(&o.fenceConfig, "fence-config", "", "properties `FILE` of whoever may raise the fence at the source, where the mirror's own user may not")
	f.DurationVar(&o.bound, "bound", 2*time.Minute, "longest `TIME` of a promotion until the stop, and from there to its end; then it is given up [2m]")
	f.BoolVar(&o.abortTransactions, "abort-transactions", false, "abort transactions that stay open at the source for half of --bound")
	f.BoolVar(&o.purge, "purge", false, "delete last mirror epochs too: a later failback copies everything again")
	f.BoolVar(&o.abandon, "abandon", false, "let go of partitions that only the state store knows of, as topics that were deleted leave them")
	f.BoolVar(&o.print, "print", false, "show the records that were given up")
	f.BoolVar(&o.replay, "replay", false, "write the records that were given up into topic --into at --bootstrap-server; without --yes only say how many")
	f.StringVar(&o.into, "into", "", "`TOPIC` to write into, which is there; of no mirror that has not stopped it")
	f.BoolVar(&o.every, "every", false, "write also what no COMMIT was there for: aborted, open, unknown")
	f.Int64Var(&o.skip, "skip", 0, "leave out the first `N` records that would be written: an earlier run has written them")
	f.Int64Var(&o.throttle, "throttle", 0, "read at most `BYTES` in a second, of both clusters together [no limit]")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and the plan's hash; change nothing")
	f.BoolVar(&o.wait, "wait", false, "wait until what is recorded has come about, 10m or --timeout; progress is a line for each change")
	f.BoolVar(&o.json, "json", false, "one JSON document on standard output")
	f.BoolVar(&o.yes, "yes", false, "do it without asking")
	f.StringVar(&o.reason, "reason", "", "why, for the history: `TEXT`")
	f.StringVar(&o.plan, "plan", "", "`HASH` of a dry run: do this and nothing else")
	f.StringVar(&o.sourceID, "source-cluster-id", "", "`ID` that is meant; another source is refused")
	f.StringVar(&o.destinationID, "destination-cluster-id", "", "`ID` that is meant; another destination is refused")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "longest `TIME` of each step, as in 10s [30s], and of --wait [10m]")
	return f, asked
}

// readOptions reads the command line. Errors: a usageError; flag.ErrHelp, the help was asked for.
func readOptions(args []string) (options, error) {
	var o options
	f, asked := o.flags()
	if err := f.Parse(args); err != nil {
		return o, mistaken(f, err)
	}
	if f.NArg() > 0 {
		return o, usage("what is %q? Every option begins with dashes, lists have no blanks, and a verb is an option too, as in --describe", f.Arg(0))
	}
	var wanted []verb
	for _, v := range verbs {
		if *asked[v.name] {
			wanted = append(wanted, v)
		}
	}
	if len(wanted) != 1 {
		return o, usage("exactly one verb is needed, and there are %d; it is one of --%s", len(wanted), strings.Join(verbNames(), ", --"))
	}
	o.verb = wanted[0].name
	takes := strings.Fields(forAll + " " + o.verb + " " + wanted[0].takes)
	var wrong error
	f.Visit(func(f *flag.Flag) {
		o.timeoutGiven = o.timeoutGiven || f.Name == "timeout"
		o.maxGiveUpGiven = o.maxGiveUpGiven || f.Name == "max-give-up"
		if !slices.Contains(takes, f.Name) && wrong == nil {
			its := "nothing of its own"
			if own := takes[len(strings.Fields(forAll))+1:]; len(own) > 0 {
				its = "--" + strings.Join(own, ", --")
			}
			wrong = usage("--%s does not belong to --%s; it takes %s", f.Name, o.verb, its)
		}
	})
	if wrong != nil {
		return o, wrong
	}
	return o, o.check(takes)
}

// mistaken says what is wrong with an option.
func mistaken(f *flag.FlagSet, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case unknown:
		var known []string
		f.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
		return usage("--%s is not known; the closest is --%s (-help lists all)", name, closest.Name(name, known))
	}
	if value, of, ok := strings.Cut(strings.TrimPrefix(err.Error(), "invalid value "), " for flag -timeout"); ok && of != "" {
		return usage("--timeout: %s is no time; write it as in 30s, 10m or 1h", value)
	}
	return usage("%v (-help lists the options)", err)
}

func verbNames() (names []string) {
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return names
}

// check refuses what is missing or contradicts itself.
func (o *options) check(takes []string) error {
	ways := 0
	for _, given := range []bool{o.topics != "", o.pattern != "", o.allTopics} {
		if given {
			ways++
		}
	}
	switch {
	case o.verb == "settings":
	case o.verb == "dropped":
		if err := o.checkDropped(); err != nil {
			return err
		}
	case (o.bootstrap == "") == (o.store == ""):
		return usage("one of --bootstrap-server HOST:PORT and --store DIR is needed: where the desired state is")
	case o.store != "" && o.commandConfig != "":
		return usage("--command-config is for --bootstrap-server; leave it out with --store")
	case o.mirror == "" && slices.Contains(takes, "mirror") && o.verb != "describe":
		return usage("--%s needs --mirror NAME; --list shows the names", o.verb)
	case o.verb == "create" && o.mirrorConfig == "":
		return usage("--create needs --mirror-config FILE, with bootstrap.servers=HOST:PORT of the source in it")
	case o.verb == "alter" && o.mirrorConfig == "" && o.unset == "":
		return usage("--alter needs --mirror-config FILE, --unset NAMES, or both")
	case slices.Contains(takes, "topics") && ways != 1 && !slices.Contains([]string{"preflight", "dropped", "reconcile", "verify"}, o.verb):
		return usage("--%s needs exactly one of --topics NAMES, --topics-pattern RE and --all-topics", o.verb)
	case !slices.Contains([]string{"acl", "quota", "none"}, o.fence):
		return usage("--fence is %s, not %q", fences, o.fence)
	case !slices.Contains([]string{string(mirror.TornAbort), string(mirror.TornRefuse), string(mirror.TornCut)}, o.torn):
		return usage("--torn is abort, refuse or consistent-cut, not %q", o.torn)
	case o.torn != string(mirror.TornCut) && (o.maxGiveUpGiven || o.cutReaders):
		return usage("--max-give-up and --cut-readers are for --torn consistent-cut")
	case o.maxGiveUpGiven && o.maxGiveUp < 1: // to the library 0 is no bound, and nobody who writes it means that
		return usage("--max-give-up has to be 1 or more: a number of offsets. --torn abort gives up none")
	case o.bound < 10*time.Second:
		return usage("--bound has to be 10s or more: the source has to be quiet for 5s")
	case o.wait && o.dryRun:
		return usage("--wait waits for what is recorded, and --dry-run records nothing: leave one of the two out")
	case o.throttle < 0:
		return usage("--throttle has to be 0 or more: bytes a second")
	case o.timeout <= 0:
		return usage("--timeout has to be more than 0, as in 10s")
	}
	return nil
}

// split splits a list by its commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// help is what -help prints.
func help() string {
	var b strings.Builder
	b.WriteString("Usage: kafka-mirror (--bootstrap-server HOST:PORT [--command-config FILE] | --store DIR) VERB [OPTION …]\n       kafka-mirror --settings\n       kafka-mirror --dropped DIR [--topics NAMES] [--print | --bootstrap-server HOST:PORT --replay --into TOPIC [--yes]]\n")
	for _, s := range subcommands() {
		fmt.Fprintf(&b, "       kafka-mirror %s %s\n                    %s\n", s.name, s.takes, s.doc)
	}
	b.WriteString("\nVerbs:\n")
	for _, v := range verbs {
		fmt.Fprintf(&b, "  --%-10s %s\n", v.name, v.doc)
	}
	b.WriteString("\nOptions:\n")
	f, asked := new(options).flags()
	f.VisitAll(func(f *flag.Flag) {
		if asked[f.Name] == nil {
			value, doc := flag.UnquoteUsage(f)
			fmt.Fprintf(&b, "  --%-30s %s\n", strings.TrimSpace(f.Name+" "+value), doc)
		}
	})
	b.WriteString(`
--stop, --delete, --failback, --abort-failback, a --start that takes a topic over from another mirror and an --alter of mirror.topics.exclude show what they would do first, and need --reason and one of
--plan HASH; --destination-cluster-id ID and --yes, or "yes" at a terminal.

Exit status:
  0  everything that was asked for is recorded, or was so already; with --dry-run: would be
  1  refused as things stand: some topics, or the whole request; other topics of the request are recorded. --preflight: something blocks. --wait: it does not come by itself
  2  the request, a file or a right has to be changed; nothing has changed
  3  the desired state cannot be reached or read, or it is not known whether the request was recorded. run: also what the next start may not meet, as a file that is not
     there or must not be read just now, and users that the brokers do not know yet
  4  --wait: not reached in time; what is recorded stays
  5  --describe: a mirror is not protected, because how far its copy is cannot be known
  6  --describe: a mirror is partially failed over
  7  run: the node's registration was taken away; it must not be restarted by itself
  8  --verify, and the end of --failback --wait: source and copy are not the same: a difference, or a hole
  9  --verify: no difference was found, and not all that the source has could be compared
`)
	return b.String()
}
