//go:build linux

// Command dormouse-runner is the program inside a sandbox: it dials its server,
// executes ops and remembers them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/dormouse-run/dormouse/runner"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dormouse-runner:", err)
		os.Exit(1)
	}
}

func run() error {
	o := runner.Options{
		Env:    environment(),
		Init:   true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	flag.StringVar(&o.Socket, "socket", "", "unix `path` the server listens on")
	flag.StringVar(&o.SecretFile, "secret", "", "`file` with the secret that proves this runner to the server")
	flag.StringVar(&o.Dir, "dir", "", "`directory` of the runner's own state")
	flag.StringVar(&o.Workspace, "workspace", "", "`directory` commands start in")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Caught rather than ignored: commands would inherit a signal that is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)

	if o.Dir == "" {
		return errors.New("-dir is needed")
	}
	alive, err := runner.HoldAlive(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }()
	r, err := runner.New(o)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// environment is what commands are given: what we were, but for what is meant
// for us.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "DORMOUSE_CRASH_")
	})
}
