package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// act is one of the things that people and agents do.
func (m *member) act(ctx context.Context) error {
	switch n := m.rand.IntN(20); {
	case n < 5:
		_, err := m.prompt(ctx, m.script(m.moment()))
		return err
	case n < 9:
		return m.exec(ctx)
	case n < 12:
		return m.goBack(ctx)
	case n < 14:
		return m.branch(ctx)
	case n < 16:
		return m.child(ctx)
	case n < 18:
		return m.wakeup(ctx)
	}
	if err := m.Asleep(ctx); err != nil {
		return err
	}
	return m.Wake(ctx)
}

// moment is how long a command takes.
func (m *member) moment() string { return fmt.Sprintf("0.%02d", m.rand.IntN(20)) }

// step is a name that nothing else of the session has.
func (m *member) step(kind string) string {
	m.steps++
	return fmt.Sprint(kind, m.steps)
}

// script is a prompt that has a command run.
func (m *member) script(moment string) string {
	return m.Script(rig.Bash(m.Marks(moment)), rig.Say("done"))
}

// prompt sends one, and returns the id that it has in the log.
func (m *member) prompt(ctx context.Context, content string) (dormouse.EventID, error) {
	name := m.step("p")
	return dormouse.PromptID(m.ID, name), m.Prompt(ctx, name, content)
}

// exec has a person run a command, and now and then ask for it once more.
func (m *member) exec(ctx context.Context) error {
	a := m.Asked(m.moment())
	for range 1 + m.rand.IntN(2) {
		if _, err := m.Ask(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// goBack takes a snapshot, has the agent break a file, and goes back: to before that
// turn, or to the snapshot.
func (m *member) goBack(ctx context.Context) error {
	note := m.Name + m.step("-note")
	if _, err := m.Run(ctx, "echo "+note+" > note"); err != nil {
		return err
	}
	m.note = note
	var taken struct {
		ID dormouse.SnapshotID `json:"snapshot"`
	}
	tries := 0 // the sandbox may be killed meanwhile, and then that snapshot is not taken
	err := m.whileResting(ctx, func() error {
		tries++
		return m.Repeat(ctx, http.MethodPost, m.Path("/snapshots"), map[string]any{"id": fmt.Sprintf("%s-%d", note, tries)}, &taken)
	})
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	broke, err := m.prompt(ctx, m.Script(rig.Bash("echo broken > note; "+m.Marks("0")), rig.Say("broken")))
	if err != nil {
		return err
	}
	if err := m.Rest(ctx, "continue"); err != nil {
		return err
	}
	if m.rand.IntN(2) == 0 {
		err = m.Repeat(ctx, http.MethodPost, m.Path("/revert"), map[string]any{"prompt": broke}, nil)
		if err == nil {
			return m.look(ctx, m, "after the turn was reverted")
		}
		if rig.Refused(err) == nil {
			return fmt.Errorf("revert: %w", err)
		}
		// It was done before the answer was lost, or there is nothing to go back to.
	}
	err = m.whileResting(ctx, func() error {
		return m.Repeat(ctx, http.MethodPost, m.Path("/restore"), map[string]any{"snapshot": taken.ID}, nil)
	})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return m.look(ctx, m, "after a snapshot was restored")
}

// whileResting does what only a session that rests allows, again if it is refused
// because something came in between.
func (m *member) whileResting(ctx context.Context, do func() error) error {
	for {
		if err := m.Rest(ctx, "continue"); err != nil {
			return err
		}
		err := do()
		if r := rig.Refused(err); r == nil || r.Status != http.StatusConflict {
			return err
		}
		if paused := sleep.For(ctx, 50*time.Millisecond); paused != nil {
			return errors.Join(err, paused)
		}
	}
}

// branch makes a session that goes on from here, looks at its files and deletes it.
// If an answer was lost there may be two.
func (m *member) branch(ctx context.Context) error {
	title := m.Name + "." + m.step("b")
	err := m.whileResting(ctx, func() error {
		return m.Repeat(ctx, http.MethodPost, m.Path("/branch"), map[string]any{"title": title}, nil)
	})
	if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("branch: %w", err)
	}
	made, err := m.List(ctx, "archived=true&text="+url.QueryEscape(title))
	if err != nil {
		return err
	}
	for _, row := range made {
		if row.Title != title {
			continue
		}
		b := &play.Play{Session: &rig.Session{Client: m.Client, ID: row.Session}, Name: title}
		if err := m.look(ctx, b, "in a branch"); err != nil {
			return fmt.Errorf("branch %s: %w", b.ID, err)
		}
		if err := b.Session.Delete(ctx); err != nil {
			return fmt.Errorf("delete branch %s: %w", b.ID, err)
		}
		m.half.left(m, b.ID)
	}
	return nil
}

// child has the agent spawn one, wait for it and end it. If a crash kept it from
// that, a person does.
func (m *member) child(ctx context.Context) error {
	nth := map[string]any{"child": rig.Made("child", len(m.Family())+1), "timeout_seconds": 20}
	steps := []rig.Step{m.Spawn(m.step("c"), rig.Bash("echo hello > hello"), rig.Say("done here")), rig.Use("child_wait", nth)}
	if m.rand.IntN(2) == 0 {
		steps = append(steps, rig.Use("child_terminate", map[string]any{"child": nth["child"]}))
	}
	if _, err := m.prompt(ctx, m.Script(append(steps, rig.Say("well done"))...)); err != nil {
		return err
	}
	if err := m.Rest(ctx, "continue"); err != nil {
		return err
	}
	for _, q := range m.Family() {
		ended := func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated }
		if shown, err := q.Show(ctx); err != nil || ended(shown) {
			if err != nil {
				return fmt.Errorf("child %q: %w", q.Name, err)
			}
			continue
		}
		q.MayCancel()
		if err := q.Insist(ctx, "terminate", nil, ended); err != nil {
			return fmt.Errorf("terminate child %q: %w", q.Name, err)
		}
	}
	return nil
}

// wakeup has the session prompt itself when it is hibernated. If the time is over
// before a server could be reached, another time is chosen.
func (m *member) wakeup(ctx context.Context) error {
	if err := m.Asleep(ctx); err != nil {
		return err
	}
	scheduled, fired, err := m.wakeups(ctx)
	if err != nil {
		return err
	}
	prompt := m.script("0")
	for {
		at := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
		_, err := m.Schedule(ctx, m.step("w"), map[string]any{"at": at, "prompt": prompt})
		if r := rig.Refused(err); err != nil && (r == nil || r.Status != http.StatusBadRequest) {
			return fmt.Errorf("schedule a wake-up: %w", err)
		}
		if n, _, lost := m.wakeups(ctx); lost != nil || n > scheduled {
			if lost != nil {
				return lost
			}
			return m.Sees(ctx, dormouse.WakeupFired, fired+1)
		}
	}
}

// wakeups counts those that were scheduled and those that have fired.
func (m *member) wakeups(ctx context.Context) (scheduled, fired int, err error) {
	log, err := m.Events(ctx)
	for _, e := range log {
		switch e.Type { //nolint:exhaustive // the others are not about wake-ups
		case dormouse.WakeupScheduled:
			scheduled++
		case dormouse.WakeupFired:
			fired++
		}
	}
	return scheduled, fired, err
}
