package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Rekeyed is what an exchange of keys did.
type Rekeyed struct {
	// Key seals from now on.
	Key string `json:"key"`
	// Resealed counts the credentials that were sealed under it, and Lost those that
	// were not, because the key that they are sealed under is missing.
	Resealed int `json:"resealed"`
	Lost     int `json:"lost"`
	// Retired are the keys that nothing needs any more. They are removed after a while.
	Retired []string `json:"retired"`
}

// keepRetired is how long a key is kept that no secret needs. A request that began before
// the keys were exchanged may still store what it sealed under the old one; none takes
// nearly as long.
const keepRetired = time.Hour

// Rekey seals every secret under a new key and retires the others. It can be killed at any
// point: what it has done is in the keys, in their record and in the credentials, and the
// next one goes on from there. If a key is missing it does nothing, unless it is told to
// forget those: then what was sealed under them is left as it is, and lost.
func (c *Catalog) Rekey(ctx context.Context, forget bool) (Rekeyed, error) {
	r, err := c.newKey(ctx, forget)
	if err != nil {
		return Rekeyed{}, err
	}
	done := Rekeyed{Key: r.newest(), Retired: []string{}}
	for {
		n, lost, err := c.reseal(ctx, r.newest())
		if err != nil {
			return done, err
		}
		done.Resealed, done.Lost = done.Resealed+n, lost
		if lost > 0 && !forget {
			return done, fmt.Errorf("%d credentials are sealed under keys that are missing: %w", lost, dormouse.ErrNoVaultKey)
		}
		if n == 0 { // this time each was seen under the new key
			break
		}
	}
	now := c.timestamp()
	for _, k := range r.Keys[:len(r.Keys)-1] {
		k.Retired = now
		r.Retired = append(r.Retired, k)
		done.Retired = append(done.Retired, k.ID)
	}
	r.Keys = r.Keys[len(r.Keys)-1:]
	if err := c.keepKeys(ctx, r); err != nil {
		return done, err
	}
	return done, c.dropRetired(ctx)
}

// newKey returns the record with a newest key that the secrets are to be sealed under:
// the one of an exchange that was not finished, or another.
func (c *Catalog) newKey(ctx context.Context, forget bool) (keyRecord, error) {
	for try := 1; ; try++ {
		r, err := c.openRecord(ctx)
		if err != nil {
			return r, err
		}
		have, err := c.sealer.List(ctx)
		if err != nil {
			return r, err
		}
		missing := r.missing(have)
		if len(missing) > 0 && !forget {
			return r, fmt.Errorf("secrets are sealed under %s, which is not where this server has its vault keys (%v); put it back, or if it is lost, say so, and create those credentials anew: %w",
				strings.Join(missing, " and "), c.sealer, dormouse.ErrNoVaultKey)
		}
		if len(r.Keys) > 1 && !slices.Contains(missing, r.newest()) {
			return r, nil
		}
		fresh, err := c.unrecorded(ctx, r, have)
		if err != nil {
			return r, err
		}
		r.Keys = append(r.Keys, recordedKey{VaultKey: fresh})
		err = c.keepKeys(ctx, r)
		if err == nil {
			r.revision++
			return r, nil
		}
		if !errors.Is(err, dormouse.ErrConflict) || try == tries {
			return r, err
		}
	}
}

// unrecorded is a key that is in no record: one that was made before a crash, or a new one.
func (c *Catalog) unrecorded(ctx context.Context, r keyRecord, have []dormouse.VaultKey) (dormouse.VaultKey, error) {
	for _, k := range slices.Backward(have) {
		if !r.has(k.ID) && !slices.ContainsFunc(r.Retired, func(o recordedKey) bool { return o.ID == k.ID }) {
			return k, nil
		}
	}
	return c.sealer.Add(ctx)
}

// reseal seals under a key what is sealed under another, and counts the credentials, and
// those whose key is missing.
func (c *Catalog) reseal(ctx context.Context, key string) (n, lost int, err error) {
	err = c.eachKept(ctx, func(d store.Document, _ keptCredential) error {
		did, err := c.resealOne(ctx, d.Ref(), key)
		if errors.Is(err, dormouse.ErrNoVaultKey) {
			lost++
			return nil
		}
		if did {
			n++
		}
		return err
	})
	return n, lost, err
}

// resealOne seals the secrets of a credential under a key. If somebody changes it
// meanwhile, it is the changed one that counts.
func (c *Catalog) resealOne(ctx context.Context, ref store.DocumentRef, key string) (did bool, err error) {
	for try := 1; ; try++ {
		d, k, err := c.kept(ctx, ref)
		if err != nil {
			return false, err
		}
		under, err := c.keysOf(k)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(under, func(id string) bool { return id != key }) {
			return false, nil
		}
		for field, was := range k.Sealed {
			at := k.place(ref.Tenant, field, d.Version)
			if k.Sealed[field], err = c.sealer.Reseal(ctx, key, at, at, was); err != nil {
				return false, err
			}
		}
		d.Body = dormouse.Encode(k)
		err = c.documents.Replace(ctx, d, false)
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return false, storeError(err, kindCredential, ref.ID)
		}
	}
}

// dropRetired removes keys that were retired a while ago. Before it does, it looks at every
// secret once more: what was sealed under one of them after all is sealed anew.
func (c *Catalog) dropRetired(ctx context.Context) error {
	if c.sealer == nil {
		return nil
	}
	r, err := c.keyRecord(ctx)
	if err != nil || !slices.ContainsFunc(r.Retired, c.due) {
		return err
	}
	have, err := c.sealer.List(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(r.missing(have), r.newest()) {
		return nil // another server, which has all keys, will
	}
	if _, _, err := c.reseal(ctx, r.newest()); err != nil {
		return err
	}
	used, err := c.usedKeys(ctx)
	if err != nil {
		return err
	}
	var errs []error
	r.Retired = slices.DeleteFunc(r.Retired, func(k recordedKey) bool {
		if !c.due(k) || slices.Contains(used, k.ID) {
			return false
		}
		err := c.sealer.Remove(ctx, k.ID)
		errs = append(errs, err)
		return err == nil
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = c.keepKeys(ctx, r)
	if errors.Is(err, dormouse.ErrConflict) {
		return nil // somebody else changed the record; the next sweep goes on
	}
	return err
}

func (c *Catalog) due(k recordedKey) bool {
	return c.now().Sub(k.Retired) > keepRetired
}
