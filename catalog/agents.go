package catalog

import (
	"context"
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// CreateAgent makes an agent, in version 1.
func (c *Catalog) CreateAgent(ctx context.Context, tenant string, p AgentParams) (Agent, error) {
	now := c.timestamp()
	a := Agent{Type: typeAgent, ID: newID(AgentPrefix), Version: 1, Created: now, Updated: now}
	a, err := a.with(ctx, p.update(), resolver{c, tenant, a.ID, a.Version})
	if err != nil {
		return Agent{}, err
	}
	if err := c.documents.Insert(ctx, a.document(tenant)); err != nil {
		return Agent{}, storeError(err, kindAgent, a.ID)
	}
	return a, nil
}

// Agent returns an agent in a version, or the newest if that is 0.
func (c *Catalog) Agent(ctx context.Context, tenant, id string, version int) (Agent, error) {
	d, err := c.find(ctx, tenant, kindAgent, id)
	if err != nil {
		return Agent{}, err
	}
	newest, err := readAgent(d)
	if err != nil || version == 0 || version == newest.Version {
		return newest, err
	}
	d, err = c.documents.DocumentVersion(ctx, d.Ref(), version)
	if errors.Is(err, dormouse.ErrNotFound) {
		return Agent{}, &problem{kind: dormouse.ErrNotFound, message: "agent " + id + " has no such version"}
	}
	if err != nil {
		return Agent{}, storeError(err, kindAgent, id)
	}
	a, err := readAgent(d)
	a.Archived = newest.Archived
	return a, err
}

func readAgent(d store.Document) (Agent, error) {
	a, err := read[Agent](d)
	a.Archived = timeOrNil(d.Archived)
	return a, err
}

// tries bounds how often a change is made again because another one came first.
const tries = 16

// UpdateAgent changes an agent. That makes a new version, unless nothing is different.
func (c *Catalog) UpdateAgent(ctx context.Context, tenant, id string, u AgentUpdate) (Agent, error) {
	if u.Version.Set && u.Version.Value < 1 {
		return Agent{}, invalidf("version", "must be at least 1")
	}
	return c.changeAgent(ctx, tenant, id, func(a Agent) (Agent, error) {
		if a.Archived != nil {
			return a, &problem{kind: dormouse.ErrInvalid, message: "agent " + id + " is archived; it can only be read"}
		}
		if u.Version.Set && int(u.Version.Value) != a.Version {
			return a, conflictf("version: agent %s is at version %d, not %d", id, a.Version, u.Version.Value)
		}
		changed, err := a.with(ctx, u, resolver{c, tenant, a.ID, a.Version})
		if err != nil || changed.same(a) {
			return a, err
		}
		changed.Version++
		changed.Updated = c.timestamp()
		pin(changed.Multiagent, a.ID, changed.Version)
		return changed, nil
	})
}

// ArchiveAgent archives an agent: from then on it can only be read.
func (c *Catalog) ArchiveAgent(ctx context.Context, tenant, id string) (Agent, error) {
	return c.changeAgent(ctx, tenant, id, func(a Agent) (Agent, error) {
		if a.Archived == nil {
			now := c.timestamp()
			a.Archived, a.Updated = &now, now
		}
		return a, nil
	})
}

// changeAgent stores the agent that change returns, if it differs.
func (c *Catalog) changeAgent(ctx context.Context, tenant, id string, change func(Agent) (Agent, error)) (Agent, error) {
	for try := 1; ; try++ {
		was, err := c.find(ctx, tenant, kindAgent, id)
		if err != nil {
			return Agent{}, err
		}
		a, err := readAgent(was)
		if err != nil {
			return Agent{}, err
		}
		changed, err := change(a)
		if err != nil {
			return Agent{}, err
		}
		if changed.Updated.Equal(a.Updated) {
			return a, nil
		}
		d := changed.document(tenant)
		d.Revision = was.Revision
		err = c.documents.Replace(ctx, d, true)
		switch {
		case err == nil:
			return changed, nil
		case !errors.Is(err, dormouse.ErrConflict) || try == tries:
			return Agent{}, storeError(err, kindAgent, id)
		}
	}
}

// Agents lists agents in their newest versions.
func (c *Catalog) Agents(ctx context.Context, q Query) ([]Agent, error) {
	return list(ctx, c, q.of(kindAgent), readAgent)
}

// AgentVersions lists versions of an agent, the highest first, below the version
// before, or from the newest on if that is 0.
func (c *Catalog) AgentVersions(ctx context.Context, tenant, id string, before, limit int) ([]Agent, error) {
	newest, err := c.find(ctx, tenant, kindAgent, id)
	if err != nil {
		return nil, err
	}
	found, err := c.documents.DocumentVersions(ctx, newest.Ref(), before, limit)
	if err != nil {
		return nil, storeError(err, kindAgent, id)
	}
	all := make([]Agent, 0, len(found))
	for _, d := range found {
		d.Archived = newest.Archived
		a, err := readAgent(d)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// list reads what a query finds.
func list[T any](ctx context.Context, c *Catalog, q store.DocumentQuery, read func(store.Document) (T, error)) ([]T, error) {
	found, err := c.documents.Documents(ctx, q)
	if err != nil {
		return nil, storeError(err, q.Kind, q.After)
	}
	all := make([]T, 0, len(found))
	for _, d := range found {
		v, err := read(d)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
