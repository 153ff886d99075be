package catalog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/store"
)

// maxCredentials is how many active credentials a vault has at most.
const maxCredentials = 20

var errVaultFull = &problem{kind: dormouse.ErrInvalid, message: fmt.Sprintf("the vault has %d credentials already; archive or delete one first", maxCredentials)}

// CreateCredential makes a credential in a vault. No other active one of the vault is for
// the same server, or the same variable.
func (c *Catalog) CreateCredential(ctx context.Context, tenant, vault string, p CredentialParams) (Credential, error) {
	now := c.timestamp()
	auth, secrets, err := p.Auth.resolve(now)
	if err != nil {
		return Credential{}, err
	}
	k := keptCredential{Credential: Credential{Type: kindCredential, ID: newID(CredentialPrefix), VaultID: vault, Created: now, Updated: now, Auth: auth}}
	if err := k.describe(p.DisplayName, patchOf(p.Metadata.Value), 0); err != nil {
		return Credential{}, err
	}
	newest, err := c.room(ctx, tenant, vault)
	if err != nil {
		return Credential{}, err
	}
	if !newest.Before(now) { // by another server's clock; what comes later is listed as later
		now = newest.Add(time.Microsecond)
		k.Created, k.Updated = now, now
	}
	if k.Sealed, err = c.rotate(ctx, tenant, k, 1, secrets); err != nil {
		return Credential{}, err
	}
	d := k.document(tenant, 1)
	err = c.documents.Insert(ctx, d)
	if errors.Is(err, dormouse.ErrConflict) {
		return Credential{}, c.keyTaken(ctx, d, auth)
	}
	if err != nil {
		return Credential{}, storeError(err, kindCredential, k.ID)
	}
	if err := c.admit(ctx, d); err != nil {
		return Credential{}, errors.Join(err, c.withdraw(ctx, d.Ref()))
	}
	return k.Credential, nil
}

// room refuses a credential for a vault that is archived or full, and else returns when
// the newest one in it was made.
func (c *Catalog) room(ctx context.Context, tenant, vault string) (newest time.Time, err error) {
	_, v, err := c.findVault(ctx, tenant, vault)
	if err != nil {
		return newest, err
	}
	if err := v.usable(); err != nil {
		return newest, err
	}
	active, err := c.activeCredentials(ctx, tenant, vault)
	if err != nil || len(active) == 0 {
		return newest, err
	}
	if len(active) >= maxCredentials {
		return newest, errVaultFull
	}
	return active[len(active)-1].Created, nil
}

// keyTaken says which credential is in the way of another.
func (c *Catalog) keyTaken(ctx context.Context, d store.Document, a Auth) error {
	field := "auth.mcp_server_url"
	if a.Variable != nil {
		field = "auth.secret_name"
	}
	found, err := c.documents.Documents(ctx, store.DocumentQuery{Tenant: d.Tenant, Kind: d.Kind, Name: d.Name, Archived: true, Limit: 1})
	if err != nil || len(found) == 0 {
		return conflictf("%s: the vault has a credential for that already", field)
	}
	return conflictf("%s: the vault has the credential %s for that already; update it, or archive it first", field, found[0].ID)
}

// admit decides whether a credential that was inserted stays. It looks only after it was
// inserted, as every other does: so of several that are too many together, the one that
// was inserted last sees all of them, and nobody counts too few. One that finds too
// many leaves if it is beyond the oldest that fit, and else waits for the others to leave.
// If those do not, since they looked before it came, the youngest that waits gives up first.
func (c *Catalog) admit(ctx context.Context, d store.Document) error {
	vault := d.Kind[len(kindCredentials):]
	const pause, patience = 5 * time.Millisecond, 10
	for waited := 0; ; waited++ {
		_, v, err := c.findVault(ctx, d.Tenant, vault)
		if err != nil {
			return err
		}
		if err := v.usable(); err != nil {
			return err
		}
		active, err := c.activeCredentials(ctx, d.Tenant, vault)
		if err != nil || len(active) <= maxCredentials {
			return err
		}
		younger := maxCredentials - slices.IndexFunc(active, func(k keptCredential) bool { return k.ID == d.ID })
		if younger <= 0 || waited > younger*patience {
			return errVaultFull
		}
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}

// withdraw removes a credential that was not admitted.
func (c *Catalog) withdraw(ctx context.Context, ref store.DocumentRef) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := c.documents.Remove(ctx, ref); err != nil && !errors.Is(err, dormouse.ErrNotFound) {
		return storeError(err, kindCredential, ref.ID)
	}
	return nil
}

// activeCredentials are those of a vault that are not archived, the oldest first.
func (c *Catalog) activeCredentials(ctx context.Context, tenant, vault string) ([]keptCredential, error) {
	const most = 1000 // far more than can be created at once
	all, err := list(ctx, c, store.DocumentQuery{Tenant: tenant, Kind: kindCredentials + vault, Limit: most}, func(d store.Document) (keptCredential, error) {
		return readKept(d)
	})
	slices.SortFunc(all, func(a, b keptCredential) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all, err
}

// rotate seals the secrets of a credential for a version of it: those that are new, and
// those that stay, which were sealed for the version before.
func (c *Catalog) rotate(ctx context.Context, tenant string, k keptCredential, version int, fresh secrets) (map[string]string, error) {
	key, err := c.sealingKey(ctx)
	if err != nil {
		return nil, err
	}
	sealed := make(map[string]string)
	for field, s := range fresh {
		if sealed[field], err = c.sealer.Seal(ctx, key, k.place(tenant, field, version), s.text()); err != nil {
			return nil, err
		}
	}
	for field, was := range k.Sealed {
		if _, ok := fresh[field]; ok {
			continue
		}
		if sealed[field], err = c.sealer.Reseal(ctx, key, k.place(tenant, field, version-1), k.place(tenant, field, version), was); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// findCredential reads a credential as its vault has it: archived if the vault is, and
// not there if the vault is not.
func (c *Catalog) findCredential(ctx context.Context, tenant, vault, id string) (store.Document, keptCredential, error) {
	_, v, err := c.findVault(ctx, tenant, vault)
	if err != nil {
		return store.Document{}, keptCredential{}, err
	}
	d, err := c.find(ctx, tenant, kindCredentials+v.ID, id)
	if err != nil {
		if errors.Is(err, dormouse.ErrNotFound) {
			err = notFound(kindCredential, id)
		}
		return d, keptCredential{}, err
	}
	k, err := readKept(d)
	k.Credential = k.within(v)
	return d, k, err
}

// within is a credential as its vault has it.
func (k Credential) within(v Vault) Credential {
	if k.Archived == nil {
		k.Archived = v.Archived
	}
	return k
}

// Credential returns a credential of a vault.
func (c *Catalog) Credential(ctx context.Context, tenant, vault, id string) (Credential, error) {
	_, k, err := c.findCredential(ctx, tenant, vault, id)
	return k.Credential, err
}

// Credentials lists the credentials of a vault.
func (c *Catalog) Credentials(ctx context.Context, vault string, q Query) ([]Credential, error) {
	_, v, err := c.findVault(ctx, q.Tenant, vault)
	if err != nil {
		return nil, err
	}
	if v.Archived != nil && !q.Archived {
		return nil, nil
	}
	all, err := list(ctx, c, q.of(kindCredentials+v.ID), readCredential)
	for i := range all {
		all[i] = all[i].within(v)
	}
	return all, err
}

// UpdateCredential changes a credential. A new secret is used from the next request on.
func (c *Catalog) UpdateCredential(ctx context.Context, tenant, vault, id string, u CredentialUpdate) (Credential, error) {
	for try := 1; ; try++ {
		was, k, err := c.findCredential(ctx, tenant, vault, id)
		if err != nil {
			return Credential{}, err
		}
		if k.Archived != nil {
			return Credential{}, &problem{kind: dormouse.ErrInvalid, message: "credential " + id + " is archived; it can only be read and deleted"}
		}
		d, changed, err := c.changed(ctx, was, k, u)
		if err != nil {
			return Credential{}, err
		}
		if bytes.Equal(d.Body, was.Body) {
			return k.Credential, nil
		}
		err = c.documents.Replace(ctx, d, false) // false: what was rotated away is gone
		switch {
		case err == nil:
			return changed, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return Credential{}, storeError(err, kindCredential, id)
		}
	}
}

// changed is the document of a credential after a change.
func (c *Catalog) changed(ctx context.Context, was store.Document, k keptCredential, u CredentialUpdate) (store.Document, Credential, error) {
	now, version := c.timestamp(), was.Version
	before := dormouse.Encode(k.Credential)
	if err := k.describe(u.DisplayName, u.Metadata.Value, 1); err != nil {
		return was, k.Credential, err
	}
	if u.Auth.Set {
		var fresh secrets
		var err error
		if k.Auth, fresh, err = u.Auth.Value.apply(k.Auth, now); err != nil {
			return was, k.Credential, err
		}
		if len(fresh) > 0 {
			version++
			if k.Sealed, err = c.rotate(ctx, was.Tenant, k, version, fresh); err != nil {
				return was, k.Credential, err
			}
		}
	}
	if version == was.Version && bytes.Equal(before, dormouse.Encode(k.Credential)) {
		return was, k.Credential, nil
	}
	k.Updated = now
	d := k.document(was.Tenant, version)
	d.Revision = was.Revision
	return d, k.Credential, nil
}

// ArchiveCredential archives a credential: its secrets are gone, and its key is free.
func (c *Catalog) ArchiveCredential(ctx context.Context, tenant, vault, id string) (Credential, error) {
	_, k, err := c.findCredential(ctx, tenant, vault, id)
	if err != nil {
		return Credential{}, err
	}
	at := c.timestamp()
	if k.Archived != nil { // perhaps only because the vault is
		at = *k.Archived
	}
	return c.archiveCredential(ctx, tenant, vault, id, at)
}

// archiveCredential archives a credential, whatever its vault is.
func (c *Catalog) archiveCredential(ctx context.Context, tenant, vault, id string, at time.Time) (Credential, error) {
	for try := 1; ; try++ {
		was, err := c.find(ctx, tenant, kindCredentials+vault, id)
		if err != nil {
			return Credential{}, err
		}
		k, err := readKept(was)
		if err != nil || k.Archived != nil {
			return k.Credential, err
		}
		k.Archived, k.Updated, k.Sealed = &at, at, nil
		d := k.document(tenant, was.Version)
		d.Revision = was.Revision
		err = c.documents.Replace(ctx, d, false)
		switch {
		case err == nil:
			return k.Credential, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return Credential{}, storeError(err, kindCredential, id)
		}
	}
}

// DeleteCredential deletes a credential, for good.
func (c *Catalog) DeleteCredential(ctx context.Context, tenant, vault, id string) error {
	d, _, err := c.findCredential(ctx, tenant, vault, id)
	if err != nil {
		return err
	}
	if err := c.documents.Remove(ctx, d.Ref()); err != nil {
		if errors.Is(err, dormouse.ErrNotFound) {
			return notFound(kindCredential, id)
		}
		return storeError(err, kindCredential, id)
	}
	return nil
}
