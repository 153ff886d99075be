package soak

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// member is a session of the population.
type member struct {
	*play.Play
	half *half
	rand *rand.Rand
	// age is how many chapters it has lived through.
	age   int
	steps int    // that ids are made of
	note  string // what its file says, if it has one
}

// chapters is how long a session lives, and acts how much it does in each.
const (
	chapters = 3
	acts     = 2
)

func newMember(h *half) *member {
	n := h.born.Add(1)
	return &member{
		half: h, rand: rand.New(rand.NewPCG(h.Seed, uint64(n)<<8|uint64(h.servers))),
		Play: &play.Play{Keeper: h.fleet.Keepers[0], Fleet: h.fleet, Witness: h.witness, Models: h.models, Name: fmt.Sprintf("s%d", n), Slack: slack},
	}
}

// kind is how the session is made.
func (m *member) kind() play.Kind {
	var tools []map[string]any
	for _, name := range []string{"bash", "child_spawn", "child_wait", "child_terminate"} {
		tools = append(tools, map[string]any{"name": name})
	}
	k := play.Kind{Name: m.Name, Family: true, Create: map[string]any{"warm": m.rand.IntN(2) == 0, "tools": tools}}
	if m.rand.IntN(3) == 0 {
		k.First = func(*play.Play) string { return m.script("0.05") }
	}
	return k
}

// chapter is one piece of the life of a session, which is created if it does not exist,
// and hibernates at the end.
func (m *member) chapter(ctx context.Context) error {
	if m.Session == nil {
		if err := m.Start(m.half.ctx, m.half.client, m.kind(), m.rand.IntN(2) == 0); err != nil {
			return err
		}
	} else {
		m.Return()
	}
	defer m.Leave()
	for range acts {
		if err := m.act(ctx); err != nil {
			return err
		}
		if err := m.Rest(ctx, "continue"); err != nil {
			return err
		}
	}
	m.age++
	return m.Asleep(ctx)
}

// retire holds the session against its promises, deletes it, and looks whether
// anything is left.
func (m *member) retire(ctx context.Context) error {
	m.Return()
	defer m.Close()
	if err := m.copy(ctx); err != nil {
		return err
	}
	if err := m.Rest(ctx, "continue"); err != nil {
		return err
	}
	found, _, err := m.Judge(ctx)
	if err != nil {
		return err
	}
	m.half.merge(m, found)
	if m.rand.IntN(2) == 0 {
		if err := m.Asleep(ctx); err != nil {
			return err
		}
	}
	return m.remove(ctx)
}

// remove deletes the session and those that descend from it, which end with it.
func (m *member) remove(ctx context.Context) error {
	family := m.Family()
	if err := m.Delete(ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	m.half.left(m, m.ID)
	for _, q := range family {
		if _, err := q.Until(ctx, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated && s.Settled() }); err != nil {
			return fmt.Errorf("%q, whose parent was deleted: %w", q.Name, err)
		}
		if err := q.Session.Delete(ctx); err != nil {
			return fmt.Errorf("delete %q: %w", q.Name, err)
		}
		m.half.left(m, q.ID)
	}
	m.half.models.Forget(m.Name)
	return os.RemoveAll(m.copies())
}

// copies is where what commands left is put for the witness to find.
func (m *member) copies() string { return filepath.Join(m.half.copies, m.Name) }

// copy takes what commands left out of the sandbox. A session that had none left
// nothing.
func (m *member) copy(ctx context.Context) error {
	const tries = 5 // the sandbox may be killed between the two, which is a conflict
	lines := m.Witness.Lines()
	var text string
	for n := range tries {
		if _, err := m.Run(ctx, "touch "+lines); err != nil {
			return err
		}
		err := m.Get(ctx, m.Path("/files?path="+lines), &text)
		if err == nil {
			break
		}
		if r := rig.Refused(err); n == tries-1 || r == nil || r.Status != http.StatusConflict {
			return fmt.Errorf("copy %s: %w", lines, err)
		}
	}
	for in := tar.NewReader(strings.NewReader(text)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a copy of %s: %w", lines, err)
		}
		if filepath.Base(h.Name) != filepath.Base(lines) {
			continue
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read a copy of %s: %w", lines, err)
		}
		if err := os.MkdirAll(m.copies(), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.copies(), filepath.Base(lines)), b, 0o600); err != nil {
			return err
		}
	}
}

// wrong notes something that must not be.
func (m *member) wrong(zero, format string, args ...any) {
	m.half.add(zero, "%s %s: %s", m.Name, m.ID, fmt.Sprintf(format, args...))
}

// look sees whether the file of a session says what it must.
func (m *member) look(ctx context.Context, s asker, what string) error {
	if m.note == "" {
		return nil
	}
	reported, err := s.Run(ctx, "cat note")
	if err != nil {
		return err
	}
	if strings.TrimSpace(reported.Output) != m.note {
		m.wrong(oracle.LostWork, "%s the file says %q, not %q", what, reported.Output, m.note)
	}
	return nil
}

// asker runs a command to its end.
type asker interface {
	Run(ctx context.Context, command string) (rig.Exec, error)
}
