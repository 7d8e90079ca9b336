// Command kafka-mirror has the verbs of mirrors on a command line, in the shape of KIP-1279's tool, and is the mirror node that carries them out. A verb says what is wanted; the nodes
// follow. It needs none of them, and no source: a failover can be recorded while everything else is dead.
//
//	kafka-mirror run --config node.properties
//
//	kafka-mirror --bootstrap-server HOST:PORT --preflight --mirror dr --mirror-config dr.properties
//	kafka-mirror --bootstrap-server HOST:PORT --create --mirror dr --mirror-config dr.properties
//	kafka-mirror --bootstrap-server HOST:PORT --start --mirror dr --topics orders,payments --wait
//	kafka-mirror --bootstrap-server HOST:PORT --describe --mirror dr
//	kafka-mirror --bootstrap-server HOST:PORT --verify --mirror dr
//	kafka-mirror --bootstrap-server HOST:PORT --stop --mirror dr --all-topics --dry-run
//	kafka-mirror --bootstrap-server HOST:PORT --failback --mirror dr --all-topics --dry-run
//	kafka-mirror --settings
//	kafka-mirror --dropped /var/lib/kafka-mirror/dropped
//	kafka-mirror --dropped /var/lib/kafka-mirror/dropped --replay --bootstrap-server HOST:PORT --into orders-recovered
//
//	kafka-mirror acls --principal User:mirror
//	kafka-mirror leave --config node.properties --report
//	kafka-mirror give-up --config node.properties --mirror dr --dry-run
//
// The desired state is in topics of the destination cluster (--bootstrap-server, with Kafka's client settings in --command-config), or in a folder (--store), as in
// examples/custombroker, which has it in DIR/states.
//
// --wait waits until what is recorded has come about: MIRRORING after --start, --resume and --failback, STOPPED after --stop, PAUSED after --pause, STOPPED or PAUSED after --abort-failback, not FAILED after
// --recover, a process that runs the mirror after --create, and after --delete that its states are taken out. It shows a line for each change, on standard error if there is a document.
//
// --dropped is about records that a failback, or another cut, gave up: the folder in which the node kept them. It lists and prints them, and with --replay and --yes it writes those that were committed,
// or never in a transaction, into a topic, each with headers that say where it was.
//
// --reconcile is for the time after a failover, once the old source is back, and before a failback: which transactions it committed and the copy has aborted, and which records only it has. It reads both
// clusters, with the settings of the mirror and of --command-config.
//
// --verify proves that both hold the same, while the mirror runs. It reads the source as a consumer does, and the copy from a broker in sync that has it, also while it is dark; --timeout is for the first
// questions only, and at ctrl-C what was compared so far is shown. --failback --wait does it at its end, once the copy has what the source had when MIRRORING was reached.
//
// # What needs consent
//
// --stop, --delete, --failback and --abort-failback, a --start that takes a topic over from another mirror, and an --alter of mirror.topics.exclude open topics for clients, or take something away. They
// print the two clusters and the plan first, and need --reason and one of
//
//   - --plan HASH, of a dry run: the verb is refused if it would do anything else now;
//   - --destination-cluster-id ID, where that can be compared, and --yes or the answer "yes" at a terminal.
//
// The plan of a failback is made by the process that runs the mirror, which alone can compare both clusters; that it was asked for one is recorded, by --dry-run too. leave and give-up show
// what they would do and need consent as well.
//
// # Exit status
//
//	0  everything that was asked for is recorded, or was so already; with --dry-run: would be
//	1  refused as things stand: some topics, or the whole request; other topics of the request are recorded. --preflight: something blocks. --wait: it does not come by itself
//	2  the request, a file or a right has to be changed; nothing has changed
//	3  the desired state cannot be reached or read, or it is not known whether the request was recorded. run: also what the next start may not meet, as a file that is not
//	   there or must not be read just now, and users that the brokers do not know yet
//	4  --wait: not reached in time; what is recorded stays
//	5  --describe: a mirror is not protected, because how far its copy is cannot be known
//	6  --describe: a mirror is partially failed over
//	7  run: the node's registration was taken away; it must not be restarted by itself
//	8  --verify, and the end of --failback --wait: source and copy are not the same: a difference, or a hole
//	9  --verify: no difference was found, and not all that the source has could be compared
//
// An error is one line on standard error. With --json what a verb was refused for is in the document on standard output too.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends at once
	p := &program{out: os.Stdout, complaints: os.Stderr}
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		p.terminal = bufio.NewReader(os.Stdin)
	}
	status := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// program is one use of the command.
type program struct {
	options
	out, complaints io.Writer
	terminal        *bufio.Reader // nil: nobody can be asked
	place           place
	groupPlaces     []mirror.PlanGroupPlace                           // what a dry run in JSON says of groups
	about           func(context.Context) (mirror.Description, error) // to be shown with a plan; nil: nothing is
	toGiveUp        *mirror.FailbackPlan                              // of a failback
	keeper          string                                            // who keeps what a failback drops
	waits           time.Duration                                     // how long --wait waits
	waited          *waitedJSON                                       // what came of that; nil: nothing was waited for
	verified        *mirror.Verification                              // the last step of a failback that was waited for; nil: of others
}

// run returns the exit status.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.command(ctx, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.out, help())
		return 0
	}
	p.complain(err)
	return exitStatus(err)
}

// complain says what went wrong, unless that was shown already.
func (p *program) complain(err error) {
	var ended *endedError
	if err == nil || errors.As(err, new(*shownError)) || errors.As(err, &ended) && ended.err == nil {
		return
	}
	fmt.Fprintln(p.complaints, "kafka-mirror: "+oneLine(err))
}

// command is one of the subcommands, which come first and without dashes, or a verb.
func (p *program) command(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		for _, s := range subcommands() {
			if s.name == args[0] {
				return s.run(p, ctx, args[1:])
			}
		}
		return unknownSubcommand(args[0])
	}
	if p.options, err = readOptions(args); err != nil {
		return err
	}
	return p.do(ctx)
}

// confirm gets the operator's consent to a plan that was shown.
func (p *program) confirm(ctx context.Context, shown mirror.Result) error {
	plan := shown.Plan
	if p.toGiveUp != nil {
		plan = p.toGiveUp.Hash()
	}
	switch {
	case p.reason == "":
		return usage("--%s needs --reason TEXT, for the history; nothing has changed", p.verb)
	case p.plan != "":
		return nil
	case p.destinationID == "":
		return usage("add --plan %s, or --destination-cluster-id ID and --yes; nothing has changed", plan)
	case shown.Clusters.DestinationID == "":
		return usage("the destination's cluster id is not known here, so %s cannot be compared with it; add --plan %s instead. Nothing has changed", p.destinationID, plan)
	case p.yes:
		return nil
	case p.terminal == nil:
		return usage("add --yes, because there is no terminal to ask at; nothing has changed")
	}
	return p.ask(ctx, fmt.Sprintf("--%s as shown", p.verb))
}

// ask asks at the terminal; everything but "yes" is no.
func (p *program) ask(ctx context.Context, what string) error {
	fmt.Fprintf(p.complaints, "%s? Type yes: ", what)
	answer := make(chan string, 1)
	go func() { // a read cannot be interrupted, so it ends with the process
		line, _ := p.terminal.ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case a := <-answer:
		if a == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errDeclined
}
