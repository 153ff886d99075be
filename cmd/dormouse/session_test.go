package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/session"
)

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// waitFor waits for a session's phase.
func (o *office) waitFor(id string, phase dormouse.Phase) {
	o.t.Helper()
	eventually(o.t, string(phase), func() bool {
		return decode[client.Session](o.t, o.must("session", "show", id, "--json")).Phase == phase
	})
}

func TestSessionIsMadeListedAndShown(t *testing.T) {
	o := newOffice(t)
	id := o.create("--title", "first", "--recovery", "ask", "--sleep-after", "0s", "--tool", "bash=ask", "--tool", "read")
	if !strings.HasPrefix(id, dormouse.SessionPrefix) {
		t.Fatalf("made %q", id)
	}
	page := decode[client.Page](t, o.must("session", "list", "--json"))
	if len(page.Sessions) != 1 || string(page.Sessions[0].Session) != id || page.Sessions[0].Title != "first" {
		t.Errorf("listed %+v", page)
	}
	if out := o.must("session", "list"); !strings.Contains(out, id) || !strings.HasPrefix(out, "SESSION") {
		t.Errorf("listed %s", out)
	}
	s := decode[client.Session](t, o.must("session", "show", id, "--json"))
	if s.Recovery != dormouse.RecoverAsk || s.SleepAfter != "0s" || len(s.Agent.Tools) != 2 || s.Agent.Tools[0].Permission != dormouse.PermissionAsk {
		t.Errorf("shown %+v", s)
	}
	if out := o.must("session", "show", id); !strings.Contains(out, "phase") || !strings.Contains(out, "ready") {
		t.Errorf("shown %s", out)
	}
}

func TestSendReturnsOnceThePromptIsAccepted(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	p := decode[client.Prompt](t, o.must("session", "send", id, "hello", "there", "--id", "a", "--json"))
	again := decode[client.Prompt](t, o.must("session", "send", id, "hello there", "--id", "a", "--json"))
	if p.ID == "" || p.Seq == 0 || again.ID != p.ID || again.Seq != p.Seq {
		t.Errorf("sent %+v, then %+v", p, again)
	}
	if _, errs, code := o.run("session", "send", id, "other", "--id", "a"); code != exitError || !strings.Contains(errs, "another body") {
		t.Errorf("exit %d: %s", code, errs)
	}
	out, errs, code := runIn(t.Context(), "from a pipe\n", "--data", o.data, "session", "send", id)
	if code != 0 || !strings.Contains(out, dormouse.EventPrefix) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	o.waitFor(id, dormouse.PhaseReady)
	if out := o.must("session", "events", id); !strings.Contains(out, "from a pipe") {
		t.Errorf("events %s", out)
	}
}

func TestSendThatFollowsShowsTheTurn(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	out := o.must("session", "send", id, `SCRIPT[{"text":"well said","chunks":4}]`, "--follow")
	if strings.Count(out, "well said") != 2 || !strings.HasPrefix(out, "> ") { // in the prompt and in the answer
		t.Errorf("shown %q", out)
	}
	out, errs, code := o.run("session", "send", id, `SCRIPT[{"error":400}]`, "--follow")
	if code != exitError || !strings.Contains(errs, "failed") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for line := range strings.Lines(o.must("session", "send", id, "hello", "--follow", "--json")) {
		decode[map[string]any](t, line)
	}
}

func TestFollowShowsEachEventOnceAcrossDisconnections(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	var out safeBuffer
	done := make(chan int)
	go func() {
		done <- run(t.Context(), []string{"--data", o.data, "session", "follow", id, "--json"}, strings.NewReader(""), &out, &out)
	}()
	const prompts = 12
	for range prompts {
		o.must("session", "send", id, "hello")
		o.http.CloseClientConnections()
	}
	eventually(t, "all turns followed", func() bool { return strings.Count(out.String(), `"session.status_idle"`) == prompts })
	o.must("session", "terminate", id)
	if code := <-done; code != 0 {
		t.Errorf("exit %d: %s", code, out.String())
	}
	var got []uint64
	for line := range strings.Lines(out.String()) {
		got = append(got, decode[dormouse.Event](t, line).Seq)
	}
	var want []uint64
	for line := range strings.Lines(o.must("session", "events", id, "--json")) {
		want = append(want, decode[dormouse.Event](t, line).Seq)
	}
	want = want[:len(got)] // what came after the end is not followed
	if !slices.Equal(got, want) {
		t.Errorf("followed %v, want %v", got, want)
	}
}

func TestFollowEndsWithItsContextAndWithoutASession(t *testing.T) {
	o := newOffice(t)
	if _, errs, code := o.run("session", "follow", "sesn_nobody"); code != exitError || !strings.Contains(errs, "not found") {
		t.Errorf("exit %d: %s", code, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	id := o.create()
	go func() {
		_, _, code := runIn(ctx, "", "--data", o.data, "session", "follow", id)
		done <- code
	}()
	cancel()
	<-done
}

func TestCommandsAskTheSession(t *testing.T) {
	o := newOffice(t)
	id := o.create("--custom-tool", `{"name":"lookup","input_schema":{"type":"object"}}`,
		"--prompt", `SCRIPT[{"tool":"lookup","input":{"key":"a"}},{"text":"found"}]`)
	o.waitFor(id, dormouse.PhaseWaiting)
	s := decode[client.Session](t, o.must("session", "show", id, "--json"))
	use := s.Threads[0].Turn.Waiting[0]
	if out := o.must("session", "show", id); !strings.Contains(out, string(use.ID)) || !strings.Contains(out, "lookup") {
		t.Errorf("shown %s", out)
	}
	o.must("session", "send", id, "next")
	if out := o.must("session", "queue", id); !strings.Contains(out, "next") || !strings.Contains(out, "processing") {
		t.Errorf("queue %s", out)
	}
	if row := decode[session.Row](t, o.must("session", "answer", id, "--content", "42", "--json")); string(row.Session) != id {
		t.Errorf("answered %+v", row)
	}
	o.waitFor(id, dormouse.PhaseReady)
	if out := o.must("session", "follow", id, "--until-idle"); !strings.Contains(out, "found") {
		t.Errorf("followed to its rest: %s", out)
	}
	if out := o.must("session", "ops", id); !strings.Contains(out, "custom_tool") {
		t.Errorf("ops %s", out)
	}
	o.must("session", "interrupt", id, "--flush-queue")
	for _, c := range [][]string{
		{"retry", id}, {"continue", id}, {"hibernate", id}, {"queue", id, "--cancel", "sevt_none"}, {"answer", id, string(use.ID), "--allow"}, {"answer", id, "--allow"},
	} {
		if _, errs, code := o.run(append([]string{"session"}, c...)...); code != exitError || errs == "" {
			t.Errorf("%v: exit %d: %s", c, code, errs)
		}
	}
	for range 2 {
		if out := o.must("session", "terminate", id, "--reason", "enough"); !strings.Contains(out, "terminated") {
			t.Errorf("terminated %s", out)
		}
	}
}

func TestExitCodeSaysWhoseMistakeItWas(t *testing.T) {
	o := newOffice(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"nonsense"}, exitUsage, "nonsense"},
		{[]string{"session", "nonsense"}, exitUsage, "nonsense"},
		{[]string{"session", "show"}, exitUsage, "arg"},
		{[]string{"session", "list", "--nonsense"}, exitUsage, "nonsense"},
		{[]string{"session", "list", "--limit", "x"}, exitUsage, "limit"},
		{[]string{"session", "answer", "sesn_x"}, exitUsage, "--allow"},
		{[]string{"session", "create", "--follow"}, exitUsage, "--prompt"},
		{[]string{"session", "create", "--custom-tool", "{"}, exitUsage, "JSON"},
		{[]string{"session", "list", "--server", "http://x y"}, exitUsage, "--server"},
		{[]string{"serve", "--listen", "nowhere"}, exitUsage, "--listen"},
		{[]string{"serve", "--log-level", "loud"}, exitUsage, "loud"},
		{[]string{"serve", "--model", "gpt", "--runner", "/bin/true", "--listen", "127.0.0.1:0"}, exitUsage, "gpt"},
		{[]string{"session", "list", "--phase", "asleep"}, exitError, "asleep"},
		{[]string{"session", "create", "--model", "gpt"}, exitError, "scripted"},
		{[]string{"session", "create", "--tool", "rm"}, exitError, "rm"},
		{[]string{"session", "show", "sesn_nobody"}, exitError, "not found"},
		{[]string{"session", "list", "--server", "http://127.0.0.1:1"}, exitError, "no server answers"},
		{[]string{"session", "list", "--token-file", "/nowhere"}, exitError, "token"},
		{[]string{"session", "list", "--data", "/nowhere"}, exitError, "dormouse serve"},
	} {
		_, errs, code := o.run(c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d, want %d that says %q: %s", c.args, code, c.code, c.says, errs)
		}
	}
}

func TestServerAndTokenCanBeNamedByTheEnvironment(t *testing.T) {
	o := newOffice(t)
	t.Setenv("DORMOUSE_SERVER", o.http.URL)
	t.Setenv("DORMOUSE_TOKEN_FILE", o.data+"/"+tokenFile)
	if _, errs, code := runIn(t.Context(), "", "--data", t.TempDir(), "session", "list"); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	t.Setenv("DORMOUSE_TOKEN", "dmt_"+strings.Repeat("x", 43))
	if _, errs, code := runIn(t.Context(), "", "session", "list"); code != exitError || !strings.Contains(errs, "token") || strings.Contains(errs, "xxx") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestHelpSaysHowToChooseAModel(t *testing.T) {
	for _, args := range [][]string{{"help", "models"}, {"models"}} {
		out, errs, code := runIn(t.Context(), "", args...)
		if code != 0 || !strings.Contains(out, "offline") || !strings.Contains(out, "--model NAME") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	if out, _, code := runIn(t.Context(), "", "--help"); code != 0 || !strings.Contains(out, "Additional help topics") || strings.Contains(out, "scripted-model") {
		t.Errorf("exit %d: %s", code, out)
	}
	if out, _, code := runIn(t.Context(), "", "version"); code != 0 || !strings.HasPrefix(out, "dormouse ") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestWhatAgentsPrintCannotDriveTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext": "plain\n\ttext", "\x1b[2Jgone": "\uFFFD[2Jgone", "a\rb": "a\uFFFDb", "\u009b31m": "\uFFFD31m", "ü": "ü",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestReplyIsNotShownTwiceAfterItsDeltas(t *testing.T) {
	for _, c := range []struct {
		text, said, rest string
		begins           bool
	}{
		{"one two", "", "one two", true},
		{"one two", "one ", "two", true},
		{"one two", "one two", "", true},
		{"one\ntwo", "onetwo", "", true},
		{"one two", "two", "one two", false},
		{"one", "one two", "one", false},
	} {
		if rest, begins := unsaid(c.text, c.said); rest != c.rest || begins != c.begins {
			t.Errorf("%q after %q: %q %v", c.text, c.said, rest, begins)
		}
	}
}
