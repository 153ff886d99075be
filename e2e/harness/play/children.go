package play

import (
	"context"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Spawn is a reply that makes a child, which keeps its own account with the
// model.
func (p *Play) Spawn(name string, steps ...rig.Step) rig.Step {
	tag := p.Name + "." + name
	return rig.Use("child_spawn", map[string]any{"title": tag, "prompt": rig.Script(tag, steps...)})
}

// familyKinds are about sessions that spawn others.
func familyKinds() []Kind {
	parent := with("bash", "child_spawn", "child_message", "child_wait", "child_read", "child_terminate")
	first := func(what string, more ...any) rig.Step {
		input := map[string]any{"child": rig.Made("child", 1)}
		for i := 0; i+1 < len(more); i += 2 {
			name, _ := more[i].(string)
			input[name] = more[i+1]
		}
		return rig.Use("child_"+what, input)
	}
	return []Kind{
		{Name: "child", Family: true, Create: parent, Play: prompts(func(p *Play) string {
			return p.Script(
				p.Spawn("c", rig.Bash(p.Marks("0.02")), rig.Say("done here")), first("wait", "timeout_seconds", 30), first("read"),
				rig.Say("it is done"))
		})},
		{Name: "child-message", Family: true, Create: parent, Play: prompts(func(p *Play) string {
			return p.Script(
				p.Spawn("c", rig.Say("at your service")),
				first("message", "prompt", rig.Script(p.Name+".c", rig.Bash(p.Marks("0.01")), rig.Say("that too"))),
				first("wait", "timeout_seconds", 30), first("terminate"), rig.Say("enough"))
		})},
		{Name: "tree", Family: true, Create: parent, Play: func(ctx context.Context, p *Play) error {
			if err := p.grow(ctx); err != nil {
				return err
			}
			p.MayCancel()
			return p.Insist(ctx, "terminate", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated })
		}},
		// The parent ends while its child is being made.
		{Name: "child-early", Family: true, Create: parent, Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(p.Spawn("c", rig.Bash(p.Marks("0.2")), rig.Say("orphaned")), rig.Say("bye"))); err != nil {
				return err
			}
			if err := p.Sees(ctx, dormouse.ChildSpawned, 1); err != nil {
				return err
			}
			p.MayCancel()
			return p.Insist(ctx, "terminate", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated })
		}},
		// A person ends a child, and its parent is told.
		{Name: "child-ends", Family: true, Create: parent, Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(p.Spawn("c", rig.Say("done here")), rig.Say("it works"))); err != nil {
				return err
			}
			if err := p.Sees(ctx, dormouse.ChildStarted, 1); err != nil {
				return err
			}
			for len(p.family) == 0 {
				if _, err := p.find(ctx); err != nil {
					return err
				}
			}
			for _, child := range p.family {
				child.MayCancel()
				if err := child.Insist(ctx, "terminate", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated }); err != nil {
					return err
				}
			}
			return p.Sees(ctx, dormouse.ChildEnded, 1)
		}},
		{Name: "tree-delete", Family: true, Create: parent, Play: func(ctx context.Context, p *Play) error {
			if err := p.grow(ctx); err != nil {
				return err
			}
			return p.Delete(ctx)
		}},
	}
}

// grow has the session spawn two children, one of which has a child that has a
// child, all at work, and returns once the last of them is there.
func (p *Play) grow(ctx context.Context) error {
	leaf := p.Spawn("a.b.c", rig.Bash(p.Marks("0.4")), rig.Say("the leaf"))
	branch := p.Spawn("a.b", leaf, rig.Bash(p.Marks("0.3")), rig.Say("the branch"))
	if err := p.Prompt(ctx, "p0", p.Script(
		p.Spawn("a", branch, rig.Bash(p.Marks("0.3")), rig.Say("the bough")),
		p.Spawn("b", rig.Bash(p.Marks("0.3")), rig.Say("the other bough")),
		rig.Bash(p.Marks("0.2")), rig.Say("the trunk"))); err != nil {
		return err
	}
	const descendants = 4
	for len(p.family) < descendants {
		if _, err := p.find(ctx); err != nil {
			return err
		}
		if err := sleep.For(ctx, 10e6); err != nil {
			return err
		}
	}
	return nil
}
