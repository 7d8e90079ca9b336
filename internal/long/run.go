package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// run is one part while it runs.
type run struct {
	name  string
	seed  uint64
	long  time.Duration
	out   io.Writer
	began time.Time

	lines    []string // the last ones of the command that ran last
	commands []string // the first ones of a kind, for the row
	names    []string // of the figures, in the order of their first appearance
	figures  map[string]float64
	said     string // a last line that is figures as it is
}

// kept is how many lines of a command's output are looked at for figures.
const kept = 5000 // a run that failed shows the ends of logs behind its figures

// graceful is how long an interrupted command has for its own end, before it is killed.
const graceful = 20 * time.Second

// command runs one command and shows its output while it comes.
func (r *run) command(ctx context.Context, name string, args ...string) error {
	if err := isCommand(args); err != nil {
		return err
	}
	if len(r.commands) == 0 {
		r.commands = append(r.commands, strings.Join(append([]string{name}, args...), " "))
	}
	fmt.Fprintf(r.out, "long: %s: %s %s\n", r.name, name, strings.Join(args, " "))
	cmd := start(ctx, name, args...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	seen := make(chan struct{})
	r.lines = nil
	go func() {
		defer close(seen)
		for text := bufio.NewReader(read); ; {
			line, err := text.ReadString('\n')
			if line != "" {
				fmt.Fprint(r.out, line)
				r.lines = append(r.lines[max(0, len(r.lines)-kept):], strings.TrimSpace(line))
			}
			if err != nil {
				return
			}
		}
	}()
	err := cmd.Run()
	write.Close()
	<-seen
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// endAsGroup puts a command into a process group of its own, so that an end reaches what it has started: `go run` and `go test` run others.
func endAsGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		time.AfterFunc(graceful, func() { syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGINT)
	}
	cmd.WaitDelay = graceful + 5*time.Second
}

var figure = regexp.MustCompile(`([A-Za-z][A-Za-z ]*): (\d+(?:\.\d+)?)`)

// add adds figures, written as "name: number, name: number", to those of the part.
func (r *run) add(line string) {
	for _, m := range figure.FindAllStringSubmatch(line, -1) {
		name := strings.TrimSpace(m[1])
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		if r.figures == nil {
			r.figures = map[string]float64{}
		}
		if _, known := r.figures[name]; !known {
			r.names = append(r.names, name)
		}
		r.figures[name] += n
	}
}

// sum adds the figures of the last line that contains mark. A command that printed none has shown nothing, whatever its exit status: a test that was skipped passes.
func (r *run) sum(mark string) error {
	for i := len(r.lines) - 1; i >= 0; i-- {
		if strings.Contains(r.lines[i], mark) {
			r.add(r.lines[i])
			return nil
		}
	}
	return fmt.Errorf("it printed no %q", mark)
}

// last takes the last line of a command as its figures.
func (r *run) last() error {
	for i := len(r.lines) - 1; i >= 0; i-- {
		if l := r.lines[i]; l != "" && !strings.HasPrefix(l, "exit status") {
			r.said = l
			return nil
		}
	}
	return errors.New("it printed nothing")
}

// row is a row of the table of long runs: part, date, duration, figures, command.
func (r *run) row(err error) string {
	var figures []string
	for _, name := range r.names {
		figures = append(figures, fmt.Sprintf("%s: %s", name, strconv.FormatFloat(r.figures[name], 'f', -1, 64)))
	}
	if r.said != "" {
		figures = append(figures, r.said)
	}
	if err != nil {
		figures = append(figures, "FAILED: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	command := cmp.Or(strings.Join(r.commands, "; "), "none")
	return fmt.Sprintf("| %s | %s | %v | %s | `%s` |", r.name, r.began.Format(time.DateOnly), time.Since(r.began).Round(time.Second), strings.Join(figures, ", "), command)
}
