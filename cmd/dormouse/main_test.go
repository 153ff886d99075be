package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/door/rest"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() { // the tests do not depend on the environment of the developer
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, environment) {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv(environment+"SANDBOX", sandboxLocal) // a test is no kernel
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// office is a server that commands can be run against. Its sessions have no
// sandbox and a model that says what it is told.
type office struct {
	t    *testing.T
	data string
	door *rest.Server
	http *httptest.Server
}

func newOffice(t *testing.T) *office {
	t.Helper()
	return newOfficeOn(t, nowhere{})
}

// newOfficeOn is newOffice with sandboxes.
func newOfficeOn(t *testing.T, driver sandbox.Driver, change ...func(*session.Config)) *office {
	t.Helper()
	o := &office{t: t, data: t.TempDir()}
	blobs, err := dir.Open(filepath.Join(o.data, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	who, err := auth.OpenLocal(filepath.Join(o.data, tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	m := models{named: map[string]model.Model{"scripted": scripted.New(scripted.Options{})}}
	c := session.Config{
		Store: new(memory.Store), Blobs: blobs, Driver: driver, Logger: log, Agent: agent.New(m, tool.Builtin()),
	}
	for _, f := range change {
		f(&c)
	}
	sessions, err := session.New(c)
	if err != nil {
		t.Fatal(err)
	}
	worker := dormouse.AgentConfig{Name: "test", Model: "scripted"}
	if driver != (nowhere{}) {
		worker.Tools = []dormouse.ToolConfig{{Name: "bash"}}
	}
	o.door = rest.New(rest.Config{
		Sessions: sessions, Auth: who, Logger: log, Agent: worker, CheckAgent: m.check(tool.Builtin()),
	})
	o.http = httptest.NewServer(o.door)
	t.Cleanup(func() {
		sessions.EndFollowers()
		o.http.Close()
		if err := sessions.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	b, err := json.Marshal(running{Address: strings.TrimPrefix(o.http.URL, "http://"), PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.data, serverFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// run runs a command line and returns what it printed.
func (o *office) run(args ...string) (out, errs string, code int) {
	o.t.Helper()
	return runIn(o.t.Context(), "", append([]string{"--data", o.data}, args...)...)
}

// must is run for what has to work.
func (o *office) must(args ...string) string {
	o.t.Helper()
	out, errs, code := o.run(args...)
	if code != 0 {
		o.t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
	}
	return out
}

func (o *office) create(args ...string) string {
	o.t.Helper()
	return strings.TrimSpace(o.must(append([]string{"session", "create", "--cold"}, args...)...))
}

func runIn(ctx context.Context, in string, args ...string) (out, errs string, code int) {
	usualMask()
	defer usualMask()
	var stdout, stderr safeBuffer
	code = run(ctx, args, strings.NewReader(in), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// usualMask takes back what a command has set for its process, which here is not its
// own.
func usualMask() { syscall.Umask(0o022) }

// safeBuffer may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// eventually waits for something that takes a moment.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not: " + what)
		}
	}
}

// nowhere is a driver for sessions that need no sandbox.
type nowhere struct{}

var errNowhere = errors.New("there are no sandboxes here")

func (nowhere) KeepsWorkspace() bool { return true }
func (nowhere) Create(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errNowhere
}

func (nowhere) Attach(context.Context, sandbox.Handle, runner.Fence) (sandbox.Sandbox, error) {
	return nil, sandbox.ErrGone
}
func (nowhere) Stop(context.Context, sandbox.Handle, runner.Fence) error { return nil }
func (nowhere) Remove(context.Context, runner.Fence) error               { return nil }
