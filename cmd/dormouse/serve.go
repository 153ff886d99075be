package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox/local"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

func newServe() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server until it is told to stop. Everything it keeps is in one directory;
sessions that were at work when it last stopped, however it stopped, go on.

Every flag can also be set as an environment variable (DORMOUSE_LISTEN for --listen)
or in config.json in the data directory ("listen"); the command line wins over the
environment, and that over the file.`,
		Example: `  dormouse serve
  dormouse serve --data /srv/dormouse --listen 127.0.0.1:8080 --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Data, _ = cmd.Flags().GetString("data")
			if err := c.check(); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(400) // the heap is small; collecting it less often costs little room
			}
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(signals)
			return serve(cmd.Context(), c, signals, cmd.OutOrStdout(), newLogger(c, cmd.ErrOrStderr()))
		},
	}
	c.flags(cmd.Flags())
	return cmd
}

func newLogger(c config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked with the rest of the configuration
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// server is everything that is open while serving.
type server struct {
	config   config
	log      *slog.Logger
	store    *sqlite.Store
	driver   *local.Driver
	sessions *session.Sessions
	door     *rest.Server
	http     *http.Server
	listener net.Listener
	ready    atomic.Bool
	running  sync.WaitGroup
	stop     context.CancelFunc // ends what runs beside the requests
}

func serve(ctx context.Context, c config, signals <-chan os.Signal, out io.Writer, log *slog.Logger) error {
	s, err := open(ctx, c, log)
	if err != nil {
		return err
	}
	served := s.start(ctx)
	if err := s.announce(out); err != nil {
		log.WarnContext(ctx, "server not announced", "error", err)
	}
	var cause error
	select {
	case sig := <-signals:
		log.InfoContext(ctx, "stopping", "signal", sig.String())
	case <-ctx.Done():
	case err := <-s.store.Failed():
		cause = fmt.Errorf("the disk failed, so nothing more can be promised: %w", err)
	case err := <-served:
		cause = fmt.Errorf("serve: %w", err)
	}
	if cause == nil {
		return s.shutdown(ctx, signals)
	}
	log.ErrorContext(ctx, "stopping", "error", cause)
	_ = s.shutdown(ctx, signals) // what else goes wrong follows from the cause
	return cause
}

// open takes things in order and gives them back in reverse when one of them
// cannot be had.
func open(ctx context.Context, c config, log *slog.Logger) (_ *server, err error) {
	s := &server{config: c, log: log}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	// The database comes first: whoever has it has the directory.
	if s.store, err = sqlite.Open(ctx, c.Data, sqlite.Options{}); err != nil {
		if errors.Is(err, sqlite.ErrLocked) {
			return nil, fmt.Errorf("%w; another server uses it: stop that one or choose another directory with --data", err)
		}
		return nil, err
	}
	undo = append(undo, func() { _ = s.store.Close() })
	blobs, err := dir.Open(filepath.Join(c.Data, "blobs"))
	if err != nil {
		return nil, err
	}
	who, err := auth.OpenLocal(filepath.Join(c.Data, tokenFile))
	if err != nil {
		return nil, err
	}
	if s.driver, err = openSandboxes(c, log); err != nil {
		return nil, err
	}

	models, tools, counters := newModels(c), tool.Builtin(), newMetrics()
	if _, err := models.Model(c.Model); err != nil {
		return nil, usage("--model: %w", err)
	}
	if s.sessions, err = session.New(session.Config{
		Store: s.store, Blobs: blobs, Driver: s.driver, Agent: agent.New(models, tools), Logger: log,
		Clock: crash.Now, DropAfter: c.DropAfter, OnCommit: counters.committed,
	}); err != nil {
		return nil, err
	}
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", c.Listen); err != nil {
		return nil, fmt.Errorf("%w; choose another address with --listen", err)
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	if a, ok := s.listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.WarnContext(ctx, "listening beyond this machine without encryption", "address", a.String())
	}
	s.door = rest.New(rest.Config{
		Sessions: s.sessions, Auth: who, Logger: log, Hosts: append([]string{host}, c.Hosts...),
		Agent: dormouse.AgentConfig{
			Name: "dormouse", Model: c.Model,
			Tools: []dormouse.ToolConfig{
				{Name: "bash", Permission: dormouse.PermissionAllow},
				{Name: "read", Permission: dormouse.PermissionAllow},
				{Name: "write", Permission: dormouse.PermissionAllow},
			},
		},
		SleepAfter: c.SleepAfter, CheckAgent: models.check(tools), Ready: s.isReady,
		Metrics: counters.handler(), Observe: counters.answered,
	})
	counters.gauge("sessions_loaded", "Sessions that have an actor in memory.", s.sessions.Loaded)
	counters.gauge("followers", "Streams that are open.", s.door.Followers)
	s.http = &http.Server{
		// Streams set deadlines of their own.
		Handler: s.door, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	undo = nil // ours to keep now
	return s, nil
}

// start serves, and then takes up what a server before us left at work.
func (s *server) start(ctx context.Context) <-chan error {
	served := make(chan error, 1)
	s.running.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			served <- err
		}
	})
	s.ready.Store(true)
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.publish(ctx)
	s.running.Go(func() {
		if err := s.sessions.Run(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sessions are no longer woken", "error", err)
		}
	})
	s.running.Go(func() { s.sweep(ctx) })
	return served
}

func (s *server) isReady(ctx context.Context) error {
	if !s.ready.Load() {
		return dormouse.ErrClosing
	}
	return s.store.Check(ctx)
}

// publish tells clients on this machine where the server is. On a disk that is
// full it does so as soon as there is room.
func (s *server) publish(ctx context.Context) {
	write := func() error {
		b, err := json.Marshal(running{Address: s.listener.Addr().String(), PID: os.Getpid()})
		if err != nil {
			return err
		}
		return atomicfile.Write(filepath.Join(s.config.Data, serverFile), append(b, '\n'), 0o600)
	}
	err := write()
	if err == nil {
		return
	}
	s.log.WarnContext(ctx, "address not written, so clients do not find this server by itself", "error", err)
	s.running.Go(func() {
		for err != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
				err = write()
			}
		}
	})
}

// announce tells a person what to do next.
func (s *server) announce(out io.Writer) error {
	data := ""
	if s.config.Data != defaultData() {
		data = " --data " + s.config.Data
	}
	_, err := fmt.Fprintf(out, `dormouse is listening on http://%s
its token is in %s
try this in another terminal:

  dormouse session create%s --prompt '$ uname -a' --follow

`, s.listener.Addr(), filepath.Join(s.config.Data, tokenFile), data)
	return err
}

// grace is how long shutting down may take before it is cut short.
const grace = 30 * time.Second

// shutdown is a list. A second signal skips to the end: the steps before it stop
// waiting, and what they leave undone the next start takes up.
func (s *server) shutdown(ctx context.Context, signals <-chan os.Signal) error {
	ctx, skip := context.WithTimeoutCause(context.WithoutCancel(ctx), grace, errors.New("it took too long"))
	defer skip()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-signals:
			s.log.InfoContext(ctx, "stopping now")
			skip()
			signal.Reset(os.Interrupt, syscall.SIGTERM) // a third one kills
		case <-done:
		}
	}()
	var errs []error
	for _, step := range []struct {
		name string
		do   func() error
	}{
		// 1. No new traffic.
		{"stop being ready", func() error { s.ready.Store(false); return nil }},
		// 2. Followers, whom draining would wait for.
		{"tell followers", func() error { s.sessions.EndFollowers(); return nil }},
		// 3. Requests in progress are answered.
		{"drain requests", func() error {
			ctx, cancel := context.WithTimeout(ctx, grace/3) // a client that trickles must not cost the actors their time
			defer cancel()
			_ = s.http.Shutdown(ctx) // who is not done by then is cut off
			return s.http.Close()
		}},
		// 4. Each actor ends its attempt, keeps its turn and releases its lease.
		{"stop actors", func() error {
			s.stop()
			return errors.Join(s.sessions.Close(ctx), wait(ctx, &s.running))
		}},
		// 5. The actors have let go of the sandboxes, which live on.
		{"withdraw the address", func() error {
			err := os.Remove(filepath.Join(s.config.Data, serverFile))
			if errors.Is(err, fs.ErrNotExist) { // there was never room for it
				return nil
			}
			return err
		}},
		{"close database", s.store.Close}, // last: it gives the directory to the next server
	} {
		if err := step.do(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return errors.Join(errs...)
}

// wait waits for a group, or until ctx ends.
func wait(ctx context.Context, g *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
