package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
)

// snapshotDriver is a driver whose workspaces are captured: files by name, which a test
// writes.
type snapshotDriver struct {
	*boxes
	sealing bool

	mu     sync.Mutex
	files  map[uint64]map[string]string // by the number of the workspace
	specs  []sandbox.Spec
	looks  int                                       // how many snapshots were begun
	notes  map[dormouse.SnapshotID]map[string]string // what was captured; nil to note nothing
	left   []string                                  // what no capture holds
	broken error                                     // what every capture fails with
	holds  chan struct{}                             // what every capture waits for, nil for nothing
}

var _ sandbox.Snapshotter = (*snapshotDriver)(nil)

func (d *snapshotDriver) Seals() bool { return d.sealing }

func (d *snapshotDriver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.specs = append(d.specs, spec)
	if d.files[spec.Workspace.Number] == nil {
		files, err := filesIn(spec.Workspace.Layers)
		if err != nil {
			return nil, err
		}
		d.files[spec.Workspace.Number] = files
	}
	return d.boxes.Create(ctx, spec)
}

func filesIn(dirs []string) (map[string]string, error) {
	files := make(map[string]string)
	for _, dir := range dirs {
		names, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			raw, err := os.ReadFile(filepath.Join(dir, n.Name()))
			if err != nil {
				return nil, err
			}
			files[n.Name()] = string(raw)
		}
	}
	return files, nil
}

func (d *snapshotDriver) Snapshot(ctx context.Context, c sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	d.mu.Lock()
	d.looks++
	holds, broken, left, files := d.holds, d.broken, d.left, maps.Clone(d.files[c.Workspace.Number])
	d.mu.Unlock()
	if c.Handle != nil && !d.boxes.lives(boxName{c.Fence.Session, c.Fence.Generation}) {
		return sandbox.SnapshotResult{}, sandbox.ErrGone
	}
	if holds != nil {
		select {
		case <-holds:
		case <-ctx.Done():
			return sandbox.SnapshotResult{}, context.Cause(ctx)
		}
	}
	if broken != nil {
		return sandbox.SnapshotResult{}, broken
	}
	since := c.Workspace.Base
	if d.notes != nil {
		d.mu.Lock()
		before, known := d.notes[c.Since]
		d.notes[c.As] = maps.Clone(files)
		d.mu.Unlock()
		if known {
			since = c.Since
			maps.DeleteFunc(files, func(name, text string) bool { return before[name] == text })
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.To, name), []byte(text), 0o600); err != nil {
			return sandbox.SnapshotResult{}, err
		}
	}
	return sandbox.SnapshotResult{Since: since, Entries: len(files), Left: left, Count: len(left)}, nil
}

// write writes a file of the newest workspace.
func (d *snapshotDriver) write(name, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := slices.Max(slices.Collect(maps.Keys(d.files)))
	d.files[n][name] = text
}

// has is what the newest workspace holds.
func (d *snapshotDriver) has() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.files[slices.Max(slices.Collect(maps.Keys(d.files)))])
}

// withSnapshots runs f with a driver that takes snapshots.
func withSnapshots(t *testing.T, f func(t *testing.T, h *house, d *snapshotDriver), change ...func(*house)) {
	live(t, func(t *testing.T, h *house) { f(t, h, h.kind.(*snapshotDriver)) }, append([]func(*house){storesSnapshots}, change...)...)
}

// storesSnapshots gives the house a driver that takes snapshots and a store for them.
func storesSnapshots(h *house) {
	h.kind = &snapshotDriver{boxes: h.boxes, files: make(map[uint64]map[string]string)}
	h.dir = h.t.TempDir()
	store, err := snapshot.Open(snapshot.Options{Dir: h.dir, Blobs: h.blobs})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = store.Close() })
	h.snapshots = store
}

// notes are what says that layers are in use.
func (h *house) notes() (names []string) {
	h.t.Helper()
	all, err := os.ReadDir(filepath.Join(h.dir, "uses"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range all {
		names = append(names, n.Name())
	}
	return names
}

func (h *house) state() law.State {
	h.t.Helper()
	s, err := h.live.Peek(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func TestTheSnapshotOfATurnIsMadeBeforeTheNextOneBegins(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x"))
		h.mustPrompt("p2", script("effect y"))
		settle(time.Minute)
		if h.boxes.effects["x"] != 1 || h.boxes.effects["y"] != 0 {
			t.Errorf("effects %v before the snapshot is taken", h.boxes.effects)
		}
		close(d.holds)
		settle(time.Minute)
		var order []string
		for _, e := range h.checked() {
			switch e.Type { //nolint:exhaustive // those that matter
			case dormouse.TurnStarted, dormouse.TurnEnded, dormouse.SnapshotTaken:
				order = append(order, string(e.Type))
			}
		}
		want := "turn.started turn.ended snapshot.taken turn.started turn.ended snapshot.taken"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("order: %s", got)
		}
	})
}

func TestATurnThatUsedNoSandboxMakesNoSnapshot(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
		h.create(dormouse.Created{Warm: true})
		h.mustPrompt("p1", "hello")
		settle(time.Minute)
		if n := h.count(dormouse.SnapshotTaken); n != 0 {
			t.Errorf("%d snapshots", n)
		}
	})
}

func TestASnapshotThatCannotBeMadeHoldsNobodyUp(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		d.broken = errors.New("no room")
		h.mustPrompt("p1", script("effect x"))
		h.mustPrompt("p2", script("effect y"))
		settle(time.Minute)
		if h.boxes.effects["y"] != 1 {
			t.Error("the second turn did not run")
		}
		if n := h.count(dormouse.SnapshotSkipped); n != 2 {
			t.Errorf("%d snapshots were skipped", n)
		}
		if _, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), dormouse.SnapshotAsk{}); !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("asked for: %v", err)
		}
		h.checked()
	})
}

func TestTheNextServerMakesTheSnapshotOfTheLast(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		d.holds = make(chan struct{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.crash()
		close(d.holds)
		settle(time.Minute)
		if n := h.count(dormouse.SnapshotTaken); n != 1 {
			t.Errorf("%d snapshots", n)
		}
		h.checked()
	})
}

func TestAskedForTwiceItIsOneSnapshot(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.write("a", "1")
		ask := dormouse.SnapshotAsk{ID: snapshotID("mine"), Label: "before"}
		first, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), ask)
		if err != nil {
			t.Fatal(err)
		}
		d.write("a", "2")
		again, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), ask)
		if err != nil || again.Layers[0] != first.Layers[0] || again.Label != "before" {
			t.Errorf("again: %+v, %v", again, err)
		}
		if n := h.count(dormouse.SnapshotTaken); n != 1 {
			t.Errorf("%d snapshots", n)
		}
		h.checked()
	})
}

func TestRevertingTakesFilesAndConversationBack(t *testing.T) {
	var asked []string
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", "first "+script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		h.mustPrompt("p2", "second "+script("effect x"))
		settle(time.Second)
		d.write("a", "bad")
		h.mustPrompt("p3", "third "+script("effect x"))
		settle(time.Second)
		if n := len(h.state().Snapshots); n != 3 {
			t.Fatalf("%d snapshots", n)
		}
		// The snapshot of the second turn has what was written before it ended.
		if _, err := h.live.Revert(t.Context(), h.id, dormouse.User("ada"), dormouse.PromptID(h.id, "p3"), session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		asked = nil
		h.mustPrompt("p4", "fourth "+script("effect z"))
		settle(time.Minute)
		if got := d.has()["a"]; got != "good" {
			t.Errorf("a is %q", got)
		}
		spec := d.specs[len(d.specs)-1]
		if spec.Workspace.Number != 1 || !spec.Fresh || spec.Workspace.Sealed {
			t.Errorf("made as %+v", spec)
		}
		all := strings.Join(asked, "\n")
		if !strings.Contains(all, "second") || !strings.Contains(all, "fourth") || strings.Contains(all, "third") {
			t.Errorf("the model heard:\n%s", all)
		}
		if h.boxes.effects["z"] != 1 {
			t.Error("the session did not go on")
		}
		h.checked()
		// Another server reads the same conversation from the log.
		h.close()
		h.open()
		asked = nil
		h.mustPrompt("p5", "fifth")
		settle(time.Minute)
		if all := strings.Join(asked, "\n"); strings.Contains(all, "third") || !strings.Contains(all, "fourth") {
			t.Errorf("the model heard:\n%s", all)
		}
	}, func(h *house) {
		h.heard = func(r model.Request) {
			raw, _ := json.Marshal(r)
			asked = append(asked, string(raw))
		}
	})
}

func TestOnlyAnIdleSessionIsTakenBack(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.mustPrompt("p2", script("sleep 5m"))
		settle(time.Second)
		snap := h.state().Snapshots[0].ID
		for _, history := range []bool{false, true} {
			if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), snap, session.RestoreOptions{History: history}); !errors.Is(err, dormouse.ErrConflict) {
				t.Errorf("restored under a turn: %v", err)
			}
		}
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), snapshotID("nowhere"), session.RestoreOptions{}); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("restored from nowhere: %v", err)
		}
		settle(10 * time.Minute)
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), snap, session.RestoreOptions{History: true}); err != nil {
			t.Errorf("restored when idle: %v", err)
		}
		if s := h.state(); len(s.Snapshots) != 2 || s.Snapshots[0].ID != snap || !s.Snapshots[1].Aside || s.Workspace.Base != snap {
			t.Errorf("snapshots %v, base %s", s.Snapshots, s.Workspace.Base)
		}
		settle(time.Minute)
		h.checked()
	})
}

func TestAStoppedWorkspaceIsSealed(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.sealing = true
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.write("a", "1")
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		s := h.state()
		if s.Workspace.Number != 1 || s.Workspace.Open || len(s.Workspace.Layers) == 0 || law.PhaseOf(s) != dormouse.PhaseHibernated {
			t.Errorf("%+v", s.Workspace)
		}
		if err := h.do(law.Wake{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		spec := d.specs[len(d.specs)-1]
		if spec.Fresh || !spec.Workspace.Sealed || d.has()["a"] != "1" {
			t.Errorf("woken as %+v with %v", spec, d.has())
		}
		h.checked()
	})
}

// What is in no layer is only in the workspace itself, which must then stay.
func TestNothingIsSealedThatIsNotWhole(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.sealing, d.left = true, []string{"socket"}
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.write("a", "1")
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		s := h.state()
		if s.Workspace.Number != 0 || len(s.Snapshots) != 1 {
			t.Errorf("it was sealed: %+v", s.Workspace)
		}
		snapshots, _, err := h.live.Snapshots(t.Context(), h.id, "", 10)
		if err != nil || len(snapshots) != 1 || snapshots[0].LeftOut != 1 || !slices.Equal(snapshots[0].Left, d.left) {
			t.Errorf("the snapshot says %+v, %v", snapshots, err)
		}
		if err := h.do(law.Wake{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if spec := d.specs[len(d.specs)-1]; spec.Workspace.Number != 0 || d.has()["a"] != "1" {
			t.Errorf("woken as %+v with %v", spec, d.has())
		}
		h.checked()
	})
}

func TestWakingDoesNotWaitForTheSeal(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		d.sealing = true
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		d.holds = make(chan struct{}) // for ever
		if err := h.do(law.Hibernate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if err := h.do(law.Wake{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if got := h.phase(); got != dormouse.PhaseReady {
			t.Errorf("it is %s", got)
		}
		h.checked()
	})
}

func TestOfTooManySnapshotsTheOldestGo(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Warm: true})
		settle(time.Second)
		var last dormouse.Snapshot
		var first []dormouse.Digest
		for i := range 5 {
			d.write("a", strings.Repeat("x", i+1))
			p, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), dormouse.SnapshotAsk{})
			if err != nil {
				t.Fatal(err)
			}
			if last = p; i == 0 {
				first = []dormouse.Digest{p.Layers[0].Digest}
			}
		}
		if s := h.state(); len(s.Snapshots) != 2 || s.Snapshots[1].ID != last.ID {
			t.Errorf("snapshots %v", s.Snapshots)
		}
		named, err := h.store.Named(t.Context(), append(first, last.Layers[0].Digest))
		if err != nil || len(named) != 1 || named[0] != last.Layers[0].Digest {
			t.Errorf("named: %v, %v", named, err)
		}
		// Deleting the newest snapshot hides it; the next one is compared with it.
		for range 2 {
			if err := h.do(law.ForgetSnapshots{IDs: []dormouse.SnapshotID{last.ID}}); err != nil {
				t.Fatal(err)
			}
		}
		if named, err = h.store.Named(t.Context(), []dormouse.Digest{last.Layers[0].Digest}); err != nil || len(named) != 1 {
			t.Errorf("named: %v, %v", named, err)
		}
		if _, err := h.live.Manifest(t.Context(), h.id, last.ID); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("deleted and found: %v", err)
		}
		h.checked()
	}, func(h *house) { h.keep.MaxCount = 2 })
}

// Nothing watches the sandbox of a session that is not in memory. A snapshot that is asked
// for then is of the files that it left.
func TestASnapshotIsTakenThoughTheSandboxDiedWhileNothingWatchedIt(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.close()
		h.boxes.kill(1)
		d.write("a", "written before it died")
		h.open()
		settle(time.Second)
		got, err := h.live.Snapshot(t.Context(), h.id, dormouse.User("ada"), dormouse.SnapshotAsk{Label: "asked"})
		if err != nil || got.Label != "asked" {
			t.Fatalf("%+v, %v", got, err)
		}
		settle(time.Second)
		if s := h.state(); s.Sandbox.Phase != law.SandboxCold || h.count(dormouse.SandboxLost) != 1 || h.count(dormouse.SnapshotSkipped) != 0 {
			t.Errorf("the sandbox is %s, lost %d times, %d snapshots were given up", s.Sandbox.Phase, h.count(dormouse.SandboxLost), h.count(dormouse.SnapshotSkipped))
		}
		h.checked()
	})
}

func TestAnAgentKeepsAndRestoresItsFiles(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Warm: true, Agent: everyTool()})
		settle(time.Second)
		d.write("a", "good")
		h.mustPrompt("p1", says(use("workspace_snapshot", struct{}{}), use("workspace_list_snapshots", map[string]any{"limit": 5})))
		settle(time.Second)
		d.write("a", "bad")
		told := h.results()
		var kept struct {
			Ref json.RawMessage `json:"ref"`
		}
		if len(told) != 2 || json.Unmarshal([]byte(told[0]), &kept) != nil || !strings.Contains(told[1], string(h.state().Snapshots[0].ID)) {
			t.Fatalf("told %q", told)
		}
		h.mustPrompt("p2", says(use("workspace_restore", map[string]any{"ref": kept.Ref}), use("bash", map[string]any{"command": "effect after"})))
		settle(time.Minute)
		if d.has()["a"] != "good" || h.boxes.effects["after"] != 1 {
			t.Errorf("files %v, effects %v", d.has(), h.boxes.effects)
		}
		head, tail, _ := strings.Cut(string(kept.Ref), `"mac":"`)
		forged := head + `"mac":"` + strings.Map(func(r rune) rune {
			switch r {
			case 'a':
				return 'b'
			case 'b':
				return 'a'
			}
			return r
		}, tail)
		h.mustPrompt("p3", says(use("workspace_restore", map[string]any{"ref": json.RawMessage(forged)}),
			use("workspace_delete_snapshot", map[string]any{"ref": kept.Ref}), use("workspace_delete_snapshot", map[string]any{"ref": kept.Ref}),
			use("workspace_branch", map[string]any{"ref": kept.Ref})))
		settle(time.Minute)
		told = h.results()[4:]
		if len(told) != 4 || !strings.Contains(told[0], "not found") || !strings.Contains(told[1]+told[2], `{"deleted":true}{"deleted":true}`) || !strings.Contains(told[3], "not found") {
			t.Errorf("told %q", told)
		}
		h.checked()
	})
}

func TestABranchGoesItsOwnWay(t *testing.T) {
	var asked []string
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Title: "a project"})
		h.mustPrompt("p1", "first "+script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		h.mustPrompt("p2", "second "+script("effect x"))
		settle(time.Second)
		h.mustPrompt("p3", "third "+script("effect x"))
		settle(time.Second)
		second := h.state().Snapshots[1]
		row, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{Snapshot: second.ID})
		if err != nil {
			t.Fatal(err)
		}
		branch := h.of(row.Session)
		if s := branch.state(); s.Title != "Branch of a project" || s.Workspace.Number != 1 || len(s.Snapshots) != 1 {
			t.Errorf("%+v", s)
		}
		delete(d.files, 1)
		asked = nil
		branch.mustPrompt("q1", "elsewhere "+script("effect z"))
		settle(time.Minute)
		all := strings.Join(asked, "\n")
		if !strings.Contains(all, "second") || strings.Contains(all, "third") || !strings.Contains(all, "elsewhere") {
			t.Errorf("the model heard:\n%s", all)
		}
		if spec := d.specs[len(d.specs)-1]; spec.Fence.Session != branch.id || spec.Fence.Generation != 1 || spec.Workspace.Number != 1 || d.files[1]["a"] != "good" {
			t.Errorf("made as %+v with %v", spec, d.files[1])
		}
		branch.checked()
		h.checked()
		// The present is a snapshot too, and what happens to the one does not happen to the other.
		if row, err = h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{Title: "now"}); err != nil {
			t.Fatal(err)
		}
		for _, v := range []law.Verb{law.Terminate{Reason: "test"}, law.Delete{}} {
			if err := h.do(v); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Minute)
		now := h.of(row.Session)
		asked = nil
		now.mustPrompt("r1", "afterwards")
		settle(time.Minute)
		if all := strings.Join(asked, "\n"); !strings.Contains(all, "third") || strings.Contains(all, "elsewhere") {
			t.Errorf("the model heard:\n%s", all)
		}
		now.checked()
	}, func(h *house) {
		h.heard = func(r model.Request) {
			raw, _ := json.Marshal(r)
			asked = append(asked, string(raw))
		}
	})
}

func TestAnAgentIsToldThatItsFilesAreOthers(t *testing.T) {
	var asked []string
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{Environment: dormouse.Environment{Snapshots: dormouse.SnapshotsByTurn}})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		h.mustPrompt("p2", script("effect y"))
		settle(time.Second)
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), h.state().Snapshots[0].ID, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		asked = nil
		h.mustPrompt("p3", script("effect z"))
		settle(time.Minute)
		all := strings.Join(asked, "\n")
		if !strings.Contains(all, "taken back to a snapshot") || strings.Contains(all, "Files are as they were") || !strings.Contains(all, "effect y") {
			t.Errorf("the model heard:\n%s", all)
		}
		h.checked()
	}, func(h *house) {
		h.heard = func(r model.Request) {
			raw, _ := json.Marshal(r)
			asked = append(asked, string(raw))
		}
	})
}

func snapshotID(name string) dormouse.SnapshotID {
	return dormouse.SnapshotID(dormouse.DeriveID(dormouse.SnapshotPrefix, name))
}
