//go:build linux

package wall

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// occasionWithin is how long a case waits for its own session. That an attack hurts
// that one is its own affair, as long as it can be deleted.
const occasionWithin = 6 * time.Second

// meet has the server do what it does on the occasion. What the session says to it is
// noted and no more.
func (t *trial) meet(ctx context.Context, o occasion, path string) {
	ctx, cancel := context.WithTimeout(ctx, t.of(occasionWithin))
	defer cancel()
	var err error
	switch o {
	case turnEnd:
		err = t.turn(ctx)
	case hibernate:
		err = t.hibernate(ctx)
	case wake:
		err = t.wake(ctx)
	case attach:
		t.visit(ctx, path)
	case snapshot:
		err = t.ask(ctx, http.MethodPost, t.session.path("/snapshots"), map[string]any{}, nil)
	case branch:
		err = t.branch(ctx)
	case remove: // as at the end of every case
	case restart:
		t.restart(len(path)%2 == 0)
		_, err = t.run(ctx, t.session, "true")
	}
	if err != nil {
		t.note("%s: %v", o, err)
	}
}

// turn has the agent run a command, and waits for the snapshot after it.
func (t *trial) turn(ctx context.Context) error {
	script := rig.Script(t.session.tag, rig.Bash("true"), rig.Say("so it is"))
	if err := t.ask(ctx, http.MethodPost, t.session.path("/prompts"), map[string]any{"content": script}, nil); err != nil {
		return err
	}
	return t.until(ctx, t.session, rig.Shown.Settled)
}

func (t *trial) hibernate(ctx context.Context) error {
	if err := t.ask(ctx, http.MethodPost, t.session.path("/hibernate"), map[string]any{}, nil); err != nil {
		return err
	}
	return t.until(ctx, t.session, func(s rig.Shown) bool {
		return s.Phase == dormouse.PhaseHibernated || s.Sandbox.Phase == "cold" || s.Phase == dormouse.PhaseError
	})
}

func (t *trial) wake(ctx context.Context) error {
	if err := t.hibernate(ctx); err != nil {
		return err
	}
	if err := t.ask(ctx, http.MethodPost, t.session.path("/wake"), map[string]any{}, nil); err != nil {
		return err
	}
	_, err := t.run(ctx, t.session, "true")
	return err
}

// visit reaches into the sandbox in all ways there are.
func (t *trial) visit(ctx context.Context, path string) {
	for _, what := range []string{"/terminals", "/ports", "/processes", "/files?path=/workspace", "/files?path=" + url.QueryEscape(path)} {
		within, cancel := context.WithTimeout(ctx, t.of(2*time.Second))
		if err := t.ask(within, http.MethodGet, t.session.path(what), nil, nil); err != nil {
			t.note("%s: %v", what, err)
		}
		cancel()
	}
	if err := t.look(ctx); err != nil {
		t.note("terminal: %v", err)
	}
	if _, err := t.run(ctx, t.session, "true"); err != nil {
		t.note("exec: %v", err)
	}
}

// look opens a terminal and reads a little.
func (t *trial) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.of(2*time.Second))
	defer cancel()
	c, res, err := websocket.Dial(ctx, "ws://"+t.life.Addr()+t.session.path("/terminal?id=wall"), &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + t.server.Token()}},
	})
	if res != nil && res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	_, b, err := c.Read(ctx)
	for _, found := range t.find.in(b) {
		t.leaks = append(t.leaks, "a terminal: "+found)
	}
	return err
}

// branch makes a session that goes on from this one, has it do something and deletes it.
func (t *trial) branch(ctx context.Context) error {
	var made struct {
		Session dormouse.SessionID `json:"session"`
	}
	if err := t.ask(ctx, http.MethodPost, t.session.path("/branch"), map[string]any{}, &made); err != nil {
		return err
	}
	b := &session{id: made.Session, tag: t.session.tag}
	_, err := t.run(ctx, b, "ls -la /workspace /root /tmp")
	t.read(context.WithoutCancel(ctx), b)
	if err := t.delete(context.WithoutCancel(ctx), b); err != nil {
		t.undeleted = fmt.Sprintf("its branch: %v", err)
	}
	return err
}

// restart ends the server and starts it again. Meanwhile its store is looked through.
func (t *trial) restart(kill bool) {
	ctx, cancel := context.WithTimeout(context.Background(), t.of(time.Minute))
	defer cancel()
	t.pauseWatch()
	t.stop(kill)
	b, err := t.export(ctx)
	if err != nil {
		t.note("%v", err)
	}
	t.see("an export", b)
	if err := t.start(ctx); err != nil {
		t.died = fmt.Sprintf("it does not start again: %v", err)
		return
	}
	t.resumeWatch()
}
