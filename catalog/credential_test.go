package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/store"
)

const canary = "canary-9b1f"

func (s *shelf) createCredential(vault, body string) (catalog.Credential, error) {
	s.t.Helper()
	p, err := params[catalog.CredentialParams](s.t, body)
	if err != nil {
		return catalog.Credential{}, err
	}
	c, err := s.CreateCredential(s.t.Context(), tenant, vault, p)
	if err == nil {
		s.holds("BetaManagedAgentsCredential", c)
	}
	return c, err
}

func (s *shelf) updateCredential(vault, id, body string) (catalog.Credential, error) {
	s.t.Helper()
	u, err := params[catalog.CredentialUpdate](s.t, body)
	if err != nil {
		return catalog.Credential{}, err
	}
	c, err := s.UpdateCredential(s.t.Context(), tenant, vault, id, u)
	if err == nil {
		s.holds("BetaManagedAgentsCredential", c)
	}
	return c, err
}

func bearer(server string) string {
	return fmt.Sprintf(`{"auth":{"type":"static_bearer","token":"%s-token","mcp_server_url":"https://mcp.example.com/%s"}}`, canary, strings.ReplaceAll(server, " ", "-"))
}

func variable(name string) string {
	return fmt.Sprintf(`{"auth":{"type":"environment_variable","secret_name":"%s","secret_value":"%s-value","networking":{"type":"unrestricted"}}}`, name, canary)
}

const oauth = `{"auth":{"type":"mcp_oauth","mcp_server_url":"https://mcp.example.com/sse","access_token":"` + canary + `-access","expires_at":"2999-01-01T00:00:00Z",
	"refresh":{"refresh_token":"` + canary + `-refresh","token_endpoint":"https://id.example.com/token","client_id":"me","scope":"read","resource":null,
	"token_endpoint_auth":{"type":"client_secret_post","client_secret":"` + canary + `-client"}}}}`

// sealed is what the store has of a credential's secrets.
func (s *shelf) sealed(vault, id string) map[string]string {
	s.t.Helper()
	d, err := s.store.Document(s.t.Context(), store.DocumentRef{Tenant: tenant, Kind: "vault_credential:" + vault, ID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Contains(string(d.Body), canary) {
		s.t.Errorf("a secret is in the store: %s", d.Body)
	}
	var kept struct{ Sealed map[string]string }
	if err := json.Unmarshal(d.Body, &kept); err != nil {
		s.t.Fatal(err)
	}
	return kept.Sealed
}

// opened are the secrets of the only active credential of a vault, by field.
func (s *shelf) opened(vaults ...string) map[string]string {
	s.t.Helper()
	all := make(map[string]string)
	for _, a := range must[[]catalog.ActiveCredential](s.t)(s.ActiveCredentials(s.t.Context(), tenant, vaults)) {
		for field, sealed := range a.Sealed {
			secret, err := s.vault.Open(s.t.Context(), a.Place(field), sealed)
			if err != nil {
				s.t.Fatal(err)
			}
			all[a.Key+" "+field] = secret.Reveal()
		}
	}
	return all
}

func TestACredentialIsShownWithoutItsSecrets(t *testing.T) {
	for body, want := range map[string]string{
		bearer("a"):   `{"mcp_server_url":"https://mcp.example.com/a","type":"static_bearer"}`,
		variable("B"): `{"injection_location":{"body":false,"header":true},"networking":{"type":"unrestricted"},"secret_name":"B","type":"environment_variable"}`,
		oauth:         `{"expires_at":"2999-01-01T00:00:00Z","mcp_server_url":"https://mcp.example.com/sse","refresh":{"client_id":"me","resource":null,"scope":"read","token_endpoint":"https://id.example.com/token","token_endpoint_auth":{"type":"client_secret_post"}},"type":"mcp_oauth"}`,
		`{"display_name":"d","metadata":{"k":"v"},"auth":{"type":"environment_variable","secret_name":"_C","secret_value":"x","networking":{"type":"limited","allowed_hosts":["*.example.com","192.0.2.1"]},"injection_location":{"body":true}}}`: `{"injection_location":{"body":true,"header":true},"networking":{"allowed_hosts":["*.example.com","192.0.2.1"],"type":"limited"},"secret_name":"_C","type":"environment_variable"}`,
	} {
		s := newShelf(t)
		id := s.newVault()
		c := must[catalog.Credential](t)(s.createCredential(id, body))
		if got := field(t, c, "auth"); got != want {
			t.Errorf("%s is shown as %s", body, got)
		}
		if again := must[catalog.Credential](t)(s.Credential(t.Context(), tenant, id, c.ID)); field(t, again) != field(t, c) || !strings.HasPrefix(c.ID, "vcrd_") || c.VaultID != id {
			t.Errorf("kept as %s", field(t, again))
		}
		listed := must[[]catalog.Credential](t)(s.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 9}))
		if len(listed) != 1 || field(t, listed[0]) != field(t, c) {
			t.Errorf("listed as %v", listed)
		}
		if len(s.sealed(id, c.ID)) == 0 {
			t.Error("nothing is sealed")
		}
	}
}

func TestSecretsOpenWhereTheyWerePut(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	must[catalog.Credential](t)(s.createCredential(id, oauth))
	must[catalog.Credential](t)(s.createCredential(id, variable("B")))
	want := map[string]string{
		"https://mcp.example.com/sse access_token": canary + "-access", "https://mcp.example.com/sse refresh_token": canary + "-refresh",
		"https://mcp.example.com/sse client_secret": canary + "-client", "B secret_value": canary + "-value",
	}
	if got := s.opened(id); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
}

func TestWhatACredentialMayNotBe(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	long := func(n int) string { return strings.Repeat("x", n) }
	env := func(more string) string {
		return `"type":"environment_variable","secret_name":"A","secret_value":"v","networking":{"type":"unrestricted"}` + more
	}
	limited := func(hosts string) string {
		return `"type":"environment_variable","secret_name":"A","secret_value":"v","networking":{"type":"limited","allowed_hosts":[` + hosts + `]}`
	}
	mcp := func(url string) string { return `"type":"static_bearer","token":"t","mcp_server_url":"` + url + `"` }
	refresh := func(fields string) string {
		return `"type":"mcp_oauth","mcp_server_url":"https://a.example","access_token":"t","refresh":{` + fields + `}`
	}
	const endpoint = `"refresh_token":"r","token_endpoint":"https://i.example","client_id":"c",`
	for auth, says := range map[string]string{
		`"type":"password"`:                    "auth.type: must be mcp_oauth or",
		`"token":"t"`:                          "auth.type: is required",
		`"type":7`:                             "auth.type: must be",
		`"type":"static_bearer"`:               "is required",
		mcp("https://a.example") + `,"x":1`:    "auth.x: there is no such field",
		mcp(""):                                "auth.mcp_server_url: has 0",
		mcp("https://a.example/" + long(2030)): "auth.mcp_server_url: has 2048",
		mcp("http://a.example"):                "https://",
		mcp("ftp://a.example"):                 "https://",
		mcp("a.example/sse"):                   "auth.mcp_server_url: is not the URL",
		mcp("https://"):                        "auth.mcp_server_url: is not the URL",
		mcp("https://u:p@a.example"):           "auth.mcp_server_url: must not hold a user",
		mcp("https://a.example/#f"):            "fragment",
		mcp("https://a b.example"):             "auth.mcp_server_url",
		mcp("https://a.example:0"):             "auth.mcp_server_url: its host",
		`"type":"static_bearer","token":"","mcp_server_url":"https://a.example"`:                                                   "auth.token: has 0",
		`"type":"static_bearer","token":"` + long(8193) + `","mcp_server_url":"https://a.example"`:                                 "auth.token: has 8193",
		`"type":"static_bearer","token":"a\nb","mcp_server_url":"https://a.example"`:                                               "auth.token: has a control",
		`"type":"static_bearer","token":"a\u007f","mcp_server_url":"https://a.example"`:                                            "auth.token: has a control",
		`"type":"static_bearer","token":null,"mcp_server_url":"https://a.example"`:                                                 "auth.token: must be a string",
		`"type":"mcp_oauth","mcp_server_url":"https://a.example","access_token":"` + long(8193) + `"`:                              "auth.access_token: has 8193",
		`"type":"mcp_oauth","mcp_server_url":"https://a.example","access_token":"t","expires_at":"2001-01-01T00:00:00Z"`:           "auth.expires_at: must be in the future",
		`"type":"mcp_oauth","mcp_server_url":"https://a.example","access_token":"t","expires_at":"soon"`:                           "auth.expires_at: must be a time",
		refresh(endpoint[:strings.LastIndex(endpoint, ",")]):                                                                       "token_endpoint_auth: is required",
		refresh(endpoint + `"token_endpoint_auth":{"type":"basic"}`):                                                               "auth.refresh.token_endpoint_auth.type",
		refresh(endpoint + `"token_endpoint_auth":{"type":"none","client_secret":"s"}`):                                            "client_secret: there is no such field",
		refresh(endpoint + `"token_endpoint_auth":{"type":"client_secret_basic"}`):                                                 "client_secret: is required",
		refresh(endpoint + `"token_endpoint_auth":{"type":"client_secret_basic","client_secret":"` + long(513) + `"}`):             "client_secret: has 513",
		refresh(strings.Replace(endpoint, "https://i", "http://i", 1) + `"token_endpoint_auth":{"type":"none"}`):                   "auth.refresh.token_endpoint: must begin with https",
		refresh(strings.Replace(endpoint, `"c"`, `"`+long(1025)+`"`, 1) + `"token_endpoint_auth":{"type":"none"}`):                 "auth.refresh.client_id: has 1025",
		refresh(endpoint + `"scope":"","token_endpoint_auth":{"type":"none"}`):                                                     "auth.refresh.scope: has 0",
		refresh(endpoint + `"resource":"` + long(2048) + `","token_endpoint_auth":{"type":"none"}`):                                "auth.refresh.resource: has 2048",
		`"type":"environment_variable","secret_name":"A","secret_value":"v"`:                                                       "auth.networking: is required",
		`"type":"environment_variable","secret_name":"A","secret_value":"` + long(4097) + `","networking":{"type":"unrestricted"}`: "auth.secret_value: has 4097",
		env(`,"injection_location":{"header":false}`):                                                                              "auth.injection_location: needs",
		env(`,"injection_location":null`):                                                                                          "auth.injection_location",
		env(`,"injection_location":{"query":true}`):                                                                                "auth.injection_location.query",
		limited(`"https://a.example"`):                              "auth.networking.allowed_hosts[0]",
		limited(`"b.example","a.example:443"`):                      "auth.networking.allowed_hosts[1]",
		limited(`"[2001:db8::1]"`):                                  "auth.networking.allowed_hosts[0]",
		limited(`"*.com"`):                                          "auth.networking.allowed_hosts[0]",
		limited(`"a/b"`):                                            "auth.networking.allowed_hosts[0]",
		limited(`"a.example"` + strings.Repeat(`,"a.example"`, 16)): "auth.networking.allowed_hosts: are 17",
	} {
		_, err := s.createCredential(id, `{"auth":{`+auth+`}}`)
		refused(t, auth[:min(len(auth), 120)], err, dormouse.ErrInvalid, says)
	}
	for body, says := range map[string]string{
		`{}`:            "auth: is required",
		`{"auth":null}`: "auth: must be an object",
		`{"auth":{` + env("") + `},"display_name":"` + long(256) + `"}`: "display_name: has 256",
		`{"auth":{` + env("") + `},"metadata":{"` + long(65) + `":""}}`: "metadata",
	} {
		_, err := s.createCredential(id, body)
		refused(t, body[:min(len(body), 80)], err, dormouse.ErrInvalid, says)
	}
	_, err := s.createCredential("vlt_none", bearer("a"))
	refused(t, "in no vault", err, dormouse.ErrNotFound, "vlt_none")
	if left := s.refs(id); len(left) > 0 {
		t.Errorf("what was refused is there: %v", left)
	}
}

func TestAVariableThatTheSandboxNeedsIsNotReplaced(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	for _, name := range []string{
		"PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NPM_CONFIG_CAFILE", "DYLD_INSERT_LIBRARIES",
	} {
		_, err := s.createCredential(id, variable(name))
		refused(t, name, err, dormouse.ErrInvalid, "auth.secret_name: "+name)
	}
	for _, name := range []string{"", "a", "1A", "A-B", "A B", "Ä", strings.Repeat("A", 256)} {
		_, err := s.createCredential(id, variable(name))
		refused(t, name, err, dormouse.ErrInvalid, "auth.secret_name")
	}
	for _, name := range []string{"GITHUB_TOKEN", "_", "PATH2", "LDAP_PASSWORD", strings.Repeat("A", 255)} {
		must[catalog.Credential](t)(s.createCredential(id, variable(name)))
	}
}

func TestURLsAreTheSameServerHoweverTheyAreWritten(t *testing.T) {
	const want = "https://mcp.example.com/Sse"
	for _, same := range []string{
		want, "HTTPS://MCP.Example.COM/Sse", "https://mcp.example.com:443/Sse", "https://mcp.example.com/Sse/", "https://mcp.example.com./Sse",
	} {
		if got, err := catalog.ServerURL("url", same); err != nil || got != want {
			t.Errorf("%s is %s, %v", same, got, err)
		}
	}
	for url, want := range map[string]string{
		"https://a.example/":           "https://a.example",
		"https://a.example:8443/x":     "https://a.example:8443/x",
		"https://a.example/sse":        "https://a.example/sse",
		"https://a.example/x?b=1&a=2":  "https://a.example/x?b=1&a=2",
		"https://[2001:DB8:0::1]:443/": "https://[2001:db8::1]",
		"https://a.example/a%2Fb":      "https://a.example/a%2Fb",
	} {
		if got, err := catalog.ServerURL("url", url); err != nil || got != want {
			t.Errorf("%s is %s, %v", url, got, err)
		}
	}
}

func TestAKeyIsTakenOncePerVaultUntilItIsFreed(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	first := must[catalog.Credential](t)(s.createCredential(id, bearer("sse")))
	_, err := s.createCredential(id, strings.Replace(bearer("sse"), "https://mcp.example.com/sse", "https://MCP.example.com:443/sse/", 1))
	refused(t, "the same server", err, dormouse.ErrConflict, first.ID)
	_, err = s.createCredential(id, oauth)
	refused(t, "the same server in another way", err, dormouse.ErrConflict, "auth.mcp_server_url")
	must[catalog.Credential](t)(s.createCredential(id, variable("A")))
	_, err = s.createCredential(id, variable("A"))
	refused(t, "the same variable", err, dormouse.ErrConflict, "auth.secret_name")
	must[catalog.Credential](t)(s.createCredential(s.newVault(), bearer("sse"))) // another vault

	gone := must[catalog.Credential](t)(s.ArchiveCredential(t.Context(), tenant, id, first.ID))
	if again := must[catalog.Credential](t)(s.ArchiveCredential(t.Context(), tenant, id, first.ID)); gone.Archived == nil || field(t, again) != field(t, gone) {
		t.Errorf("archived again it is %s", field(t, again))
	}
	if sealed := s.sealed(id, first.ID); len(sealed) > 0 {
		t.Errorf("its secrets are still there: %v", sealed)
	}
	second := must[catalog.Credential](t)(s.createCredential(id, bearer("sse")))
	if err := s.DeleteCredential(t.Context(), tenant, id, second.ID); err != nil {
		t.Fatal(err)
	}
	must[catalog.Credential](t)(s.createCredential(id, bearer("sse")))
	listed := must[[]catalog.Credential](t)(s.Credentials(t.Context(), id, catalog.Query{Tenant: tenant, Limit: 9, Archived: true}))
	if len(listed) != 3 {
		t.Errorf("listed %v", listed)
	}
	_, err = s.updateCredential(id, first.ID, `{"display_name":"x"}`)
	refused(t, "an update of what is archived", err, dormouse.ErrInvalid, "archived")
}

func TestAnUpdateKeepsWhatItLeavesOut(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	c := must[catalog.Credential](t)(s.createCredential(id, oauth))
	before := s.sealed(id, c.ID)
	same := must[catalog.Credential](t)(s.updateCredential(id, c.ID, `{"metadata":null,"auth":{"type":"mcp_oauth","access_token":null,"refresh":null}}`))
	if field(t, same) != field(t, c) || fmt.Sprint(s.sealed(id, c.ID)) != fmt.Sprint(before) {
		t.Errorf("nothing was asked for, and it became %s", field(t, same))
	}
	named := must[catalog.Credential](t)(s.updateCredential(id, c.ID, `{"display_name":"d","metadata":{"k":"v"}}`))
	if field(t, named, "auth") != field(t, c, "auth") || fmt.Sprint(s.sealed(id, c.ID)) != fmt.Sprint(before) || *named.DisplayName != "d" {
		t.Errorf("got %s", field(t, named))
	}
	if named = must[catalog.Credential](t)(s.updateCredential(id, c.ID, `{"display_name":null,"metadata":{"k":null}}`)); named.DisplayName != nil || len(named.Metadata) > 0 {
		t.Errorf("got %s", field(t, named))
	}
	rotated := must[catalog.Credential](t)(s.updateCredential(id, c.ID,
		`{"auth":{"type":"mcp_oauth","access_token":"second","expires_at":null,"refresh":{"scope":"","token_endpoint_auth":{"type":"client_secret_basic","client_secret":"third"}}}}`))
	want := map[string]string{
		"https://mcp.example.com/sse access_token": "second", "https://mcp.example.com/sse refresh_token": canary + "-refresh",
		"https://mcp.example.com/sse client_secret": "third",
	}
	if got := s.opened(id); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	if got := field(t, rotated, "auth", "refresh"); !strings.Contains(got, `"scope":null`) || !strings.Contains(got, "client_secret_post") || rotated.Auth.OAuth.Expires != nil {
		t.Errorf("got %s", field(t, rotated))
	}
	v := must[catalog.Credential](t)(s.createCredential(id, variable("A")))
	v = must[catalog.Credential](t)(s.updateCredential(id, v.ID, `{"auth":{"type":"environment_variable","networking":{"type":"limited","allowed_hosts":["a.example"]},"injection_location":{"body":true}}}`))
	if got := field(t, v, "auth"); got != `{"injection_location":{"body":true,"header":true},"networking":{"allowed_hosts":["a.example"],"type":"limited"},"secret_name":"A","type":"environment_variable"}` {
		t.Errorf("got %s", got)
	}
}

// What was rotated away is nowhere: neither readable as a version nor open in place of
// the new secret.
func TestARotatedSecretIsGone(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	c := must[catalog.Credential](t)(s.createCredential(id, bearer("a")))
	old := s.sealed(id, c.ID)["token"]
	must[catalog.Credential](t)(s.updateCredential(id, c.ID, `{"auth":{"type":"static_bearer","token":"second"}}`))
	a := must[[]catalog.ActiveCredential](t)(s.ActiveCredentials(t.Context(), tenant, []string{id}))[0]
	if secret, err := s.vault.Open(t.Context(), a.Place("token"), a.Sealed["token"]); err != nil || secret.Reveal() != "second" {
		t.Errorf("%q, %v", secret.Reveal(), err)
	}
	if _, err := s.vault.Open(t.Context(), a.Place("token"), old); err == nil {
		t.Error("the old one opens in its place")
	}
	versions := must[[]store.Document](t)(s.store.DocumentVersions(t.Context(), store.DocumentRef{Tenant: tenant, Kind: "vault_credential:" + id, ID: c.ID}, 0, 9))
	if len(versions) != 1 || versions[0].Version != 2 {
		t.Errorf("%d versions can be read", len(versions))
	}
}

func TestWhatAnUpdateMayNotDo(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	o := must[catalog.Credential](t)(s.createCredential(id, strings.Replace(oauth, `"client_secret_post","client_secret":"`+canary+`-client"`, `"none"`, 1)))
	plain := must[catalog.Credential](t)(s.createCredential(id, `{"auth":{"type":"mcp_oauth","mcp_server_url":"https://b.example","access_token":"t"}}`))
	b := must[catalog.Credential](t)(s.createCredential(id, bearer("b")))
	v := must[catalog.Credential](t)(s.createCredential(id, variable("A")))
	for _, c := range []struct{ id, body, says string }{
		{b.ID, `{"auth":{"type":"static_bearer","mcp_server_url":"https://c.example"}}`, "mcp_server_url: there is no such field"},
		{b.ID, `{"auth":{"type":"mcp_oauth","access_token":"t"}}`, "auth.type: is static_bearer"},
		{b.ID, `{"auth":{"type":"static_bearer","token":""}}`, "auth.token: has 0"},
		{b.ID, `{"auth":{"type":"static_bearer","token":"a\tb"}}`, "auth.token: has a control"},
		{b.ID, `{"auth":null}`, "auth"},
		{b.ID, `{"display_name":""}`, "display_name: has 0"},
		{v.ID, `{"auth":{"type":"environment_variable","secret_name":"B"}}`, "secret_name: there is no such field"},
		{v.ID, `{"auth":{"type":"environment_variable","injection_location":{"header":false}}}`, "auth.injection_location: needs"},
		{v.ID, `{"auth":{"type":"environment_variable","networking":{"type":"limited","allowed_hosts":["a:1"]}}}`, "allowed_hosts[0]"},
		{o.ID, `{"auth":{"type":"mcp_oauth","refresh":{"client_id":"x"}}}`, "client_id: there is no such field"},
		{o.ID, `{"auth":{"type":"mcp_oauth","refresh":{"token_endpoint_auth":{"type":"none"}}}}`, "token_endpoint_auth.type"},
		{o.ID, `{"auth":{"type":"mcp_oauth","refresh":{"token_endpoint_auth":{"type":"client_secret_basic","client_secret":"x"}}}}`, "takes no client secret"},
		{o.ID, `{"auth":{"type":"mcp_oauth","expires_at":"2001-01-01T00:00:00Z"}}`, "in the future"},
		{plain.ID, `{"auth":{"type":"mcp_oauth","refresh":{"refresh_token":"r"}}}`, "auth.refresh: the credential has none"},
	} {
		_, err := s.updateCredential(id, c.id, c.body)
		refused(t, c.body, err, dormouse.ErrInvalid, c.says)
	}
	_, err := s.updateCredential(id, "vcrd_none", `{}`)
	refused(t, "an update of none", err, dormouse.ErrNotFound, "vault_credential \"vcrd_none\"")
}

func TestTheFirstVaultWins(t *testing.T) {
	s := newShelf(t)
	first, second, archived := s.newVault(), s.newVault(), s.newVault()
	must[catalog.Credential](t)(s.createCredential(archived, variable("A")))
	must[catalog.Vault](t)(s.ArchiveVault(t.Context(), tenant, archived))
	must[catalog.Credential](t)(s.createCredential(first, variable("A")))
	must[catalog.Credential](t)(s.createCredential(second, strings.Replace(variable("A"), canary, "other", 1)))
	must[catalog.Credential](t)(s.createCredential(second, bearer("a")))
	want := map[string]string{"A secret_value": canary + "-value", "https://mcp.example.com/a token": canary + "-token"}
	if got := s.opened(archived, "vlt_none", first, second); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	want["A secret_value"] = "other-value"
	if got := s.opened(second, first); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
}

// Whatever is wrong with a request, the secrets in it are in no error.
func TestASecretIsInNoError(t *testing.T) {
	s := newShelf(t)
	id := s.newVault()
	const number = "271828182845"
	hide := func(body string) string {
		return strings.NewReplacer(`"`+canary+`-access"`, number, `"`+canary+`-token"`, number, `"`+canary+`-value"`, number).Replace(body)
	}
	var bodies []string
	for _, seed := range []string{bearer("a"), variable("A"), oauth} {
		for _, body := range []string{seed, hide(seed), strings.Replace(seed, `"auth":{`, `"auth":{"type":"`+canary+`",`, 1), strings.Replace(seed, canary, canary+`\u0000`, 1), seed + canary, `{"auth":` + number + `}`} {
			bodies = append(bodies, body)
			var doc any
			if json.Unmarshal([]byte(body), &doc) == nil {
				mutants(doc, func(v any) any { return v }, func(v any) { bodies = append(bodies, string(dormouse.Encode(v))) })
			}
		}
		bodies = append(bodies, strings.Replace(seed, "https://", "https://"+canary+":"+canary+"@", 1), strings.Replace(seed, "https://mcp", "https://"+canary+" mcp", 1))
	}
	n := 0
	for _, body := range bodies {
		_, err := s.createCredential(id, body)
		if err == nil {
			continue
		}
		n++
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, canary) || strings.Contains(text, number) {
			t.Errorf("%s: %s", body, text)
		}
	}
	if n < 300 {
		t.Errorf("only %d were refused", n)
	}
	p, err := params[catalog.CredentialParams](t, oauth)
	if text := fmt.Sprintf("%v %+v %#v", p, p, p); err != nil || strings.Contains(text, canary) {
		t.Errorf("printed it shows: %s, %v", text, err)
	}
}

func TestAnExpiryIsKeptToTheMicrosecondInUTC(t *testing.T) {
	s := newShelf(t)
	c := must[catalog.Credential](t)(s.createCredential(s.newVault(), strings.Replace(oauth, "2999-01-01T00:00:00Z", "2999-01-01T01:00:00.123456789+01:00", 1)))
	if got := c.Auth.OAuth.Expires.Format(time.RFC3339Nano); got != "2999-01-01T00:00:00.123456Z" {
		t.Errorf("got %s", got)
	}
}
