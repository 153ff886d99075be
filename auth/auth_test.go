package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse/auth"
)

func open(t *testing.T) (*auth.Local, string, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data", "token")
	l, err := auth.OpenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	token, err := auth.ReadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	return l, token, path
}

func TestTokenIsMadeOnceAndOnlyItsOwnerReadsIt(t *testing.T) {
	_, first, path := open(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := auth.OpenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := l.Recognize(first); !ok {
		t.Error("the token alone is not recognized")
	}
	if _, ok := l.Recognize(first + "x"); ok {
		t.Error("another token is recognized")
	}
	if _, ok := l.Authenticate("Bearer " + first); !ok {
		t.Error("the token of the first start does not work after the second")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("token file has mode %v", info.Mode())
	}
}

func TestTokensAreNotAlike(t *testing.T) {
	_, a, _ := open(t)
	_, b, _ := open(t)
	if a == b || len(a) < 43 {
		t.Errorf("tokens %d and %d bytes long, equal: %v", len(a), len(b), a == b)
	}
}

func TestOnlyTheWholeTokenAsBearerIsBelieved(t *testing.T) {
	l, token, _ := open(t)
	for name, c := range map[string]struct {
		header string
		want   bool
	}{
		"the token":            {"Bearer " + token, true},
		"another spelling":     {"bearer " + token, true},
		"nothing":              {"", false},
		"no scheme":            {token, false},
		"another scheme":       {"Basic " + token, false},
		"no token":             {"Bearer ", false},
		"a prefix":             {"Bearer " + token[:len(token)-1], false},
		"the prefix only":      {"Bearer dmt_", false},
		"another case":         {"Bearer " + strings.ToUpper(token), false},
		"a trailing space":     {"Bearer " + token + " ", false},
		"two spaces":           {"Bearer  " + token, false},
		"a trailing character": {"Bearer " + token + "x", false},
		"a wildcard":           {"Bearer %", false},
		"much too long":        {"Bearer " + strings.Repeat(token, 100), false},
	} {
		t.Run(name, func(t *testing.T) {
			who, ok := l.Authenticate(c.header)
			if ok != c.want {
				t.Errorf("believed: %v", ok)
			}
			if ok && (who.Tenant == "" || who.Actor == "") {
				t.Errorf("nobody was believed: %+v", who)
			}
		})
	}
}

func TestFileWithoutTokenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for _, content := range []string{"", "short", "two words " + strings.Repeat("x", 60)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.OpenLocal(path); err == nil {
			t.Errorf("%q was taken for a token", content)
		}
	}
}

func TestServersThatStartAtOnceHaveOneToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "token")
	var mu sync.Mutex
	var all []*auth.Local
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			l, err := auth.OpenLocal(path)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, l)
		})
	}
	wg.Wait()
	token, err := auth.ReadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if _, ok := l.Authenticate("Bearer " + token); !ok {
			t.Errorf("server %d has another token", i)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
}
