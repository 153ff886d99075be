package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

type fakeBox struct {
	home  *boxes
	name  boxName
	epoch uint64
	dead  bool
	ops   map[dormouse.OpID]*fakeOp
	gone  chan struct{}
}

type fakeOp struct {
	done   chan struct{}
	kill   chan struct{}
	result runner.Result
}

type fakeLink struct {
	*fakeBox
	epoch uint64
	mute  bool
	cut   chan struct{}
}

func (l *fakeLink) Handle() sandbox.Handle {
	raw, _ := json.Marshal(l.name)
	return raw
}

func (l *fakeLink) Gone() <-chan struct{} { return l.gone }
func (l *fakeLink) Close() error          { return nil }

func (l *fakeLink) Start(_ context.Context, c runner.Call) error {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	if l.dead {
		return sandbox.ErrGone
	}
	if l.epoch < l.fakeBox.epoch {
		return runner.ErrStale
	}
	if l.mute {
		return runner.ErrUnreachable
	}
	if l.ops[c.Op] != nil {
		return nil
	}
	op := &fakeOp{done: make(chan struct{}), kill: make(chan struct{})}
	l.ops[c.Op] = op
	go l.act(op, c)
	return nil
}

func (l *fakeLink) Run(ctx context.Context, c runner.Call, started func(), out func([]byte)) (runner.Result, error) {
	if err := l.Start(ctx, c); err != nil {
		return runner.Result{}, err
	}
	started()
	return l.Wait(ctx, c.Op, out)
}

func (l *fakeLink) act(op *fakeOp, c runner.Call) {
	defer close(op.done)
	if c.Exec == nil {
		l.home.mu.Lock()
		l.home.effects[string(c.Kind)]++
		l.home.mu.Unlock()
		return
	}
	for step := range strings.SplitSeq(c.Exec.Command, ";") {
		verb, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "effect":
			l.home.mu.Lock()
			l.home.effects[arg]++
			l.home.mu.Unlock()
		case "sleep":
			d, _ := time.ParseDuration(arg)
			select {
			case <-time.After(d):
			case <-op.kill:
				op.result = runner.Result{Killed: true, Exit: 137}
				return
			case <-l.gone:
				return
			}
		case "print":
			op.result.Output = append(op.result.Output, strings.Repeat("x", 100_000)...)
		}
	}
}

func (l *fakeLink) Wait(ctx context.Context, id dormouse.OpID, _ func([]byte)) (runner.Result, error) {
	l.home.mu.Lock()
	op := l.ops[id]
	l.home.mu.Unlock()
	if op == nil {
		return runner.Result{}, runner.ErrNeverSeen
	}
	select {
	case <-op.done:
		return op.result, nil
	case <-l.gone:
		return runner.Result{}, sandbox.ErrGone
	case <-ctx.Done():
		return runner.Result{}, context.Cause(ctx)
	}
}

func (l *fakeLink) Ask(_ context.Context, id dormouse.OpID) (runner.Report, error) {
	return runner.Report{}, errors.New("not used")
}

func (l *fakeLink) Kill(_ context.Context, id dormouse.OpID) error {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	if op := l.ops[id]; op != nil {
		select {
		case <-op.kill:
		default:
			close(op.kill)
		}
	}
	return nil
}

func (l *fakeLink) Forget(id dormouse.OpID) {
	l.home.mu.Lock()
	defer l.home.mu.Unlock()
	delete(l.ops, id)
}
