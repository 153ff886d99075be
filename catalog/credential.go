package catalog

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store"
)

// Credential is a credential without its secrets, as the API shows it.
type Credential struct {
	Type        string            `json:"type"`
	ID          string            `json:"id"`
	VaultID     string            `json:"vault_id"`
	DisplayName *string           `json:"display_name"`
	Metadata    map[string]string `json:"metadata"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
	Auth        Auth              `json:"auth"`
}

// Auth is what a credential is for: exactly one of its fields is set.
type Auth struct {
	OAuth    *OAuth
	Bearer   *Bearer
	Variable *Variable
}

// The types of credentials, of the networks they are for, and of how a token endpoint
// knows its client.
const (
	typeOAuth    = "mcp_oauth"
	typeBearer   = "static_bearer"
	typeVariable = "environment_variable"

	endpointNone  = "none"
	endpointBasic = "client_secret_basic"
	endpointPost  = "client_secret_post"
)

// Bearer is a token for an MCP server.
type Bearer struct {
	Type      string `json:"type"`
	ServerURL string `json:"mcp_server_url"`
}

// OAuth is a token for an MCP server that expires, and perhaps how to get another.
type OAuth struct {
	Type      string     `json:"type"`
	ServerURL string     `json:"mcp_server_url"`
	Expires   *time.Time `json:"expires_at"`
	Refresh   *Refresh   `json:"refresh"`
}

// Refresh is how a new token is got.
type Refresh struct {
	TokenEndpoint string  `json:"token_endpoint"`
	ClientID      string  `json:"client_id"`
	Resource      *string `json:"resource"`
	Scope         *string `json:"scope"`
	EndpointAuth  Typed   `json:"token_endpoint_auth"`
}

// Variable is a secret for programs in the sandbox, which see a placeholder in its place.
type Variable struct {
	Type       string    `json:"type"`
	Name       string    `json:"secret_name"`
	Networking HostScope `json:"networking"`
	Injection  Injection `json:"injection_location"`
}

// HostScope is which hosts a secret is sent to. One that is unrestricted has nothing but
// its type.
type HostScope struct {
	Type string `json:"type"`
	*ScopedHosts
}

// ScopedHosts are the hosts of a limited scope.
type ScopedHosts struct {
	AllowedHosts []string `json:"allowed_hosts"`
}

// Injection is where in a request a placeholder is replaced.
type Injection struct {
	Header bool `json:"header"`
	Body   bool `json:"body"`
}

// MarshalJSON implements json.Marshaler.
func (a Auth) MarshalJSON() ([]byte, error) {
	switch {
	case a.OAuth != nil:
		return dormouse.Encode(a.OAuth), nil
	case a.Bearer != nil:
		return dormouse.Encode(a.Bearer), nil
	}
	return dormouse.Encode(a.Variable), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Auth) UnmarshalJSON(raw []byte) error {
	var of Typed
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	switch of.Type {
	case typeOAuth:
		return json.Unmarshal(raw, &a.OAuth)
	case typeBearer:
		return json.Unmarshal(raw, &a.Bearer)
	case typeVariable:
		return json.Unmarshal(raw, &a.Variable)
	}
	return fmt.Errorf("there is no credential of type %q", of.Type)
}

// Kind is the type of the credential.
func (a Auth) Kind() string {
	switch {
	case a.OAuth != nil:
		return typeOAuth
	case a.Bearer != nil:
		return typeBearer
	}
	return typeVariable
}

// Key is what no two active credentials of a vault have in common, and what the first of
// several vaults decides: the server that it is for, or the variable.
func (a Auth) Key() string {
	switch {
	case a.OAuth != nil:
		return serverKey(a.OAuth.ServerURL)
	case a.Bearer != nil:
		return serverKey(a.Bearer.ServerURL)
	}
	return a.Variable.Name
}

// serverKey is the URL as it is matched; it was checked when the credential was made.
func serverKey(s string) string {
	key, err := ServerURL("", s)
	if err != nil {
		return s
	}
	return key
}

// keptCredential is how a credential is stored: with its secrets, sealed. Its version is
// that of the document, which rises when a secret changes.
type keptCredential struct {
	Credential
	Sealed map[string]string `json:"sealed,omitempty"`

	version int
}

// document is how a credential is kept. As long as it is active its name is its key,
// which the database lets no other have.
func (k keptCredential) document(tenant string, version int) store.Document {
	d := store.Document{
		Tenant: tenant, Kind: kindCredentials + k.VaultID, ID: k.ID, Version: version, Created: k.Created, Updated: k.Updated, Body: dormouse.Encode(k),
	}
	if k.Archived != nil {
		d.Archived = *k.Archived
	} else {
		d.Name = dormouse.DeriveID("", k.Auth.Key())
	}
	return d
}

func readKept(d store.Document) (keptCredential, error) {
	k, err := read[keptCredential](d)
	k.Archived, k.version = timeOrNil(d.Archived), d.Version
	return k, err
}

func readCredential(d store.Document) (Credential, error) {
	k, err := readKept(d)
	return k.Credential, err
}

// place is where a secret of the credential is kept.
func (k keptCredential) place(tenant, field string, version int) dormouse.SecretPlace {
	return dormouse.SecretPlace{Tenant: tenant, Vault: k.VaultID, Credential: k.ID, Field: field, Version: version}
}

// describe changes what people call a credential.
func (k *Credential) describe(name closedjson.Optional[string], patch MetadataPatch, least int) (err error) {
	switch {
	case name.Null:
		k.DisplayName = nil
	case name.Set:
		if err := checkLength("display_name", name.Value, least, maxDisplayName); err != nil {
			return err
		}
		k.DisplayName = orNil(name.Value)
	}
	k.Metadata, err = PatchMetadata(k.Metadata, patch, false)
	return err
}
