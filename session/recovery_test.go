package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// mended is a driver whose files were cut off once, and are as they should be after that.
type mended struct {
	*snapshotDriver
	lost  atomic.Pointer[sandbox.Recovered] // what was done and is not recorded yet
	asked atomic.Int64                      // layers of the snapshot that it was done with
}

func (d *mended) Recover(ctx context.Context, r sandbox.Recovery) (*sandbox.Recovered, error) {
	lost := d.lost.Load()
	if lost == nil {
		return nil, nil //nolint:nilnil // all is well
	}
	layers, done, err := r.Newest(ctx)
	if errors.Is(err, sandbox.ErrSnapshotLost) {
		told := *lost
		told.Lost = err.Error()
		lost = &told
		layers, done, err = r.Older(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer done()
	d.asked.Store(int64(len(layers)))
	return lost, nil
}

func (d *mended) ForgetRecovered(r sandbox.Recovered) error {
	if is := d.lost.Load(); is != nil && is.ID == r.ID {
		d.lost.Store(nil)
	}
	return nil
}

// Files that were put back are told to people and to the agent, once, before anything is
// done with them: before a sandbox has them, and before a snapshot of them is one of the
// session's.
func TestFilesThatWerePutBackAreToldFirst(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		m := h.kind.(*mended)
		d := m.snapshotDriver
		d.sealing = true
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.write("a", "1")
		if _, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), dormouse.SnapshotAsk{}); err != nil {
			t.Fatal(err)
		}
		d.write("a", "2")
		m.lost.Store(&sandbox.Recovered{ID: "one", Session: h.id, Condition: sandbox.Cut, Reason: "cut", Since: time.Now(), Count: 1, Files: []layer.Restored{{Path: "a", SavedAs: "a.found"}}})
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if err := h.do(law.Wake{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		var order []dormouse.EventType
		for _, e := range h.log() {
			switch e.Type { //nolint:exhaustive // what matters here
			case dormouse.WorkspaceRecovered, dormouse.WorkspaceSwapped, dormouse.SandboxStarted:
				order = append(order, e.Type)
			}
		}
		if want := []dormouse.EventType{dormouse.SandboxStarted, dormouse.WorkspaceRecovered, dormouse.WorkspaceSwapped, dormouse.SandboxStarted}; !slices.Equal(order, want) {
			t.Errorf("it went %v", order)
		}
		if m.lost.Load() != nil || m.asked.Load() != 1 {
			t.Errorf("it was not told, or with %d layers of the snapshot", m.asked.Load())
		}
		h.checked()
	}, storesSnapshots, func(h *house) { h.kind = &mended{snapshotDriver: h.kind.(*snapshotDriver)} })
}

// A newest snapshot that is lost is told of, and nothing is built upon it: the next one
// can be restored.
func TestNothingIsBuiltOnASnapshotThatIsLost(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		m := h.kind.(*mended)
		d := m.snapshotDriver
		_, second := h.twoTurns(d)
		m.lost.Store(&sandbox.Recovered{ID: "one", Session: h.id, Condition: sandbox.Cut, Reason: "cut", Since: time.Now()})
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		h.lose(second)
		for _, dir := range []string{"layers", "names"} { // after a power cut none is trusted
			all, err := filepath.Glob(filepath.Join(h.dir, dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range all {
				if err := os.RemoveAll(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := h.do(law.Wake{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		s := h.state()
		if s.Sandbox.Phase != law.SandboxActive || s.Workspace.Uncompared != second || m.asked.Load() != 1 {
			t.Errorf("the sandbox is %s, lost is %q, and %d layers could be read", s.Sandbox.Phase, s.Workspace.Uncompared, m.asked.Load())
		}
		d.write("a", "3")
		h.mustPrompt("p3", script("effect z"))
		settle(time.Minute)
		s = h.state()
		if s.Workspace.Newest == second {
			t.Fatal("no snapshot was taken")
		}
		for _, l := range s.Workspace.Chain {
			if h.blobs.m[l.Digest] == nil {
				t.Errorf("snapshot %s lies over a blob that is lost", s.Workspace.Newest)
			}
		}
		h.checked()
	}, storesSnapshots, func(h *house) { h.kind = &mended{snapshotDriver: h.kind.(*snapshotDriver)} })
}

// slowlyChecked is a driver that takes its time to check files.
type slowlyChecked struct {
	*snapshotDriver
	began atomic.Int64
}

func (d *slowlyChecked) Recover(ctx context.Context, _ sandbox.Recovery) (*sandbox.Recovered, error) {
	d.began.Add(1)
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(10 * time.Minute):
		return nil, nil //nolint:nilnil // all is well
	}
}

func (d *slowlyChecked) ForgetRecovered(sandbox.Recovered) error { return nil }

// A check that is given up after the time that a sandbox may take to start begins anew each
// time, and never ends.
func TestCheckOfFilesThatTakesLongIsFinished(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{Warm: true})
		settle(15 * time.Minute)
		if n := h.kind.(*slowlyChecked).began.Load(); n != 1 || h.state().Sandbox.Phase != law.SandboxActive {
			t.Errorf("checks begun: %d; the sandbox is %s", n, h.state().Sandbox.Phase)
		}
	}, storesSnapshots, func(h *house) { h.kind = &slowlyChecked{snapshotDriver: h.kind.(*snapshotDriver)} })
}

// synced is a driver that counts how often files were made durable.
type synced struct {
	*boxes
	times atomic.Int64
}

func (d *synced) Sync(_ context.Context, _ dormouse.SessionID, _ uint64, _ dormouse.SnapshotID) error {
	d.times.Add(1)
	return nil
}

// What a finished tool call wrote is synced at the latest when its turn ends, whatever ends
// the turn and whatever has become of the sandbox.
func TestFilesAreSyncedWhenATurnEndsWithoutItsSandbox(t *testing.T) {
	const used = `go SCRIPT[{"tool":"bash","input":{"command":"effect a"}},{"text":"done","delay_ms":60000}]`
	for name, befall := range map[string]func(*house){
		"nothing happens":      func(*house) {},
		"the server restarts":  func(h *house) { h.crash() },
		"the sandbox dies":     func(h *house) { h.boxes.kill(1) },
		"both of them go":      func(h *house) { h.boxes.kill(1); h.crash() },
		"it restarts and dies": func(h *house) { h.crash(); settle(time.Second); h.boxes.kill(1) },
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				d := h.kind.(*synced)
				h.create(dormouse.Created{})
				h.mustPrompt("p", used)
				settle(10 * time.Second)
				if n := d.times.Load(); n != 0 || h.boxes.effect("a") != 1 {
					t.Fatalf("synced %d times, %d effects", n, h.boxes.effect("a"))
				}
				befall(h)
				settle(5 * time.Minute)
				if n, ended := d.times.Load(), h.count(dormouse.TurnEnded); n != 1 || ended != 1 {
					t.Errorf("synced %d times, %d turns ended", n, ended)
				}
				h.checked()
			}, func(h *house) { h.kind = &synced{boxes: h.boxes} })
		})
	}
}
