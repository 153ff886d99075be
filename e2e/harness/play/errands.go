package play

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// with is a session that has the named tools.
func with(names ...string) map[string]any {
	var tools []map[string]any
	for _, name := range names {
		tools = append(tools, map[string]any{"name": name})
	}
	return warm("tools", tools)
}

// errandKinds are about what is due by itself, and what people say beside the
// conversation.
func errandKinds() []Kind {
	awake := func(p *Play) string { return p.Script(rig.Bash(p.Marks("0.01")), rig.Say("awake")) }
	ask := func(seconds int) func(*Play) string {
		return func(p *Play) string {
			return p.Script(rig.Use("question_ask", map[string]any{"question": "which way?", "expires_in_seconds": seconds}), rig.Say("that way"))
		}
	}
	return []Kind{
		{Name: "wakeup", Create: warm(), Play: func(ctx context.Context, p *Play) error {
			if err := p.wakeOnce(ctx, awake(p)); err != nil {
				return err
			}
			return p.Sees(ctx, dormouse.WakeupFired, 1)
		}},
		{Name: "wakeup-tool", Create: with("bash", "wakeup_schedule", "wakeup_cancel", "wakeup_list"), Play: func(ctx context.Context, p *Play) error {
			soon := map[string]any{"in_seconds": 1, "prompt": awake(p)}
			never := map[string]any{"in_seconds": 3600, "prompt": "never"}
			if err := p.Prompt(ctx, "p0", p.Script(
				rig.Use("wakeup_schedule", soon), rig.Use("wakeup_schedule", never), rig.Use("wakeup_list", map[string]any{}),
				rig.Use("wakeup_cancel", map[string]any{"id": rig.Made("wakeup", 2)}), rig.Say("good night"))); err != nil {
				return err
			}
			return p.Sees(ctx, dormouse.WakeupFired, 1)
		}},
		{Name: "wakeup-cron", Only: "wakeup.", Play: cron},
		{Name: "question", Create: with("question_ask"), Play: answered(false, ask(60))},
		{Name: "question-late", Create: with("question_ask"), Silent: true, Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", ask(1)(p)); err != nil {
				return err
			}
			shown, err := p.Until(ctx, func(s rig.Shown) bool { return len(s.Waiting()) > 0 || s.Settled() && s.Seq > 5 })
			if err != nil {
				return err
			}
			if err := p.Sees(ctx, dormouse.QuestionExpired, 1); err != nil {
				return err
			}
			for _, use := range shown.Waiting() {
				err := p.Repeat(ctx, http.MethodPost, p.Path("/answers"), map[string]any{"tool_use_id": use, "answer": "too late"}, nil)
				if r := rig.Refused(err); r == nil || r.Status != http.StatusConflict {
					return errors.Join(errors.New("an answer to a question that had expired was not refused"), err)
				}
			}
			return nil
		}},
		{Name: "describe", Play: func(ctx context.Context, p *Play) error {
			if err := p.Prompt(ctx, "p0", p.Script(rig.Step{"text": "slow", "delay_ms": 30})); err != nil {
				return err
			}
			said := oracle.Said{Title: "another title", Tags: []string{"blue", "green"}, Metadata: map[string]string{"k": "v"}}
			body := map[string]any{"title": said.Title, "tags": said.Tags, "metadata": said.Metadata}
			if err := p.Repeat(ctx, http.MethodPatch, p.Path(""), body, nil); err != nil {
				return err
			}
			p.said = &said
			return nil
		}},
	}
}

// Schedule has the session prompt itself later, under a name.
func (p *Play) Schedule(ctx context.Context, name string, body map[string]any) (dormouse.WakeupID, error) {
	body["id"] = name
	var answer struct {
		ID dormouse.WakeupID `json:"id"`
	}
	err := p.Repeat(ctx, http.MethodPost, p.Path("/wakeups"), body, &answer)
	return answer.ID, err
}

// wakeOnce schedules a wake-up at a time, so that a retry after a lost answer
// cannot schedule it again once it has fired. If the time is over before a server
// could be reached, another time is chosen.
func (p *Play) wakeOnce(ctx context.Context, prompt string) error {
	for n := 0; ; n++ {
		at := time.Now().Add(150 * time.Millisecond).UTC().Format(time.RFC3339Nano)
		_, err := p.Schedule(ctx, fmt.Sprintf("once%d", n), map[string]any{"at": at, "prompt": prompt})
		if r := rig.Refused(err); r == nil || r.Status != http.StatusBadRequest {
			return err
		}
		log, err := p.Events(ctx)
		if err != nil || slices.ContainsFunc(log, func(e dormouse.Event) bool { return e.Type == dormouse.WakeupScheduled }) {
			return err
		}
	}
}

// cron lets a wake-up fire by a cron line, and then once more for all the times
// that were missed while the clock was set. Servers that share a store use its
// clock, which tests cannot set: there it takes a minute.
func cron(ctx context.Context, p *Play) error {
	id, err := p.Schedule(ctx, "often", map[string]any{"cron": "* * * * *", "prompt": p.Script(rig.Say("cuckoo"))})
	if err != nil {
		return err
	}
	fires := 1
	if !p.Keeper.Store.Shared() {
		fires = 2
	}
	for n := range fires {
		if err := p.Advance(time.Duration(n*5+1) * time.Minute); err != nil {
			return err
		}
		if err := p.Sees(ctx, dormouse.WakeupFired, n+1); err != nil {
			return err
		}
	}
	err = p.Repeat(ctx, http.MethodDelete, p.Path("/wakeups/"+string(id)), nil, nil)
	if rig.Missing(err) {
		return nil // it was cancelled before the answer was lost
	}
	return err
}

// Advance sets the clock of a server that has one of its own.
func (p *Play) Advance(by time.Duration) error {
	if p.Clock == "" {
		return nil
	}
	return os.WriteFile(p.Clock, []byte(by.String()), 0o600)
}
