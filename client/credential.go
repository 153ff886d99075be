package client

import (
	"context"
	"net/http"
	"time"
)

// Credential is a credential of a vault, without its secrets.
type Credential struct {
	ID          string            `json:"id"`
	VaultID     string            `json:"vault_id"`
	DisplayName string            `json:"display_name"`
	Metadata    map[string]string `json:"metadata"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
	Auth        CredentialAuth    `json:"auth"`
}

// The types of credentials.
const (
	StaticBearer        = "static_bearer"
	MCPOAuth            = "mcp_oauth"
	EnvironmentVariable = "environment_variable"
)

// CredentialAuth is what a credential is for. Token, AccessToken and SecretValue, as the
// secrets of Refresh, are only ever sent.
type CredentialAuth struct {
	Type string `json:"type"`

	// Of a static_bearer and an mcp_oauth.
	ServerURL   string             `json:"mcp_server_url,omitempty"`
	Token       string             `json:"token,omitempty"`
	AccessToken string             `json:"access_token,omitempty"`
	Expires     *time.Time         `json:"expires_at,omitempty"`
	Refresh     *CredentialRefresh `json:"refresh,omitempty"`

	// Of an environment_variable.
	SecretName  string               `json:"secret_name,omitempty"`
	SecretValue string               `json:"secret_value,omitempty"`
	Networking  *CredentialHosts     `json:"networking,omitempty"`
	Injection   *CredentialInjection `json:"injection_location,omitempty"`
}

// CredentialRefresh is how a new access token is got.
type CredentialRefresh struct {
	RefreshToken  string              `json:"refresh_token,omitempty"`
	TokenEndpoint string              `json:"token_endpoint,omitempty"`
	ClientID      string              `json:"client_id,omitempty"`
	Scope         string              `json:"scope,omitempty"`
	Resource      string              `json:"resource,omitempty"`
	EndpointAuth  *CredentialEndpoint `json:"token_endpoint_auth,omitempty"`
}

// CredentialEndpoint is how a token endpoint knows its client: none, client_secret_basic or
// client_secret_post.
type CredentialEndpoint struct {
	Type         string `json:"type"`
	ClientSecret string `json:"client_secret,omitempty"`
}

// CredentialHosts is which hosts a secret is sent to: unrestricted, or limited to some.
type CredentialHosts struct {
	Type         string   `json:"type"`
	AllowedHosts []string `json:"allowed_hosts,omitzero"`
}

// CredentialInjection is where in a request the placeholder is replaced.
type CredentialInjection struct {
	Header bool `json:"header"`
	Body   bool `json:"body"`
}

// CredentialOptions describe a credential.
type CredentialOptions struct {
	DisplayName string            `json:"display_name,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Auth        CredentialAuth    `json:"auth"`
}

// CredentialChange changes a credential. What is nil or empty stays.
type CredentialChange struct {
	DisplayName *string            `json:"display_name,omitempty"`
	Metadata    map[string]*string `json:"metadata,omitempty"`
	Auth        *CredentialAuth    `json:"auth,omitempty"`
}

// CreateCredential makes a credential in a vault.
func (c *Client) CreateCredential(ctx context.Context, vault string, o CredentialOptions) (k Credential, err error) {
	return k, c.Call(ctx, http.MethodPost, ofVault(vault, "credentials"), o, &k)
}

// Credentials lists the credentials of a vault, the newest first.
func (c *Client) Credentials(ctx context.Context, vault string, q VaultQuery) (VaultPage[Credential], error) {
	return get[VaultPage[Credential]](ctx, c, ofVault(vault, "credentials"), q.values())
}

// Credential returns a credential of a vault.
func (c *Client) Credential(ctx context.Context, vault, id string) (Credential, error) {
	return get[Credential](ctx, c, ofVault(vault, "credentials", id), nil)
}

// ChangeCredential changes a credential. A new secret is used from the next request on.
func (c *Client) ChangeCredential(ctx context.Context, vault, id string, o CredentialChange) (k Credential, err error) {
	return k, c.Call(ctx, http.MethodPost, ofVault(vault, "credentials", id), o, &k)
}

// ArchiveCredential archives a credential, whose secrets are gone then.
func (c *Client) ArchiveCredential(ctx context.Context, vault, id string) (k Credential, err error) {
	return k, c.Call(ctx, http.MethodPost, ofVault(vault, "credentials", id, "archive"), nil, &k)
}

// DeleteCredential deletes a credential.
func (c *Client) DeleteCredential(ctx context.Context, vault, id string) error {
	return c.Call(ctx, http.MethodDelete, ofVault(vault, "credentials", id), nil, nil)
}
