package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Vault holds credentials.
type Vault struct {
	ID          string            `json:"id"`
	DisplayName string            `json:"display_name"`
	Metadata    map[string]string `json:"metadata"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
}

// VaultPage is a part of the list of vaults, or of credentials. Next is the page after it;
// empty if there is none.
type VaultPage[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next_page"`
}

// VaultQuery selects a page. A limit of 0 is the server's own.
type VaultQuery struct {
	Limit    int
	Page     string
	Archived bool
}

func (q VaultQuery) values() url.Values {
	v := query("page", q.Page)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Archived {
		v.Set("include_archived", "true")
	}
	return v
}

// VaultOptions describe a vault.
type VaultOptions struct {
	DisplayName string            `json:"display_name"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// VaultChange changes a vault. What is nil stays, and so do the keys of metadata that are
// left out; one that is nil is removed.
type VaultChange struct {
	DisplayName *string            `json:"display_name,omitempty"`
	Metadata    map[string]*string `json:"metadata,omitempty"`
}

func ofVault(vault string, below ...string) string {
	path := "/v1/vaults/" + url.PathEscape(vault)
	var b strings.Builder
	b.WriteString(path)
	for _, part := range below {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

// CreateVault makes a vault.
func (c *Client) CreateVault(ctx context.Context, o VaultOptions) (v Vault, err error) {
	return v, c.Call(ctx, http.MethodPost, "/v1/vaults", o, &v)
}

// Vaults lists vaults, the newest first.
func (c *Client) Vaults(ctx context.Context, q VaultQuery) (VaultPage[Vault], error) {
	return get[VaultPage[Vault]](ctx, c, "/v1/vaults", q.values())
}

// Vault returns a vault.
func (c *Client) Vault(ctx context.Context, vault string) (Vault, error) {
	return get[Vault](ctx, c, ofVault(vault), nil)
}

// ChangeVault changes a vault.
func (c *Client) ChangeVault(ctx context.Context, vault string, o VaultChange) (v Vault, err error) {
	return v, c.Call(ctx, http.MethodPost, ofVault(vault), o, &v)
}

// ArchiveVault archives a vault with all its credentials, whose secrets are gone then.
func (c *Client) ArchiveVault(ctx context.Context, vault string) (v Vault, err error) {
	return v, c.Call(ctx, http.MethodPost, ofVault(vault, "archive"), nil, &v)
}

// DeleteVault deletes a vault with all its credentials.
func (c *Client) DeleteVault(ctx context.Context, vault string) error {
	return c.Call(ctx, http.MethodDelete, ofVault(vault), nil, nil)
}

// VaultKey is a key that secrets are sealed under.
type VaultKey struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created_at"`
	// Seals says that it is the one that seals from now on, and Missing that the server
	// does not have it although secrets may need it.
	Seals   bool `json:"seals"`
	Missing bool `json:"missing"`
	// Retired is since when no secret needs it. It is removed a while later.
	Retired time.Time `json:"retired_at,omitzero"`
}

// VaultKeys lists the keys, the newest first.
func (c *Client) VaultKeys(ctx context.Context) ([]VaultKey, error) {
	a, err := get[struct {
		Keys []VaultKey `json:"keys"`
	}](ctx, c, "/api/vault-keys", nil)
	return a.Keys, err
}

// Rekeyed is what an exchange of keys did.
type Rekeyed struct {
	// Key seals from now on.
	Key string `json:"key"`
	// Resealed counts the credentials that were sealed under it, and Lost those whose
	// key is missing.
	Resealed int `json:"resealed"`
	Lost     int `json:"lost"`
	// Retired are the keys that nothing needs any more.
	Retired []string `json:"retired"`
}

// Rekey seals every secret under a new key. It takes as long as it takes; if it is ended
// before, the next one goes on. If a key is missing nothing is done, unless those that
// are missing are to be forgotten.
func (c *Client) Rekey(ctx context.Context, forgetLost bool) (done Rekeyed, err error) {
	in := struct {
		ForgetLost bool `json:"forget_lost"`
	}{forgetLost}
	return done, c.wait(ctx, http.MethodPost, "/api/vault-keys/rekey", in, &done)
}
