// Package catalog is what sessions refer to: agents, in versions, the environments
// their sandboxes are made of, and the vaults whose credentials they may use. It holds
// them as the Managed Agents API does, and says what a session is made of when it names
// them. A session takes a copy of its agent and its environment: what changes here later
// does not reach it. Of a vault it takes none: a credential that is archived or deleted
// is so for every session at once. What a credential holds is sealed before it is
// stored, and the catalog cannot open it.
package catalog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Documents is what the catalog needs of a store.
type Documents interface {
	Insert(ctx context.Context, d store.Document) error
	Replace(ctx context.Context, d store.Document, keep bool) error
	Document(ctx context.Context, ref store.DocumentRef) (store.Document, error)
	DocumentVersion(ctx context.Context, ref store.DocumentRef, version int) (store.Document, error)
	Documents(ctx context.Context, q store.DocumentQuery) ([]store.Document, error)
	DocumentVersions(ctx context.Context, ref store.DocumentRef, before, limit int) ([]store.Document, error)
	Remove(ctx context.Context, ref store.DocumentRef) error
	DocumentRefs(ctx context.Context, after store.DocumentRef, limit int) ([]store.DocumentRef, error)
}

// The kinds of documents.
const (
	kindAgent       = "agent"
	kindEnvironment = "environment"
	kindVault       = "vault"
	kindCredential  = "vault_credential"
	// kindCredentials begins the kind of the credentials of one vault, which ends with
	// its id, so that a list of them reads nothing else and a name is unique in the vault.
	kindCredentials = kindCredential + ":"
)

// The prefixes of the ids.
const (
	AgentPrefix       = "agent_"
	EnvironmentPrefix = "env_"
	VaultPrefix       = "vlt_"
	CredentialPrefix  = "vcrd_"
)

// Catalog keeps agents, environments and vaults.
type Catalog struct {
	documents Documents
	sealer    Sealer
	now       func() time.Time
}

// New returns the catalog that is in documents. Without a sealer it keeps no secrets. A
// nil clock is the machine's.
func New(documents Documents, sealer Sealer, clock func() time.Time) *Catalog {
	if clock == nil {
		clock = time.Now
	}
	return &Catalog{documents, sealer, clock}
}

// Query selects what to list, newest first.
type Query struct {
	Tenant                    string
	CreatedFrom, CreatedUntil time.Time
	// Archived also lists what is archived.
	Archived bool
	// After is the id of the last one of the page before.
	After string
	Limit int
}

func (q Query) of(kind string) store.DocumentQuery {
	return store.DocumentQuery{
		Tenant: q.Tenant, Kind: kind, CreatedFrom: q.CreatedFrom, CreatedUntil: q.CreatedUntil,
		Archived: q.Archived, After: q.After, Limit: q.Limit,
	}
}

// timestamp is now, with the precision that every store keeps.
func (c *Catalog) timestamp() time.Time { return c.now().UTC().Truncate(time.Microsecond) }

func newID(prefix string) string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails: it ends the process instead
	return dormouse.FormatID(prefix, bits)
}

// find reads a document. An id that no document can have is not looked up.
func (c *Catalog) find(ctx context.Context, tenant, kind, id string) (store.Document, error) {
	if id == "" || len(id) > store.MaxDocumentRef || dormouse.ValidateText(id) != nil {
		return store.Document{}, notFound(kind, id)
	}
	d, err := c.documents.Document(ctx, store.DocumentRef{Tenant: tenant, Kind: kind, ID: id})
	if err != nil {
		return d, storeError(err, kind, id)
	}
	return d, nil
}

// read decodes what a document holds.
func read[T any](d store.Document) (T, error) {
	var v T
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", d.Ref(), err)
	}
	return v, nil
}

// timeOrNil is nil for the zero time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
