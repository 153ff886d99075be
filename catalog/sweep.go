package catalog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Sweep finishes what crashes have left of vaults that were archived or deleted, and
// removes keys that were retired a while ago. It counts the credentials. It may be
// stopped at any point, and run by several servers at once.
func (c *Catalog) Sweep(ctx context.Context) (n int, err error) {
	last := store.DocumentRef{}
	for ref, err := range c.credentialRefs(ctx) {
		if err != nil {
			return n, err
		}
		if ref.Tenant == last.Tenant && ref.Kind == last.Kind {
			continue
		}
		last = ref
		done, err := c.sweepVault(ctx, ref.Tenant, ref.Kind[len(kindCredentials):])
		n += done
		if err != nil {
			return n, err
		}
	}
	return n, c.dropRetired(ctx)
}

// sweepVault finishes what was left of one vault.
func (c *Catalog) sweepVault(ctx context.Context, tenant, vault string) (int, error) {
	v, err := c.Vault(ctx, tenant, vault)
	if errors.Is(err, dormouse.ErrNotFound) {
		return c.removeAll(ctx, tenant, vault)
	}
	if err != nil || v.Archived == nil {
		return 0, err
	}
	left, err := c.activeCredentials(ctx, tenant, vault)
	if err != nil || len(left) == 0 {
		return 0, err
	}
	return len(left), c.purgeAll(ctx, tenant, vault, *v.Archived)
}

// credentialRefs yields every credential of every tenant. What else a store has it passes
// over.
func (c *Catalog) credentialRefs(ctx context.Context) iter.Seq2[store.DocumentRef, error] {
	return func(yield func(store.DocumentRef, error) bool) {
		const page, end = 500, "\U0010FFFF"
		var after store.DocumentRef
		for {
			refs, err := c.documents.DocumentRefs(ctx, after, page)
			if err != nil {
				yield(after, err)
				return
			}
			if len(refs) == 0 {
				return
			}
			for _, ref := range refs {
				if strings.HasPrefix(ref.Kind, kindCredentials) && !yield(ref, nil) {
					return
				}
			}
			after = refs[len(refs)-1]
			switch {
			case strings.HasPrefix(after.Kind, kindCredentials):
			case after.Kind < kindCredentials:
				after = store.DocumentRef{Tenant: after.Tenant, Kind: kindCredentials}
			default:
				after = store.DocumentRef{Tenant: after.Tenant, Kind: end}
			}
		}
	}
}

// eachKept calls f with every credential that holds secrets.
func (c *Catalog) eachKept(ctx context.Context, f func(store.Document, keptCredential) error) error {
	for ref, err := range c.credentialRefs(ctx) {
		if err != nil {
			return err
		}
		d, k, err := c.kept(ctx, ref)
		if err == nil && len(k.Sealed) > 0 {
			err = f(d, k)
		}
		if err != nil && !errors.Is(err, dormouse.ErrNotFound) {
			return err
		}
	}
	return nil
}

func (c *Catalog) kept(ctx context.Context, ref store.DocumentRef) (store.Document, keptCredential, error) {
	d, err := c.documents.Document(ctx, ref)
	if err != nil {
		return d, keptCredential{}, storeError(err, kindCredential, ref.ID)
	}
	k, err := readKept(d)
	return d, k, err
}

// usedKeys are the keys that secrets are sealed under.
func (c *Catalog) usedKeys(ctx context.Context) (ids []string, err error) {
	err = c.eachKept(ctx, func(_ store.Document, k keptCredential) error {
		under, err := c.keysOf(k)
		ids = append(ids, under...)
		return err
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// keysOf are the keys that the secrets of a credential are sealed under.
func (c *Catalog) keysOf(k keptCredential) (ids []string, err error) {
	for _, sealed := range k.Sealed {
		id, err := c.sealer.KeyOf(sealed)
		if err != nil {
			return nil, storeError(err, kindCredential, k.ID)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
