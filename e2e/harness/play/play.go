// Package play drives sessions of a server that dies under them: kinds of work,
// and a client that does not give up.
package play

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// SettleWithin is the promise: this long after a fault no session is stuck.
const SettleWithin = 10 * time.Second

// Play is one session being driven through a kind's scenario, by a client that
// does not give up when the server dies under it.
type Play struct {
	*rig.Session
	// Keeper keeps the server that is killed, one of Fleet.
	Keeper  *rig.Keeper
	Fleet   *rig.Fleet
	Witness *rig.Witness
	Models  *rig.Models
	// Name is the session's title and its account with the model.
	Name string
	// Slack is how far the server's clock may be off the one of this machine; Clock
	// names the file that sets it, if there is one. Boot names the file that has the
	// machine start anew.
	Slack       time.Duration
	Clock, Boot string

	life     context.Context //nolint:containedctx // that of the followers
	kind     Kind
	nonce    int
	family   map[dormouse.SessionID]*Play // those it spawned, and theirs
	beside   []*Play                      // other sessions of the same scenario
	branched []*rig.Session               // those that go on from points of this one
	said     *oracle.Said
	looks    []oracle.Look
	gone     time.Time // when it was deleted and not there any more

	mu      sync.Mutex
	answers []oracle.Answer // guarded by mu
}

// Start makes the session and follows it.
func (p *Play) Start(ctx context.Context, client *rig.Client, k Kind, all bool) error {
	p.life, p.kind, p.family = ctx, k, make(map[dormouse.SessionID]*Play)
	options := map[string]any{"warm": false}
	maps.Copy(options, k.Create)
	first := ""
	if k.First != nil {
		first = k.First(p)
	}
	s, err := client.Create(ctx, p.Name, options, first)
	if err != nil {
		return err
	}
	p.Session = s
	p.Follow(ctx, all)
	return nil
}

// Script is a prompt of this session.
func (p *Play) Script(steps ...rig.Step) string { return rig.Script(p.Name, steps...) }

// Marks is a command that leaves two marks, some time apart.
func (p *Play) Marks(between string) string {
	p.nonce++
	n := p.lastNonce()
	return p.Witness.Mark(n, "begin") + "; sleep " + between + "; " + p.Witness.Mark(n, "end")
}

func (p *Play) lastNonce() string { return fmt.Sprintf("%s-%d", p.Name, p.nonce) }

// File is a path that no other op of the session writes.
func (p *Play) File() string {
	p.nonce++
	return p.Witness.File(p.lastNonce())
}

// Close stops following.
func (p *Play) Close() {
	for _, q := range p.beside {
		q.Close()
	}
	for _, q := range p.family {
		q.Close()
	}
	if p.Session != nil && p.Follower != nil {
		p.Follower.Close()
	}
}

// Settle waits until the session rests.
func (p *Play) Settle(ctx context.Context) error {
	if !p.gone.IsZero() {
		return nil
	}
	_, err := p.Idle(ctx)
	return err
}

// Rest waits until the session and all that belong to it rest with nothing left
// of their turns, answering and deciding whatever people are asked.
func (p *Play) Rest(ctx context.Context, decide string) error {
	if p.gone.IsZero() {
		if err := p.rest(ctx, decide); err != nil {
			return err
		}
	}
	for _, q := range p.beside {
		if err := q.Rest(ctx, decide); err != nil {
			return fmt.Errorf("beside it: %w", err)
		}
	}
	return p.restFamily(ctx)
}

func (p *Play) rest(ctx context.Context, decide string) error {
	for {
		shown, err := p.Idle(ctx)
		if err != nil {
			return err
		}
		switch {
		case shown.Phase == dormouse.PhaseWaiting && p.kind.Silent:
			_, err = p.Until(ctx, func(s rig.Shown) bool { return s.Phase != dormouse.PhaseWaiting })
		case shown.Phase == dormouse.PhaseWaiting:
			err = p.AnswerAll(ctx, shown, false)
		case shown.Phase == dormouse.PhaseInterrupted && p.kind.Hibernating && shown.Sandbox.Phase == "active":
			err = ignoreConflict(p.Insist(ctx, "hibernate", nil, func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }))
		case shown.Phase == dormouse.PhaseInterrupted:
			err = p.Insist(ctx, decide, nil, func(s rig.Shown) bool { return s.Phase != dormouse.PhaseInterrupted })
			if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict {
				err = nil // an earlier try was carried out and its answer lost
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// AnswerAll answers what waits for people. The first answer wins, so one that
// was carried out and whose reply was lost is refused the second time.
func (p *Play) AnswerAll(ctx context.Context, shown rig.Shown, deny bool) error {
	for _, t := range shown.Threads {
		if t.Turn == nil {
			continue
		}
		for _, w := range t.Turn.Waiting {
			a := oracle.Answer{Use: w.ID, Deny: deny && w.Gate == dormouse.GateAsk}
			body := map[string]any{"tool_use_id": w.ID, "result": "allow"}
			switch {
			case w.Gate == dormouse.GateCustom:
				a.Content = "the answer to " + string(w.ID)
				body = map[string]any{"custom_tool_use_id": w.ID, "content": a.Content}
			case w.Gate == dormouse.GateQuestion:
				a.Content = "the answer to " + string(w.ID)
				body = map[string]any{"tool_use_id": w.ID, "answer": a.Content}
			case deny:
				body["result"], body["deny_message"] = "deny", "not today"
			}
			if err := p.answer(ctx, body); err != nil {
				return err
			}
			p.mu.Lock()
			p.answers = append(p.answers, a)
			p.mu.Unlock()
		}
	}
	return nil
}

func (p *Play) answer(ctx context.Context, body map[string]any) error {
	cut := false
	for {
		err := p.Command(ctx, "answers", body)
		if r := rig.Refused(err); r != nil && r.Status == http.StatusConflict && cut {
			return nil
		}
		if !rig.Again(err) {
			return err
		}
		cut = true
	}
}

// Begun waits until the newest command has left its first mark, or never will.
func (p *Play) Begun(ctx context.Context) error {
	for {
		if begun, err := p.marked(); begun || err != nil {
			return err
		}
		shown, err := p.Show(ctx)
		if err != nil || shown.Settled() {
			return err
		}
		if err := sleep.For(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// marked reports whether the newest command has left a mark.
func (p *Play) marked() (bool, error) {
	effects, err := p.Witness.Effects()
	return slices.ContainsFunc(effects, func(e rig.Effect) bool { return e.Nonce == p.lastNonce() }), err
}

// Interrupt stops the turn. One that was carried out and whose answer was lost
// leaves no turn to stop.
func (p *Play) Interrupt(ctx context.Context, flush bool) error {
	if flush {
		p.MayCancel()
	}
	return p.Insist(ctx, "interrupt", map[string]any{"flush_queue": flush}, func(s rig.Shown) bool {
		return !s.Turning() && (!flush || s.Queue == 0)
	})
}

// KillLife is kill -9 at no particular point.
func (p *Play) KillLife(ctx context.Context) error {
	l, err := p.Keeper.Live(ctx)
	if err != nil {
		return err
	}
	l.Kill()
	return nil
}

// StopLife is what an operator does.
func (p *Play) StopLife(ctx context.Context) error {
	l, err := p.Keeper.Live(ctx)
	if err != nil {
		return err
	}
	l.Signal(syscall.SIGTERM)
	select {
	case <-l.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.Err(); err != nil && !l.Killed() {
		return fmt.Errorf("the server did not stop well: %w", err)
	}
	return nil
}

// Put makes a file in the witness's directory for the session to read.
func (p *Play) Put(name, content string) (string, error) {
	path := filepath.Join(p.Witness.Dir, name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}
