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
	// The runner mostly waits. In a sandbox, waking a second thread costs more than it
	// gains.
	runtime.GOMAXPROCS(1)
	// Commands have the default umask, not that of the server.
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
	// SIGHUP is caught, not ignored, because commands would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)

	if o.Dir == "" {
		return errors.New("-dir is needed")
	}
	pidFile, err := inside.LockPIDFile(ctx, o.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = pidFile.Close() }()
	if *outlet != "" {
		out, err := inside.ListenEgress(ctx, "", *outlet, o.Logger)
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
		if err := r.PrestartShell(ctx); err != nil {
			o.Logger.WarnContext(ctx, "shell not started ahead", "error", err)
		}
		waitAt(*bell)
	}
	return r.Run(ctx)
}

// waitAt blocks while the listener at path keeps our connection open.
func waitAt(path string) {
	c, err := net.Dial("unix", path) //nolint:noctx // as long as it takes
	if err != nil {
		return
	}
	_, _ = c.Read(make([]byte, 1))
	_ = c.Close()
}

// environment is the environment of commands: ours without the variables that are meant
// for the runner.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "DORMOUSE_CRASH_")
	})
}
