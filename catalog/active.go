package catalog

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
)

// ActiveCredential is a credential that may be used now, with its secrets sealed.
type ActiveCredential struct {
	Credential
	// Key is what it is for: the URL of a server as ServerURL has it, or the name of a
	// variable.
	Key string
	// Version rises when a secret changes.
	Version int
	// Sealed are its secrets by field, and Place is where each was sealed for.
	Sealed map[string]string
	tenant string
}

// Place is where a secret of the credential is kept: it opens there alone.
func (a ActiveCredential) Place(field string) dormouse.SecretPlace {
	return dormouse.SecretPlace{Tenant: a.tenant, Vault: a.VaultID, Credential: a.ID, Field: field, Version: a.Version}
}

// ActiveCredentials are those that a session with these vaults may use now, in the order
// of the vaults. Where several are for the same server or variable, the first vault
// has it. A vault that is archived or gone has none.
func (c *Catalog) ActiveCredentials(ctx context.Context, tenant string, vaults []string) ([]ActiveCredential, error) {
	var all []ActiveCredential
	taken := make(map[string]bool)
	for _, id := range vaults {
		v, err := c.Vault(ctx, tenant, id)
		if errors.Is(err, dormouse.ErrNotFound) || err == nil && v.Archived != nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		active, err := c.activeCredentials(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		for _, k := range active {
			kind, key := "server", k.Auth.Key()
			if k.Auth.Variable != nil {
				kind = "variable"
			}
			if taken[kind+" "+key] {
				continue
			}
			taken[kind+" "+key] = true
			all = append(all, ActiveCredential{Credential: k.Credential, Key: key, Version: k.version, Sealed: k.Sealed, tenant: tenant})
		}
	}
	return all, nil
}
