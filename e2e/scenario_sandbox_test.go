package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

func TestScenario27SandboxRecycledBetweenCallsKeepsTheWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.send("one", a.script(rig.Bash("echo kept > notes.txt")))
	a.rests()
	if n := w.KillRunners(); n != 1 {
		t.Fatalf("%d runners were killed, want 1", n)
	}
	a.sees(dormouse.SandboxLost, 1)
	a.send("two", a.script(rig.Bash("cat notes.txt")))
	shown := a.rests()
	results := only(a.log(), dormouse.AgentToolResult)
	if got := words(results[len(results)-1]); got != "kept\n" {
		t.Errorf("the next call read %q, want what the first wrote", got)
	}
	if shown.Sandbox.Generation != 2 {
		t.Errorf("sandbox is of generation %d, want 2", shown.Sandbox.Generation)
	}
}

func TestScenario28WarmSandboxIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, _ := w.gate()
	a.send("one", a.script(rig.Bash("echo old > notes.txt"),
		rig.Use("task", map[string]any{"command": "echo $$ > pid; " + wait}),
		rig.Bash("until [ -s pid ]; do sleep 0.01; done")))
	a.rests()
	runners := w.Runners()
	w.kill(func() { // newer than anything the server knows
		must(t, os.WriteFile(filepath.Join(a.workspace(), "notes.txt"), []byte("newer\n"), 0o600))
	})
	a.send("two", a.script(rig.Bash("cat notes.txt; kill -0 $(cat pid) && echo still there")))
	shown := a.rests()
	log := a.log()
	results := only(log, dormouse.AgentToolResult)
	if got := words(results[len(results)-1]); got != "newer\nstill there\n" {
		t.Errorf("the next call saw %q, want the newer file and the background task", got)
	}
	if n := len(only(log, dormouse.SandboxWarming)); n != 1 || shown.Sandbox.Generation != 1 {
		t.Errorf("%d sandboxes were started, the last of generation %d; want the first one only", n, shown.Sandbox.Generation)
	}
	if diff := cmp.Diff(runners, w.Runners()); diff != "" {
		t.Error(diff)
	}
}

func TestScenario31IdleTimeoutSavesBeforeItStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(options{"sleep_after": "50ms"})
	a.send("one", a.script(rig.Bash("echo kept > notes.txt")))
	a.sees(dormouse.TurnEnded, 1)
	a.phase(dormouse.PhaseHibernated)
	log := a.log()
	stopping, stopped := place(log, dormouse.SandboxStopping), place(log, dormouse.SandboxStopped)
	if stopping < 0 || stopped < stopping || !rig.Decode[dormouse.SandboxFact](log[stopping]).Kept {
		t.Errorf("files were not known to be safe before the sandbox was stopped:\n%s", types(log))
	}
	if pids := w.Runners(); len(pids) > 0 {
		t.Errorf("runners %v are awake", pids)
	}
	a.send("two", a.script(rig.Bash("cat notes.txt")))
	a.sees(dormouse.TurnEnded, 2)
	results := only(a.log(), dormouse.AgentToolResult)
	if got := words(results[len(results)-1]); got != "kept\n" {
		t.Errorf("after waking the file holds %q", got)
	}
}

func TestScenario35PromptWakesAHibernatedSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.phase(dormouse.PhaseReady)
	must(t, a.Command(w.ctx, "hibernate", nil))
	a.phase(dormouse.PhaseHibernated)
	a.send("one", a.script(rig.Bash(a.marked("true")), rig.Say("awake")))
	if shown := a.rests(); shown.Phase != dormouse.PhaseReady || shown.Sandbox.Generation != 2 {
		t.Errorf("session is %s with sandbox %d, want ready with the second", shown.Phase, shown.Sandbox.Generation)
	}
	log := a.log()
	if queued, warming := place(log, dormouse.PromptQueued), only(log, dormouse.SandboxWarming); len(warming) != 2 ||
		warming[1].Seq != log[queued].Seq+1 {
		t.Errorf("the prompt was not queued and then woke the session:\n%s", types(log))
	}
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the prompt was delivered %d times", n)
	}
}

func TestScenario36TwoWakesAtOnceAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.phase(dormouse.PhaseReady)
	must(t, a.Command(w.ctx, "hibernate", nil))
	a.phase(dormouse.PhaseHibernated)
	const wakes = 8
	errs := make([]error, wakes)
	var waking sync.WaitGroup
	for i := range wakes {
		waking.Go(func() { errs[i] = a.Command(w.ctx, "wake", nil) })
	}
	waking.Wait()
	for _, err := range errs {
		must(t, err)
	}
	a.phase(dormouse.PhaseReady)
	if n := len(only(a.log(), dormouse.SandboxWarming)); n != 2 {
		t.Errorf("the sandbox was started %d times, want once to begin with and once to wake", n)
	}
	if pids := w.Runners(); len(pids) != 1 {
		t.Errorf("runners %v live, want one", pids)
	}
}

func TestScenario38HibernateFromAWrongPhaseChangesNothing(t *testing.T) {
	t.Parallel()
	open, gated := gatedRunner(t)
	w := newWorld(t, gated)
	a := w.create(nil)
	refuses := func(phase dormouse.Phase) {
		t.Helper()
		a.phase(phase)
		before := a.log()
		refused(t, a.Command(w.ctx, "hibernate", nil), http.StatusConflict, "conflict")
		if diff := cmp.Diff(before, a.log()); diff != "" {
			t.Errorf("%s: %s", phase, diff)
		}
	}
	refuses(dormouse.PhaseCreating)
	open()
	a.phase(dormouse.PhaseReady)
	must(t, a.Command(w.ctx, "hibernate", nil))
	refuses(dormouse.PhaseHibernated)
}

func TestScenario39RunnerGoneForAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	id := a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("it came back")))
	a.begun(1)
	runner := w.Runners()[0]
	must(t, syscall.Kill(runner, syscall.SIGSTOP))
	must(t, sleep.For(w.ctx, time.Second)) // the case itself: gone, but for less than five
	if got := a.queue(); len(got) != 1 || got[0] != "processing "+string(id) {
		t.Errorf("the queue is %v, want the prompt at work", got)
	}
	must(t, syscall.Kill(runner, syscall.SIGCONT))
	open()
	if shown := a.rests(); shown.Sandbox.Generation != 1 {
		t.Errorf("sandbox is of generation %d, want the first", shown.Sandbox.Generation)
	}
	log := a.log()
	if n := len(only(log, dormouse.AttemptStarted)); n != 1 {
		t.Errorf("%d attempts, want 1:\n%s", n, types(log))
	}
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the command began %d times", n)
	}
}

func TestScenario41SecondRunnerTakesTheFirstOnesPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("once")))
	a.begun(1)
	first := w.Runners()[0]
	must(t, syscall.Kill(first, syscall.SIGSTOP)) // or it is back before the second is asked anything
	second := a.dial()
	second.send(frame{Kind: "hello", Hello: &hello{Protocol: 3, Secret: a.secret(), Fence: fence{Session: a.ID, Generation: 1}}})
	if f := second.read(); f.Kind != "bind" || f.Fence == nil || f.Fence.Session != a.ID {
		t.Fatalf("the second runner got %+v, want to be bound", f)
	}
	second.send(frame{Kind: "bound"})
	// What the first has not answered is asked of the second.
	for f := second.read(); f.Kind != "start" && f.Kind != "wait"; f = second.read() {
		if f.Kind != "beat" {
			t.Fatalf("the second runner was asked to %s", f.Kind)
		}
	}
	// The first comes back by itself, and the second is closed in turn.
	must(t, syscall.Kill(first, syscall.SIGCONT))
	for {
		if _, err := second.next(); err != nil {
			break
		}
	}
	open()
	a.rests()
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the command began %d times", n)
	}
}

func TestScenario42RunnerWithAWrongSecretIsTurnedAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("undisturbed")))
	a.begun(1)
	for _, secret := range []string{"", "guessed", a.secret() + "x", a.secret()[1:], strings.ToLower(a.secret())} {
		impostor := a.dial()
		impostor.send(frame{Kind: "hello", Hello: &hello{Protocol: 3, Secret: secret, Fence: fence{Session: a.ID, Generation: 1}}})
		for {
			f, err := impostor.next()
			if err != nil {
				break // closed, and nothing was told
			}
			if f.Kind != "refused" {
				t.Fatalf("a runner with the secret %q was sent %+v", secret, f)
			}
		}
	}
	open()
	a.rests()
	log := a.log()
	if n := len(only(log, dormouse.AttemptStarted)); n != 1 || place(log, dormouse.SandboxLost) >= 0 {
		t.Errorf("the session was disturbed:\n%s", types(log))
	}
}

func TestScenario43NothingIsSentToARunnerThatIsNotReady(t *testing.T) {
	t.Parallel()
	open, gated := gatedRunner(t)
	w := newWorld(t, gated)
	a := w.create(nil)
	a.send("one", a.script(rig.Bash(a.marked("true")), rig.Say("then")))
	a.sees(dormouse.AgentToolUse, 1)
	w.until("the runner is there", func() bool { return len(w.Runners()) == 1 })
	if log := a.log(); len(only(log, dormouse.OpStarted)) != 1 { // the model call
		t.Errorf("an op was sent to a runner that is not ready:\n%s", types(log))
	}
	open()
	a.rests()
	log := a.log()
	started, ready := only(log, dormouse.OpStarted), place(log, dormouse.SandboxStarted)
	if len(started) < 2 || ready < 0 || started[1].Seq < log[ready].Seq {
		t.Errorf("the command was recorded before the sandbox was ready:\n%s", types(log))
	}
}

func TestScenario51NoLimitNeverHibernatesForCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*actor
	for range 6 {
		all = append(all, w.create(nil))
	}
	for _, a := range all {
		a.phase(dormouse.PhaseReady)
	}
	for _, a := range all {
		if shown := a.show(); shown.Phase != dormouse.PhaseReady || place(a.log(), dormouse.SandboxStopping) >= 0 {
			t.Errorf("session %s is %s", a.ID, shown.Phase)
		}
	}
	if n := len(w.Runners()); n != len(all) {
		t.Errorf("%d runners live, want %d", n, len(all))
	}
}

func TestScenario53TurnLongerThanTheIdleTimeoutIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(options{"sleep_after": "50ms", "warm": false})
	a.send("one", a.script(rig.Bash(a.marked("sleep 0.5")), rig.Say("in peace")))
	a.sees(dormouse.TurnEnded, 1)
	a.phase(dormouse.PhaseHibernated)
	log := a.log()
	if stopping, ended := place(log, dormouse.SandboxStopping), place(log, dormouse.TurnEnded); stopping < ended {
		t.Errorf("the sandbox was stopped during the turn:\n%s", types(log))
	}
	if n := a.effects("end"); n != 1 {
		t.Error("the command was not left to its end")
	}
}

// gatedRunner makes runners that do nothing, not even answer, until open is
// called.
func gatedRunner(t *testing.T) (open func(), change func(*rig.Server)) {
	t.Helper()
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	return func() { must(t, os.WriteFile(gate, nil, 0o600)) }, func(s *rig.Server) {
		s.Runner = filepath.Join(dir, "runner")
		text := fmt.Sprintf("#!/bin/sh\nuntil [ -e %s ]; do sleep 0.01; done\nexec %s \"$@\"\n", gate, built.Runner)
		must(t, os.WriteFile(s.Runner, []byte(text), 0o700))
	}
}

// workspace is where the session's files are.
func (a *actor) workspace() string {
	return filepath.Join(a.w.Data, "sandbox", "workspaces", string(a.ID))
}

// sandbox is where the session's first sandbox keeps its state.
func (a *actor) sandbox(name string) string {
	return filepath.Join(a.w.Data, "sandbox", "sandboxes", string(a.ID), "1", name)
}

// secret is what the session's runner proves itself with.
func (a *actor) secret() string {
	a.w.t.Helper()
	b, err := os.ReadFile(a.sandbox("secret"))
	must(a.w.t, err)
	return string(b)
}

// frame is a message between server and runner, as far as an impostor needs it:
// four bytes of length, then its JSON.
type frame struct {
	Kind  string `json:"kind"`
	Fence *fence `json:"fence,omitempty"`
	Hello *hello `json:"hello,omitempty"`
}

type hello struct {
	Protocol int    `json:"protocol"`
	Secret   string `json:"secret"`
	Fence    fence  `json:"fence"`
}

type fence struct {
	Session    dormouse.SessionID `json:"session"`
	Generation uint64             `json:"generation"`
	Epoch      uint64             `json:"epoch"`
}

// impostor is a connection to where a server waits for its runner.
type impostor struct {
	t *testing.T
	net.Conn
}

func (a *actor) dial() impostor {
	a.w.t.Helper()
	c, err := net.Dial("unix", a.sandbox("socket"))
	must(a.w.t, err)
	a.w.t.Cleanup(func() { _ = c.Close() })
	must(a.w.t, c.SetDeadline(time.Now().Add(patience)))
	return impostor{a.w.t, c}
}

func (i impostor) send(f frame) {
	i.t.Helper()
	b, err := json.Marshal(f)
	must(i.t, err)
	head := binary.BigEndian.AppendUint64(nil, uint64(len(b))<<32) // and no bulk after it
	_, err = i.Write(append(head, b...))
	must(i.t, err)
}

func (i impostor) read() frame {
	i.t.Helper()
	f, err := i.next()
	must(i.t, err)
	return f
}

func (i impostor) next() (frame, error) {
	var lengths [2]uint32 // of the JSON, and of the bulk after it
	if err := binary.Read(i, binary.BigEndian, &lengths); err != nil {
		return frame{}, err
	}
	b := make([]byte, lengths[0]+lengths[1])
	if _, err := io.ReadFull(i, b); err != nil {
		return frame{}, err
	}
	var f frame
	return f, json.Unmarshal(b[:lengths[0]], &f)
}
