//go:build !windows

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/door/rest"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/internal/connlimit"
	"github.com/dormouse-run/dormouse/internal/fencing"
	"github.com/dormouse-run/dormouse/internal/holdback"
	"github.com/dormouse-run/dormouse/internal/lograte"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store"
)

func newServe() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server until it is told to stop. Everything it keeps is in one directory;
sessions that were at work when it last stopped, however it stopped, go on.

With --store the sessions are in a PostgreSQL database instead, and several servers
can share them and the directory: each answers for all of them, and what one leaves
undone another takes up.

Programs reach it over HTTP: its own API is under /api, and the Managed Agents API
under /v1, for which official clients take the address as their base URL and the
token as their key.

Every flag can also be set as an environment variable (DORMOUSE_LISTEN for --listen)
or in config.json in the data directory ("listen"); the command line wins over the
environment, and that over the file.`,
		Example: `  dormouse serve
  dormouse serve --data /srv/dormouse --listen 127.0.0.1:8080 --log-format json
  dormouse serve --store-file /etc/dormouse/store --listen 10.0.0.1:7717`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Data, _ = cmd.Flags().GetString("data")
			c.usual = c.Data == defaultData()
			if err := c.check(); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(50)
				// It counts as heap and is never touched, so it takes no memory. With it a small
				// heap may grow severalfold before it is collected, and a large one only by half.
				ballast := make([]byte, 24<<20)
				defer runtime.KeepAlive(ballast)
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
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: boundAttr}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// boundAttr bounds the length of each value in a log line, including values that clients
// and sandboxes chose.
func boundAttr(_ []string, a slog.Attr) slog.Attr {
	const most, mostStack = 4 << 10, 64 << 10
	_, failed := a.Value.Any().(error)
	switch {
	case a.Key == "stack":
		return lograte.Bound(a, mostStack)
	case failed || a.Value.Kind() == slog.KindString:
		return lograte.Bound(a, most)
	}
	return a
}

// server is everything that is open while serving.
type server struct {
	config    config
	log       *slog.Logger
	store     store.Store
	blobs     blobStore
	held      *holdback.File
	driver    driver
	snapshots *snapshot.Store   // nil on systems that cannot take any
	peers     *peer.Client      // nil if no other server shares the store
	fencing   *fencing.Register // nil likewise
	sessions  *session.Sessions
	catalog   *catalog.Catalog
	door      *rest.Server
	v1        *v1.Server
	http      *http.Server
	listener  net.Listener
	conns     *connlimit.Limit
	ready     atomic.Bool
	running   sync.WaitGroup
	stop      context.CancelFunc // ends what runs beside the requests
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
	case err := <-failure(s.store):
		cause = fmt.Errorf("the disk failed, so nothing more can be promised: %w", err)
	case err := <-s.sessions.Failed():
		cause = err
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

// open opens everything in order. If one of them cannot be opened it closes the others in
// reverse order.
func open(ctx context.Context, c config, log *slog.Logger) (_ *server, err error) {
	s := &server{config: c, log: log}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	if err := claimData(ctx, c.Data, log); err != nil {
		return nil, err
	}
	// The database comes first: its lock is the lock of the data directory.
	if s.store, err = openStore(ctx, c.Data, c.Store, log); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.store.Close() })
	if s.blobs, err = openBlobs(ctx, c.Data, c.Blobs); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.blobs.Close() })
	if s.held, err = holdback.Open(filepath.Join(c.Data, heldFile)); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.held.Close() })
	who, err := auth.OpenLocal(filepath.Join(c.Data, tokenFile))
	if err != nil {
		return nil, err
	}
	models, err := newModels(c)
	if err != nil {
		return nil, err
	}
	// Sandboxes must not reach the address that we listen at, so it is known before any
	// is opened.
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", c.Listen); err != nil {
		return nil, fmt.Errorf("%w; choose another address with --listen", err)
	}
	undo = append(undo, func() { _ = s.listener.Close() })
	c.listening = s.listener.Addr()
	s.config.listening = c.listening
	// Processes that are started from here on inherit nothing of the environment.
	environment := leaveEnvironment(c)
	err = s.withReserve(func() (err error) {
		s.driver, err = openSandboxes(ctx, c, environment, log)
		return err
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.closeDriver() })
	if s.snapshots, err = s.openSnapshots(); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = s.closeSnapshots() })

	c.Model = cmp.Or(c.Model, models.usual())
	tools, counters := tool.Builtin(), newMetrics()
	if _, err := models.Model(c.Model); err != nil {
		return nil, usage("--model: %w", err)
	}
	sessions := session.Config{
		Store: s.store, Blobs: s.blobs, Driver: s.driver, Agent: agent.New(models, tools), Logger: log,
		DropAfter: c.DropAfter, IdleTimeout: c.IdleTimeout, MaxActive: c.MaxActive, OnCommit: counters.committed,
		ReleaseReserve: s.held.Release,
	}
	key, err := s.share(ctx, &sessions)
	undo = append(undo, func() { _ = s.leaveRegister() })
	if err != nil {
		return nil, err
	}
	if err := s.configureSnapshots(&sessions, key); err != nil {
		return nil, err
	}
	if s.sessions, err = session.New(sessions); err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	if a, ok := s.listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.WarnContext(ctx, "listening beyond this machine without encryption", "address", a.String())
	}
	hosts := append([]string{host}, c.Hosts...)
	if err := s.openVaults(ctx); err != nil {
		return nil, err
	}
	s.v1 = v1.New(v1.Config{
		Auth: who, Logger: log, Catalog: s.catalog, Models: models, Hosts: hosts, Observe: counters.answered,
		Sessions: s.sessions, SleepAfter: c.SleepAfter, CheckAgent: models.check(tools),
	})
	s.door = rest.New(rest.Config{
		Sessions: s.sessions, Auth: who, Logger: log, Hosts: hosts, VaultKeys: s.catalog,
		Agent: dormouse.AgentConfig{
			Name: "dormouse", Model: c.Model,
			Tools: []dormouse.ToolConfig{
				{Name: "bash", Permission: dormouse.PermissionAllow},
				{Name: "read", Permission: dormouse.PermissionAllow},
				{Name: "write", Permission: dormouse.PermissionAllow},
				{Name: "edit", Permission: dormouse.PermissionAllow},
				{Name: "glob", Permission: dormouse.PermissionAllow},
				{Name: "grep", Permission: dormouse.PermissionAllow},
				{Name: "task", Permission: dormouse.PermissionAllow},
				{Name: "question_ask", Permission: dormouse.PermissionAllow},
				{Name: "wakeup_schedule", Permission: dormouse.PermissionAllow},
				{Name: "wakeup_cancel", Permission: dormouse.PermissionAllow},
				{Name: "wakeup_list", Permission: dormouse.PermissionAllow},
				{Name: "workspace_snapshot", Permission: dormouse.PermissionAllow},
				{Name: "workspace_restore", Permission: dormouse.PermissionAllow},
				{Name: "workspace_branch", Permission: dormouse.PermissionAllow},
				{Name: "workspace_list_snapshots", Permission: dormouse.PermissionAllow},
				{Name: "workspace_delete_snapshot", Permission: dormouse.PermissionAllow},
			},
		},
		SleepAfter: c.SleepAfter, CheckAgent: models.check(tools), Ready: s.isReady,
		Metrics: counters.handler(), Observe: counters.answered,
	})
	counters.fleet(s.sessions.Counts)
	counters.gauge("sessions_loaded", "Sessions that have an actor in memory.", s.sessions.Loaded)
	counters.gauge("sandboxes_awake", "Sandboxes of sessions that are awake.", func() int { awake, _ := s.sessions.Slots(); return awake })
	counters.gauge("sandboxes_waiting", "Sessions that wait until a sandbox may be awake.", func() int { _, waiting := s.sessions.Slots(); return waiting })
	counters.gauge("followers", "Streams that are open.", func() int { return s.door.Followers() + s.v1.Followers() })
	if p, ok := s.driver.(interface{ Spares() (started, blank int) }); ok {
		counters.gauge("sandboxes_spare", "Sandboxes that are started and wait for a session.", func() int { n, _ := p.Spares(); return n })
		counters.gauge("sandboxes_blank", "Sandboxes that wait for a session to wake in them.", func() int { _, n := p.Spares(); return n })
	}
	s.http = newHTTPServer(s.inside(key), log)
	s.conns = connlimit.New(mostConns(cmp.Or(c.MaxConns, defaultConns)))
	s.conns.Apply(s.http)
	counters.gauge("connections", "Connections of clients that are open.", func() int { open, _, _ := s.conns.Counts(); return open })
	counters.counter("connections_cut_total", "Connections closed while they waited, for others.", func() uint64 { _, cut, _ := s.conns.Counts(); return cut })
	counters.counter("connections_refused_total", "Connections turned away because all were in use.", func() uint64 { _, _, refused := s.conns.Counts(); return refused })
	if err := s.sessions.Join(ctx); err != nil {
		return nil, unwelcome(err)
	}
	undo = nil // from here on shutdown closes them
	return s, nil
}

// withReserve runs a step of the start that writes to the disk. If the disk is full it
// releases the reserve, because a server that does not start cannot delete anything.
func (s *server) withReserve(step func() error) error {
	err := step()
	for errors.Is(err, syscall.ENOSPC) && s.held.Release() {
		err = step()
	}
	return err
}

// start serves, and then resumes the work that an earlier server left.
func (s *server) start(ctx context.Context) <-chan error {
	served := make(chan error, 1)
	s.running.Go(func() {
		if err := s.http.Serve(s.conns.Listen(s.listener)); !errors.Is(err, http.ErrServerClosed) {
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
	s.running.Go(func() { s.collect(ctx) })
	s.running.Go(func() { s.sweepVaults(ctx) })
	s.running.Go(func() { s.findSelf(ctx) })
	return served
}

func (s *server) isReady(ctx context.Context) error {
	if !s.ready.Load() {
		return dormouse.ErrClosing
	}
	if err := s.leased(); err != nil {
		return err
	}
	return s.store.Check(ctx)
}
