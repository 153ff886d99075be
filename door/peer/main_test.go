package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/door/peer"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is two servers on one store that reach each other over HTTP.
type pair struct {
	t      *testing.T
	key    []byte
	driver sandbox.Driver
	base   *memory.Store
	blobs  *dir.Store
	log    *slog.Logger
	a, b   *server
}

// database is a store whose clock is more than a day ahead of the machine's, and
// can be set for one server. A server that uses the machine's clock is refused.
type database struct {
	*memory.Server
	off atomic.Int64
}

func (d *database) Now() time.Time {
	return d.Server.Now().Add(30*time.Hour + time.Duration(d.off.Load()))
}

type server struct {
	*session.Sessions
	store  *database
	http   *httptest.Server
	client *peer.Client
	dials  atomic.Int64 // connections that others made to it
}

func newPair(t *testing.T) *pair { return newPairOn(t, nowhere{}) }

// newPairOn is newPair for sessions that have sandboxes.
func newPairOn(t *testing.T, driver sandbox.Driver) *pair {
	t.Helper()
	base := new(memory.Store)
	key, err := base.Server().Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{t: t, key: key, driver: driver, base: base, log: slog.New(slog.DiscardHandler)}
	if p.blobs, err = dir.Open(filepath.Join(t.TempDir(), "blobs")); err != nil {
		t.Fatal(err)
	}
	for _, s := range []**server{&p.a, &p.b} {
		*s = p.open()
	}
	return p
}

func (p *pair) open() *server {
	t := p.t
	t.Helper()
	s := &server{store: &database{Server: p.base.Server()}}
	s.client = peer.NewClient(p.key, func() (time.Time, error) { return s.FleetNow() }, p.log)
	var inside http.Handler
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside.ServeHTTP(w, r) }))
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.dials.Add(1)
		}
	}
	addr := s.http.Listener.Addr().String()
	var err error
	s.Sessions, err = session.New(session.Config{
		Store: s.store, Blobs: p.blobs, Driver: p.driver, Logger: p.log, Agent: agent.New(one{scripted.New(scripted.Options{})}, tool.Builtin()),
		Server: fleet.Server{Name: addr, Addr: addr}, Lease: 10 * time.Second, Peers: s.client,
	})
	if err != nil {
		t.Fatal(err)
	}
	inside = peer.New(peer.Config{Sessions: s.Sessions, Key: p.key, Logger: p.log})
	s.http.Start()
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.EndFollowers()
		s.http.Close()
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		s.client.Close()
	})
	return s
}

// create makes a session that the first server has loaded.
func (p *pair) create() dormouse.SessionID {
	p.t.Helper()
	row, err := p.a.Create(p.t.Context(), ada, dormouse.Created{
		Recovery: dormouse.RecoverAuto, Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.a.Do(p.t.Context(), row.Session, ada, law.Describe{}); err != nil {
		p.t.Fatal(err)
	}
	return row.Session
}

// route leads from the second server to the first.
func (p *pair) route() fleet.Route {
	p.t.Helper()
	from, ok1 := p.b.Self()
	to, ok2 := p.a.Self()
	if !ok1 || !ok2 {
		p.t.Fatal("a server has no lease")
	}
	return fleet.Route{From: from, To: to}
}

// impostor answers every connection with these bytes, and returns its address.
func (p *pair) impostor(answer string) string {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	})
	p.t.Cleanup(func() { _ = l.Close(); done.Wait() })
	return l.Addr().String()
}

// counter counts lines of a log.
type counter struct{ n atomic.Int64 }

func (c *counter) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (c *counter) Write(b []byte) (int, error) {
	if text := string(b); strings.Contains(text, "stranger") || strings.Contains(text, "another version") {
		c.n.Add(1)
	}
	return len(b), nil
}

var ada = dormouse.User("ada")

func prompt(id dormouse.SessionID, name, text string) law.Prompt {
	content := []dormouse.Block{dormouse.Text(text)}
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return law.Prompt{ID: dormouse.PromptID(id, name), Body: dormouse.DigestOf(raw), Content: content}
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

type one struct{ only model.Model }

func (o one) Model(string) (model.Model, error) { return o.only, nil }

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
