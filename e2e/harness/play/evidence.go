package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Judge holds the session, and all that belong to it, against what they promised
// and what really happened. It also returns the session's log, if it has one.
func (p *Play) Judge(ctx context.Context) (oracle.Findings, []dormouse.Event, error) {
	found := make(oracle.Findings)
	for _, q := range p.beside {
		f, _, err := q.Judge(ctx)
		if err != nil {
			return found, nil, err
		}
		found.Merge(f)
	}
	if !p.gone.IsZero() {
		return found, nil, p.judgeGone(ctx, found)
	}
	tree, err := p.tree(ctx)
	if err != nil {
		return found, nil, err
	}
	effects, err := p.effects()
	if err != nil {
		return found, nil, err
	}
	tree[0].Effects = append(assign(tree, effects), tree[0].Effects...) // what no log knows is for the root to explain
	found.Merge(tree.Judge())
	return found, tree[0].Log, nil
}

// tree gathers everything about the session and those it spawned.
func (p *Play) tree(ctx context.Context) (oracle.Tree, error) {
	var tree oracle.Tree
	for _, q := range p.members() {
		e, err := q.evidence(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Name, err)
		}
		tree = append(tree, e)
	}
	return tree, nil
}

// assign gives the marks of commands to the sessions whose ops they were, and returns
// those that belong to none.
func assign(tree oracle.Tree, effects []rig.Effect) (rest []rig.Effect) {
	of := make(map[dormouse.OpID]*oracle.Evidence)
	for i := range tree {
		for _, x := range tree[i].Log {
			if x.Type == dormouse.OpStarted {
				of[rig.Decode[dormouse.OpFact](x).Op.ID] = &tree[i]
			}
		}
	}
	for _, x := range effects {
		if e := of[x.Op]; e != nil {
			e.Effects = append(e.Effects, x)
		} else {
			rest = append(rest, x)
		}
	}
	return rest
}

// effects is what commands of this scenario have left.
func (p *Play) effects() ([]rig.Effect, error) {
	all, err := p.Witness.Effects()
	return slices.DeleteFunc(all, func(x rig.Effect) bool {
		return !strings.HasPrefix(x.Nonce, p.Name+"-") // sessions may share a witness
	}), err
}

// evidence gathers everything about one session at rest, but for its effects.
func (p *Play) evidence(ctx context.Context) (oracle.Evidence, error) {
	e := oracle.Evidence{Looked: time.Now(), Acks: p.Acks(), Asked: p.Session.Asked(), Looks: p.looks, Inside: p.Witness.Inside, All: p.Follower.All(), Said: p.said, Slack: p.Slack, Relayed: len(p.Fleet.Keepers) > 1}
	if len(p.Fleet.Keepers) == 1 {
		e.Lives = p.Fleet.Keepers[0].Began()
	}
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
	var err error
	e.Writes, err = p.Witness.Writes()
	e.Calls = p.Models.Account(p.Name).Calls()
	return e, err
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
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("read the log at rest: %w", err)
		}
	}
}

// judgeGone: nothing is left of a session that was deleted, and nothing of it
// happens any more. Those it spawned have ended.
func (p *Play) judgeGone(ctx context.Context, found oracle.Findings) error {
	if _, err := p.Show(ctx); !rig.Missing(err) {
		found.Add(oracle.Diverged, "the session was deleted, and showing it says %v", err)
	}
	rows, err := p.Rows(ctx)
	if err != nil && !rig.Missing(err) {
		return err
	}
	if rows.Index.Session != "" {
		found.Add(oracle.Diverged, "the session was deleted and is listed")
	}
	if left := p.Keeper.Left(p.ID); len(left) > 0 {
		found.Add(oracle.Diverged, "the session was deleted and left %v", left)
	}
	if err := p.swept(ctx); err != nil {
		found.Add(oracle.Stuck, "%v", err)
	}
	effects, err := p.effects()
	if err != nil {
		return err
	}
	left, err := p.tree(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, x := range assign(left, effects) {
		if seen[x.Nonce+" "+x.Mark] {
			found.Add(oracle.Double, "%s of the command %s happened twice", x.Mark, x.Nonce)
		}
		seen[x.Nonce+" "+x.Mark] = true
		if x.At.After(p.gone) {
			found.Add(oracle.Late, "%s of the command %s happened at %s, when the session was gone since %s", x.Mark, x.Nonce, x.At, p.gone)
		}
	}
	for _, e := range left {
		found.Merge(oracle.Judge(e))
		if e.Shown.Phase != dormouse.PhaseTerminated {
			found.Add(oracle.Stuck, "%q is %s, and the session it descends from is gone", e.Shown.Title, e.Shown.Phase)
		}
	}
	return nil
}

// swept waits until no row of the deleted session is left.
func (p *Play) swept(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, SettleWithin, errors.New("they were not removed in time"))
	defer cancel()
	for {
		n, err := p.Keeper.Orphans(ctx)
		if err != nil || n == 0 {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d rows belong to no session: %w", n, err)
		}
	}
}
