package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/store"
)

func (s *shelf) createVault(body string) (catalog.Vault, error) {
	s.t.Helper()
	p, err := params[catalog.VaultParams](s.t, body)
	if err != nil {
		return catalog.Vault{}, err
	}
	v, err := s.CreateVault(s.t.Context(), tenant, p)
	if err == nil {
		s.holds("BetaManagedAgentsVault", v)
	}
	return v, err
}

func (s *shelf) updateVault(id, body string) (catalog.Vault, error) {
	s.t.Helper()
	u, err := params[catalog.VaultUpdate](s.t, body)
	if err != nil {
		return catalog.Vault{}, err
	}
	v, err := s.UpdateVault(s.t.Context(), tenant, id, u)
	if err == nil {
		s.holds("BetaManagedAgentsVault", v)
	}
	return v, err
}

// newVault is a vault's id.
func (s *shelf) newVault() string {
	s.t.Helper()
	return must[catalog.Vault](s.t)(s.createVault(`{"display_name":"v"}`)).ID
}

func TestAVaultIsKeptAsItIsShown(t *testing.T) {
	s := newShelf(t)
	v := must[catalog.Vault](t)(s.createVault(`{"display_name":"a","metadata":{"k":"v","e":""}}`))
	if !strings.HasPrefix(v.ID, "vlt_") || field(t, v, "metadata") != `{"e":"","k":"v"}` || v.Archived != nil {
		t.Errorf("got %+v", v)
	}
	if again := must[catalog.Vault](t)(s.Vault(t.Context(), tenant, v.ID)); field(t, again) != field(t, v) {
		t.Errorf("kept as %s", field(t, again))
	}
	v = must[catalog.Vault](t)(s.updateVault(v.ID, `{"display_name":"b","metadata":{"k":null,"n":"1","e":""}}`))
	if v.DisplayName != "b" || field(t, v, "metadata") != `{"e":"","n":"1"}` || !v.Updated.After(v.Created) {
		t.Errorf("got %+v", v)
	}
	same := must[catalog.Vault](t)(s.updateVault(v.ID, `{"display_name":null,"metadata":null}`))
	if field(t, same) != field(t, v) {
		t.Errorf("nothing was asked for, and it became %s", field(t, same))
	}
	twin := must[catalog.Vault](t)(s.createVault(`{"display_name":"b"}`)) // names of vaults are not unique
	all := must[[]catalog.Vault](t)(s.Vaults(t.Context(), catalog.Query{Tenant: tenant, Limit: 10}))
	if len(all) != 2 || all[0].ID != twin.ID {
		t.Errorf("listed %+v", all)
	}
}

func TestWhatAVaultMayNotBe(t *testing.T) {
	s := newShelf(t)
	for fields, says := range map[string]string{
		``:                    "display_name: is required",
		`"display_name":null`: "display_name",
		`"display_name":""`:   "display_name: has 0",
		`"display_name":"` + strings.Repeat("x", 256) + `"`: "display_name: has 256",
		`"display_name":"x","metadata":null`:                "metadata",
		`"display_name":"x","metadata":{"":"x"}`:            "metadata",
		`"display_name":"x","name":"y"`:                     "name: there is no such field",
	} {
		_, err := s.createVault("{" + fields + "}")
		refused(t, fields[:min(len(fields), 60)], err, dormouse.ErrInvalid, says)
	}
	id := s.newVault()
	for fields, says := range map[string]string{
		`"display_name":""`:  "display_name: has 0",
		`"metadata":{"x":1}`: "metadata.x",
		`"archived_at":null`: "there is no such field",
	} {
		_, err := s.updateVault(id, "{"+fields+"}")
		refused(t, fields, err, dormouse.ErrInvalid, says)
	}
	_, err := s.updateVault("vlt_none", `{}`)
	refused(t, "an update of none", err, dormouse.ErrNotFound, "vlt_none")
}

func TestAnArchivedVaultIsReadOnlyAndItsSecretsAreGone(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	first := must[catalog.Credential](t)(s.createCredential(id, bearer("a")))
	second := must[catalog.Credential](t)(s.createCredential(id, variable("B")))
	v := must[catalog.Vault](t)(s.ArchiveVault(t.Context(), tenant, id))
	if v.Archived == nil {
		t.Fatal("it is not archived")
	}
	for range 2 { // again changes nothing
		if again := must[catalog.Vault](t)(s.ArchiveVault(t.Context(), tenant, id)); field(t, again) != field(t, v) {
			t.Errorf("archived again it is %s", field(t, again))
		}
	}
	for _, c := range []catalog.Credential{first, second} {
		got := must[catalog.Credential](t)(s.Credential(t.Context(), tenant, id, c.ID))
		if got.Archived == nil || !got.Archived.Equal(*v.Archived) || field(t, got, "auth") != field(t, c, "auth") {
			t.Errorf("got %s", field(t, got))
		}
		if sealed := s.sealed(id, c.ID); len(sealed) > 0 {
			t.Errorf("its secrets are still there: %v", sealed)
		}
	}
	_, err := s.updateVault(id, `{"display_name":"x"}`)
	refused(t, "an update", err, dormouse.ErrInvalid, "archived")
	_, err = s.createCredential(id, bearer("c"))
	refused(t, "a credential", err, dormouse.ErrInvalid, "archived")
	_, err = s.updateCredential(id, first.ID, `{"display_name":"x"}`)
	refused(t, "an update of a credential", err, dormouse.ErrInvalid, "archived")
	if all := must[[]catalog.Vault](t)(s.Vaults(t.Context(), catalog.Query{Tenant: tenant, Limit: 10})); len(all) != 0 {
		t.Errorf("it is listed: %v", all)
	}
	if all := must[[]catalog.Vault](t)(s.Vaults(t.Context(), catalog.Query{Tenant: tenant, Limit: 10, Archived: true})); len(all) != 1 {
		t.Errorf("it is not listed: %v", all)
	}
}

func TestADeletedVaultTakesItsCredentialsWithIt(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	c := must[catalog.Credential](t)(s.createCredential(id, bearer("a")))
	must[catalog.Credential](t)(s.ArchiveCredential(t.Context(), tenant, id, c.ID))
	must[catalog.Credential](t)(s.createCredential(id, bearer("b")))
	if err := s.DeleteVault(t.Context(), tenant, id); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.DeleteVault(t.Context(), tenant, id),
		s.DeleteCredential(t.Context(), tenant, id, c.ID),
		errOf(s.Vault(t.Context(), tenant, id)),
		errOf(s.Credential(t.Context(), tenant, id, c.ID)),
		errOf(s.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 1})),
	} {
		refused(t, "what is gone", err, dormouse.ErrNotFound, id)
	}
	if left := s.refs(id); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A kill between the record of the vault and its credentials is told by nobody, and
// finished by the next sweep.
func TestWhatAKillLeftOfAVaultCountsAtOnceAndIsSwept(t *testing.T) {
	for what, end := range map[string]func(*shelf, string) error{
		"archived": func(s *shelf, id string) error { return errOf(s.ArchiveVault(s.t.Context(), tenant, id)) },
		"deleted":  func(s *shelf, id string) error { return s.DeleteVault(s.t.Context(), tenant, id) },
	} {
		t.Run(what, func(t *testing.T) {
			s := newShelf(t)
			id, other := s.newVault(), s.newVault()
			var all []string
			for i := range 3 {
				all = append(all, must[catalog.Credential](t)(s.createCredential(id, bearer(fmt.Sprint(i)))).ID)
			}
			kept := must[catalog.Credential](t)(s.createCredential(other, bearer("kept")))
			dying := *s
			dying.Catalog = catalog.New(&mortal{documents: s.store, left: 1}, s.vault, nil)
			if err := end(&dying, id); !errors.Is(err, errKilled) {
				t.Fatalf("it lives: %v", err)
			}
			for _, c := range all {
				got, err := s.Credential(t.Context(), tenant, id, c)
				if what == "deleted" {
					refused(t, "a credential", err, dormouse.ErrNotFound, id)
				} else if err != nil || got.Archived == nil {
					t.Errorf("not archived: %+v, %v", got, err)
				}
			}
			if active := must[[]catalog.ActiveCredential](t)(s.ActiveCredentials(t.Context(), tenant, []string{id})); len(active) > 0 {
				t.Errorf("they can be used: %v", active)
			}
			if what == "archived" {
				if listed := must[[]catalog.Credential](t)(s.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 9})); len(listed) > 0 {
					t.Errorf("they are listed: %v", listed)
				}
			}
			for left := 1; ; left++ { // a sweep is killed too
				dying.Catalog = catalog.New(&mortal{documents: s.store, left: left}, s.vault, nil)
				if _, err := dying.Sweep(t.Context()); err == nil {
					break
				}
			}
			for _, ref := range s.refs(id) {
				if sealed := s.sealed(id, ref.ID); len(sealed) > 0 {
					t.Errorf("%s holds %v", ref, sealed)
				}
			}
			if left := s.refs(id); what == "deleted" && len(left) > 0 || what == "archived" && len(left) != 3 {
				t.Errorf("left: %v", left)
			}
			if sealed := s.sealed(other, kept.ID); len(sealed) != 1 {
				t.Error("another vault was swept")
			}
			if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("there was more: %d, %v", n, err)
			}
		})
	}
}

func TestTenantsDoNotSeeEachOthersVaults(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	c := must[catalog.Credential](t)(s.createCredential(id, bearer("a")))
	for _, err := range []error{
		errOf(s.Vault(t.Context(), "other", id)),
		errOf(s.UpdateVault(t.Context(), "other", id, catalog.VaultUpdate{})),
		errOf(s.ArchiveVault(t.Context(), "other", id)),
		s.DeleteVault(t.Context(), "other", id),
		errOf(s.Credential(t.Context(), "other", id, c.ID)),
		errOf(s.ArchiveCredential(t.Context(), "other", id, c.ID)),
		s.DeleteCredential(t.Context(), "other", id, c.ID),
	} {
		refused(t, "what is another's", err, dormouse.ErrNotFound, id)
	}
	mine := must[catalog.Vault](t)(s.CreateVault(t.Context(), "other", catalog.VaultParams{DisplayName: "x"}))
	refused(t, "another's credential in a vault of one's own", errOf(s.Credential(t.Context(), "other", mine.ID, c.ID)), dormouse.ErrNotFound, c.ID)
	if all := must[[]catalog.Vault](t)(s.Vaults(t.Context(), catalog.Query{Tenant: "other", Limit: 9})); len(all) != 1 {
		t.Errorf("listed %v", all)
	}
	if active := must[[]catalog.ActiveCredential](t)(s.ActiveCredentials(t.Context(), "other", []string{id})); len(active) > 0 {
		t.Errorf("usable: %v", active)
	}
}

func TestAVaultTakesTwentyCredentialsHoweverManyCome(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	for i := range 15 {
		must[catalog.Credential](t)(s.createCredential(id, bearer(fmt.Sprint("before ", i))))
	}
	// Several servers, whose clocks differ.
	var made, full sync.Map
	var all sync.WaitGroup
	for i := range 16 {
		server := *s
		server.Catalog = catalog.New(s.store, s.vault, func() time.Time { return time.Now().Add(time.Duration(i%3-1) * time.Minute) })
		all.Go(func() {
			c, err := server.createCredential(id, bearer(fmt.Sprint("now ", i)))
			switch {
			case err == nil:
				made.Store(c.ID, true)
			case errors.Is(err, dormouse.ErrInvalid) && strings.Contains(err.Error(), "20 credentials"):
				full.Store(i, true)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	count := func(m *sync.Map) (n int) { m.Range(func(any, any) bool { n++; return true }); return n }
	listed := must[[]catalog.Credential](t)(s.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 100}))
	if len(listed) != 20 || count(&made) != 5 || count(&full) != 11 {
		t.Errorf("%d are there, %d were made, %d refused", len(listed), count(&made), count(&full))
	}
	there := map[string]bool{}
	for _, c := range listed {
		there[c.ID] = true
	}
	made.Range(func(id, _ any) bool {
		if !there[id.(string)] {
			t.Errorf("%s was made and is gone", id)
		}
		return true
	})
	_, err := s.createCredential(id, bearer("the 21st"))
	refused(t, "the 21st", err, dormouse.ErrInvalid, "20 credentials")
	must[catalog.Credential](t)(s.ArchiveCredential(t.Context(), tenant, id, listed[0].ID))
	must[catalog.Credential](t)(s.createCredential(id, bearer("the 21st")))
}

func errOf[T any](_ T, err error) error { return err }

// refs are the credentials that the store has of a vault.
func (s *shelf) refs(id string) []store.DocumentRef {
	s.t.Helper()
	all, err := s.store.DocumentRefs(s.t.Context(), store.DocumentRef{}, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	var found []store.DocumentRef
	for _, ref := range all {
		if strings.HasPrefix(ref.Kind, "vault_credential") && strings.HasSuffix(ref.Kind, id) {
			found = append(found, ref)
		}
	}
	return found
}
