package catalog

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// CreateVault makes a vault. Several may have the same name.
func (c *Catalog) CreateVault(ctx context.Context, tenant string, p VaultParams) (Vault, error) {
	now := c.timestamp()
	v := Vault{Type: kindVault, ID: newID(VaultPrefix), DisplayName: p.DisplayName, Created: now, Updated: now}
	var u VaultUpdate
	u.Metadata.Value = patchOf(p.Metadata.Value)
	v, err := v.with(u)
	if err != nil {
		return Vault{}, err
	}
	if err := c.documents.Insert(ctx, v.document(tenant)); err != nil {
		return Vault{}, storeError(err, kindVault, v.ID)
	}
	return v, nil
}

// Vault returns a vault.
func (c *Catalog) Vault(ctx context.Context, tenant, id string) (Vault, error) {
	_, v, err := c.findVault(ctx, tenant, id)
	return v, err
}

func (c *Catalog) findVault(ctx context.Context, tenant, id string) (store.Document, Vault, error) {
	d, err := c.find(ctx, tenant, kindVault, id)
	if err != nil {
		return d, Vault{}, err
	}
	v, err := readVault(d)
	return d, v, err
}

// Vaults lists vaults.
func (c *Catalog) Vaults(ctx context.Context, q Query) ([]Vault, error) {
	return list(ctx, c, q.of(kindVault), readVault)
}

// UpdateVault changes a vault.
func (c *Catalog) UpdateVault(ctx context.Context, tenant, id string, u VaultUpdate) (Vault, error) {
	return c.changeVault(ctx, tenant, id, func(v Vault) (Vault, error) {
		if err := v.usable(); err != nil {
			return v, err
		}
		changed, err := v.with(u)
		if err == nil && !bytes.Equal(dormouse.Encode(v), dormouse.Encode(changed)) {
			changed.Updated = c.timestamp()
		}
		return changed, err
	})
}

// ArchiveVault archives a vault and all its credentials. With the vault's own record it
// is done: a credential of an archived vault counts as archived, and Sweep purges
// what a crash has left of its secrets.
func (c *Catalog) ArchiveVault(ctx context.Context, tenant, id string) (Vault, error) {
	v, err := c.changeVault(ctx, tenant, id, func(v Vault) (Vault, error) {
		if v.Archived == nil {
			now := c.timestamp()
			v.Archived, v.Updated = &now, now
		}
		return v, nil
	})
	if err != nil {
		return Vault{}, err
	}
	return v, c.purgeAll(ctx, tenant, id, *v.Archived)
}

// purgeAll archives what credentials an archived vault has.
func (c *Catalog) purgeAll(ctx context.Context, tenant, vault string, at time.Time) error {
	left, err := c.activeCredentials(ctx, tenant, vault)
	if err != nil {
		return err
	}
	var errs []error
	for _, cred := range left {
		_, err := c.archiveCredential(ctx, tenant, vault, cred.ID, at)
		if !errors.Is(err, dormouse.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// DeleteVault deletes a vault and all its credentials. With the vault's own record it is
// done: a credential of a vault that is gone is gone, and Sweep removes what a crash has
// left of it.
func (c *Catalog) DeleteVault(ctx context.Context, tenant, id string) error {
	d, err := c.find(ctx, tenant, kindVault, id)
	if err != nil {
		return err
	}
	if err := c.documents.Remove(ctx, d.Ref()); err != nil {
		return storeError(err, kindVault, id)
	}
	_, err = c.removeAll(ctx, tenant, id)
	return err
}

// removeAll removes what credentials a vault has that is gone, and counts them.
func (c *Catalog) removeAll(ctx context.Context, tenant, vault string) (n int, err error) {
	kind := kindCredentials + vault
	for {
		const page = 100
		left, err := c.documents.Documents(ctx, store.DocumentQuery{Tenant: tenant, Kind: kind, Archived: true, Limit: page})
		if err != nil || len(left) == 0 {
			return n, err
		}
		for _, d := range left {
			if err := c.documents.Remove(ctx, d.Ref()); err != nil && !errors.Is(err, dormouse.ErrNotFound) {
				return n, storeError(err, kindCredential, d.ID)
			}
			n++
		}
	}
}

// changeVault stores what change makes of a vault, if that is something else.
func (c *Catalog) changeVault(ctx context.Context, tenant, id string, change func(Vault) (Vault, error)) (Vault, error) {
	for try := 1; ; try++ {
		was, v, err := c.findVault(ctx, tenant, id)
		if err != nil {
			return Vault{}, err
		}
		changed, err := change(v)
		if err != nil {
			return Vault{}, err
		}
		if changed.Updated.Equal(v.Updated) {
			return v, nil
		}
		d := changed.document(tenant)
		d.Revision = was.Revision
		err = c.documents.Replace(ctx, d, false)
		switch {
		case err == nil:
			return changed, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return Vault{}, storeError(err, kindVault, id)
		}
	}
}
