package play

import (
	"context"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// ignoreConflict ignores that the session's state does not allow the command: after a
// crash the client cannot know that state.
func ignoreConflict(err error) error {
	if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict {
		return nil
	}
	return err
}

func peopleKinds() []Kind {
	asking := warm("tools", []map[string]any{{"name": "bash", "permission": "ask"}})
	custom := map[string]any{"custom_tools": []map[string]any{{"name": "weather", "description": "asks the client"}}}
	ask := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.01")), rig.Say("it was allowed")) }
	long := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.4")), rig.Say("nobody stopped it")) }
	return []Kind{
		{Name: "approval", Create: asking, Play: answered(false, ask)},
		{Name: "denial", Create: asking, Play: answered(true, ask)},
		{Name: "custom", Create: custom, Play: answered(false, func(p *Play) string {
			return p.Script(rig.Use("weather", map[string]any{"city": "Ulm"}), rig.Say("so it is"))
		})},
		{Name: "two-gates", Create: map[string]any{
			"warm": true, "tools": asking["tools"], "custom_tools": custom["custom_tools"],
		}, Play: answered(false, func(p *Play) string {
			return p.Script(rig.Step{"tools": []map[string]any{
				{"name": "bash", "input": map[string]any{"command": p.Marks("0")}},
				{"name": "weather", "input": map[string]any{"city": "Ulm"}},
			}}, rig.Say("both"))
		})},
		{Name: "interrupt-exec", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", long(p)); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.Interrupt(ctx, false)
		}},
		{Name: "interrupt-model", Play: func(ctx context.Context, p *Play) error {
			slow := rig.Step{"text": "a slow and stately sentence that nobody hears to its end", "chunks": 40, "chunk_delay_ms": 10}
			if err := p.Prompt(ctx, "p0", p.Script(slow)); err != nil {
				return err
			}
			if _, err := p.Until(ctx, func(s rig.Shown) bool { return s.Turning() || s.Settled() && s.Seq > 5 }); err != nil {
				return err
			}
			return p.Interrupt(ctx, false)
		}},
		{Name: "interrupt-flush", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			for i, content := range []string{long(p), p.Script(rig.Say("second")), p.Script(rig.Say("third"))} {
				if err := p.Prompt(ctx, "p"+string(rune('0'+i)), content); err != nil {
					return err
				}
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.Interrupt(ctx, true)
		}},
		{Name: "cancel", Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(rig.Step{"text": "slow", "delay_ms": 60})); err != nil {
				return err
			}
			if err := p.Prompt(ctx, "p1", p.Script(rig.Say("never said"))); err != nil {
				return err
			}
			acks := p.Acks()
			last := acks[len(acks)-1]
			last.Cancelled = true
			for {
				_, err := p.Once(ctx, http.MethodDelete, p.Path("/queue/"+string(last.ID)), nil, nil)
				if r := rig.Refused(err); r != nil && (r.Status == http.StatusNotFound || r.Status == http.StatusConflict) {
					return nil // it was cancelled before the answer was lost, or it runs
				}
				if !rig.Again(err) {
					return err
				}
			}
		}},
		{Name: "ask-retry", Create: warm("recovery", "ask"), Decide: "retry", Play: prompts(ask2)},
		{Name: "ask-continue", Create: warm("recovery", "ask"), Decide: "continue", Play: prompts(ask2, func(p *Play) string {
			return p.Script(rig.Say("the next one"))
		})},
		// A turn that waits for a person is taken up while its sandbox stops, with a
		// command in it whose outcome will stay unknown.
		{Name: "ask-hibernate", Create: warm("recovery", "ask"), Decide: "retry", Hibernating: true, Play: prompts(ask2)},
		{Name: "terminate", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", long(p)); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			p.MayCancel()
			return p.Insist(ctx, "terminate", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated })
		}},
	}
}

func ask2(p *Play) string { return p.Script(rig.Bash(p.Marks("0.03")), rig.Say("it went on")) }

// answered sends a prompt and answers what people are asked.
func answered(deny bool, content func(*Play) string) func(context.Context, *Play) error {
	return func(ctx context.Context, p *Play) error {
		if err := p.Prompt(ctx, "p0", content(p)); err != nil {
			return err
		}
		for {
			shown, err := p.Until(ctx, rig.Shown.Settled)
			if err != nil || shown.Phase != dormouse.PhaseWaiting {
				return err
			}
			if err := p.AnswerAll(ctx, shown, deny); err != nil {
				return err
			}
		}
	}
}

// other makes another session of the same scenario.
func (p *Play) other(ctx context.Context, name string) (*Play, error) {
	q := &Play{
		Keeper: p.Keeper, Fleet: p.Fleet, Witness: p.Witness, Models: p.Models, Name: p.Name + "." + name, Slack: p.Slack, Clock: p.Clock,
	}
	p.beside = append(p.beside, q)
	return q, q.Start(ctx, p.Client, Kind{}, p.Follower.All())
}

// lifeKinds are about servers and actors that come and go.
func lifeKinds() []Kind {
	word := func(p *Play) string { return p.Script(rig.Say("a word")) }
	return []Kind{
		{Name: "drop", Flags: []string{"--drop-after", "15ms"}, Play: func(ctx context.Context, p *Play) error {
			for i := range 4 {
				if err := p.Prompt(ctx, "p"+string(rune('0'+i)), word(p)); err != nil {
					return err
				}
				if err := p.Settle(ctx); err != nil {
					return err
				}
				// Long enough for an actor with nothing to do to be dropped.
				if err := sleep.For(ctx, 40*1e6); err != nil {
					return err
				}
			}
			return nil
		}},
		// A turn that crashes the server, again and again, beside one that does no
		// harm.
		{Name: "beside", Kills: true, Create: warm(), Play: func(ctx context.Context, p *Play) error {
			q, err := p.other(ctx, "other")
			if err != nil {
				return err
			}
			if err := p.Prompt(ctx, "p0", p.Script(rig.Bash(p.Marks("2")), rig.Say("it went on"))); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			if err := q.Prompt(ctx, "p0", q.Script(rig.Step{"text": "slow and steady", "delay_ms": 500, "chunks": 10, "chunk_delay_ms": 20})); err != nil {
				return err
			}
			if _, err := q.Until(ctx, func(s rig.Shown) bool { return s.Turning() || s.Seq > 5 && s.Settled() }); err != nil {
				return err
			}
			if err := p.KillLife(ctx); err != nil {
				return err
			}
			return q.Prompt(ctx, "p1", q.Script(rig.Say("and on")))
		}},
		{Name: "idle", Kills: true, Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", word(p)); err != nil {
				return err
			}
			if err := p.Settle(ctx); err != nil {
				return err
			}
			if err := p.KillLife(ctx); err != nil {
				return err
			}
			return p.Prompt(ctx, "p1", word(p))
		}},
		{Name: "stop", Kills: true, Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(rig.Bash(p.Marks("0.15")), rig.Say("it went on"))); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.StopLife(ctx)
		}},
		{Name: "kill", Kills: true, Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(rig.Bash(p.Marks("0.1")), rig.Say("it went on"))); err != nil {
				return err
			}
			if err := p.Begun(ctx); err != nil {
				return err
			}
			return p.KillLife(ctx)
		}},
	}
}
