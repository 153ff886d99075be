package catalog_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

const tenant = "local"

// shelf is a catalog in memory, asked in JSON as clients do.
type shelf struct {
	*catalog.Catalog
	t     testing.TB
	spec  *schema.Spec
	store *memory.Store
	vault *vault.Vault
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	spec, err := schema.Load()
	if err != nil {
		t.Fatal(err)
	}
	documents, sealer := new(memory.Store), vault.New(vault.NewKeyFile(filepath.Join(t.TempDir(), "keys"), nil))
	return &shelf{catalog.New(documents, sealer, nil), t, spec, documents, sealer}
}

// params decodes what a client sent.
func params[T any](t testing.TB, body string) (T, error) {
	t.Helper()
	var p T
	err := closedjson.Unmarshal([]byte(body), &p)
	return p, err
}

func (s *shelf) create(body string) (catalog.Agent, error) {
	s.t.Helper()
	p, err := params[catalog.AgentParams](s.t, body)
	if err != nil {
		return catalog.Agent{}, err
	}
	a, err := s.CreateAgent(s.t.Context(), tenant, p)
	if err == nil {
		s.holds("BetaManagedAgentsAgent", a)
	}
	return a, err
}

func (s *shelf) update(id, body string) (catalog.Agent, error) {
	s.t.Helper()
	p, err := params[catalog.AgentUpdate](s.t, body)
	if err != nil {
		return catalog.Agent{}, err
	}
	a, err := s.UpdateAgent(s.t.Context(), tenant, id, p)
	if err == nil {
		s.holds("BetaManagedAgentsAgent", a)
	}
	return a, err
}

// holds checks that v is as the API describes it.
func (s *shelf) holds(name string, v any) {
	s.t.Helper()
	if err := s.spec.Named(name, dormouse.Encode(v)); err != nil {
		s.t.Errorf("%s: %v\n%s", name, err, dormouse.Encode(v))
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// field is a part of v as it is encoded, by a path of names and indices.
func field(t testing.TB, v any, path ...any) string {
	t.Helper()
	var got any
	if err := json.Unmarshal(dormouse.Encode(v), &got); err != nil {
		t.Fatal(err)
	}
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := got.(map[string]any)
			got = m[step]
		case int:
			l, _ := got.([]any)
			if step >= len(l) {
				t.Fatalf("%v has no %d", l, step)
			}
			got = l[step]
		}
	}
	return string(dormouse.Encode(got))
}

// refused checks that err is of a kind, and says so.
func refused(t testing.TB, what string, err, kind error, says string) {
	t.Helper()
	_, undecoded := errors.AsType[*closedjson.Error](err)
	if !errors.Is(err, kind) && (!undecoded || !errors.Is(kind, dormouse.ErrInvalid)) {
		t.Errorf("%s: got %v, not %v", what, err, kind)
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %q does not say %q", what, err, says)
	}
}
