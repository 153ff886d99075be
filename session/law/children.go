package law

import (
	"fmt"

	"github.com/dormouse-run/dormouse"
)

// spawn records that a child is to be created, with everything that the actor needs to
// create it. The child's id is derived from the request, so that asking twice makes one
// child.
func (d *draft) spawn(v Spawn) error {
	c := &v.Child
	c.Parent, c.Depth, c.Tenant, c.Owner = d.Session, d.Depth+1, d.Tenant, d.Owner
	c.Environment, c.EnvironmentID = d.Environment, d.EnvironmentID
	const share = 4 // of what is left goes to each child, so that a tree stays bounded and each may go on
	c.Offspring = max(d.Offspring-1, 0) / share
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.Agent.Within(v.Rights); err != nil {
		return err
	}
	if len(v.Prompt) > 0 {
		if err := dormouse.ValidateContent(v.Prompt); err != nil {
			return err
		}
	}
	again, err := d.again(string(c.Session), func(e dormouse.Event) bool { return e.Type == dormouse.ChildSpawned })
	switch {
	case again || d.Child(c.Session) >= 0:
		return err
	case c.Session == d.Session:
		return fmt.Errorf("a session is not its own child: %w", dormouse.ErrInvalid)
	case len(d.Children) >= dormouse.MaxChildren:
		return fmt.Errorf("%d children are at work already; end one first: %w", len(d.Children), dormouse.ErrConflict)
	case d.Offspring < 1:
		return fmt.Errorf("this session may have no more children at work; end one first: %w", dormouse.ErrConflict)
	case c.Depth > dormouse.MaxDepth:
		return fmt.Errorf("there are %d sessions above this one already: %w", d.Depth, dormouse.ErrConflict)
	}
	d.add(dormouse.ChildSpawned, "", v.Spawned)
	return nil
}

// endChild wants a child ended.
func (d *draft) endChild(v EndChild) error {
	i := d.Child(v.Child)
	if i < 0 {
		return fmt.Errorf("no child %s is at work here: %w", v.Child, dormouse.ErrNotFound)
	}
	if !d.Children[i].Ending {
		d.add(dormouse.ChildEnding, "", dormouse.ChildFact{Child: v.Child, Reason: v.Reason})
	}
	return nil
}

func (d *draft) childUp(v ChildUp) error {
	if i := d.Child(v.Child); i >= 0 && !d.Children[i].Started {
		d.record(dormouse.ChildStarted, "", dormouse.ChildFact{Child: v.Child})
	}
	return nil
}

// parentTold records that the parent knows of the end, or will find out by itself.
func (d *draft) parentTold() error {
	if d.ParentUntold {
		d.record(dormouse.ParentTold, "", dormouse.ChildFact{Child: d.Session})
	}
	return nil
}

func (d *draft) childDown(v ChildDown) error {
	if d.Child(v.Child) >= 0 {
		d.record(dormouse.ChildEnded, "", dormouse.ChildFact{Child: v.Child, Reason: v.Reason})
	}
	return nil
}
