package catalog_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
)

// mutants are every document that differs from a document in one place: a value
// that is null or of another kind, a field that is missing, one that nobody knows.
func mutants(doc any, rebuild func(any) any, yield func(any)) {
	for _, other := range []any{nil, "x", "", 7.0, -1.5, true, []any{}, []any{nil}, map[string]any{}} {
		yield(rebuild(other))
	}
	switch doc := doc.(type) {
	case map[string]any:
		with := func(change func(map[string]any)) any {
			m := make(map[string]any)
			maps.Copy(m, doc)
			change(m)
			return rebuild(m)
		}
		yield(with(func(m map[string]any) { m["surprise"] = 1 }))
		for k, v := range doc {
			yield(with(func(m map[string]any) { delete(m, k) }))
			mutants(v, func(v any) any { return with(func(m map[string]any) { m[k] = v }) }, yield)
		}
	case []any:
		for i, v := range doc {
			yield(rebuild(append(slices.Clone(doc), v)))
			mutants(v, func(v any) any {
				l := slices.Clone(doc)
				l[i] = v
				return rebuild(l)
			}, yield)
		}
	}
}

// TestNothingIsTakenThatTheAPIDoesNotHave changes requests in every place. What
// is taken must be as the API describes requests, and so must be what is shown.
func TestNothingIsTakenThatTheAPIDoesNotHave(t *testing.T) {
	s := newShelf(t)
	n, taken := 0, 0
	each := func(seed, name string, take func(body string) error) {
		var doc any
		if err := json.Unmarshal([]byte(seed), &doc); err != nil {
			t.Fatal(err)
		}
		mutants(doc, func(v any) any { return v }, func(v any) {
			n++
			body := string(dormouse.Encode(v))
			if take(body) != nil {
				return
			}
			taken++
			if err := s.spec.Named(name, []byte(body)); err != nil {
				t.Errorf("%s is taken as %s, although %v", body, name, err)
			}
		})
	}
	fresh := must[catalog.Agent](t)(s.create(`{"name":"n","model":"m"}`))
	for _, seed := range agentSeeds {
		each(seed, "BetaManagedAgentsCreateAgentParams", func(body string) error { _, err := s.create(body); return err })
		each(seed, "BetaManagedAgentsUpdateAgentParams", func(body string) error { _, err := s.update(fresh.ID, body); return err })
	}
	for _, seed := range environmentSeeds {
		each(seed, "BetaPublicEnvironmentCreateRequest", func(body string) error { _, err := newShelf(t).createEnvironment(body); return err })
		each(seed, "BetaPublicEnvironmentUpdateRequest", func(body string) error {
			s := newShelf(t)
			e := must[catalog.Environment](t)(s.createEnvironment(environmentSeeds[0]))
			_, err := s.updateEnvironment(e.ID, body)
			return err
		})
	}
	for _, seed := range []string{`{"display_name":"d","metadata":{"k":"v"}}`} {
		each(seed, "BetaManagedAgentsCreateVaultRequest", func(body string) error { _, err := s.createVault(body); return err })
		vault := s.newVault()
		each(seed, "BetaManagedAgentsUpdateVaultRequestBody", func(body string) error { _, err := s.updateVault(vault, body); return err })
	}
	vault := s.newVault()
	for create, update := range credentialSeeds {
		each(create, "BetaManagedAgentsCreateCredentialRequestBody", func(body string) error {
			c, err := s.createCredential(vault, body)
			if err != nil {
				return err
			}
			return s.DeleteCredential(t.Context(), tenant, vault, c.ID)
		})
		c := must[catalog.Credential](t)(s.createCredential(vault, create))
		each(update, "BetaManagedAgentsUpdateCredentialRequestBody", func(body string) error { _, err := s.updateCredential(vault, c.ID, body); return err })
		if err := s.DeleteCredential(t.Context(), tenant, vault, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if taken < 300 || n-taken < 2000 {
		t.Errorf("of %d requests %d were taken, which proves little", n, taken)
	}
}
