package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// descends waits until the session has made its n-th child, and follows that.
func (a *actor) descends(n int, tag string) *actor {
	a.w.t.Helper()
	started := a.sees(dormouse.ChildStarted, n)
	child := a.w.adopt(rig.Decode[dormouse.ChildFact](started).Child)
	child.tag = tag
	return child
}

// ended checks that a session was terminated once, and each of its children was.
func (a *actor) ended() {
	a.w.t.Helper()
	shown, err := a.Until(a.w.ctx, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated && s.Settled() })
	if err != nil {
		a.w.t.Fatalf("%s is %s: %v", a.ID, shown.Phase, err)
	}
	log := a.log()
	if n := len(only(log, dormouse.SessionStatusTerminated)); n != 1 {
		a.w.t.Errorf("%s was terminated %d times", a.ID, n)
	}
	var spawned, down []dormouse.SessionID
	for _, e := range only(log, dormouse.ChildSpawned) {
		spawned = append(spawned, rig.Decode[dormouse.Spawned](e).Child.Session)
	}
	for _, e := range only(log, dormouse.ChildEnded) {
		down = append(down, rig.Decode[dormouse.ChildFact](e).Child)
	}
	slices.Sort(spawned)
	slices.Sort(down)
	if !slices.Equal(spawned, down) {
		a.w.t.Errorf("%s spawned %v and ended %v, want each once", a.ID, spawned, down)
	}
}

func TestScenario46TerminatedParentTerminatesItsDescendants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.create(with("bash", "child_spawn"))
	never, _ := w.gate()
	spawn := func(tag string, steps ...rig.Step) rig.Step {
		return rig.Use("child_spawn", map[string]any{"title": tag, "prompt": rig.Script(tag, steps...)})
	}
	childTag, grandTag := root.tag+".c", root.tag+".g"
	root.send("grow", root.script(
		spawn(childTag, spawn(grandTag, rig.Bash(root.marked(never))), rig.Bash(root.marked(never))), rig.Bash(root.marked(never))))
	child := root.descends(1, childTag)
	grand := child.descends(1, grandTag)
	// One that a person added, with nothing to do.
	plain := w.create(options{"parent": grand.ID, "warm": false})
	root.begun(3)
	if n := len(w.Runners()); n != 3 {
		t.Fatalf("%d sandboxes run, want 3", n)
	}

	root.MayCancel()
	must(t, root.Insist(w.ctx, "terminate", nil, func(s rig.Shown) bool { return s.Phase == dormouse.PhaseTerminated }))
	for n := range 6 { // while they are being ended, each time a little later
		must(t, sleep.For(w.ctx, time.Duration(n*n)*2*time.Millisecond))
		w.kill(nil)
	}
	for _, a := range []*actor{root, child, grand, plain} {
		a.ended()
	}
	w.until("the sandboxes are gone", func() bool { return len(w.Runners()) == 0 })
	if n := root.effects("end"); n != 0 {
		t.Errorf("%d commands went on to their end", n)
	}
}

func TestChildEndsWithoutItsParentAndItsSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.create(cold)
	first, second := w.create(options{"parent": root.ID, "warm": false}), w.create(options{"parent": root.ID, "warm": false})
	below := w.create(options{"parent": first.ID, "warm": false})
	_, err := root.Once(w.ctx, http.MethodDelete, root.Path("/children/"+string(first.ID)), nil, nil)
	must(t, err)
	w.kill(nil)
	first.ended()
	below.ended()
	root.sees(dormouse.ChildEnded, 1)
	for _, a := range []*actor{root, second} {
		a.send("still there", a.script(rig.Say("still here")))
		a.rests()
		if said := only(a.log(), dormouse.AgentMessage); len(said) != 1 {
			t.Errorf("%s said %s", a.ID, types(said))
		}
	}
	_, err = root.Once(w.ctx, http.MethodDelete, root.Path("/children/"+string(first.ID)), nil, nil)
	refused(t, err, http.StatusNotFound, "not_found")
}

func TestChildMayDoNoMoreThanItsParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tools := func(name, permission string) []map[string]string {
		return []map[string]string{{"name": name, "permission": permission}}
	}
	root := w.create(options{"warm": false, "tools": tools("bash", "ask")})
	for i, o := range []options{{"tools": tools("bash", "allow")}, {"tools": tools("write", "ask")}} {
		o["parent"], o["title"] = root.ID, fmt.Sprint(i)
		_, err := w.Once(w.ctx, http.MethodPost, "/api/sessions", o, nil)
		refused(t, err, http.StatusBadRequest, "invalid")
	}
	if n := len(only(root.log(), dormouse.ChildSpawned)); n != 0 {
		t.Errorf("%d children were spawned", n)
	}
	// What a child is not told, it has from its parent.
	child := w.create(options{"parent": root.ID, "warm": false})
	child.send("ask", child.script(rig.Bash("true")))
	child.phase(dormouse.PhaseWaiting)
	must(t, child.Command(w.ctx, "interrupt", nil))
}
