package session_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
	"github.com/dormouse-run/dormouse/store"
)

// image is a container image with these files, each in a layer of its own.
func image(files ...string) io.Reader {
	im := new(snapshottest.Image)
	for i := 0; i < len(files); i += 2 {
		im.Add(snapshottest.Tar(files[i:i+2]...), snapshottest.Plain)
	}
	return bytes.NewReader(im.Tar())
}

func (h *house) imports(name string, from io.Reader) (dormouse.Snapshot, error) {
	return h.live.Import(h.t.Context(), h.id, dormouse.User("ada"), dormouse.SnapshotAsk{ID: snapshotID(name), Label: "brought in"}, from)
}

func TestAnImageBecomesASnapshotBesideTheChain(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Minute)
		before := h.state().Workspace
		p, err := h.imports("a", image("a", "1", "b", "2"))
		if err != nil {
			t.Fatal(err)
		}
		if !p.Aside || p.Reason != dormouse.SnapshotImported || p.Label != "brought in" || len(p.Layers) != 2 {
			t.Errorf("imported %+v", p)
		}
		if got := h.state().Workspace; got.Newest != before.Newest || got.Number != before.Number || len(got.Chain) != len(before.Chain) {
			t.Errorf("the line is %+v, was %+v", got, before)
		}
		// Twice is once, and another image is another thing.
		again, err := h.imports("a", image("a", "1", "b", "2"))
		if err != nil || again.ID != p.ID || h.count(dormouse.SnapshotTaken) != 2 {
			t.Errorf("imported again: %v, %v", again, err)
		}
		if _, err := h.imports("a", image("a", "other")); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("another image under the same id: %v", err)
		}
		for what, err := range map[string]error{
			"its conversation": func() error {
				_, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{History: true})
				return err
			}(),
			"a branch": func() error {
				_, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{Snapshot: p.ID})
				return err
			}(),
		} {
			if !errors.Is(err, dormouse.ErrConflict) || !strings.Contains(err.Error(), "brought in") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p2", script("effect y"))
		settle(time.Minute)
		if got := d.has(); !maps.Equal(got, map[string]string{"a": "1", "b": "2"}) {
			t.Errorf("restored it has %v", got)
		}
		// Before the prompt it had these files, although there is an older snapshot of its own.
		d.write("a", "broken")
		if _, err := h.live.Revert(t.Context(), h.id, dormouse.User("ada"), dormouse.PromptID(h.id, "p2"), session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := h.state().Workspace.Base; got != p.ID {
			t.Errorf("reverted to %s, not %s", got, p.ID)
		}
		if _, ok := h.state().Snapshot(p.ID); !ok {
			t.Error("what was brought in went with the conversation")
		}
		settle(time.Minute)
		h.checked()
	})
}

func TestASessionIsTakenBackToWhatItHadGoneOnWith(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		for _, name := range []string{"p1", "p2"} {
			h.mustPrompt(name, script("effect "+name))
			settle(time.Minute)
			d.write(name, name)
		}
		first := h.state().Snapshots[0].ID
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), first, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p3", script("effect p3"))
		settle(time.Minute)
		if _, err := h.live.Revert(t.Context(), h.id, dormouse.User("ada"), dormouse.PromptID(h.id, "p3"), session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := h.state().Workspace.Base; got != first {
			t.Errorf("reverted to %s, not to %s, which it had been restored to", got, first)
		}
	})
}

func TestAnImageThatIsRefusedLeavesNothing(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
		h.create(dormouse.Created{})
		for name, c := range map[string]struct {
			from io.Reader
			want error
		}{
			"hostile": {image("a", "1", "../b", "2"), dormouse.ErrInvalid},
			"junk":    {strings.NewReader("junk"), dormouse.ErrInvalid},
			"nothing": {image(), dormouse.ErrInvalid},
			"cut off": {io.MultiReader(io.LimitReader(image("a", "1"), 600), failing{}), io.ErrUnexpectedEOF},
		} {
			if _, err := h.imports("a", c.from); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if _, _, err := h.live.CreateFrom(t.Context(), dormouse.User("ada"), dormouse.Created{}, "", c.from); err == nil {
				t.Errorf("%s: a session was made", name)
			}
		}
		if n := len(h.blobs.m); n > 0 || len(h.state().Snapshots) > 0 {
			t.Errorf("%d blobs are left, and snapshots %v", n, h.state().Snapshots)
		}
		if err := h.do(law.Terminate{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if _, err := h.imports("a", image("a", "1")); !errors.Is(err, dormouse.ErrTerminated) {
			t.Errorf("into a session that has ended: %v", err)
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestASessionIsMadeOfAnImage(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		c := dormouse.Created{
			Session: dormouse.SessionID(dormouse.DeriveID(dormouse.SessionPrefix, "x")), Recovery: dormouse.RecoverAuto,
			Agent: dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{{Name: "bash"}}},
		}
		row, snap, err := h.live.CreateFrom(t.Context(), dormouse.User("ada"), c, "begun", image("a", "1"))
		if err != nil {
			t.Fatal(err)
		}
		again, same, err := h.live.CreateFrom(t.Context(), dormouse.User("ada"), c, "", image("a", "1"))
		if err != nil || again.Session != row.Session || same != snap {
			t.Errorf("made again: %v, %v", again, err)
		}
		if _, _, err := h.live.CreateFrom(t.Context(), dormouse.User("ada"), c, "", image("a", "2")); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("of another image: %v", err)
		}
		h.id = row.Session
		h.mustPrompt("p1", script("effect x"))
		settle(time.Minute)
		if got := d.has(); !maps.Equal(got, map[string]string{"a": "1"}) {
			t.Errorf("it has %v", got)
		}
		if _, err := h.live.Revert(t.Context(), h.id, dormouse.User("ada"), dormouse.PromptID(h.id, "p1"), session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := h.state().Workspace.Base; got != snap {
			t.Errorf("reverted to %s, not to what it began with", got)
		}
		settle(time.Minute)
		h.checked()
	})
}

// What was fetched for going back is given back when the session does not.
func TestARestoreThatIsRefusedLeavesNoNote(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
		h.create(dormouse.Created{})
		p, err := h.imports("a", image("a", "1"))
		if err != nil {
			t.Fatal(err)
		}
		h.mustPrompt("p1", script("sleep 10m"))
		settle(time.Minute)
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{}); !errors.Is(err, dormouse.ErrConflict) {
			t.Fatal(err)
		}
		if notes := h.notes(); len(notes) > 0 {
			t.Errorf("left are %v", notes)
		}
		settle(time.Hour)
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if notes := h.notes(); len(notes) != 1 {
			t.Errorf("noted are %v", notes)
		}
	})
}

// Followers are told how far it is when layers have to come from elsewhere.
func TestFollowersAreToldHowMuchHasCome(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
		h.create(dormouse.Created{})
		p, err := h.imports("a", image("a", strings.Repeat("x", 1000)))
		if err != nil {
			t.Fatal(err)
		}
		h.close()
		elsewhere, err := snapshot.Open(snapshot.Options{Dir: t.TempDir(), Blobs: h.blobs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = elsewhere.Close() })
		h.snapshots = elsewhere
		h.open()
		f, err := h.live.Follow(t.Context(), h.id, h.state().Seq)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var last dormouse.Fetched
		over := make(chan struct{})
		go func() {
			defer close(over)
			for {
				items, err := f.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, i := range items {
					if i.Delta != nil && i.Delta.Fetched != nil {
						last = *i.Delta.Fetched
					}
					if i.Delta == nil && i.Event.Type == dormouse.WorkspaceSwapped {
						return
					}
				}
			}
		}()
		settle(time.Second)
		if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		<-over
		if last.Of != p.Layers[0].Size || last.Bytes != last.Of {
			t.Errorf("told %+v of a layer of %d bytes", last, p.Layers[0].Size)
		}
	})
}

// Whether a session went back is found out, if the answer was lost.
func TestARestoreWhoseAnswerWasLostIsKnown(t *testing.T) {
	for name, durable := range map[string]bool{"it was written": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			withSnapshots(t, func(t *testing.T, h *house, _ *snapshotDriver) {
				h.create(dormouse.Created{})
				p, err := h.imports("a", image("a", "1"))
				if err != nil {
					t.Fatal(err)
				}
				failed := false
				h.store.set(func(b store.Batch) (before, after error) {
					if failed || len(b.Events) == 0 || b.Events[0].Type != dormouse.WorkspaceSwapped {
						return nil, nil
					}
					if failed = true; durable {
						return nil, dormouse.ErrUnknownOutcome
					}
					return dormouse.ErrUnknownOutcome, nil
				})
				if _, err := h.live.Restore(t.Context(), h.id, dormouse.User("ada"), p.ID, session.RestoreOptions{}); err != nil {
					t.Error(err)
				}
				if n := h.count(dormouse.WorkspaceSwapped); n != 1 || !failed {
					t.Errorf("%d swaps", n)
				}
			})
		})
	}
}
