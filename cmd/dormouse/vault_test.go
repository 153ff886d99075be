//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/door/rest"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

// vaultServer is a server that has vaults and nothing else, and a command line for it.
type vaultServer struct {
	t    *testing.T
	url  string
	data string
	keys string
}

func newVaultServer(t *testing.T) *vaultServer {
	t.Helper()
	s := &vaultServer{t: t, data: t.TempDir()}
	s.keys = s.data + vaultKeysSuffix
	who, err := auth.OpenLocal(filepath.Join(s.data, tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	shelf := catalog.New(new(memory.Store), vault.New(config{Data: s.data}.vaultKeys()), nil)
	api := rest.New(rest.Config{Auth: who, Logger: quiet, VaultKeys: shelf})
	managed := v1.New(v1.Config{Auth: who, Logger: quiet, Catalog: shelf})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, v1.Prefix) {
			managed.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// run runs a command line and returns its exit code and what it printed.
func (s *vaultServer) run(in string, args ...string) (int, string, string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	args = append([]string{"vault"}, append(args, "--server", s.url, "--data", s.data)...)
	code := run(context.WithoutCancel(s.t.Context()), args, strings.NewReader(in), &out, &errs)
	return code, strings.TrimSpace(out.String()), errs.String()
}

// must is run for what has to work.
func (s *vaultServer) must(in string, args ...string) string {
	s.t.Helper()
	code, out, errs := s.run(in, args...)
	if code != 0 {
		s.t.Fatalf("%v: %d %s", args, code, errs)
	}
	return out
}

func TestVaultsAreKeptFromTheCommandLine(t *testing.T) {
	s := newVaultServer(t)
	const canary = "canary-44d0"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := s.must("", "create", "team", "--metadata", "owner=me")
	if !strings.HasPrefix(v, "vlt_") {
		t.Fatalf("got %q", v)
	}
	env := s.must(canary+"\r\n", "credential", "add", v, "--env", "GITHUB_TOKEN", "--host", "api.github.com", "--in", "header,body")
	s.must("", "credential", "add", v, "--bearer", "https://mcp.example.com/sse", "--secret-file", file, "--name", "mcp")
	oauth := s.must("", "credential", "add", v, "--oauth", "https://other.example.com/sse", "--secret-file", file, "--expires-at", "2999-01-02T15:04:05Z",
		"--refresh-token-file", file, "--client-secret-file", file, "--token-endpoint", "https://id.example.com/token", "--client-id", "me")
	var all strings.Builder
	for _, args := range [][]string{
		{"list"},
		{"list", "--json"},
		{"show", v},
		{"update", v, "--name", "crew", "--metadata", "a=b", "--remove-metadata", "owner"},
		{"credential", "list", v},
		{"credential", "list", v, "--limit", "1", "--json"},
		{"credential", "show", v, oauth, "--json"},
		{"credential", "rotate", v, oauth, "--secret-file", file, "--client-secret-file", file, "--expires-at", "2998-01-02T15:04:05Z"},
		{"credential", "rotate", v, env, "--secret-file", file},
		{"keys"},
		{"rekey"},
		{"keys", "--json"},
		{"credential", "archive", v, env},
		{"credential", "delete", v, oauth},
		{"archive", v},
		{"delete", v},
	} {
		out := s.must("", args...)
		all.WriteString(out + "\n")
		if args[len(args)-1] == "--json" && !json.Valid([]byte(out)) {
			t.Errorf("%v prints no JSON: %s", args, out)
		}
	}
	for _, says := range []string{"crew", `a="b"`, "GITHUB_TOKEN at api.github.com", `"next_page":"page_`, "client_secret_basic", "3 credentials were sealed anew, 1 keys are retired", "retired_at", v + " is deleted"} {
		if !strings.Contains(all.String(), says) {
			t.Errorf("nothing says %s:\n%s", says, all.String())
		}
	}
	if strings.Contains(all.String(), canary) {
		t.Errorf("a secret shows:\n%s", all.String())
	}
	if at, err := os.Stat(s.keys); err != nil || at.Mode() != 0o600 {
		t.Errorf("the keys are not beside the data: %v", err)
	}
}

func TestTheVaultKeysAreBesideTheDataAndNotInIt(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{
		".": here + ".vault-keys", "data/": filepath.Join(here, "data.vault-keys"), "/srv/dormouse": "/srv/dormouse.vault-keys",
	} {
		if got := (config{Data: data}).vaultKeys().String(); got != want {
			t.Errorf("with %s they are in %s", data, got)
		}
	}
	if got := (config{Data: "/x", VaultKeys: "/y"}).vaultKeys().String(); got != "/y" {
		t.Errorf("they are in %s", got)
	}
}

func TestWhatIsWrongWithAVaultCommandIsSaid(t *testing.T) {
	s := newVaultServer(t)
	v := s.must("", "create", "team")
	for _, c := range []struct {
		args []string
		in   string
		code int
		says string
	}{
		{[]string{"create"}, "", exitUsage, "accepts 1 arg"},
		{[]string{"show", "vlt_none"}, "", exitError, "there is no vault"},
		{[]string{"update", v, "--metadata", "x"}, "", exitUsage, "key=value"},
		{[]string{"credential", "add", v}, "x", exitUsage, "--bearer, --oauth and --env"},
		{[]string{"credential", "add", v, "--env", "A", "--bearer", "https://a.example"}, "x", exitUsage, "one of"},
		{[]string{"credential", "add", v, "--env", "A"}, "\n", exitError, "the secret is empty"},
		{[]string{"credential", "add", v, "--env", "A"}, strings.Repeat("x", maxSecretFile+1), exitError, "more than"},
		{[]string{"credential", "add", v, "--env", "PATH"}, "x", exitError, "auth.secret_name: PATH"},
		{[]string{"credential", "add", v, "--env", "A", "--in", "query"}, "x", exitUsage, "header or body"},
		{[]string{"credential", "add", v, "--bearer", "https://a.example", "--host", "b.example"}, "x", exitUsage, "for --env"},
		{[]string{"credential", "add", v, "--oauth", "https://a.example", "--token-endpoint", "https://b.example"}, "x", exitUsage, "belong together"},
		{[]string{"credential", "add", v, "--oauth", "https://a.example", "--expires-at", "soon"}, "x", exitUsage, "is not a time"},
		{[]string{"credential", "add", v, "--env", "A", "--secret-file", "/none"}, "", exitError, "read the secret"},
		{[]string{"credential", "rotate", v, "vcrd_none"}, "x", exitError, "vcrd_none"},
	} {
		if code, _, errs := s.run(c.in, c.args...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: %d %s", c.args, code, errs)
		}
	}
}

func TestAServerWithoutItsVaultKeysSaysWhichIsMissing(t *testing.T) {
	s := newVaultServer(t)
	v := s.must("", "create", "team")
	s.must("x", "credential", "add", v, "--env", "A")
	if err := os.Remove(s.keys); err != nil {
		t.Fatal(err)
	}
	if _, _, errs := s.run("x", "credential", "add", v, "--env", "B"); !strings.Contains(errs, "a vault key is missing") {
		t.Errorf("got %s", errs)
	}
	if code, _, errs := s.run("", "rekey"); code == 0 || !strings.Contains(errs, "vkey_") || !strings.Contains(errs, s.keys) {
		t.Errorf("%d %s", code, errs)
	}
	if out := s.must("", "keys"); !strings.Contains(out, "missing") {
		t.Errorf("got %s", out)
	}
	if out := s.must("", "rekey", "--forget-lost"); !strings.Contains(out, "1 credentials were lost") {
		t.Errorf("got %s", out)
	}
	s.must("x", "credential", "add", v, "--env", "B")
}
