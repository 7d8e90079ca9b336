package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/node"
)

// nodeFile reads the options of a subcommand, and the file that --config names.
func (p *program) nodeFile(f *flag.FlagSet, args []string) (*node.File, error) {
	f.SetOutput(io.Discard)
	path := f.String("config", "", "`FILE` of the node, node.properties")
	switch err := f.Parse(args); {
	case err != nil:
		return nil, mistaken(f, err)
	case f.NArg() > 0:
		return nil, usage("%s: what is %q? Every option begins with dashes", f.Name(), f.Arg(0))
	case *path == "":
		return nil, usage("%s needs --config FILE, the node's node.properties", f.Name())
	}
	file, err := node.ReadFile(*path)
	if err != nil {
		return nil, err
	}
	for _, w := range file.Warnings() {
		fmt.Fprintln(p.complaints, "warning: "+w)
	}
	return file, nil
}

// preflightBound is the longest look at a cluster before joining.
const preflightBound = time.Minute

// passingError ends a node, and the next process may not meet it: secrets are mounted anew just now, brokers that start do not know their users yet. It is 3 as an exit status, where the same in a verb is
// 2, so that whoever keeps the node running starts it again.
type passingError struct{ error }

func (e *passingError) Unwrap() error { return e.error }

// ofRun marks an error that may pass by itself. What is wrong in the node's file does not.
func ofRun(err error) error {
	passes := func(err error) bool {
		return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)
	}
	var file *node.FileError
	if errors.As(err, &file) && slices.ContainsFunc(file.Errs, func(err error) bool { return !passes(err) }) || !passes(err) {
		return err
	}
	return &passingError{err}
}

// runNode is a mirror node until SIGTERM or SIGINT; SIGHUP re-reads the file.
func (p *program) runNode(ctx context.Context, args []string) error {
	return ofRun(p.runsNode(ctx, args))
}

func (p *program) runsNode(ctx context.Context, args []string) error {
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP) // before anything else: it would end the process
	defer signal.Stop(hangUp)
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	format := f.String("log", "text", "text or json")
	look := f.Bool("preflight", false, "only look whether the cluster can be joined, and change nothing")
	file, err := p.nodeFile(f, args)
	if err != nil {
		return err
	}
	var handler slog.Handler
	switch *format {
	case "text":
		handler = slog.NewTextHandler(p.out, nil)
	case "json":
		handler = slog.NewJSONHandler(p.out, nil)
	default:
		return usage("run: --log is text or json, not %q", *format)
	}
	logger := slog.New(handler)
	file.Log(logger)
	if *look {
		bounded, stop := context.WithTimeout(ctx, preflightBound)
		defer stop()
		report, err := file.Preflight(bounded)
		if err != nil {
			return err
		}
		fmt.Fprintln(p.out, report)
		if err := report.Err(); err != nil {
			return &shownError{err}
		}
		return nil
	}
	n, err := node.New(file.Config())
	if err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-hangUp:
				restart, err := file.Reload()
				switch {
				case err != nil:
					logger.Error("the file was read again and has mistakes: nothing has changed", "error", err)
				case len(restart) > 0:
					logger.Warn("the file was read again: new connections use its credentials; these settings need a new process", "settings", strings.Join(restart, ", "))
				default:
					logger.Info("the file was read again: new connections use its credentials")
				}
			}
		}
	}()
	return n.Run(ctx)
}
