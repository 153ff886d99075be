package forgeries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// World is two servers: one that forbids snapshots of other sessions, and one that allows
// them where the call says so.
type World struct {
	Strict, Lenient *house

	dir    string
	models *rig.Models
}

// house is one server with two sessions.
type house struct {
	*rig.Client
	keeper    *rig.Keeper
	me, other *person
}

// person is a session with a file of its own, and a snapshot of that.
type person struct {
	*rig.Session
	name string
	shot shot

	asked int
}

// shot is a snapshot as it is shown.
type shot struct {
	ID  dormouse.SnapshotID `json:"snapshot"`
	Ref json.RawMessage     `json:"ref"`
}

// Open starts the servers.
func Open(ctx context.Context, binary string) (_ *World, err error) {
	w := new(World)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.dir, err = rig.TempDir("dormouse-forgeries-"); err != nil {
		return nil, err
	}
	if w.models, err = rig.NewModels(); err != nil {
		return nil, err
	}
	built, err := rig.Beside(binary)
	if err != nil {
		return nil, err
	}
	if w.Strict, err = w.open(ctx, built, "strict"); err != nil {
		return nil, err
	}
	w.Lenient, err = w.open(ctx, built, "lenient", "--allow-cross-session")
	return w, err
}

func (w *World) open(ctx context.Context, built rig.Binary, name string, flags ...string) (*house, error) {
	h := new(house)
	h.keeper = rig.Keep(ctx, &rig.Server{
		Binary: built, Data: filepath.Join(w.dir, name), Sandbox: "local", Model: w.models.URL(), Log: filepath.Join(w.dir, name+".log"),
		Flags: append([]string{"--snapshots", "off", "--sleep-after", "0"}, flags...),
	}, nil)
	h.keeper.Run()
	h.Client = h.keeper.Client()
	var err error
	if h.me, err = h.person(ctx, name+"-me"); err == nil {
		h.other, err = h.person(ctx, name+"-other")
	}
	return h, err
}

// person makes a session with a file and a snapshot.
func (h *house) person(ctx context.Context, name string) (*person, error) {
	s, err := h.Create(ctx, name, map[string]any{"warm": true}, "")
	if err != nil {
		return nil, err
	}
	p := &person{Session: s, name: name}
	s.Follow(ctx, false)
	if _, err := p.run(ctx, "echo "+name+" > own"); err != nil {
		return nil, err
	}
	p.shot, err = p.take(ctx)
	return p, err
}

// take takes a snapshot.
func (p *person) take(ctx context.Context) (s shot, err error) {
	err = p.Repeat(ctx, http.MethodPost, p.Path("/snapshots"), map[string]any{}, &s)
	return s, err
}

// run runs a command and returns what it printed.
func (p *person) run(ctx context.Context, command string) (string, error) {
	p.asked++
	result, err := p.Ask(ctx, rig.Asked{ClientID: fmt.Sprint("exec", p.asked), Command: command})
	if err == nil && (!result.Ran() || result.Exit != 0) {
		err = fmt.Errorf("%q of %s came to %+v", command, p.name, result)
	}
	return result.Output, err
}

// use has the agent call a tool, and returns what it was told, and whether that was
// that it went wrong.
func (p *person) use(ctx context.Context, tool string, input map[string]any) (said string, failed bool, err error) {
	p.asked++
	if err := p.Prompt(ctx, fmt.Sprint("prompt", p.asked), rig.Script(p.name, rig.Use(tool, input), rig.Say("so it is"))); err != nil {
		return "", false, err
	}
	if _, err := p.Idle(ctx); err != nil {
		return "", false, err
	}
	log, err := p.Events(ctx)
	if err != nil {
		return "", false, err
	}
	for _, e := range slices.Backward(log) {
		if e.Type == dormouse.AgentToolResult {
			m := rig.Decode[struct {
				Content []dormouse.Block `json:"content"`
				IsError bool             `json:"is_error"`
			}](e)
			for _, b := range m.Content {
				said += b.Text
			}
			return said, m.IsError, nil
		}
	}
	return "", false, errors.New("the tool was not called")
}

// look says what both sessions of both servers have: their files, and whether their
// snapshots can be gone back to.
func (w *World) look(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, h := range []*house{w.Strict, w.Lenient} {
		for _, p := range []*person{h.me, h.other} {
			files, err := p.run(ctx, "ls; cat own")
			if err != nil {
				return "", err
			}
			var s shot
			if err := h.Get(ctx, p.Path("/snapshots/"+string(p.shot.ID)), &s); err != nil {
				return "", fmt.Errorf("the snapshot of %s: %w", p.name, err)
			}
			fmt.Fprintf(&b, "%s: %s %s; ", p.name, strings.Join(strings.Fields(files), " "), s.ID)
		}
	}
	return b.String(), nil
}

// Close ends everything.
func (w *World) Close() error {
	for _, h := range []*house{w.Strict, w.Lenient} {
		if h == nil {
			continue
		}
		for _, p := range []*person{h.me, h.other} {
			if p != nil && p.Follower != nil {
				p.Follower.Close()
			}
		}
		h.Close()
		h.keeper.Close()
		h.keeper.KillSandboxes()
	}
	if w.models != nil {
		w.models.Close()
	}
	return os.RemoveAll(w.dir)
}
