package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// nodeID is the broker id under which a mirror node joins a cluster.
const nodeID = 9999

// command is the kafka-mirror command, built for this run.
type command struct {
	place *folder
	say   func(format string, args ...any)
}

// build builds it.
func (c *command) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", c.place.in("kafka-mirror"), "github.com/clustermirror/clustermirror/examples/kafka-mirror")
	cmd.Env = append(os.Environ(), "GOTMPDIR="+c.place.path)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := kafkatest.StartProcess(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("building kafka-mirror (run this inside the module): %w\n%s", err, said.Bytes())
	}
	return nil
}

// verb runs kafka-mirror as a person would, for the cluster of s, and returns what it printed. It is shown with the command line, unless quiet.
func (c *command) verb(ctx context.Context, s *side, args ...string) (string, error) {
	c.say("%s", c.typed(s, args))
	out, err := c.quiet(ctx, s, args...)
	c.say("%s", indent(out))
	return out, err
}

// typed is the command line as a person types it. The address of the cluster is one of its brokers.
func (c *command) typed(s *side, args []string) string {
	shown := make([]string, 0, len(args))
	for _, a := range args {
		if strings.ContainsAny(a, " '") {
			a = "'" + a + "'"
		}
		shown = append(shown, a)
	}
	return fmt.Sprintf("  $ kafka-mirror --bootstrap-server %s %s", s.Bootstrap()[0], strings.Join(shown, " "))
}

func (c *command) quiet(ctx context.Context, s *side, args ...string) (string, error) {
	bounded, stop := context.WithTimeout(ctx, bound)
	defer stop()
	all := append([]string{"--bootstrap-server", s.Bootstrap()[0], "--command-config", c.place.in("client.properties")}, args...)
	cmd := exec.CommandContext(bounded, c.place.in("kafka-mirror"), all...)
	cmd.Dir = c.place.path
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := kafkatest.StartProcess(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("kafka-mirror %s: %w: %s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// indent puts output of a command under its line.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// mirrorNode is a running "kafka-mirror run".
type mirrorNode struct {
	name string
	cmd  *exec.Cmd
	gone chan struct{}
	log  string
}

// startNode starts a mirror node that joins the cluster of s. Its file, its log and its folder lie in the run's folder under its name.
func (c *command) startNode(s *side) (*mirrorNode, error) {
	port, err := kafkatest.FreePort()
	if err != nil {
		return nil, err
	}
	name, copies := "node-"+s.name, len(s.Brokers())
	here := fmt.Sprintf("INTERNAL://127.0.0.1:%d", port)
	if err := c.place.write(name+".properties",
		fmt.Sprintf("node.id=%d", nodeID),
		"bootstrap.servers="+strings.Join(s.Bootstrap(), ","),
		"controller.quorum.bootstrap.servers="+strings.Join(s.ControllerAddresses(), ","),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=INTERNAL",
		"listeners="+here,
		"advertised.listeners="+here,
		"listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		fmt.Sprintf("default.replication.factor=%d", copies),
		fmt.Sprintf("min.insync.replicas=%d", min(2, copies)),
		"mirror.node.folder="+c.place.in(name),
		fmt.Sprintf("mirror.state.topic.replication.factor=%d", copies),
		"mirror.state.topic.num.partitions=3",
		"mirror.metadata.refresh.interval.ms=1000", // groups are followed as often: what they read again after a failover
		"mirror.fetch.backoff.ms=200",
		"mirror.failed.retry.max.backoff.ms=1000",
	); err != nil {
		return nil, err
	}
	n := &mirrorNode{name: name, gone: make(chan struct{}), log: c.place.in(name + ".log")}
	out, err := os.Create(n.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	n.cmd = exec.Command(c.place.in("kafka-mirror"), "run", "--config", c.place.in(name+".properties"))
	n.cmd.Stdout, n.cmd.Stderr, n.cmd.Dir = out, out, c.place.path
	if err := kafkatest.StartProcess(n.cmd); err != nil {
		return nil, err
	}
	c.say("  $ kafka-mirror run --config %s &", filepath.Base(name+".properties"))
	go func() {
		n.cmd.Wait() // how it ended is told by its log
		close(n.gone)
	}()
	return n, nil
}

// err says that the node has ended, and what it said last.
func (n *mirrorNode) err() error {
	select {
	case <-n.gone:
		said, _ := os.ReadFile(n.log)
		return fmt.Errorf("%s has ended (%v): %s", n.name, n.cmd.ProcessState, said[max(0, len(said)-1000):])
	default:
		return nil
	}
}

// signal sends it a signal.
func (n *mirrorNode) signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// drain tells it to end, and waits until it has.
func (n *mirrorNode) drain() error {
	if err := n.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-n.gone:
	case <-time.After(bound):
		return fmt.Errorf("%s did not end within %v of SIGTERM", n.name, bound)
	}
	if status := n.cmd.ProcessState.ExitCode(); status != 0 {
		return n.err()
	}
	return nil
}
