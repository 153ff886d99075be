package catalog

import (
	"bytes"
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// CreateEnvironment creates an environment. Its name must be unique.
func (c *Catalog) CreateEnvironment(ctx context.Context, tenant string, p EnvironmentParams) (Environment, error) {
	now := c.timestamp()
	e := Environment{Type: kindEnvironment, ID: newID(EnvironmentPrefix), Scope: scopeOrganization, Created: now, Updated: now}
	e, err := e.with(p.update(), true)
	if err != nil {
		return Environment{}, err
	}
	err = c.documents.Insert(ctx, e.document(tenant))
	if errors.Is(err, dormouse.ErrConflict) {
		return Environment{}, nameTaken(e.Name)
	}
	if err != nil {
		return Environment{}, storeError(err, kindEnvironment, e.ID)
	}
	return e, nil
}

func nameTaken(name string) error {
	return conflictf("name: there is an environment called %q already", short(name))
}

// Environment returns an environment.
func (c *Catalog) Environment(ctx context.Context, tenant, id string) (Environment, error) {
	d, err := c.find(ctx, tenant, kindEnvironment, id)
	if err != nil {
		return Environment{}, err
	}
	return readEnvironment(d)
}

// SessionEnvironment returns an environment for a new session. An archived one is
// refused.
func (c *Catalog) SessionEnvironment(ctx context.Context, tenant, id string) (Environment, error) {
	e, err := c.Environment(ctx, tenant, id)
	if err != nil {
		return e, err
	}
	return e, e.usable()
}

// Environments lists environments.
func (c *Catalog) Environments(ctx context.Context, q Query) ([]Environment, error) {
	return list(ctx, c, q.of(kindEnvironment), readEnvironment)
}

// UpdateEnvironment changes an environment. Existing sandboxes are not affected.
func (c *Catalog) UpdateEnvironment(ctx context.Context, tenant, id string, u EnvironmentUpdate) (Environment, error) {
	return c.changeEnvironment(ctx, tenant, id, func(e Environment) (Environment, error) {
		if e.Archived != nil {
			return e, &problem{kind: dormouse.ErrInvalid, code: codeArchived, message: "environment " + id + " is archived; it can only be read and deleted"}
		}
		changed, err := e.with(u, false)
		if err == nil && !bytes.Equal(dormouse.Encode(e), dormouse.Encode(changed)) {
			changed.Updated = c.timestamp()
		}
		return changed, err
	})
}

// ArchiveEnvironment archives an environment: new sessions cannot use it.
func (c *Catalog) ArchiveEnvironment(ctx context.Context, tenant, id string) (Environment, error) {
	return c.changeEnvironment(ctx, tenant, id, func(e Environment) (Environment, error) {
		if e.Archived == nil {
			now := c.timestamp()
			e.Archived, e.Updated = &now, now
		}
		return e, nil
	})
}

// changeEnvironment stores the environment that change returns, if it differs.
func (c *Catalog) changeEnvironment(ctx context.Context, tenant, id string, change func(Environment) (Environment, error)) (Environment, error) {
	for try := 1; ; try++ {
		was, err := c.find(ctx, tenant, kindEnvironment, id)
		if err != nil {
			return Environment{}, err
		}
		e, err := readEnvironment(was)
		if err != nil {
			return Environment{}, err
		}
		changed, err := change(e)
		if err != nil {
			return Environment{}, err
		}
		if changed.Updated.Equal(e.Updated) {
			return e, nil
		}
		d := changed.document(tenant)
		d.Revision = was.Revision
		err = c.documents.Replace(ctx, d, false)
		switch {
		case err == nil:
			return changed, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return Environment{}, storeError(err, kindEnvironment, id)
		}
		if taken, err := c.taken(ctx, tenant, changed); err != nil || taken {
			return Environment{}, errors.Join(err, nameTaken(changed.Name))
		}
	}
}

// taken reports whether another environment has the name of this one.
func (c *Catalog) taken(ctx context.Context, tenant string, e Environment) (bool, error) {
	found, err := c.documents.Documents(ctx, store.DocumentQuery{Tenant: tenant, Kind: kindEnvironment, Name: e.Name, Archived: true, Limit: 1})
	if err != nil {
		return false, storeError(err, kindEnvironment, e.ID)
	}
	return len(found) > 0 && found[0].ID != e.ID, nil
}

// DeleteEnvironment deletes an environment. Sessions that were created from it go on.
func (c *Catalog) DeleteEnvironment(ctx context.Context, tenant, id string) error {
	d, err := c.find(ctx, tenant, kindEnvironment, id)
	if err != nil {
		return err
	}
	if err := c.documents.Remove(ctx, d.Ref()); err != nil {
		return storeError(err, kindEnvironment, id)
	}
	return nil
}
