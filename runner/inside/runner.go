// Package inside is the program in a sandbox: it dials its server, executes ops and
// keeps their results in a journal. The host does not run it.
package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const (
	tasksDir = "tasks"

	defaultGrace = time.Second
)

// Options configures a runner.
type Options struct {
	// Socket is where the server listens.
	Socket string
	// SecretFile has the secret that authenticates the runner. It is read at every dial,
	// because a memory image may wake with a new secret.
	SecretFile string
	// Dir is the runner's own state; Workspace is where commands start.
	Dir       string
	Workspace string
	// Shells is the directory for the FIFOs of shells, empty for one below Dir. Every
	// command opens some, so it should be on a fast file system.
	Shells string
	// Results is the directory for long outputs of commands, empty for one below Dir.
	Results string
	// Prepare is called whenever a server binds the runner. The runner accepts no
	// request before it has succeeded.
	Prepare func() error
	// Env is the environment of commands.
	Env []string
	// Init makes the runner a subreaper that adopts, reaps and finally ends every orphan,
	// as init does. This process must be nothing but the runner.
	Init   bool
	Logger *slog.Logger
	// Heartbeat is the time between two heartbeats, zero for a second.
	Heartbeat time.Duration
	// Grace is the time between SIGTERM and SIGKILL, zero for a second.
	Grace time.Duration
	// DropCaps restricts the capabilities of what the runner starts to those of a
	// typical container.
	DropCaps bool
	// Alone means that the machine has no processes but the runner's, so that their
	// number shows whether a command left one behind.
	Alone bool
	// Pids bounds the processes and threads of what the runner starts, zero for no bound.
	Pids int64
}

// Runner is the end of the protocol in the sandbox. It executes ops and journals them.
type Runner struct {
	opts    Options
	log     *slog.Logger
	shell   string
	journal *journal

	running  sync.WaitGroup // connections and ops
	draining sync.WaitGroup // outputs, which an orphan may keep open

	mu    sync.Mutex
	fence runner.Fence          // guarded by mu; the newest accepted
	bound *conn                 // guarded by mu; requests of any other are refused
	ops   map[dormouse.OpID]*op // guarded by mu
	tasks map[dormouse.OpID]*op // guarded by mu; those that are running

	streams   map[string]*stream // guarded by mu; those that are open or being opened
	terminals terminals
	active    activity

	shells  shellSet
	spawner spawner
	group   pidsGroup
	below   proctree.Descendants // all processes but the runner, which adopts orphans

	procMu sync.Mutex
	closed bool              // guarded by procMu; no process is started any more
	owned  map[int]bool      // guarded by procMu; children that are waited for
	pipes  map[*os.File]bool // guarded by procMu; outputs being read
}

// New opens the runner's state in o.Dir and loads the journal of the runner before it.
func New(o Options) (*Runner, error) {
	if o.Socket == "" || o.SecretFile == "" || o.Dir == "" || o.Workspace == "" {
		return nil, fmt.Errorf("a runner needs a socket, a secret, a directory and a workspace: %w", dormouse.ErrInvalid)
	}
	o.Heartbeat = cmp.Or(o.Heartbeat, runner.DefaultHeartbeat)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.Shells = cmp.Or(o.Shells, filepath.Join(o.Dir, shellsDir))
	o.Results = cmp.Or(o.Results, filepath.Join(o.Dir, resultsDir))
	r := &Runner{
		opts:   o,
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		shell:  bashPath,
		shells: shellSet{slots: make(map[string]*shellSlot)},
		tasks:  make(map[dormouse.OpID]*op),
		owned:  make(map[int]bool),
		pipes:  make(map[*os.File]bool),

		streams: make(map[string]*stream),
	}
	if _, err := os.Stat(r.shell); err != nil {
		r.shell = "/bin/sh"
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, tasksDir), 0o755); err != nil { //nolint:gosec // commands may run as another user
		return nil, fmt.Errorf("open the runner's state: %w", err)
	}
	var err error
	if r.fence, err = readFence(o.Dir); err != nil {
		return nil, err
	}
	if r.journal, r.ops, err = openJournal(o.Dir); err != nil {
		return nil, err
	}
	return r, nil
}

// Run serves the server that listens at the socket until ctx ends. Then it ends every
// process it started and returns.
func (r *Runner) Run(ctx context.Context) error {
	if r.opts.Init {
		if err := r.adoptOrphans(ctx); err != nil {
			return err
		}
	}
	r.connect(ctx)
	return r.close(ctx)
}

// connect keeps one connection to the newest server. It reconnects when the connection
// is lost, and when another server has replaced the socket.
func (r *Runner) connect(ctx context.Context) {
	tick := time.NewTicker(r.opts.Heartbeat)
	defer tick.Stop()
	var pace backoff
	var current *conn
	for ctx.Err() == nil {
		if current == nil {
			c, err := r.reach(ctx)
			if err == nil {
				current, pace = c, backoff{}
				continue
			}
			pace.wait(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-current.done:
			current = nil
		case <-tick.C:
			at, err := os.Stat(r.opts.Socket)
			if err != nil || runner.SameSocket(at, current.at) {
				continue
			}
			if next, err := r.reach(ctx); err == nil {
				if next.fence == current.fence {
					current.close() // the same server, at a new place
				} else {
					current.closeStale()
				}
				current = next
			}
		}
	}
	if current != nil {
		current.close()
	}
}

// reach dials the server and accepts its fence.
func (r *Runner) reach(ctx context.Context) (*conn, error) {
	secret, err := os.ReadFile(r.opts.SecretFile)
	if err != nil {
		return nil, err
	}
	c, at, err := runner.Dial(r.opts.Socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	k := newConn(c, at, r.opts.Heartbeat)
	if err := r.handshake(k, strings.TrimSpace(string(secret))); err != nil {
		_ = c.Close()
		return nil, err
	}
	r.running.Go(k.send)
	r.running.Go(func() { r.listen(ctx, k) })
	return k, nil
}

func (r *Runner) handshake(k *conn, secret string) error {
	hello := r.hello()
	hello.Secret = secret
	if err := k.write(runner.Frame{Kind: runner.KindHello, Hello: &hello}); err != nil {
		return err
	}
	f, err := k.read()
	if err != nil {
		return err
	}
	if f.Kind != runner.KindBind || f.Fence == nil || f.Fence.Validate() != nil {
		return fmt.Errorf("expected a bind: %w", dormouse.ErrInvalid)
	}
	ended, err := r.bind(k, *f.Fence)
	if err == nil && r.opts.Prepare != nil {
		err = r.opts.Prepare()
	}
	if err != nil {
		why, detail := runner.RefusalOf(err)
		return errors.Join(err, k.write(runner.Frame{Kind: runner.KindRefused, Refusal: why, Detail: detail}))
	}
	waitStreams(ended)
	return k.write(runner.Frame{Kind: runner.KindBound})
}

func (r *Runner) hello() runner.Hello {
	r.mu.Lock()
	defer r.mu.Unlock()
	return runner.Hello{Protocol: runner.Protocol, Fence: r.fence}
}

// bind makes k the connection whose requests are accepted. It cancels the streams of
// earlier fences and returns them.
func (r *Runner) bind(k *conn, f runner.Fence) ([]*stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.setFence(r.fence.Bind(f)); err != nil {
		return nil, err
	}
	k.fence = f
	r.bound = k
	return r.endStreams(func(g runner.Fence) bool { return g == f }), nil
}

// admitted is admit for a request that registers nothing.
func (r *Runner) admitted(k *conn, f runner.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admit(k, f)
}

// admit refuses requests that do not come from the newest server. It must be called
// with mu held, and what it admits must be registered before mu is released, so that a
// server that binds later sees it.
func (r *Runner) admit(k *conn, f runner.Frame) error {
	if f.Fence == nil {
		return fmt.Errorf("%s carries no fence: %w", f.Kind, dormouse.ErrInvalid)
	}
	if err := r.setFence(r.fence.Admit(*f.Fence)); err != nil {
		return err
	}
	if r.bound != k {
		if r.bound.fence == k.fence {
			k.close() // the same server, which repeats the request on its new connection
		}
		return runner.ErrStale
	}
	return nil
}

// setFence writes the new fence to disk before the server is answered. It must be called
// with mu held.
func (r *Runner) setFence(next runner.Fence, err error) error {
	if err != nil || next == r.fence {
		return err
	}
	if err := writeFence(r.opts.Dir, next); err != nil {
		return err
	}
	r.fence = next
	return nil
}

// listen reads requests until the connection ends.
func (r *Runner) listen(ctx context.Context, k *conn) {
	defer k.close()
	for {
		f, err := k.read()
		if err != nil {
			return
		}
		switch f.Kind {
		case runner.KindStart:
			o, err := r.start(ctx, k, f)
			r.running.Go(func() { r.answerStart(k, f, o, err) })
			if err == nil {
				r.running.Go(func() { r.active.during(o.done) })
			}
		case runner.KindForget:
			r.forget(k, f)
		case runner.KindAsk, runner.KindKill:
			r.running.Go(func() { k.answer(f, r.answer(ctx, k, f)) })
		case runner.KindOpen:
			s, err := r.open(ctx, k, f)
			r.running.Go(func() { r.answerOpen(k, f, s, err) })
		case runner.KindTerminals, runner.KindResize, runner.KindEndTerminal, runner.KindPorts, runner.KindUsage, runner.KindRelieve:
			r.running.Go(func() { k.answer(f, r.answerQuery(k, f)) })
		case runner.KindQuiesce:
			if r.quiesce(k, f) {
				return
			}
		case runner.KindWait:
			detached := k.attach(f.ID)
			r.running.Go(func() {
				defer k.detach(f.ID)
				if a, ok := r.wait(ctx, k, f, detached); ok {
					k.answer(f, a)
				}
			})
		case runner.KindDetach:
			k.detach(f.ID)
		case runner.KindHeartbeat, runner.KindHello, runner.KindBind, runner.KindBound, runner.KindRefused, runner.KindReply, runner.KindOutput, runner.KindStream:
		}
	}
}

// close ends every process the runner started. Ops end with their context; orphans are
// ended only with Options.Init.
func (r *Runner) close(ctx context.Context) error {
	r.procMu.Lock()
	r.closed = true
	r.procMu.Unlock()
	r.endTerminals()
	var err error
	if r.opts.Init {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		self := os.Getpid()
		err = proctree.End(ending, func(p proctree.Process) bool { return p.Parent == self }, r.opts.Grace)
	}
	r.running.Wait()
	r.spawner.close()
	r.procMu.Lock()
	for pipe := range r.pipes {
		_ = pipe.SetReadDeadline(time.Now())
	}
	r.procMu.Unlock()
	r.draining.Wait()
	return errors.Join(err, r.journal.close())
}
