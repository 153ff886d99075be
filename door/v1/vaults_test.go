package v1_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/door"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/vault"
)

func TestClientsOfBothGenerationsKeepVaults(t *testing.T) {
	h := newServer(t)
	for name, client := range h.generations() {
		t.Run(name, func(t *testing.T) {
			ctx, vaults := t.Context(), &client.Beta.Vaults
			v, err := vaults.New(ctx, anthropic.BetaVaultNewParams{DisplayName: "team", Metadata: map[string]string{"k": "v"}})
			if err != nil || v.DisplayName != "team" || !strings.HasPrefix(v.ID, "vlt_") {
				t.Fatalf("%v: %s", err, v.RawJSON())
			}
			if v, err = vaults.Update(ctx, v.ID, anthropic.BetaVaultUpdateParams{DisplayName: anthropic.String("crew")}); err != nil || v.DisplayName != "crew" || v.Metadata["k"] != "v" {
				t.Errorf("%v: %s", err, v.RawJSON())
			}
			bearer := anthropic.BetaVaultCredentialNewParams{Auth: anthropic.BetaVaultCredentialNewParamsAuthUnion{
				OfStaticBearer: &anthropic.BetaManagedAgentsStaticBearerCreateParams{Token: "t", MCPServerURL: "https://mcp.example.com/sse"},
			}}
			c, err := vaults.Credentials.New(ctx, v.ID, bearer)
			if err != nil || c.VaultID != v.ID || c.Auth.Type != "static_bearer" || c.Auth.MCPServerURL != "https://mcp.example.com/sse" {
				t.Fatalf("%v: %s", err, c.RawJSON())
			}
			_, err = vaults.Credentials.New(ctx, v.ID, bearer)
			if e := failure(t, err); e.StatusCode != http.StatusConflict {
				t.Errorf("got %v", e)
			}
			rotated, err := vaults.Credentials.Update(ctx, c.ID, anthropic.BetaVaultCredentialUpdateParams{VaultID: v.ID, Auth: anthropic.BetaVaultCredentialUpdateParamsAuthUnion{
				OfStaticBearer: &anthropic.BetaManagedAgentsStaticBearerUpdateParams{Token: anthropic.String("u")},
			}})
			if err != nil || rotated.ID != c.ID {
				t.Errorf("%v: %s", err, rotated.RawJSON())
			}
			if got, err := vaults.Credentials.Get(ctx, c.ID, anthropic.BetaVaultCredentialGetParams{VaultID: v.ID}); err != nil || got.RawJSON() != rotated.RawJSON() {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			if got, err := vaults.Credentials.Archive(ctx, c.ID, anthropic.BetaVaultCredentialArchiveParams{VaultID: v.ID}); err != nil || got.ArchivedAt.IsZero() {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			again, err := vaults.Credentials.New(ctx, v.ID, bearer)
			if err != nil {
				t.Fatal(err)
			}
			all := vaults.Credentials.ListAutoPaging(ctx, v.ID, anthropic.BetaVaultCredentialListParams{Limit: anthropic.Int(1), IncludeArchived: anthropic.Bool(true)})
			var seen []string
			for all.Next() {
				seen = append(seen, all.Current().ID)
			}
			if all.Err() != nil || fmt.Sprint(seen) != fmt.Sprint([]string{again.ID, c.ID}) {
				t.Errorf("%v: listed %v", all.Err(), seen)
			}
			if got, err := vaults.Credentials.Delete(ctx, again.ID, anthropic.BetaVaultCredentialDeleteParams{VaultID: v.ID}); err != nil || got.ID != again.ID {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			_, err = vaults.Credentials.MCPOAuthValidate(ctx, c.ID, anthropic.BetaVaultCredentialMCPOAuthValidateParams{VaultID: v.ID}, option.WithMaxRetries(0))
			if e := failure(t, err); e.StatusCode != http.StatusNotFound {
				t.Errorf("got %v", e)
			}
			if got, err := vaults.Archive(ctx, v.ID, anthropic.BetaVaultArchiveParams{}); err != nil || got.ArchivedAt.IsZero() {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
			if got, err := vaults.Delete(ctx, v.ID, anthropic.BetaVaultDeleteParams{}); err != nil || got.ID != v.ID {
				t.Errorf("%v: %s", err, got.RawJSON())
			}
		})
	}
}

func TestRefusalsOfVaults(t *testing.T) {
	h := newServer(t)
	made := func(path, body string) string {
		status, text := h.do("POST", path, body)
		_, rest, _ := strings.Cut(text, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		if status != http.StatusOK || id == "" {
			t.Fatalf("%d %s", status, text)
		}
		return id
	}
	vault := "/v1/vaults/" + made("/v1/vaults", `{"display_name":"v"}`)
	env := func(name string) string {
		return `{"auth":{"type":"environment_variable","secret_name":"` + name + `","secret_value":"x","networking":{"type":"unrestricted"}}}`
	}
	first := vault + "/credentials/" + made(vault+"/credentials", env("A0"))
	for i := range 19 {
		made(vault+"/credentials", env(fmt.Sprint("B", i)))
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", vault + "/credentials", env("C"), 400, "20 credentials"},
		{"POST", vault + "/credentials", env("PATH"), 400, "auth.secret_name: PATH"},
		{"POST", vault + "/credentials", `{}`, 400, "auth: is required"},
		{"POST", vault + "/credentials", ``, 400, "empty"},
		{"POST", vault + "/archive", `{"force":true}`, 400, "force"},
		{"POST", "/v1/vaults/vlt_none/credentials", env("C"), 404, "vlt_none"},
		{"GET", "/v1/vaults/vlt_none", ``, 404, "vlt_none"},
		{"GET", "/v1/vaults/vlt_none/credentials", ``, 404, "vlt_none"},
		{"GET", vault + "/credentials/vcrd_none", ``, 404, "vcrd_none"},
		{"DELETE", vault + "/credentials/vcrd_none", ``, 404, "vcrd_none"},
		{"GET", vault + "/credentials?limit=101", ``, 400, "limit"},
		{"GET", "/v1/vaults?limit=0", ``, 400, "limit"},
		{"POST", first + "/mcp_oauth_validate", ``, 404, "no route"},
		{"PUT", first, ``, 405, "DELETE and GET and POST"},
		{"POST", vault + "/archive", ``, 200, `"archived_at":"2`},
		{"POST", first, `{"display_name":"x"}`, 400, "archived"},
		{"GET", vault + "/credentials", ``, 200, `"data":[]`},
		{"GET", first, ``, 200, `"archived_at":"2`},
		{"DELETE", vault, ``, 200, "vault_deleted"},
		{"GET", first, ``, 404, "there is no vault"},
	} {
		if status, body := h.do(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

func TestWithoutItsKeyWhatNeedsASecretIs503(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	documents := new(memory.Store)
	h := newServerOn(t, documents, func(c *v1.Config) {
		c.Catalog = catalog.New(documents, vault.New(vault.NewKeyFile(file, nil)), nil)
	})
	_, body := h.do("POST", "/v1/vaults", `{"display_name":"v"}`)
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	credentials := "/v1/vaults/" + id + "/credentials"
	const bearer = `{"auth":{"type":"static_bearer","token":"t","mcp_server_url":"https://a.example"}}`
	if status, body := h.do("POST", credentials, bearer); status != http.StatusOK {
		t.Fatal(body)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	status, body := h.do("POST", credentials, strings.Replace(bearer, "a.example", "b.example", 1))
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "vault key") || strings.Contains(body, file) {
		t.Errorf("%d %s", status, body)
	}
	for _, path := range []string{"/v1/vaults", credentials, "/v1/agents"} {
		if status, body := h.do("GET", path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Neither what is answered nor a line of the log, however much is logged, holds a secret:
// of requests that are taken, and of those that are refused or fail.
func TestASecretIsInNoAnswerAndNoLog(t *testing.T) {
	const canary = "canary-7e21"
	var log bytes.Buffer
	file := filepath.Join(t.TempDir(), "keys")
	documents := new(memory.Store)
	h := newServerOn(t, documents, func(c *v1.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Catalog = catalog.New(documents, vault.New(vault.NewKeyFile(file, nil)), nil)
		c.Witness = door.Witness(nil)
	})
	_, body := h.do("POST", "/v1/vaults", `{"display_name":"v"}`)
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	path := "/v1/vaults/" + id + "/credentials"
	said := ""
	ask := func(body string) {
		_, answer := h.do("POST", path, body)
		said += answer
	}
	bearer := `{"auth":{"type":"static_bearer","token":"` + canary + `","mcp_server_url":"https://a.example"}}`
	ask(bearer)
	ask(bearer)                                                          // a conflict
	ask(strings.Replace(bearer, "https", "http", 1))                     // refused
	ask(strings.Replace(bearer, `"token"`, `"tokens"`, 1))               // not closed
	ask(bearer[:len(bearer)-1])                                          // no JSON
	ask(strings.Replace(bearer, canary, canary+`\n`, 1))                 // a character that no header can hold
	ask(strings.Replace(bearer, canary, strings.Repeat(canary, 1e3), 1)) // too long
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	ask(strings.Replace(bearer, "a.example", "b.example", 1)) // without a key: a 503, which is logged
	h.close()                                                 // the line of the last comes after its answer
	if text := said + log.String(); strings.Contains(text, canary) {
		t.Errorf("it shows in %s", text)
	}
	if !strings.Contains(log.String(), "request failed") {
		t.Errorf("nothing was logged: %s", log.String())
	}
}
