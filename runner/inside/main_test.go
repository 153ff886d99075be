//go:build linux

package inside_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret    = "open sesame"
	session   = dormouse.SessionID("sesn_test")
	heartbeat = 200 * time.Millisecond
)

// rig is a runner and what a server needs to reach it.
type rig struct {
	dir, workspace string
	socket         string // where links listen
	dialled        string // where the runner dials
	stop           func()
	ahead          bool   // a shell is started before the runner runs
	shells         string // where shells are, if not where they usually are
}

// newRig makes the places of a runner without starting one.
func newRig(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{dir: dir, workspace: filepath.Join(dir, "workspace"), socket: filepath.Join(dir, "socket")}
	r.dialled = r.socket
	if err := os.Mkdir(r.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "secret"), secret+"\n")
	return r
}

// run starts the runner in this process.
func (r *rig) run(t testing.TB) {
	t.Helper()
	inside, err := inside.New(inside.Options{
		Socket:     r.dialled,
		SecretFile: filepath.Join(r.dir, "secret"),
		Dir:        filepath.Join(r.dir, "state"),
		Workspace:  r.workspace,
		Shells:     r.shells,
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + r.workspace},
		Heartbeat:  heartbeat,
		Grace:      100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if r.ahead {
		if err := inside.PrestartShell(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- inside.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
}

func fence(generation, epoch uint64) runner.Fence {
	return runner.Fence{Session: session, Generation: generation, Epoch: epoch}
}

// listen opens a link with short heartbeats that need not find a runner.
func (r *rig) listen(t testing.TB, f runner.Fence) *runner.Link {
	t.Helper()
	l, err := runner.Listen(runner.LinkOptions{Path: r.socket, Secret: secret, Fence: f, Heartbeat: heartbeat, ReconnectTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// link opens a link and waits for the runner.
func (r *rig) link(t testing.TB, f runner.Fence) *runner.Link {
	t.Helper()
	l := r.listen(t, f)
	if err := l.Ready(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return l
}

// open starts a runner and links to it.
func open(t testing.TB) (*rig, *runner.Link) {
	t.Helper()
	r := newRig(t)
	r.run(t)
	return r, r.link(t, fence(1, 1))
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var lastOp struct {
	sync.Mutex
	n int
}

// newOp makes an op id that is unique on this machine: processes are found and
// ended by that id, wherever they run.
func newOp() dormouse.OpID {
	lastOp.Lock()
	defer lastOp.Unlock()
	lastOp.n++
	return dormouse.OpID(fmt.Sprintf("op_%d_%d", os.Getpid(), lastOp.n))
}

func exec(command string) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command}}
}

func do(t testing.TB, l *runner.Link, c runner.Call) runner.Result {
	t.Helper()
	start(t, l, c)
	return wait(t, l, c.Op)
}

func start(t testing.TB, l *runner.Link, c runner.Call) {
	t.Helper()
	if err := l.Start(deadline(t), c); err != nil {
		t.Fatal(err)
	}
}

func wait(t testing.TB, l *runner.Link, op dormouse.OpID) runner.Result {
	t.Helper()
	res, err := l.Wait(deadline(t), op, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func ask(t testing.TB, l *runner.Link, op dormouse.OpID) runner.State {
	t.Helper()
	rep, err := l.Ask(deadline(t), op)
	if err != nil {
		t.Fatal(err)
	}
	return rep.State
}

func writeFile(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.workspace, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func (r *rig) lines(t testing.TB, name string) int {
	t.Helper()
	return strings.Count(r.read(t, name), "\n")
}

// eventually waits until ok, and fails if that takes unreasonably long.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// settled fails if the file grows while we look: something still acts.
func (r *rig) settled(t testing.TB, name string) {
	t.Helper()
	before := r.lines(t, name)
	time.Sleep(100 * time.Millisecond)
	if after := r.lines(t, name); after != before {
		t.Errorf("%s grew from %d to %d lines: something still acts", name, before, after)
	}
}

// proxy stands between a runner and its link and can cut their connection.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	conns []net.Conn
	holds bool // replies are lost, and the connection with them
}

// proxied makes the runner of r dial through a proxy.
func proxied(t testing.TB, r *rig) *proxy {
	t.Helper()
	r.dialled = filepath.Join(r.dir, "proxy")
	l, err := net.Listen("unix", r.dialled)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: r.socket}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			inside, err := l.Accept()
			if err != nil {
				return
			}
			outside, err := net.Dial("unix", p.to)
			if err != nil {
				_ = inside.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, inside, outside)
			p.mu.Unlock()
			running.Go(func() { defer p.cut(); _, _ = io.Copy(inside, outside) })
			running.Go(func() { defer p.cut(); p.back(outside, bufio.NewReader(inside)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		running.Wait()
	})
	return p
}

func (p *proxy) back(to io.Writer, from io.Reader) {
	for {
		f, err := runner.ReadFrame(from, runner.FromServer())
		if err != nil {
			return
		}
		p.mu.Lock()
		held := p.holds && f.Kind == runner.KindReply
		p.mu.Unlock()
		if held {
			return
		}
		b, err := runner.AppendFrame(nil, f)
		if err != nil {
			return
		}
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}

// cut breaks every connection without a goodbye.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// swallow makes every connection break at the first reply.
func (p *proxy) swallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = on
}

func mustGlob(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// journal is what the runner has on disk of its ops.
func journal(t testing.TB, r *rig) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, "state/ops"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
