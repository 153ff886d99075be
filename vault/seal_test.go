package vault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/vault"
)

// fixed is keys in memory, the newest last.
type fixed []vault.Key

func (f fixed) Newest(context.Context) (vault.Key, error) { return f[len(f)-1], nil }

func (f fixed) Key(_ context.Context, id string) (vault.Key, error) {
	for _, k := range f {
		if k.ID() == id {
			return k, nil
		}
	}
	return vault.Key{}, dormouse.ErrNoVaultKey
}

func (fixed) List(context.Context) ([]dormouse.VaultKey, error) { return nil, nil }

func (fixed) Add(context.Context) (dormouse.VaultKey, error) { return dormouse.VaultKey{}, nil }

func (fixed) Remove(context.Context, string) error { return nil }

func key(b byte) vault.Key { return vault.NewKey([32]byte{b}) }

var place = dormouse.SecretPlace{Tenant: "local", Vault: "vlt_1", Credential: "vcrd_1", Field: "token", Version: 3}

func TestWhatIsSealedOpensWhereItWasSealed(t *testing.T) {
	old, fresh := key(1), key(2)
	v := vault.New(fixed{old, fresh})
	for name, k := range map[string]string{old.ID(): old.ID(), "": fresh.ID()} {
		sealed, err := v.Seal(t.Context(), name, place, canary)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(sealed, canary) {
			t.Errorf("it shows in %s", sealed)
		}
		if got, err := vault.KeyOf(sealed); err != nil || got != k {
			t.Errorf("sealed under %q, %v, want %q", got, err, k)
		}
		if got, err := v.Open(t.Context(), place, sealed); err != nil || got.Reveal() != canary {
			t.Errorf("got %q, %v", got.Reveal(), err)
		}
		stored, err := json.Marshal(sealed)
		if again := ""; err != nil || json.Unmarshal(stored, &again) != nil || again != sealed {
			t.Errorf("JSON keeps %s of %s", stored, sealed)
		}
	}
}

// Every part of the place counts, and none can lend another a letter.
func TestWhatIsSealedOpensInNoOtherPlace(t *testing.T) {
	v := vault.New(fixed{key(1)})
	sealed, err := v.Seal(t.Context(), "", place, canary)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]dormouse.SecretPlace{}
	of := reflect.TypeFor[dormouse.SecretPlace]()
	for i := range of.NumField() {
		other := place
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() { //nolint:exhaustive // the kinds there are
		case reflect.String:
			f.SetString(f.String() + "x")
		default:
			f.SetInt(f.Int() - 1)
		}
		others["another "+of.Field(i).Name] = other
	}
	moved := place
	moved.Tenant, moved.Vault = "loca", "lvlt_1"
	others["a letter that moved"] = moved
	for what, other := range others {
		if got, err := v.Open(t.Context(), other, sealed); !errors.Is(err, vault.ErrBroken) || !got.IsZero() {
			t.Errorf("%s: %q, %v", what, got.Reveal(), err)
		}
	}
}

func TestWhatWasChangedDoesNotOpen(t *testing.T) {
	v := vault.New(fixed{key(1), key(2)})
	sealed, err := v.Seal(t.Context(), key(1).ID(), place, canary)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(sealed) {
		for _, with := range []byte{'A', 'b', '.', '0', '\n', '='} {
			changed := sealed[:i] + string(with) + sealed[i+1:]
			if changed == sealed {
				continue
			}
			if _, err := v.Open(t.Context(), place, changed); err == nil {
				t.Errorf("it opens with %q at %d", with, i)
			}
		}
		if _, err := v.Open(t.Context(), place, sealed[:i]); err == nil {
			t.Errorf("the first %d bytes open", i)
		}
	}
	// The same data under the name of another key, and that key under the name of this.
	renamed := strings.Replace(sealed, key(1).ID(), key(2).ID(), 1)
	if _, err := v.Open(t.Context(), place, renamed); !errors.Is(err, vault.ErrBroken) {
		t.Errorf("under another key: %v", err)
	}
}

func TestAMissingKeyIsSaid(t *testing.T) {
	sealed, err := vault.New(fixed{key(1)}).Seal(t.Context(), "", place, canary)
	if err != nil {
		t.Fatal(err)
	}
	v := vault.New(fixed{key(2)})
	if _, err := v.Open(t.Context(), place, sealed); !errors.Is(err, dormouse.ErrNoVaultKey) {
		t.Errorf("open: %v", err)
	}
	if _, err := v.Seal(t.Context(), key(1).ID(), place, canary); !errors.Is(err, dormouse.ErrNoVaultKey) {
		t.Errorf("seal: %v", err)
	}
}

func TestResealingMovesASecretAndNothingElse(t *testing.T) {
	v := vault.New(fixed{key(1), key(2)})
	sealed, err := v.Seal(t.Context(), key(1).ID(), place, canary)
	if err != nil {
		t.Fatal(err)
	}
	next := place
	next.Version++
	moved, err := v.Reseal(t.Context(), key(2).ID(), place, next, sealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Open(t.Context(), next, moved); err != nil || got.Reveal() != canary {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	if id, _ := vault.KeyOf(moved); id != key(2).ID() {
		t.Errorf("it is under %s", id)
	}
	if _, err := v.Reseal(t.Context(), key(2).ID(), next, next, sealed); !errors.Is(err, vault.ErrBroken) {
		t.Errorf("from another place: %v", err)
	}
}

func TestTheSameSecretIsSealedInAnotherWayEachTime(t *testing.T) {
	v := vault.New(fixed{key(1)})
	seen := map[string]bool{}
	for range 100 {
		sealed, err := v.Seal(t.Context(), "", place, canary)
		if err != nil {
			t.Fatal(err)
		}
		seen[sealed] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d ways", len(seen))
	}
}

func TestAKeyShowsItsIDAlone(t *testing.T) {
	k := key(7)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, k); got != k.ID() {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}

// What parses has one spelling, and nothing opens that was not sealed.
func FuzzSealed(f *testing.F) {
	v := vault.New(fixed{key(1)})
	sealed, err := v.Seal(f.Context(), "", place, canary)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add("sealed1." + key(1).ID() + ".")
	f.Add("sealed1.vkey_." + strings.Repeat("A", 40))
	f.Fuzz(func(t *testing.T, text string) {
		id, err := vault.KeyOf(text)
		if err == nil && !strings.HasPrefix(text, "sealed1."+id+".") {
			t.Errorf("%q is under %q", text, id)
		}
		got, err := v.Open(t.Context(), place, text)
		if err == nil && got.Reveal() != canary { // each process that fuzzes seals it in another way
			t.Errorf("%q opens as %q", text, got.Reveal())
		}
		if again := strings.ToUpper(text); err == nil && again != text {
			if _, err := v.Open(t.Context(), place, again); err == nil {
				t.Errorf("%q opens, too", again)
			}
		}
	})
}
