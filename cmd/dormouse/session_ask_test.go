package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func TestWakeupsAreAddedListedAndCancelled(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	w := decode[client.Wakeup](t, o.must("session", "wakeups", "add", id, "--in", "1h", "--id", "mine", "is", "it green?", "--json"))
	again := decode[client.Wakeup](t, o.must("session", "wakeups", "add", id, "--in", "1h", "--id", "mine", "is it green?", "--json"))
	if !strings.HasPrefix(string(w.ID), dormouse.WakeupPrefix) || again.ID != w.ID || !again.At.Equal(w.At) {
		t.Errorf("added %+v, then %+v", w, again)
	}
	o.must("session", "wakeups", "add", id, "--cron", "0 9 * * *", "good morning")
	o.must("session", "wakeups", "add", id, "--at", time.Now().Add(time.Hour).Format(time.RFC3339), "later")
	out := o.must("session", "wakeups", id)
	for _, want := range []string{"is it green?", "good morning", "0 9 * * *", "later", at(w.At)} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if out := o.must("session", "show", id); strings.Count(out, dormouse.WakeupPrefix) != 3 {
		t.Errorf("shown %s", out)
	}
	o.must("session", "wakeups", "cancel", id, string(w.ID))
	if out := o.must("session", "wakeups", id); strings.Contains(out, "green") {
		t.Errorf("still listed: %s", out)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"cancel", id, string(w.ID)}, exitError, "no wake-up"},
		{[]string{"add", id, "--at", "tomorrow", "x"}, exitError, `"at"`},
		{[]string{"add", id, "--cron", "daily", "x"}, exitError, "cron"},
		{[]string{"add", id, "x"}, exitUsage, "--at"},
		{[]string{"add", id, "--in", "1h", "--cron", "* * * * *", "x"}, exitUsage, "--at"},
		{[]string{"add", id, "--in", "1h"}, exitUsage, "arg"},
		{[]string{"nonsense"}, exitError, "not found"},
	} {
		if _, errs, code := o.run(append([]string{"session", "wakeups"}, c.args...)...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
}

func TestThreadsWorkBesideEachOther(t *testing.T) {
	o := newOffice(t)
	id := o.create("--custom-tool", `{"name":"lookup"}`, "--prompt", `SCRIPT[{"tool":"lookup","input":{}},{"text":"found"}]`)
	o.waitFor(id, dormouse.PhaseWaiting)
	thread := strings.TrimSpace(o.must("session", "threads", "open", id, "--id", "beside"))
	if again := strings.TrimSpace(o.must("session", "threads", "open", id, "--id", "beside")); again != thread || !strings.HasPrefix(thread, dormouse.ThreadPrefix) {
		t.Errorf("opened %q, then %q", thread, again)
	}
	if out := o.must("session", "send", id, "--thread", thread, `SCRIPT[{"text":"from beside","chunks":3}]`, "--follow"); strings.Count(out, "from beside") != 2 {
		t.Errorf("shown %s", out)
	}
	out := o.must("session", "threads", id)
	if !strings.Contains(out, thread) || !strings.Contains(out, "waits for people") || !strings.Contains(out, "none") {
		t.Errorf("threads %s", out)
	}
	if out := o.must("session", "show", id); !strings.Contains(out, thread+", 0 waiting") {
		t.Errorf("shown %s", out)
	}
	o.must("session", "interrupt", id, "--thread", thread)
	o.waitFor(id, dormouse.PhaseWaiting)
	for _, verb := range []string{"interrupt", "retry", "continue", "send"} {
		args := []string{"session", verb, id, "--thread", "sthr_nobody"}
		if verb == "send" {
			args = append(args, "hello")
		}
		if _, errs, code := o.run(args...); code != exitError || !strings.Contains(errs, "sthr_nobody") {
			t.Errorf("%s: exit %d: %s", verb, code, errs)
		}
	}
	o.must("session", "interrupt", id)
	o.waitFor(id, dormouse.PhaseReady)
}

func TestChildrenAreListedAndEnded(t *testing.T) {
	o := newOffice(t)
	parent := o.create("--tool", "read", "--title", "lead")
	child := o.create("--parent", parent, "--title", "helper")
	if s := decode[client.Session](t, o.must("session", "show", child, "--json")); len(s.Agent.Tools) != 1 || string(s.Parent) != parent {
		t.Errorf("made %+v", s)
	}
	if _, errs, code := o.run("session", "create", "--parent", parent, "--tool", "bash"); code != exitError || !strings.Contains(errs, `no tool "bash"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
	if out := o.must("session", "children", parent); !strings.Contains(out, child) || !strings.Contains(out, "helper") {
		t.Errorf("children %s", out)
	}
	if out := o.must("session", "show", parent); !strings.Contains(out, "child") || !strings.Contains(out, child) {
		t.Errorf("shown %s", out)
	}
	o.must("session", "children", "end", parent, child)
	o.waitFor(child, dormouse.PhaseTerminated)
	eventually(t, "the child has ended", func() bool { return strings.Contains(o.must("session", "children", parent), "ended") })
	if _, errs, code := o.run("session", "children", "end", parent, child); code != exitError || !strings.Contains(errs, "no child") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestQuestionsAreListedAndAnswered(t *testing.T) {
	o := newOffice(t)
	id := o.create("--tool", "question_ask", "--tool", "read=ask", "--prompt",
		`SCRIPT[{"tools":[{"name":"question_ask","input":{"question":"which one?","options":["this","that"]}},{"name":"read","input":{"file_path":"a.txt"}}]},{"text":"thanks"}]`)
	o.waitFor(id, dormouse.PhaseWaiting)
	out := o.must("session", "questions", id)
	for _, want := range []string{"which one? [this | that]", "question", "approval", "read a.txt"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if out := o.must("session", "show", id); !strings.Contains(out, "which one?") || !strings.Contains(out, "expires") {
		t.Errorf("shown %s", out)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--content", "x"}, exitError, "0 calls of kind custom_tool"},
		{[]string{"--say", "x", "--allow"}, exitUsage, "--say"},
		{[]string{"--say", "x", "--message", "y"}, exitUsage, "--deny"},
		{[]string{"--say", "x", "--is-error"}, exitUsage, "--content"},
		{[]string{"--say", ""}, exitError, "empty"},
	} {
		if _, errs, code := o.run(append([]string{"session", "answer", id}, c.args...)...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
	call := decode[client.Session](t, o.must("session", "questions", id, "--json")).Questions[0].ToolUse
	o.must("session", "answer", id, "--say", "that") // the only question, though something else waits
	if _, errs, code := o.run("session", "answer", id, string(call), "--say", "no, this"); code != exitError || !strings.Contains(errs, "answered") {
		t.Errorf("exit %d: %s", code, errs)
	}
	o.must("session", "answer", id, "--deny", "--message", "private")
	o.waitFor(id, dormouse.PhaseReady)
	out = o.must("session", "follow", id, "--until-idle")
	for _, want := range []string{"● question_ask which one?", "? asks " + string(call), "— answered by user:", "that", "thanks"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
}
