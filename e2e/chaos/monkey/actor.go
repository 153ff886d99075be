package monkey

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// actor is a client that keeps one session at work.
type actor struct {
	*play.Play
	client *rig.Client
	n      int
	rand   *rand.Rand
	asked  int
	spawns int
}

func newActor(s *chaos, n int) *actor {
	a := &actor{
		n: n, rand: rand.New(rand.NewPCG(s.Seed, uint64(100+n))),
		Play: &play.Play{
			Keeper: s.fleet.Keepers[0], Fleet: s.fleet, Witness: s.witness, Models: s.models, Name: fmt.Sprintf("s%d", n), Slack: slack,
		},
		client: s.fleet.Client(),
	}
	if s.Servers > 1 {
		a.client.Patience = time.Second + time.Duration(n%3)*time.Second
	}
	return a
}

// slack is how far the clock of a database may be off from that of the test.
const slack = 150 * time.Millisecond

// kind is how the session is made: every sort of them is there.
func (a *actor) kind() play.Kind {
	options := map[string]any{
		"warm": a.n%2 == 0, "custom_tools": []map[string]any{{"name": "weather"}},
	}
	if a.n%3 == 0 {
		options["model"] = "scripted-keyed"
	}
	tools := []map[string]any{{"name": "bash"}}
	if a.n%4 == 1 {
		tools[0]["permission"] = "ask"
	}
	for _, name := range []string{"write", "edit", "read", "glob", "grep", "task", "question_ask", "child_spawn", "child_message", "child_wait", "child_read", "child_terminate"} {
		tools = append(tools, map[string]any{"name": name})
	}
	options["tools"] = tools
	if a.n%5 == 2 {
		options["recovery"] = "ask"
	}
	if a.n%7 == 3 {
		options["sleep_after"] = "100ms"
	}
	return play.Kind{Name: a.Name, Create: options, Family: true}
}

// work makes the session and asks it one thing after another until over ends.
func (a *actor) work(ctx, over context.Context, ready chan<- struct{}) error {
	err := a.Start(ctx, a.client, a.kind(), a.n%2 == 0)
	ready <- struct{}{}
	if err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	for over.Err() == nil {
		if err := a.chapter(ctx); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		// A session that a kill keeps hitting is not waited for in a chaos test.
		rest, cancel := context.WithTimeout(ctx, 3*play.SettleWithin)
		err := a.Rest(rest, a.decide())
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

func (a *actor) decide() string {
	if a.rand.IntN(2) == 0 {
		return "retry"
	}
	return "continue"
}

func (a *actor) ask(ctx context.Context, steps ...rig.Step) error {
	a.asked++
	return a.Prompt(ctx, fmt.Sprintf("p%d", a.asked), a.Script(steps...))
}

// chapter is one piece of work of some kind.
func (a *actor) chapter(ctx context.Context) error {
	pause := fmt.Sprintf("0.%02d", a.rand.IntN(30))
	switch a.rand.IntN(13) {
	case 0:
		return a.ask(ctx, rig.Step{"text": "a sentence in many pieces, one after the other", "chunks": 12, "chunk_delay_ms": 5 + a.rand.IntN(20)})
	case 1, 2:
		return a.ask(ctx, rig.Bash(a.Marks(pause)), rig.Say("it ran"))
	case 3:
		return a.ask(ctx, rig.Use("task", map[string]any{"command": a.Marks(pause)}), rig.Say("it runs"))
	case 4:
		return a.ask(ctx, rig.Use("write", map[string]any{"file_path": a.File(), "content": "chaotic"}), rig.Bash(a.Marks("0")), rig.Say("written"))
	case 5:
		return a.ask(ctx, rig.Use("weather", map[string]any{"city": "Ulm"}), rig.Say("so it is"))
	case 6:
		for range 3 {
			if err := a.ask(ctx, rig.Step{"text": "one of three", "delay_ms": 10}); err != nil {
				return err
			}
		}
		return nil
	case 7:
		if err := a.ask(ctx, rig.Bash(a.Marks("0.5")), rig.Say("nobody stopped it")); err != nil {
			return err
		}
		if err := sleep.For(ctx, time.Duration(a.rand.IntN(200))*time.Millisecond); err != nil {
			return err
		}
		return a.Interrupt(ctx, a.rand.IntN(2) == 0)
	case 8:
		return a.cancelOne(ctx)
	case 9:
		return a.ask(ctx, rig.Use("question_ask", map[string]any{"question": "which way?"}), rig.Say("that way"))
	case 10:
		return a.wake(ctx)
	case 11:
		return a.family(ctx)
	}
	return a.ask(ctx, rig.Use("read", map[string]any{"file_path": "/etc/hostname"}), rig.Say("read"))
}

// family has the session spawn a child, ask it something more and end it. It has
// only so many of them.
func (a *actor) family(ctx context.Context) error {
	const most = 3
	if a.spawns++; a.spawns > most {
		return a.ask(ctx, rig.Say("enough of them"))
	}
	name := fmt.Sprintf("c%d", a.spawns)
	child := rig.Made("child", a.spawns)
	more := map[string]any{"child": child, "prompt": rig.Script(a.Name+"."+name, rig.Say("that too"))}
	steps := []rig.Step{a.Spawn(name, rig.Say("at your service")), rig.Use("child_message", more)}
	if a.spawns%2 == 0 {
		steps = append(steps, rig.Use("child_terminate", map[string]any{"child": child}))
	}
	return a.ask(ctx, append(steps, rig.Say("well done"))...)
}

// wake has the session prompt itself in a moment, and waits for that. If the
// answer is lost and the request is sent again, the session may be prompted
// twice; and the moment may be over before a server could be reached.
func (a *actor) wake(ctx context.Context) error {
	a.asked++
	seen := len(a.Follower.Seen())
	_, err := a.Schedule(ctx, fmt.Sprintf("w%d", a.asked), map[string]any{"in": "300ms", "prompt": a.Script(rig.Say("awake"))})
	if r := rig.Refused(err); r != nil && r.Status == http.StatusBadRequest {
		return nil
	}
	if err == nil {
		_, err = a.Follower.Next(ctx, seen, dormouse.WakeupFired)
	}
	return err
}

// cancelOne queues two prompts and cancels the second, unless its turn has begun.
func (a *actor) cancelOne(ctx context.Context) error {
	if err := a.ask(ctx, rig.Step{"text": "slow", "delay_ms": 80}); err != nil {
		return err
	}
	if err := a.ask(ctx, rig.Say("perhaps never said")); err != nil {
		return err
	}
	acks := a.Acks()
	last := acks[len(acks)-1]
	last.Cancelled = true
	for {
		_, err := a.Once(ctx, http.MethodDelete, a.Path("/queue/"+string(last.ID)), nil, nil)
		if r := rig.Refused(err); r != nil && (r.Status == http.StatusNotFound || r.Status == http.StatusConflict) {
			return nil // it was taken back before the answer was lost, or it runs
		}
		if !rig.Again(err) {
			return err
		}
	}
}
