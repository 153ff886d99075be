//go:build unix

package vault_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/vault"
)

func newKeyFile(t *testing.T) (*vault.KeyFile, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	return vault.NewKeyFile(path, nil), path
}

func add(t *testing.T, f *vault.KeyFile) string {
	t.Helper()
	made, err := f.Add(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

func TestAKeyFileIsMadeByTheFirstKeyAndKeepsThemAll(t *testing.T) {
	f, path := newKeyFile(t)
	if _, err := f.Newest(t.Context()); !errors.Is(err, dormouse.ErrNoVaultKey) {
		t.Errorf("before there is a key: %v", err)
	}
	first, second := add(t, f), add(t, f)
	again := vault.NewKeyFile(path, nil)
	if k, err := again.Newest(t.Context()); err != nil || k.ID() != second {
		t.Errorf("the newest is %s, %v", k, err)
	}
	if k, err := again.Key(t.Context(), first); err != nil || k.ID() != first {
		t.Errorf("the first is %s, %v", k, err)
	}
	if all, err := again.List(t.Context()); err != nil || len(all) != 2 || all[0].ID != first || all[0].Created.IsZero() {
		t.Errorf("%v, %v", all, err)
	}
	at, err := os.Stat(path)
	if err != nil || at.Mode() != 0o600 {
		t.Errorf("mode %v, %v", at.Mode(), err)
	}
}

func TestAKeyThatAnotherServerAddedIsFound(t *testing.T) {
	f, path := newKeyFile(t)
	add(t, f)
	fresh := add(t, vault.NewKeyFile(path, nil))
	if k, err := f.Key(t.Context(), fresh); err != nil || k.ID() != fresh {
		t.Errorf("%s, %v", k, err)
	}
	if k, err := f.Newest(t.Context()); err != nil || k.ID() != fresh {
		t.Errorf("the newest is %s, %v", k, err)
	}
}

func TestAKeyThatWasRemovedIsGoneAndTheOthersStay(t *testing.T) {
	f, path := newKeyFile(t)
	first, second := add(t, f), add(t, f)
	for range 2 { // the second time there is nothing to do
		if err := f.Remove(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []*vault.KeyFile{f, vault.NewKeyFile(path, nil)} {
		if _, err := f.Key(t.Context(), first); !errors.Is(err, dormouse.ErrNoVaultKey) {
			t.Errorf("the first: %v", err)
		}
		if _, err := f.Key(t.Context(), second); err != nil {
			t.Error(err)
		}
	}
}

func TestServersThatAddKeysAtOnceLoseNone(t *testing.T) {
	_, path := newKeyFile(t)
	var all sync.WaitGroup
	const n = 8
	for range n {
		all.Go(func() {
			if _, err := vault.NewKeyFile(path, nil).Add(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if keys, err := vault.NewKeyFile(path, nil).List(t.Context()); err != nil || len(keys) != n {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// A file that cannot be right is refused, is not replaced, and is not quoted.
func TestAKeyFileThatIsNotRightIsRefused(t *testing.T) {
	f, path := newKeyFile(t)
	add(t, f)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(good), `"key":"`)
	bits, _, _ := strings.Cut(rest, `"`)
	other := "A" + bits[1:]
	if other == bits {
		other = "B" + bits[1:]
	}
	for what, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"others can read it":     {string(good), 0o640, "others can read"},
		"everybody can write it": {string(good), 0o602, "others can read"},
		"it is cut off":          {string(good[:len(good)/2]), 0o600, "not written as vault keys are"},
		"it is empty":            {"", 0o600, "not written as vault keys are"},
		"it has an unknown name": {`{"keys":[],"more":1}`, 0o600, "not written as vault keys are"},
		"a key is too short":     {strings.Replace(string(good), bits, bits[:8], 1), 0o600, "32 bytes"},
		"a key is another":       {strings.Replace(string(good), bits, other, 1), 0o600, "not the one of that id"},
		"two values":             {string(good) + "{}", 0o600, "not written as vault keys are"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		f := vault.NewKeyFile(path, nil)
		_, added := f.Add(t.Context())
		_, newest := f.Newest(t.Context())
		_, listed := f.List(t.Context())
		for _, err := range []error{added, newest, listed} {
			if !errors.Is(err, dormouse.ErrNoVaultKey) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", what, err)
			} else if strings.Contains(err.Error(), bits[:8]) {
				t.Errorf("%s: the key shows in %v", what, err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
			t.Errorf("%s: the file was changed: %v", what, err)
		}
	}
}

func TestAKeyFileThatCannotBeWrittenIsSaid(t *testing.T) {
	f := vault.NewKeyFile(filepath.Join(t.TempDir(), "none", "keys"), nil)
	if _, err := f.Add(context.WithoutCancel(t.Context())); !errors.Is(err, dormouse.ErrNoVaultKey) || !strings.Contains(err.Error(), "--vault-keys") {
		t.Errorf("got %v", err)
	}
}
