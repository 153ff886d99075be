package catalog_test

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
)

func (s *shelf) createEnvironment(body string) (catalog.Environment, error) {
	s.t.Helper()
	p, err := params[catalog.EnvironmentParams](s.t, body)
	if err != nil {
		return catalog.Environment{}, err
	}
	e, err := s.CreateEnvironment(s.t.Context(), tenant, p)
	if err == nil {
		s.holds("BetaEnvironment", e)
	}
	return e, err
}

func (s *shelf) updateEnvironment(id, body string) (catalog.Environment, error) {
	s.t.Helper()
	p, err := params[catalog.EnvironmentUpdate](s.t, body)
	if err != nil {
		return catalog.Environment{}, err
	}
	e, err := s.UpdateEnvironment(s.t.Context(), tenant, id, p)
	if err == nil {
		s.holds("BetaEnvironment", e)
	}
	return e, err
}

func TestAnEnvironmentIsShownWhole(t *testing.T) {
	s := newShelf(t)
	for body, want := range map[string]string{
		`{"name":"a"}`: `{"networking":{"type":"unrestricted"},"packages":{"apt":[],"cargo":[],"gem":[],"go":[],"npm":[],"pip":[],"type":"packages"},"type":"cloud"}`,
		`{"name":"b","config":{"type":"self_hosted"}}`: `{"type":"self_hosted"}`,
		`{"name":"c","config":{"type":"cloud","networking":{"type":"limited","allowed_hosts":["*.example.com"],"allow_package_managers":true},"packages":{"pip":["ruff==0.5.0"]}}}`: `{"networking":{"allow_mcp_servers":false,"allow_package_managers":true,"allowed_hosts":["*.example.com"],"type":"limited"},"packages":{"apt":[],"cargo":[],"gem":[],"go":[],"npm":[],"pip":["ruff==0.5.0"],"type":"packages"},"type":"cloud"}`,
	} {
		e := must[catalog.Environment](t)(s.createEnvironment(body))
		if got := field(t, e, "config"); got != want {
			t.Errorf("%s is shown as %s", body, got)
		}
		again := must[catalog.Environment](t)(s.Environment(t.Context(), tenant, e.ID))
		if string(dormouse.Encode(again)) != string(dormouse.Encode(e)) {
			t.Errorf("%s was kept as %s", body, dormouse.Encode(again))
		}
	}
}

func TestWhatAnEnvironmentMayNotBe(t *testing.T) {
	s := newShelf(t)
	for fields, says := range map[string]string{
		`"name":""`: "name: has 0",
		`"name":"` + strings.Repeat("x", 257) + `"`:                                                       "name: has 257",
		`"name":"x","description":"` + strings.Repeat("x", 1025) + `"`:                                    "description: has 1025",
		`"name":"x","scope":"account"`:                                                                    "scope",
		`"name":"x","metadata":null`:                                                                      "metadata",
		`"name":"x","image":"debian"`:                                                                     "image: there is no such field",
		`"name":"x","config":{}`:                                                                          "config.type: is required",
		`"name":"x","config":{"type":"moon"}`:                                                             "config.type",
		`"name":"x","config":{"type":"self_hosted","packages":null}`:                                      "config.packages: there is no such field",
		`"name":"x","config":{"type":"cloud","networking":{"type":"none"}}`:                               "config.networking.type",
		`"name":"x","config":{"type":"cloud","networking":{"type":"unrestricted","allowed_hosts":[]}}`:    "allowed_hosts: there is no such field",
		`"name":"x","config":{"type":"cloud","networking":{"type":"limited","allowed_hosts":["a b"]}}`:    "config.networking.allowed_hosts[0]",
		`"name":"x","config":{"type":"cloud","networking":{"type":"limited"},"packages":{"apt":["git"]}}`: "allow_package_managers",
		`"name":"x","config":{"type":"cloud","packages":{"apt":["git;rm"]}}`:                              "config: packages.apt[0]",
		`"name":"x","config":{"type":"cloud","packages":{"type":"bundle"}}`:                               "config.packages.type",
	} {
		_, err := s.createEnvironment("{" + fields + "}")
		refused(t, fields[:min(len(fields), 80)], err, dormouse.ErrInvalid, says)
	}
}

func TestUpdatesOfAnEnvironmentKeepWhatTheyLeaveOut(t *testing.T) {
	s := newShelf(t)
	e := must[catalog.Environment](t)(s.createEnvironment(`{"name":"a","description":"d","metadata":{"k":"v","l":"w","empty":""},
		"config":{"type":"cloud","networking":{"type":"limited","allowed_hosts":["a.example"],"allow_package_managers":true},"packages":{"apt":["git"]}}}`))
	if got := must[catalog.Environment](t)(s.updateEnvironment(e.ID, `{"name":null,"config":null,"scope":null}`)); !got.Updated.Equal(e.Updated) {
		t.Errorf("nothing was to change: %s", dormouse.Encode(got))
	}
	got := must[catalog.Environment](t)(s.updateEnvironment(e.ID, `{"description":"","metadata":{"k":null,"l":"","m":"x"},"config":{"type":"cloud","networking":{"type":"limited","allow_mcp_servers":true}}}`))
	if field(t, got, "metadata") != `{"empty":"","m":"x"}` || field(t, got, "description") != `""` || field(t, got, "config", "packages", "apt") != `["git"]` ||
		field(t, got, "config", "networking") != `{"allow_mcp_servers":true,"allow_package_managers":true,"allowed_hosts":["a.example"],"type":"limited"}` {
		t.Errorf("got %s", dormouse.Encode(got))
	}
	got = must[catalog.Environment](t)(s.updateEnvironment(e.ID, `{"description":null,"config":{"type":"cloud","networking":{"type":"unrestricted"},"packages":{"npm":["left-pad"]}}}`))
	if got.Description != nil || field(t, got, "config", "networking") != `{"type":"unrestricted"}` || field(t, got, "config", "packages", "apt") != `[]` {
		t.Errorf("got %s", dormouse.Encode(got))
	}
	_, err := s.updateEnvironment(e.ID, `{"config":{"type":"self_hosted"}}`)
	refused(t, "another type", err, dormouse.ErrInvalid, "cannot become self_hosted")
	if c, ok := err.(interface{ ErrorCode() string }); !ok || c.ErrorCode() != "invalid_config_type_change" {
		t.Errorf("it has no code: %v", err)
	}
}

func TestTheNameOfAnEnvironmentIsItsOwn(t *testing.T) {
	s := newShelf(t)
	a := must[catalog.Environment](t)(s.createEnvironment(`{"name":"a"}`))
	b := must[catalog.Environment](t)(s.createEnvironment(`{"name":"b"}`))
	_, err := s.createEnvironment(`{"name":"a"}`)
	refused(t, "a second one", err, dormouse.ErrConflict, `called "a"`)
	_, err = s.updateEnvironment(b.ID, `{"name":"a"}`)
	refused(t, "another one", err, dormouse.ErrConflict, `called "a"`)
	if err := s.DeleteEnvironment(t.Context(), tenant, a.ID); err != nil {
		t.Fatal(err)
	}
	must[catalog.Environment](t)(s.updateEnvironment(b.ID, `{"name":"a"}`))
	_, err = s.Environment(t.Context(), tenant, a.ID)
	refused(t, "a deleted one", err, dormouse.ErrNotFound, a.ID)
	refused(t, "deleting it again", s.DeleteEnvironment(t.Context(), tenant, a.ID), dormouse.ErrNotFound, a.ID)
}

func TestNoSessionIsMadeInAnArchivedEnvironment(t *testing.T) {
	s := newShelf(t)
	e := must[catalog.Environment](t)(s.createEnvironment(`{"name":"a"}`))
	must[catalog.Environment](t)(s.SessionEnvironment(t.Context(), tenant, e.ID))
	gone := must[catalog.Environment](t)(s.ArchiveEnvironment(t.Context(), tenant, e.ID))
	if again := must[catalog.Environment](t)(s.ArchiveEnvironment(t.Context(), tenant, e.ID)); gone.Archived == nil || !again.Archived.Equal(*gone.Archived) {
		t.Errorf("got %s", dormouse.Encode(again))
	}
	_, err := s.SessionEnvironment(t.Context(), tenant, e.ID)
	refused(t, "a session", err, dormouse.ErrInvalid, "archived")
	_, err = s.updateEnvironment(e.ID, `{"name":"b"}`)
	refused(t, "an update", err, dormouse.ErrInvalid, "archived")
}

func TestSandboxesAreMadeOfWhatAnEnvironmentSays(t *testing.T) {
	s := newShelf(t)
	open := must[catalog.Environment](t)(s.createEnvironment(`{"name":"a","config":{"type":"cloud","packages":{"go":["golang.org/x/tools/gopls@latest"]}}}`))
	if got := open.Sandbox(); got.Network != dormouse.NetworkOn || len(got.Packages.Go) != 1 || got.Validate() != nil {
		t.Errorf("got %+v", got)
	}
	limited := must[catalog.Environment](t)(s.createEnvironment(`{"name":"b","config":{"type":"cloud","networking":{"type":"limited","allowed_hosts":["a.example"],"allow_package_managers":true}}}`))
	if got := limited.Sandbox(); got.Network != dormouse.NetworkLimited || len(got.Hosts) != 1 || !got.PackageManagers || got.Validate() != nil {
		t.Errorf("got %+v", got)
	}
	own := must[catalog.Environment](t)(s.createEnvironment(`{"name":"c","config":{"type":"self_hosted"}}`))
	if len(own.Unsupported()) != 1 || len(open.Unsupported()) != 0 {
		t.Errorf("unsupported are %v and %v", own.Unsupported(), open.Unsupported())
	}
}
