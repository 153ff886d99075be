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

// keyRecord says which keys secrets of this store are sealed under. It is in the store,
// and the keys are not: so that every server knows when it lacks one, and none makes
// another in its place.
type keyRecord struct {
	// Keys are those that secrets may be sealed under, the newest last, which seals.
	Keys []recordedKey `json:"keys"`
	// Retired are those that no secret needs any more, as far as was seen.
	Retired []recordedKey `json:"retired,omitempty"`

	revision int
	created  time.Time
}

type recordedKey struct {
	dormouse.VaultKey
	Retired time.Time `json:"retired_at,omitzero"`
}

// The record is one for all tenants.
const kindKeys, idKeys = "vault_keys", "keys"

var keysRef = store.DocumentRef{Kind: kindKeys, ID: idKeys}

func (r keyRecord) newest() string { return r.Keys[len(r.Keys)-1].ID }

func (r keyRecord) has(id string) bool {
	return slices.ContainsFunc(r.Keys, func(k recordedKey) bool { return k.ID == id })
}

// keyRecord reads the record. One without keys is not there yet.
func (c *Catalog) keyRecord(ctx context.Context) (keyRecord, error) {
	d, err := c.documents.Document(ctx, keysRef)
	if errors.Is(err, dormouse.ErrNotFound) {
		return keyRecord{}, nil
	}
	if err != nil {
		return keyRecord{}, fmt.Errorf("read which vault keys there are: %w", err)
	}
	r, err := read[keyRecord](d)
	r.revision, r.created = d.Revision, d.Created
	if err == nil && len(r.Keys) == 0 {
		err = fmt.Errorf("%s names no key", d.Ref())
	}
	return r, err
}

// keep stores the record unless somebody else has changed it, which is
// dormouse.ErrConflict.
func (c *Catalog) keepKeys(ctx context.Context, r keyRecord) error {
	now := c.timestamp()
	d := store.Document{Kind: kindKeys, ID: idKeys, Version: 1, Revision: r.revision, Created: r.created, Updated: now, Body: dormouse.Encode(r)}
	var err error
	if r.revision == 0 {
		d.Created = now
		err = c.documents.Insert(ctx, d)
	} else {
		err = c.documents.Replace(ctx, d, false)
	}
	if err != nil {
		return fmt.Errorf("keep which vault keys there are: %w", err)
	}
	return nil
}

var errNoSealer = fmt.Errorf("this server keeps no secrets: %w", dormouse.ErrNoVaultKey)

// OpenKeys finds out whether every key is there that secrets are sealed under, and is
// for a server to call when it starts. A store without secrets gets its first key; where
// one is missing none is made, and the error, a dormouse.ErrNoVaultKey, names it.
func (c *Catalog) OpenKeys(ctx context.Context) error {
	r, err := c.openRecord(ctx)
	if err != nil {
		return err
	}
	return c.checkKeys(ctx, r)
}

// CheckKeys is OpenKeys without making anything. It counts the keys that secrets may be
// sealed under.
func (c *Catalog) CheckKeys(ctx context.Context) (int, error) {
	r, err := c.keyRecord(ctx)
	if err != nil {
		return 0, err
	}
	return len(r.Keys), c.checkKeys(ctx, r)
}

func (c *Catalog) checkKeys(ctx context.Context, r keyRecord) error {
	have, err := c.sealer.List(ctx)
	if err != nil {
		return err
	}
	if missing := r.missing(have); len(missing) > 0 {
		return fmt.Errorf("secrets are sealed under %s, which is not where this server has its vault keys (%v); put it back from where you keep a copy, or from another server of the same database: %w",
			strings.Join(missing, " and "), c.sealer, dormouse.ErrNoVaultKey)
	}
	return nil
}

// missing are the keys that somebody needs and we do not have.
func (r keyRecord) missing(have []dormouse.VaultKey) (ids []string) {
	for _, k := range r.Keys {
		if !slices.ContainsFunc(have, func(h dormouse.VaultKey) bool { return h.ID == k.ID }) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// openRecord reads the record, and makes it if there is none: of the keys that secrets
// are found to be sealed under, or else of those that are there, or of a new one.
func (c *Catalog) openRecord(ctx context.Context) (keyRecord, error) {
	if c.sealer == nil {
		return keyRecord{}, errNoSealer
	}
	for try := 1; ; try++ {
		r, err := c.keyRecord(ctx)
		if err != nil || len(r.Keys) > 0 {
			return r, err
		}
		if r.Keys, err = c.firstKeys(ctx); err != nil {
			return r, err
		}
		err = c.keepKeys(ctx, r)
		if err != nil && (!errors.Is(err, dormouse.ErrConflict) || try == tries) {
			return r, err
		}
	}
}

func (c *Catalog) firstKeys(ctx context.Context) ([]recordedKey, error) {
	used, err := c.usedKeys(ctx)
	if err != nil {
		return nil, err
	}
	have, err := c.sealer.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 && len(used) == 0 {
		made, err := c.sealer.Add(ctx)
		return []recordedKey{{VaultKey: made}}, err
	}
	var all []recordedKey
	for _, id := range used {
		if !slices.ContainsFunc(have, func(k dormouse.VaultKey) bool { return k.ID == id }) {
			all = append(all, recordedKey{VaultKey: dormouse.VaultKey{ID: id, Created: c.timestamp()}})
		}
	}
	for _, k := range have {
		all = append(all, recordedKey{VaultKey: k})
	}
	return all, nil
}

// sealingKey is the key that seals from now on. That it is in the list, and not only in
// the memory of the server, is looked up each time: what is sealed under a key that is
// lost is lost.
func (c *Catalog) sealingKey(ctx context.Context) (string, error) {
	r, err := c.openRecord(ctx)
	if err != nil {
		return "", err
	}
	have, err := c.sealer.List(ctx)
	if err != nil {
		return "", err
	}
	if id := r.newest(); slices.Contains(r.missing(have), id) {
		return "", fmt.Errorf("secrets are sealed under %s, which is not where this server has its vault keys (%v): %w", id, c.sealer, dormouse.ErrNoVaultKey)
	}
	return r.newest(), nil
}

// KeyState is a key as an operator sees it.
type KeyState struct {
	dormouse.VaultKey
	// Seals says that it is the one that seals from now on, and Missing that secrets
	// may need it and it is not there.
	Seals   bool `json:"seals"`
	Missing bool `json:"missing"`
	// Retired is since when no secret needs it; a while later it is removed.
	Retired time.Time `json:"retired_at,omitzero"`
}

// Keys lists the keys, the newest first.
func (c *Catalog) Keys(ctx context.Context) ([]KeyState, error) {
	r, err := c.openRecord(ctx)
	if err != nil {
		return nil, err
	}
	have, err := c.sealer.List(ctx)
	if err != nil {
		return nil, err
	}
	missing := r.missing(have)
	var all []KeyState
	for _, k := range slices.Backward(r.Keys) {
		all = append(all, KeyState{VaultKey: k.VaultKey, Seals: k.ID == r.newest(), Missing: slices.Contains(missing, k.ID)})
	}
	for _, k := range slices.Backward(r.Retired) {
		all = append(all, KeyState{VaultKey: k.VaultKey, Retired: k.Retired})
	}
	return all, nil
}
