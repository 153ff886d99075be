// Package play drives sessions of a server that dies under them: kinds of work,
// and a client that does not give up.
package play

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/e2e/rig"
)

// SettleWithin is the promise: this long after a fault no session is stuck.
const SettleWithin = 10 * time.Second

// Play is one session being driven through a kind's scenario, by a client that
// does not give up when the server dies under it.
type Play struct {
	*rig.Session
	Keeper  *rig.Keeper
	Witness *rig.Witness
	Models  *rig.Models
	// Name is the session's title and its account with the model.
	Name   string
	dozing bool
	nonce  int

	mu      sync.Mutex
	answers []oracle.Answer // guarded by mu
}

// Start makes the session and follows it.
func (p *Play) Start(ctx context.Context, client *rig.Client, k Kind, all bool) error {
	p.dozing = k.Dozing
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

// Settle waits until the session rests.
func (p *Play) Settle(ctx context.Context) error {
	_, err := p.Idle(ctx)
	return err
}

// Rest waits until the session rests with nothing left of its turn, answering
// and deciding whatever people are asked.
func (p *Play) Rest(ctx context.Context, decide string) error {
	for {
		shown, err := p.Idle(ctx)
		if err != nil {
			return err
		}
		switch {
		case shown.Phase == dormouse.PhaseWaiting:
			err = p.AnswerAll(ctx, shown, false)
		case shown.Phase == dormouse.PhaseInterrupted && p.dozing && shown.Sandbox.Phase == "active":
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
		effects, err := p.Witness.Effects()
		if err != nil {
			return err
		}
		for _, e := range effects {
			if e.Nonce == p.lastNonce() {
				return nil
			}
		}
		shown, err := p.Show(ctx)
		if err != nil || shown.Settled() {
			return err
		}
		if err := rig.Pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
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

// Evidence gathers everything once the session rests.
func (p *Play) Evidence(ctx context.Context) (oracle.Evidence, error) {
	e := oracle.Evidence{Acks: p.Acks(), All: p.Follower.All()}
	if err := p.snapshot(ctx, &e); err != nil {
		return e, err
	}
	catchUp, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	end := e.Log[len(e.Log)-1].Seq
	for _, x := range slices.Backward(e.Log) {
		if e.All || x.Type.Audience() <= dormouse.ForPeople {
			_ = p.Follower.Reaches(catchUp, x.Seq) // what it has not seen by now is a gap
			break
		}
	}
	e.Followed, e.Texts, e.Errs = p.Follower.Seen(), p.Follower.Texts(), p.Follower.Errs()
	for n := len(e.Followed); n > 0 && e.Followed[n-1].Seq > end; n-- {
		e.Followed = e.Followed[:n-1] // came after the log was read
	}
	p.mu.Lock()
	e.Answer = append(e.Answer, p.answers...)
	p.mu.Unlock()
	return e, p.world(&e)
}

// snapshot reads the log and what is shown of it at one instant: again, until
// nothing came in between.
func (p *Play) snapshot(ctx context.Context, e *oracle.Evidence) (err error) {
	for {
		if e.Log, err = p.Events(ctx); err != nil {
			return err
		}
		if e.Shown, err = p.Show(ctx); err != nil {
			return err
		}
		if e.Rows, err = p.Rows(ctx); err != nil {
			return err
		}
		after, err := p.Show(ctx)
		if err != nil {
			return err
		}
		if n := len(e.Log); n > 0 && e.Log[n-1].Seq == after.Seq {
			return nil
		}
		if err := rig.Pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("read the log at rest: %w", err)
		}
	}
}

// world reads what really happened.
func (p *Play) world(e *oracle.Evidence) error {
	effects, err := p.Witness.Effects()
	for _, x := range effects {
		if strings.HasPrefix(x.Nonce, p.Name+"-") { // sessions may share a witness
			e.Effects = append(e.Effects, x)
		}
	}
	var err2 error
	e.Writes, err2 = p.Witness.Writes()
	e.Calls = p.Models.Account(p.Name).Calls()
	return errors.Join(err, err2)
}

// Put makes a file in the witness's directory for the session to read.
func (p *Play) Put(name, content string) (string, error) {
	path := filepath.Join(p.Witness.Dir, name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}
