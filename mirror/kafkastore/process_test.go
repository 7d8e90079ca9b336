package kafkastore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
)

const childVariable = "KAFKASTORE_TEST_CHILD"

// TestMain is the other processes' way in.
func TestMain(m *testing.M) {
	if order := os.Getenv(childVariable); order != "" {
		if err := child(order); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childOrder is what a process is told.
type childOrder struct {
	Seeds             []string
	Prefix, Namespace string
	Writer            string
	Do                string // "claim", "count", "sleep"
}

// child opens its writer, and then does one thing for each line that comes in, and says how it ended.
func child(order string) error {
	var o childOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	line := new(lifeline)
	s, err := Open(ctx, Config{
		Seeds: o.Seeds, Prefix: o.Prefix, namespace: o.Namespace, StatePartitions: 2, ReplicationFactor: 1, ClientOptions: []kgo.Opt{kgo.Dialer(line.dial)}, Bound: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	n, err := s.Open(ctx, o.Writer)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		k := key(66, in.Text())
		var err error
		switch o.Do {
		case "claim":
			err = try(ctx, n, change(k, o.Writer))
		case "count":
			err = s.Update(ctx, count(k, true))
		case "sleep": // in the middle of a transaction
			if err = try(ctx, n, change(k, "before")); err == nil {
				woken := make(chan os.Signal, 1)
				signal.Notify(woken, syscall.SIGCONT)
				line.on(kmsg.EndTxn, 1, false, func() error {
					err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
					<-woken // this thread may still run for a moment
					return err
				})
				err = try(ctx, n, change(k, "from the dead"))
			}
		}
		switch {
		case err == nil:
			fmt.Println("done")
		case errors.Is(err, keyedlog.ErrOwned):
			fmt.Println("owned")
		case errors.Is(err, keyedlog.ErrFenced):
			fmt.Println("fenced")
		default:
			return err
		}
	}
	return in.Err()
}

// other is another process.
type other struct {
	testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func spawn(t testing.TB, cfg Config, writer, do string) *other {
	t.Helper()
	order, err := json.Marshal(childOrder{cfg.Seeds, cfg.Prefix, cfg.namespace, writer, do})
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(order))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	o := &other{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		defer cancel()
		in.Close()
		cmd.Process.Signal(syscall.SIGCONT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
	if got := o.says(); got != "ready" {
		t.Fatalf("the other process says %q", got)
	}
	return o
}

func (o *other) says() string {
	if !o.out.Scan() {
		return fmt.Sprint("nothing: ", o.out.Err())
	}
	return o.out.Text()
}

func (o *other) tell(key string) {
	if _, err := fmt.Fprintln(o.in, key); err != nil {
		o.Error(err)
	}
}

// Two processes want the same key at once: one gets it.
func TestRealTwoProcessesClaim(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	one, two := spawn(t, cfg, "one", "claim"), spawn(t, cfg, "two", "claim")
	wins := make(map[string]int)
	for round := range 8 {
		name := strconv.Itoa(round)
		one.tell(name)
		two.tell(name)
		a, b := one.says(), two.says()
		got := shown(t, s, key(66, name))
		switch {
		case a == "done" && b == "owned" && got == "one by one/1", a == "owned" && b == "done" && got == "two by two/1":
			wins[got]++
		default:
			t.Errorf("round %d: one says %q, two says %q, and the key is %s", round, a, b, got)
		}
	}
	t.Logf("wins: %v", wins)
}

// Two processes count one key up at once: both count.
func TestRealTwoProcessesUpdate(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	one, two := spawn(t, cfg, "one", "count"), spawn(t, cfg, "two", "count")
	const rounds = 8
	for range rounds {
		one.tell("k")
		two.tell("k")
	}
	for range rounds {
		if a, b := one.says(), two.says(); a != "done" || b != "done" {
			t.Fatalf("one says %q, two says %q", a, b)
		}
	}
	expect(t, s, key(66, "k"), strconv.Itoa(2*rounds))
}

// A process stands still in the middle of a transaction, another one takes its writer over and works; then the first wakes up.
func TestRealTakeoverOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	k := key(66, "k")
	sleeper := spawn(t, cfg, "w", "sleep")
	sleeper.tell("k")
	stat := fmt.Sprintf("/proc/%d/stat", sleeper.cmd.Process.Pid)
	poll(t, "the process to stand still", func() bool {
		b, err := os.ReadFile(stat)
		must(t, err)
		_, behind, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(behind, "T")
	})
	n := opened(t, s, "w")
	expect(t, n, k, "before by w/1")
	write(t, n, change(k, "taken over"))
	must(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	write(t, n, change(k, "still ours"))
	if got := sleeper.says(); got != "fenced" {
		t.Errorf("the process that woke up says %q", got)
	}
	expect(t, s, k, "still ours by w/2")
	must(t, n.Check(t.Context()))
}

// poll asks until it is so.
func poll(t testing.TB, what string, ask func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ask() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		if err := pause(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}
