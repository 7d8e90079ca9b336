package runbook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// follower does what a page says, as somebody at a shell would.
type follower struct {
	t        *testing.T
	page     string
	dir      string // where commands run, and files are
	bin      string // kafka-mirror, and Kafka's tools
	names    names
	clusters map[string]*kafkatest.Cluster
	dead     map[string]bool // all its brokers are
	running  map[string]*background
	writers  map[string]*writer
	plan     string         // that was shown last
	front    *front         // what stands at the primary's address, if that is not the primary
	printed  map[int]string // what steps print now, where that is not what the page says
}

// background is a command that goes on.
type background struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended

	mu   sync.Mutex
	said bytes.Buffer
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *background) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// follow reads docs/runbook/NAME.md and does it. Names of topics and mirrors end in a digit of the page's own, so that columns are as wide as on the page. The first cluster is the primary.
func follow(t *testing.T, page string, clusters ...string) *follower {
	t.Helper()
	f := &follower{t: t, page: page, dir: t.TempDir(), bin: tools(t), clusters: map[string]*kafkatest.Cluster{}, dead: map[string]bool{}, running: map[string]*background{}, writers: map[string]*writer{}, printed: map[int]string{}}
	made.pages++
	for _, name := range []string{"dr", "home", "orders", "payments", "billing"} {
		f.names.set(name, fmt.Sprintf("%s%d", name[:len(name)-1], made.pages))
	}
	f.names.set("standby-mirror:9990", reserved(t))
	f.names.set("primary-mirror:9990", reserved(t))
	for i, name := range clusters {
		role := []string{"primary", "standby", "other"}[i]
		c := lend(t, name)
		f.clusters[role] = c
		id := []string{pagePrimaryID, pageStandbyID, pageOtherID}[i]
		f.names.set(id, c.ID())
		f.names.set(role+":9092", strings.Join(c.Bootstrap(), ","))
		for b, address := range c.Bootstrap() {
			f.names.set(fmt.Sprintf("%s-%d:9092", role, b+1), address)
		}
		f.names.set(role+":9094", strings.Join(c.Listener("LOGIN"), ","))
		for b, address := range c.Listener("LOGIN") {
			f.names.set(fmt.Sprintf("%s-%d:9094", role, b+1), address)
		}
		f.names.set(role+":9093", strings.Join(c.ControllerAddresses(), ","))
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	f.names.set("operator at mirror-1", who.Username+" at "+host)
	f.names.set("mirror-1", host)
	path := filepath.Join("..", "..", "docs", "runbook", page+".md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	steps, err := parse(lines)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(f.end)
	f.file("app.properties", `security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="`+appPassword+`";`)
	t.Cleanup(func() {
		if len(f.printed) == 0 {
			return
		}
		if err := os.WriteFile(path, []byte(strings.Join(rewritten(lines, steps, f.printed), "\n")), 0o644); err != nil {
			t.Error(err)
		}
	})
	begun := time.Now()
	for _, s := range steps {
		at := time.Now()
		if s.directive != "" {
			f.direct(s)
		} else {
			f.do(s)
		}
		t.Logf("%5.1f s (%4.1f s)  line %d: %s%s", time.Since(begun).Seconds(), time.Since(at).Seconds(), s.line, s.directive, s.command)
		if t.Failed() && !*update {
			t.FailNow()
		}
	}
	return f
}

// reserved is an address on which nobody listens.
func reserved(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// end ends what goes on.
func (f *follower) end() {
	for _, w := range f.writers {
		w.end()
	}
	for _, name := range slices.Sorted(maps.Keys(f.running)) {
		if b := f.running[name]; f.t.Failed() {
			f.t.Logf("%s said:\n%s", name, b.text())
		}
		f.kill(name)
	}
	for role, c := range f.clusters {
		if !f.dead[role] { // nobody needs it any more
			clean(f.t, c)
		}
	}
}

// nodeID is that of every node on the pages.
const nodeID = 9999

// clean takes away what a page leaves in a cluster, so that the next one finds none of it: the node's registration, the topics, access rules.
func clean(t *testing.T, c *kafkatest.Cluster) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), lives.Bound)
	defer stop()
	gone := kmsg.NewPtrUnregisterBrokerRequest()
	gone.BrokerID = nodeID
	if _, err := gone.RequestWith(ctx, c.AdminClient()); err != nil {
		t.Errorf("the node's registration: %v", err)
	}
	listed, err := c.Admin().ListTopicsWithInternal(ctx)
	if err != nil {
		t.Errorf("topics: %v", err)
	}
	names := slices.DeleteFunc(listed.Names(), func(name string) bool { return strings.HasPrefix(name, "__") && !strings.HasPrefix(name, "__mirror_") })
	if _, err := c.Admin().DeleteTopics(ctx, names...); err != nil {
		t.Errorf("deleting %v: %v", names, err)
	}
	if _, err := c.Admin().DeleteACLs(ctx, kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations().ResourcePatternType(kadm.ACLPatternAny)); err != nil {
		t.Errorf("access rules: %v", err)
	}
}

// kill ends a command in the background at once.
func (f *follower) kill(name string) {
	b := f.running[name]
	if b == nil {
		return
	}
	b.cmd.Process.Kill()
	<-b.gone
	delete(f.running, name)
}

// signal sends a signal and waits for the end.
func (f *follower) signal(name string, s syscall.Signal) {
	f.t.Helper()
	b := f.running[name]
	if b == nil {
		f.t.Fatalf("%s does not run", name)
	}
	if err := b.cmd.Process.Signal(s); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	select {
	case <-b.gone:
	case <-time.After(patience):
		f.t.Fatalf("%s has not ended %v after %v; it said:\n%s", name, patience, s, b.text())
	}
	delete(f.running, name)
}

// shownPlan is the name of a plan where it is shown, givenPlan where it is asked for.
var (
	shownPlan = regexp.MustCompile(`(?m)^plan ([0-9a-f-]+)$`)
	givenPlan = regexp.MustCompile(`--plan [0-9a-f-]+`)
)

// command is a line of a page as it is run here. A plan in it is the one that was shown last.
func (f *follower) command(ctx context.Context, line string) *exec.Cmd {
	line = f.names.inRun(line)
	if f.plan != "" {
		line = givenPlan.ReplaceAllString(line, "--plan "+f.plan)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail; "+line)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "PATH="+f.bin+":"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs a command to its end, and returns what it printed as a page shows it.
func (f *follower) run(line string) string {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.t.Context(), 3*patience)
	defer stop()
	cmd := f.command(ctx, line)
	out, err := cmd.CombinedOutput()
	text := f.shown(string(out))
	if plans := shownPlan.FindAllStringSubmatch(text, -1); len(plans) > 0 {
		f.plan = plans[len(plans)-1][1]
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		f.t.Fatalf("%s: not ended after %v:\n%s", line, 3*patience, text)
	case errors.As(err, &exit):
		text += fmt.Sprintf("exit status %d\n", exit.ExitCode())
	case err != nil:
		f.t.Fatalf("%s: %v", line, err)
	}
	return text
}

// shown is what was printed, as a page shows it.
func (f *follower) shown(text string) string {
	text = strings.ReplaceAll(text, f.dir+"/", "")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return f.names.onPage(text)
}

// looks are in commands that only look, and are repeated.
var looks = []string{"--describe", "--groups", "--list", "--dry-run", "curl "}

// do runs a command and compares.
func (f *follower) do(s step) {
	f.t.Helper()
	if name, ok := inBackground(s.command); ok {
		f.begin(name, s)
		return
	}
	deadline := time.Now().Add(patience)
	if *update {
		deadline = time.Now().Add(patience / 3)
	}
	repeat := slices.ContainsFunc(looks, func(verb string) bool { return strings.Contains(s.command, verb) }) && !strings.Contains(s.command, "--add ")
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		text := f.run(s.command)
		if shows(s.want, text, false) {
			return
		}
		if !repeat || time.Now().After(deadline) {
			f.differs(s, text)
			return
		}
		<-tick.C
	}
}

// inBackground is the name of what a command starts that goes on: its properties file.
func inBackground(command string) (name string, ok bool) {
	words := strings.Fields(command)
	if len(words) < 4 || words[0] != "kafka-mirror" || words[1] != "run" {
		return "", false
	}
	return words[3], true
}

// begin starts a command that goes on, and waits until it has printed what the page shows.
func (f *follower) begin(name string, s step) {
	f.t.Helper()
	b := f.background(name, strings.TrimSuffix(strings.TrimSpace(s.command), "&"))
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-b.gone:
			ended = true
		default:
		}
		text := f.shown(b.text())
		if ended {
			delete(f.running, name)
			text += fmt.Sprintf("exit status %d\n", b.cmd.ProcessState.ExitCode())
		}
		switch {
		case shows(s.want, text, !ended):
			return
		case ended || time.Now().After(deadline):
			f.differs(s, text)
			return
		}
		<-tick.C
	}
}

// background starts a command that goes on.
func (f *follower) background(name, line string) *background {
	f.t.Helper()
	if f.running[name] != nil {
		f.t.Fatalf("%s runs already", name)
	}
	b := &background{cmd: f.command(context.Background(), "exec "+line), gone: make(chan struct{})}
	b.cmd.Stdout, b.cmd.Stderr = b, b
	if err := kafkatest.StartProcess(b.cmd); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		b.cmd.Wait()
		close(b.gone)
	}()
	f.running[name] = b
	return b
}

// differs: the page does not say what is printed.
func (f *follower) differs(s step, text string) {
	f.t.Helper()
	if *update {
		f.printed[s.line] = text
		return
	}
	f.t.Errorf("docs/runbook/%s.md, line %d: $ %s\nthe page shows\n%s\nand this run printed\n%s", f.page, s.line, s.command, strings.Join(s.want, "\n"), text)
}

// toolClasses are Kafka's tools that pages use.
var toolClasses = map[string]string{
	"kafka-acls.sh":             "org.apache.kafka.tools.AclCommand",
	"kafka-cluster.sh":          "org.apache.kafka.tools.ClusterTool",
	"kafka-configs.sh":          "kafka.admin.ConfigCommand",
	"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
	"kafka-consumer-groups.sh":  "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-get-offsets.sh":      "org.apache.kafka.tools.GetOffsetShell",
	"kafka-metadata-quorum.sh":  "org.apache.kafka.tools.MetadataQuorumCommand",
	"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
	"kafka-transactions.sh":     "org.apache.kafka.tools.TransactionsCommand",
}

var made struct {
	sync.Mutex
	dir   string
	pages int // that were followed
}

// tools is a folder with kafka-mirror and Kafka's tools, made once.
func tools(t *testing.T) string {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	if made.dir != "" {
		return made.dir
	}
	kafkatest.Require(t)
	libs, err := kafkatest.Libs(kafkatest.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "runbook-")
	if err != nil {
		t.Fatal(err)
	}
	lender.Cleanup(func() { os.RemoveAll(dir) })
	quiet := filepath.Join(dir, "log4j2.properties")
	if err := os.WriteFile(quiet, []byte("rootLogger.level=off\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, class := range toolClasses {
		script := fmt.Sprintf("#!/bin/sh\nexec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dlog4j2.configurationFile=%s -cp '%s/*' %s \"$@\"\n", quiet, libs, class)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "kafka-mirror"), "../../examples/kafka-mirror")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	made.dir = dir
	return dir
}

// eventually waits for what the run needs and the page does not show.
func (f *follower) eventually(what string, done func() (bool, string)) {
	f.t.Helper()
	lives.Eventually(f.t, what, done)
}
