// Command two-clusters is the whole life of a mirror between two real Kafka clusters on this machine, in one run:
//
//	go run ./examples/two-clusters
//
// It starts both clusters (Apache Kafka, fetched once by Maven), runs mirror nodes beside them (kafka-mirror run), and puts clients to work. Then it kills the cluster that they use,
// fails over, moves the clients, starts the old cluster again, fails back, and switches home. At the end it compares the .log files on the disks of all brokers byte by byte.
//
// It needs Linux, Java 17 or later and Maven. It exits with 0 only if every check held, with 1 if one did not, with 2 if something is missing here or on the command line, and with 128 and the
// signal's number if it was interrupted. -break spoils one thing, to show that the checks can fail. Nothing is left behind: no process, and without -keep no folder.
//
// Read story.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

func main() { os.Exit(run(os.Args[1:])) }

// patience is how long an interrupted run may take to end in order. After it everything is killed.
const patience = 3 * time.Second

func run(args []string) int {
	o, err := readOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "two-clusters: "+err.Error())
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go endWithParent(signals)
	place, err := openFolder(o.keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "two-clusters: "+err.Error())
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- story(ctx, o, place) }()
	status := 0
	select {
	case err = <-ended:
	case s := <-signals:
		fmt.Fprintf(os.Stderr, "\ninterrupted (%v): everything that was started is ended\n", s)
		status = 128 + int(s.(syscall.Signal))
		stop()
		select {
		case <-ended:
		case <-time.After(patience):
		}
	}
	err = errors.Join(err, place.close())
	switch {
	case status != 0:
	case errors.As(err, new(missing)):
		fmt.Fprintln(os.Stderr, "two-clusters: "+err.Error())
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "FAILED: "+strings.TrimSpace(err.Error()))
		return 1
	}
	return status
}

// endWithParent sends SIGTERM when the process that has started this one is gone: "go run" does not pass it on.
func endWithParent(to chan<- os.Signal) {
	parent := os.Getppid()
	for range time.Tick(200 * time.Millisecond) {
		if os.Getppid() != parent {
			to <- syscall.SIGTERM
			return
		}
	}
}

// missing is what this machine lacks, and what to install.
type missing string

func (m missing) Error() string { return string(m) }

// lookAround says what is missing here. It may fetch Kafka's jars, which takes about a minute.
func lookAround(ctx context.Context, say func(format string, args ...any)) error {
	lacks := func(what string) error {
		return missing(what + ". Needed are java 17 or later, and mvn 3.8 or later to fetch Kafka once; as on Debian: apt-get install default-jdk-headless maven")
	}
	if jars := filepath.Join(kafkatest.CacheDir(), "kafka-"+kafkatest.DefaultVersion); os.Getenv("CLUSTERMIRROR_KAFKA_VERSION") == "" {
		_, err := os.Stat(jars)
		if _, none := exec.LookPath("mvn"); err != nil && none == nil {
			say("Maven fetches Apache Kafka %s, once, into %s", kafkatest.DefaultVersion, jars)
		}
	}
	if err := kafkatest.Missing(); err != nil {
		return lacks(strings.TrimPrefix(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "), "kafkatest: "))
	}
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	said, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if found := javaVersion(string(said)); err == nil && found > 0 && found < 17 {
		return lacks(fmt.Sprintf("Java is %d", found))
	}
	return nil
}

var quotedVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// javaVersion is the release in what java -version says, 0 if none is found.
func javaVersion(said string) int {
	if found := quotedVersion.FindStringSubmatch(said); found != nil {
		n, _ := strconv.Atoi(found[1])
		return n
	}
	return 0
}
