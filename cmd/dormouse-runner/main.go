// Command dormouse-runner is the program inside a sandbox: it dials its server,
// executes ops and remembers them.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/dormouse-run/dormouse/runner/inside"
)

func main() {
	if err := run(); err != nil {
		slog.Error("runner ended", "error", err) //nolint:sloglint // there is no other
		os.Exit(1)
	}
}

func run() error {
	// What the runner does is short and waits for others. In a sandbox a second
	// thread to do it costs more, in being woken, than it helps.
	runtime.GOMAXPROCS(1)
	// Commands have the usual mask, whatever the server has for itself.
	syscall.Umask(0o022)
	o := inside.Options{Env: environment(), Init: true}
	flag.StringVar(&o.Socket, "socket", "", "unix `path` the server listens on")
	flag.StringVar(&o.SecretFile, "secret", "", "`file` with the secret that proves this runner to the server")
	flag.StringVar(&o.Dir, "dir", "", "`directory` of the runner's own state")
	flag.StringVar(&o.Shells, "shells", "", "`directory` for the FIFOs of shells; below -dir if not given")
	flag.StringVar(&o.Workspace, "workspace", "", "`directory` commands start in")
	bell := flag.String("bell", "", "unix `path` to wait at, if somebody listens there, until it is closed")
	log := flag.String("log", "", "`file` to complain to instead of standard error")
	outlet := flag.String("outlet", "", "unix `path` that what programs send out is carried to")
	slot := flag.String("slot", "", "`directory` whose ws, home and tmp become -workspace, the home and /tmp")
	flag.Int64Var(&o.Pids, "pids", 0, "`number` of processes that commands may have, 0 for any")
	flag.Parse()
	out := os.Stderr
	if *log != "" {
		f, err := os.OpenFile(*log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		out = f
	}
	o.Logger = slog.New(slog.NewTextHandler(out, nil))
	slog.SetDefault(o.Logger)
	if *slot != "" {
		o.DropCaps, o.Alone = true, true
		o.Results = "/tmp/dormouse" // -dir is in memory
		o.Prepare = sync.OnceValue(func() error { return moveIn(*slot, o.Workspace) })
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Caught rather than ignored: commands would inherit a signal that is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)

	if o.Dir == "" {
		return errors.New("-dir is needed")
	}
	alive, err := inside.HoldAlive(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }()
	if *outlet != "" {
		out, err := inside.ListenOutlet(ctx, "", *outlet, o.Logger)
		if err != nil {
			return err
		}
		defer func() { _ = out.Close() }()
	}
	r, err := inside.New(o)
	if err != nil {
		return err
	}
	if _, err := os.Stat(*bell); err == nil {
		if err := r.StartAhead(ctx); err != nil {
			o.Logger.WarnContext(ctx, "no shell ahead", "error", err)
		}
		waitAt(*bell)
	}
	return r.Run(ctx)
}

// waitAt returns once nobody keeps us waiting at path.
func waitAt(path string) {
	c, err := net.Dial("unix", path) //nolint:noctx // as long as it takes
	if err != nil {
		return
	}
	_, _ = c.Read(make([]byte, 1))
	_ = c.Close()
}

// environment is what commands are given: what we were, but for what is meant
// for us.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "DORMOUSE_CRASH_")
	})
}
