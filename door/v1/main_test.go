package v1_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"go.uber.org/goleak"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/catalog"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server whose every answer is held against the API's description.
type testServer struct {
	t      *testing.T
	url    string
	token  string
	http   *http.Client
	report *schema.Report
	// Set if there are sessions: they, and what stops them before the server.
	sessions *session.Sessions
	store    store.Store
	before   func()
	close    func() // ends the server once every request has been answered and logged
}

var quiet = slog.New(slog.DiscardHandler)

type someModels struct{}

func (someModels) All() []v1.Model {
	return []v1.Model{{ID: "a", Name: "A"}, {ID: "b", Name: "B"}, {ID: "c", Name: "C"}}
}

func (someModels) Find(id string) (v1.Model, bool) {
	return v1.Model{ID: id, Name: id}, len(id) == 1 || strings.HasPrefix(id, "claude-")
}

func newServer(t *testing.T) *testServer {
	t.Helper()
	return newServerOn(t, new(memory.Store), func(*v1.Config) {})
}

// newServerOn is newServer with a catalog in documents.
func newServerOn(t *testing.T, documents catalog.Documents, change func(*v1.Config)) *testServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	who, err := auth.OpenLocal(file)
	if err != nil {
		t.Fatal(err)
	}
	token, err := auth.ReadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := schema.Load()
	if err != nil {
		t.Fatal(err)
	}
	sealer := vault.New(vault.NewKeyFile(filepath.Join(t.TempDir(), "keys"), nil))
	deps := v1.Config{Auth: who, Logger: quiet, Catalog: catalog.New(documents, sealer, nil), Models: someModels{}}
	change(&deps)
	server := httptest.NewServer(v1.New(deps))
	base := new(http.Transport)
	h := &testServer{t: t, url: server.URL, token: token, report: schema.NewReport(), close: sync.OnceFunc(server.Close)}
	h.http = &http.Client{Transport: &schema.Transport{Spec: spec, Report: h.report, Base: base}}
	t.Cleanup(func() {
		if h.before != nil {
			h.before()
		}
		base.CloseIdleConnections()
		h.close()
		for _, v := range h.report.Violations() {
			t.Error(v)
		}
	})
	return h
}

// do asks in plain HTTP.
func (h *testServer) do(method, path, body string, header ...string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// generations are the two ways in which official clients ask.
func (h *testServer) generations() map[string]anthropic.Client {
	usual := []option.RequestOption{option.WithBaseURL(h.url), option.WithHTTPClient(h.http), option.WithoutEnvironmentDefaults()}
	return map[string]anthropic.Client{
		"newer": anthropic.NewClient(append(usual, option.WithAPIKey(h.token))...),
		"older": anthropic.NewClient(append(usual, option.WithHeader("X-Api-Key", h.token), option.WithHeaderDel("Authorization"),
			option.WithHeader("Anthropic-Version", "2023-06-01"), option.WithQuery("beta", "true"))...),
	}
}

// failure is what the client says of an answer.
func failure(t *testing.T, err error) *anthropic.Error {
	t.Helper()
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	if e.RequestID == "" {
		t.Error("there is no request id")
	}
	return e
}
