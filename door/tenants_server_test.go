//go:build linux

package door_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/door/rest"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server with two tenants: both doors over real sessions, real sandboxes
// that isolate nothing, and a model that follows scripts.
type testServer struct {
	t        *testing.T
	url      string
	http     *http.Client
	sessions *session.Sessions
	store    *memory.Store
	doors    []*door.Router // more of them, for self-tests
	routes   []door.Route
	witness  *witness
}

// principals recognizes a tenant by a token that is its name.
type principals []string

func (p principals) Authenticate(header string) (auth.Principal, bool) {
	return p.Recognize(strings.TrimPrefix(header, "Bearer "))
}

func (p principals) Recognize(token string) (auth.Principal, bool) {
	return auth.Principal{Tenant: token, Actor: dormouse.User("somebody")}, slices.Contains(p, token)
}

// The tenants: theirs owns what the requests name, mine sends them.
const (
	theirs = "acme"
	mine   = "bolt"
)

// witness notes what handlers read since it was last asked.
type witness struct {
	mu     sync.Mutex
	params []string
	bodies []reflect.Type
	routes map[string]bool // what each route has taken and answered, ever; see routes_test.go
}

func (w *witness) Param(r *http.Request, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saw(r, "takes parameter "+name)
	if name = strings.TrimSuffix(name, "+"); !slices.Contains(w.params, name) {
		w.params = append(w.params, name)
	}
}

func (w *witness) Answer(r *http.Request, of reflect.Type) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sawFields(r, "answers", of)
}

func (w *witness) Body(r *http.Request, into reflect.Type) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sawFields(r, "takes", into)
	w.bodies = append(w.bodies, into)
}

func (w *witness) take() (params []string, bodies []reflect.Type) {
	w.mu.Lock()
	defer w.mu.Unlock()
	params, bodies = w.params, w.bodies
	w.params, w.bodies = nil, nil
	return params, bodies
}

type oneModel struct{ only model.Model }

func (o oneModel) Model(string) (model.Model, error) { return o.only, nil }

func (oneModel) All() []v1.Model { return []v1.Model{{ID: "scripted", Name: "Scripted"}} }

func (oneModel) Find(id string) (v1.Model, bool) { return v1.Model{ID: id, Name: id}, id == "scripted" }

// newServer is a server with all doors, and perhaps one more.
func newServer(t *testing.T, more ...func(*testServer) *door.Router) *testServer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	h := &testServer{t: t, store: new(memory.Store), witness: new(witness), http: &http.Client{Transport: &http.Transport{}}}
	blobs, err := dir.Open(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	quiet, driver := slog.New(slog.DiscardHandler), localtest.Open(t)
	snapshots, err := snapshot.Open(snapshot.Options{Dir: filepath.Join(t.TempDir(), "snapshots"), Blobs: blobs})
	if err != nil {
		t.Fatal(err)
	}
	models, tools := oneModel{scripted.New(scripted.Options{})}, tool.Builtin()
	// Agents may use the snapshots of other sessions, so that only the tenant is in the way.
	h.sessions, err = session.New(session.Config{
		Store: h.store, Blobs: blobs, Driver: driver, Logger: quiet, Snapshots: snapshots, Refs: snapshot.Key{1}, CrossSession: true,
		Agent: agent.New(models, tools),
	})
	if err != nil {
		t.Fatal(err)
	}
	who := principals{theirs, mine}
	var all []dormouse.ToolConfig
	for _, name := range tools.Names() {
		all = append(all, dormouse.ToolConfig{Name: name, Permission: dormouse.PermissionAllow})
	}
	api := rest.New(rest.Config{
		Sessions: h.sessions, Auth: who, Logger: quiet, Witness: h.witness, GoneWithin: 30 * time.Second,
		Metrics: http.NotFoundHandler(), Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: all},
	})
	shelf := catalog.New(h.store, vault.New(vault.NewKeyFile(filepath.Join(t.TempDir(), "keys"), nil)), nil)
	managed := v1.New(v1.Config{
		Sessions: h.sessions, Auth: who, Logger: quiet, Witness: h.witness, Catalog: shelf, Models: models,
		CheckAgent: func(dormouse.AgentConfig) error { return nil },
	})
	h.routes = slices.Concat(api.Routes(), managed.Routes())
	for _, f := range more {
		d := f(h)
		h.doors, h.routes = append(h.doors, d), append(h.routes, d.Routes()...)
	}
	h.serve(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case len(h.doors) > 0 && strings.HasPrefix(r.URL.Path, "/more/"):
			h.doors[0].ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, v1.Prefix):
			managed.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	}, snapshots)
	return h
}

func (h *testServer) serve(all http.HandlerFunc, snapshots *snapshot.Store) {
	s := httptest.NewServer(all)
	h.url = s.URL
	h.t.Cleanup(func() {
		h.sessions.EndFollowers()
		h.http.CloseIdleConnections()
		s.Close()
		for _, err := range []error{h.sessions.Close(context.WithoutCancel(h.t.Context())), snapshots.Close()} {
			if err != nil {
				h.t.Error(err)
			}
		}
	})
}

// reply is what a tenant was told.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// listenFor is how long an answer that has no end is listened to.
const listenFor = 100 * time.Millisecond

// send asks as a tenant.
func (h *testServer) send(tenant, method, path string, body []byte, header http.Header) reply {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Authorization", "Bearer "+tenant)
	res, err := h.http.Do(r)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	got := reply{status: res.StatusCode, header: res.Header}
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		return got
	case strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"):
		late := time.AfterFunc(listenFor, cancel)
		defer late.Stop()
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, res.Body)
	if err != nil && ctx.Err() == nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	got.body = b.Bytes()
	return got
}
