package catalog

import (
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store"
)

// Vault holds credentials, as the API shows it.
type Vault struct {
	Type        string            `json:"type"`
	ID          string            `json:"id"`
	DisplayName string            `json:"display_name"`
	Metadata    map[string]string `json:"metadata"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
}

// maxDisplayName bounds the name that people see of a vault or a credential.
const maxDisplayName = 255

// VaultParams is a vault as it is asked for.
type VaultParams struct {
	DisplayName string                                  `json:"display_name"`
	Metadata    closedjson.Omittable[map[string]string] `json:"metadata"`
}

// VaultUpdate is what is to change of a vault: what is left out, or null, stays.
type VaultUpdate struct {
	DisplayName closedjson.Optional[string]        `json:"display_name"`
	Metadata    closedjson.Optional[MetadataPatch] `json:"metadata"`
}

// with is the vault as a change leaves it.
func (v Vault) with(u VaultUpdate) (_ Vault, err error) {
	v.DisplayName = u.DisplayName.Or(v.DisplayName)
	if err := checkLength("display_name", v.DisplayName, 1, maxDisplayName); err != nil {
		return v, err
	}
	v.Metadata, err = PatchMetadata(v.Metadata, u.Metadata.Value, false)
	return v, err
}

// patchOf is the patch that makes metadata of nothing.
func patchOf(m map[string]string) MetadataPatch {
	patch := make(MetadataPatch, len(m))
	for k, v := range m {
		patch[k] = closedjson.Some(v)
	}
	return patch
}

// document is how a vault is kept.
func (v Vault) document(tenant string) store.Document {
	d := store.Document{Tenant: tenant, Kind: kindVault, ID: v.ID, Version: 1, Created: v.Created, Updated: v.Updated, Body: dormouse.Encode(v)}
	if v.Archived != nil {
		d.Archived = *v.Archived
	}
	return d
}

func readVault(d store.Document) (Vault, error) {
	v, err := read[Vault](d)
	v.Archived = timeOrNil(d.Archived)
	return v, err
}

// usable refuses a vault in which nothing is changed any more.
func (v Vault) usable() error {
	if v.Archived != nil {
		return &problem{kind: dormouse.ErrInvalid, message: "vault " + v.ID + " is archived; it can only be read and deleted"}
	}
	return nil
}
