package play

import (
	"context"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// endKinds are about sessions that are put away or removed, and about several
// things at once.
func endKinds() []Kind {
	long := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.3")), rig.Say("nobody stopped it")) }
	short := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.05")), rig.Say("it ran")) }
	return []Kind{
		{Name: "delete", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", long(p)); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.Delete(ctx)
		}},
		{Name: "archive", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", short(p)); err != nil {
				return err
			}
			if err := p.Settle(ctx); err != nil {
				return err
			}
			return p.Insist(ctx, "archive", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated })
		}},
		{Name: "threads", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			second, err := p.OpenThread(ctx, "second")
			if err != nil {
				return err
			}
			for i, thread := range []dormouse.ThreadID{"", second, "", second} {
				if err := p.PromptOn(ctx, thread, "p"+string(rune('0'+i)), short(p)); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// Delete has the session removed and remembers when it was gone.
func (p *Play) Delete(ctx context.Context) error {
	if err := p.Session.Delete(ctx); err != nil {
		return err
	}
	p.gone = time.Now()
	return nil
}
