package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

// machine is a catalog whose keys are in a file, and whose clock can be set.
type machine struct {
	*shelf
	file string
	now  time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{shelf: newShelf(t), file: filepath.Join(t.TempDir(), "keys"), now: time.Now()}
	m.restart(nil)
	return m
}

// restart is another server with the same file and the same store.
func (m *machine) restart(documents catalog.Documents) {
	if documents == nil {
		documents = m.store
	}
	m.vault = vault.New(vault.NewKeyFile(m.file, nil))
	m.Catalog = catalog.New(documents, m.vault, func() time.Time { m.now = m.now.Add(time.Millisecond); return m.now })
}

func (m *machine) keys() (ids []string) {
	m.t.Helper()
	all, err := vault.NewKeyFile(m.file, nil).List(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	return ids
}

// fill makes some credentials in two vaults of two tenants, and returns what they open as.
func (m *machine) fill() (vaults []string, opened map[string]string) {
	m.t.Helper()
	for range 2 {
		id := m.newVault()
		vaults = append(vaults, id)
		must[catalog.Credential](m.t)(m.createCredential(id, variable("V"+strings.ToUpper(id[4:8]))))
		must[catalog.Credential](m.t)(m.createCredential(id, bearer(id)))
	}
	must[catalog.Credential](m.t)(m.createCredential(vaults[0], oauth))
	return vaults, m.opened(vaults...)
}

// under are the keys that secrets are sealed under.
func (m *machine) under() map[string]bool {
	m.t.Helper()
	all := make(map[string]bool)
	refs, err := m.store.DocumentRefs(m.t.Context(), store.DocumentRef{}, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, ref := range refs {
		if id, ok := strings.CutPrefix(ref.Kind, "vault_credential:"); ok {
			for _, sealed := range m.sealed(id, ref.ID) {
				key, err := vault.KeyOf(sealed)
				if err != nil {
					m.t.Fatal(err)
				}
				all[key] = true
			}
		}
	}
	return all
}

func TestRekeySealsEverySecretUnderANewKeyAndRetiresTheOld(t *testing.T) {
	m := newMachine(t)
	vaults, want := m.fill()
	old := m.keys()
	done := must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false))
	if done.Key == old[0] || done.Resealed != 5 || fmt.Sprint(done.Retired) != fmt.Sprint(old) {
		t.Errorf("got %+v", done)
	}
	if under := m.under(); len(under) != 1 || !under[done.Key] {
		t.Errorf("secrets are under %v", under)
	}
	if got := m.opened(vaults...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	if n, err := m.Sweep(t.Context()); n != 0 || err != nil || len(m.keys()) != 2 {
		t.Errorf("the old key is removed at once, while a request may still use it: %v, %v", m.keys(), err)
	}
	m.now = m.now.Add(2 * time.Hour)
	if _, err := m.Sweep(t.Context()); err != nil || fmt.Sprint(m.keys()) != fmt.Sprint([]string{done.Key}) {
		t.Errorf("the keys are %v, %v", m.keys(), err)
	}
	if all := must[[]catalog.KeyState](t)(m.Keys(t.Context())); len(all) != 1 || !all[0].Seals || all[0].Missing {
		t.Errorf("keys: %+v", all)
	}
	if got := m.opened(vaults...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	again := must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false))
	if again.Key == done.Key || again.Resealed != 5 {
		t.Errorf("the next time: %+v", again)
	}
}

// A rekey that is killed at any write, or after it and before it hears of it, loses no
// secret and goes on with the same new key.
func TestARekeyThatIsKilledGoesOn(t *testing.T) {
	for _, late := range []bool{false, true} {
		for left, finished := 0, false; !finished; left++ {
			m := newMachine(t)
			vaults, want := m.fill()
			m.restart(&mortal{documents: m.store, left: left, late: late})
			_, err := m.Rekey(t.Context(), false)
			finished = err == nil
			if !finished && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if got := m.opened(vaults...); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("killed after %d writes: got %v", left, got)
			}
			m.restart(nil)
			made := m.keys()
			if !finished || late {
				must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false))
			}
			if len(made) > 1 && left < 6 && len(m.keys()) > len(made) {
				t.Errorf("killed after %d writes, another key was made: %v", left, m.keys())
			}
			if under := m.under(); len(under) != 1 {
				t.Errorf("killed after %d writes, secrets are under %v", left, under)
			}
			// Killed again while the old keys are removed.
			m.now = m.now.Add(2 * time.Hour)
			m.restart(&mortal{documents: m.store, left: 0, late: late})
			_, _ = m.Sweep(t.Context())
			m.restart(nil)
			if _, err := m.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.OpenKeys(t.Context()); err != nil || len(m.keys()) != 1 {
				t.Errorf("killed after %d writes, there are %v: %v", left, m.keys(), err)
			}
			if got := m.opened(vaults...); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("killed after %d writes: got %v", left, got)
			}
		}
	}
}

// meddler changes a credential just before somebody else does.
type meddler struct {
	documents
	meddle func(store.DocumentRef)
}

func (m *meddler) Replace(ctx context.Context, d store.Document, keep bool) error {
	if do := m.meddle; do != nil && strings.HasPrefix(d.Kind, "vault_credential:") {
		m.meddle = nil
		do(d.Ref())
	}
	return m.documents.Replace(ctx, d, keep)
}

func TestARotationDuringARekeyIsNotLost(t *testing.T) {
	m := newMachine(t)
	id := m.newVault()
	c := must[catalog.Credential](t)(m.createCredential(id, bearer("a")))
	other := *m
	m.restart(&meddler{m.store, func(store.DocumentRef) {
		must[catalog.Credential](t)(other.updateCredential(id, c.ID, `{"auth":{"type":"static_bearer","token":"second"}}`))
	}})
	done := must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false))
	if got := m.opened(id)["https://mcp.example.com/a token"]; got != "second" || !m.under()[done.Key] {
		t.Errorf("got %q", got)
	}
}

// A request that found out the key before the exchange, and stores what it sealed after
// it, is sealed anew before the key is removed.
func TestAKeyThatIsNeededAfterAllIsNotRemoved(t *testing.T) {
	m := newMachine(t)
	id := m.newVault()
	must[catalog.Credential](t)(m.createCredential(id, bearer("a")))
	before, err := m.store.Document(t.Context(), m.refs(id)[0])
	if err != nil {
		t.Fatal(err)
	}
	must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false))
	late, err := m.store.Document(t.Context(), before.Ref())
	if err != nil {
		t.Fatal(err)
	}
	late.Body = before.Body
	if err := m.store.Replace(t.Context(), late, false); err != nil {
		t.Fatal(err)
	}
	m.now = m.now.Add(2 * time.Hour)
	if _, err := m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.restart(nil)
	if got := m.opened(id)["https://mcp.example.com/a token"]; got != canary+"-token" || len(m.keys()) != 1 {
		t.Errorf("got %q with %v", got, m.keys())
	}
}

func TestAMissingKeyIsNotMadeAnew(t *testing.T) {
	m := newMachine(t)
	if err := m.OpenKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := m.newVault()
	c := must[catalog.Credential](t)(m.createCredential(id, oauth))
	away := m.file + ".away"
	if err := os.Rename(m.file, away); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first is the server that knows the key still
		for what, err := range map[string]error{
			"start":    m.OpenKeys(t.Context()),
			"creation": errOf(m.createCredential(id, bearer("b"))),
			"rotation": errOf(m.updateCredential(id, c.ID, `{"auth":{"type":"mcp_oauth","access_token":"x"}}`)),
			"rekey":    errOf(m.Rekey(t.Context(), false)),
		} {
			refused(t, what, err, dormouse.ErrNoVaultKey, "vkey_")
			if !strings.Contains(err.Error(), m.file) {
				t.Errorf("%s: %v does not say where", what, err)
			}
		}
		if _, err := os.Stat(m.file); err == nil {
			t.Fatal("a key was made")
		}
		m.restart(nil)
	}
	if all := must[[]catalog.KeyState](t)(m.Keys(t.Context())); len(all) != 1 || !all[0].Missing {
		t.Errorf("keys: %+v", all)
	}
	// What needs no key goes on.
	must[catalog.Credential](t)(m.updateCredential(id, c.ID, `{"display_name":"x","auth":{"type":"mcp_oauth","expires_at":null}}`))
	must[[]catalog.Credential](t)(m.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 9}))
	must[catalog.Vault](t)(m.createVault(`{"display_name":"x"}`))
	if err := os.Rename(away, m.file); err != nil {
		t.Fatal(err)
	}
	if err := m.OpenKeys(t.Context()); err != nil || len(m.opened(id)) != 3 {
		t.Errorf("it is back: %v", err)
	}
}

func TestAServerWithOtherKeysSealsNothing(t *testing.T) {
	m := newMachine(t)
	id := m.newVault()
	must[catalog.Credential](t)(m.createCredential(id, bearer("a")))
	other := *m
	other.file = filepath.Join(t.TempDir(), "keys")
	other.restart(nil)
	if _, err := other.vault.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(t, "start", other.OpenKeys(t.Context()), dormouse.ErrNoVaultKey, m.keys()[0])
	refused(t, "creation", errOf(other.createCredential(id, bearer("b"))), dormouse.ErrNoVaultKey, m.keys()[0])
}

// If the record of the keys is lost, the secrets tell which keys they need.
func TestWithoutItsRecordAMissingKeyIsNotMadeAnewEither(t *testing.T) {
	m := newMachine(t)
	id := m.newVault()
	must[catalog.Credential](t)(m.createCredential(id, bearer("a")))
	if err := m.store.Remove(t.Context(), store.DocumentRef{Kind: "vault_keys", ID: "keys"}); err != nil {
		t.Fatal(err)
	}
	key := m.keys()[0]
	if err := os.Remove(m.file); err != nil {
		t.Fatal(err)
	}
	m.restart(nil)
	refused(t, "start", m.OpenKeys(t.Context()), dormouse.ErrNoVaultKey, key)
	if _, err := os.Stat(m.file); err == nil {
		t.Error("a key was made")
	}
}

func TestLostKeysCanBeForgotten(t *testing.T) {
	m := newMachine(t)
	id := m.newVault()
	c := must[catalog.Credential](t)(m.createCredential(id, bearer("a")))
	if err := os.Remove(m.file); err != nil {
		t.Fatal(err)
	}
	m.restart(nil)
	done := must[catalog.Rekeyed](t)(m.Rekey(t.Context(), true))
	if done.Lost != 1 || done.Resealed != 0 || fmt.Sprint(m.keys()) != fmt.Sprint([]string{done.Key}) {
		t.Errorf("got %+v with %v", done, m.keys())
	}
	if err := m.OpenKeys(t.Context()); err != nil {
		t.Error(err)
	}
	must[catalog.Credential](t)(m.createCredential(id, bearer("b")))
	must[catalog.Credential](t)(m.updateCredential(id, c.ID, `{"auth":{"type":"static_bearer","token":"anew"}}`))
	if got := m.opened(id); got["https://mcp.example.com/a token"] != "anew" || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestWithoutKeysACatalogKeepsNoSecrets(t *testing.T) {
	s := newShelf(t)
	s.Catalog = catalog.New(new(memory.Store), nil, nil)
	id := s.newVault()
	for what, err := range map[string]error{
		"creation": errOf(s.createCredential(id, bearer("a"))), "start": s.OpenKeys(t.Context()),
		"rekey": errOf(s.Rekey(t.Context(), false)), "keys": errOf(s.Keys(t.Context())),
	} {
		refused(t, what, err, dormouse.ErrNoVaultKey, "keeps no secrets")
	}
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// The list of all documents is walked without reading what belongs to others.
func TestASweepFindsTheCredentialsAmongEverythingElse(t *testing.T) {
	m := newMachine(t)
	for i := range 700 {
		must[catalog.Agent](t)(m.create(fmt.Sprintf(`{"name":"agent %d","model":"m"}`, i)))
	}
	for _, who := range []string{"a tenant", "local", "zz"} {
		v := must[catalog.Vault](t)(m.CreateVault(t.Context(), who, catalog.VaultParams{DisplayName: "x"}))
		p := must[catalog.CredentialParams](t)(params[catalog.CredentialParams](t, bearer("a")))
		must[catalog.Credential](t)(m.CreateCredential(t.Context(), who, v.ID, p))
	}
	if done := must[catalog.Rekeyed](t)(m.Rekey(t.Context(), false)); done.Resealed != 3 {
		t.Errorf("got %+v", done)
	}
}
