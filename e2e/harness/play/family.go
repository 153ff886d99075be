package play

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// members are the session itself, unless it is gone, and all that descend from
// it, in the order of their names.
func (p *Play) members() []*Play {
	all := slices.SortedFunc(maps.Values(p.family), func(a, b *Play) int { return cmp.Compare(a.Name, b.Name) })
	if p.gone.IsZero() {
		all = slices.Insert(all, 0, p)
	}
	return all
}

// restFamily waits until all that descend from the session rest, however many
// there will be.
func (p *Play) restFamily(ctx context.Context) error {
	for {
		found, err := p.find(ctx)
		if err != nil {
			return err
		}
		for _, q := range p.family {
			if _, err := q.Idle(ctx); err != nil {
				return fmt.Errorf("descendant %q: %w", q.Name, err)
			}
		}
		if found == 0 {
			return nil
		}
	}
}

// find looks for descendants that are not known yet, and follows them from their
// beginning.
func (p *Play) find(ctx context.Context) (found int, err error) {
	if !p.kind.Family {
		return 0, nil
	}
	for _, parent := range append(slices.Collect(maps.Values(p.family)), p) {
		children, err := parent.Children(ctx)
		if err != nil {
			return found, err
		}
		for _, c := range children {
			if p.family[c.Session] != nil {
				continue
			}
			q := &Play{
				Session: &rig.Session{Client: p.Client, ID: c.Session}, Keeper: p.Keeper, Fleet: p.Fleet, Witness: p.Witness, Models: p.Models,
				Name: c.Title, Slack: p.Slack,
			}
			q.Follow(p.life, p.Follower.All())
			p.family[c.Session] = q
			found++
		}
	}
	return found, nil
}
