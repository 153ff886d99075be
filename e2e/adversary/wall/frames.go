//go:build linux

package wall

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/adversary/impostor"
)

// frames are cases of what a runner may send that the server did not ask for: each
// list that any kind of frame has, as long as a frame can be.
func frames() (all []Case) {
	for _, f := range impostor.Repeated() {
		all = append(all, Case{
			Name:  "frames-of:" + f.String(),
			Tries: "frames of every kind with nothing but " + f.String() + ", over eight connections",
			play:  impostorDoes("-do flood -conns 8 -for 2500ms -field " + quote(f.String())),
		})
	}
	for _, f := range impostor.Repeated() {
		if strings.HasPrefix(f.String(), "hello.") || f.String() == "ports" || f.String() == "ops" {
			all = append(all, Case{
				Name:  "greetings-of:" + f.String(),
				Tries: "first frames with nothing but " + f.String() + ", over 100 connections",
				play:  impostorDoes("-do greet -conns 100 -for 2s -field " + quote(f.String())),
			})
		}
	}
	return append(all,
		Case{Name: "frames-of-text", Tries: "frames of every kind with one text and nothing else, for each text there is", play: impostorDoes("-do flood -conns 8 -for 100ms -field texts")},
		Case{Name: "frames-broken", Tries: "what is no frame, and frames with numbers, texts and nesting that are none", play: impostorDoes("-do broken")},
	)
}

// lying are cases of what a runner may answer.
func lying() (all []Case) {
	for _, how := range impostor.Lies() {
		all = append(all, Case{
			Name: "lies:" + how, Tries: "a runner whose answers are " + how + " to whatever is asked", play: lieTo(how), mostLines: mostFloodLines,
		})
	}
	return all
}

// copy has a client take files out of the sandbox. Nothing of it may lie anywhere but
// where it was wanted.
func (t *trial) copy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.of(occasionWithin))
	defer cancel()
	dir := filepath.Join(t.dir, "copied")
	cmd := exec.CommandContext(ctx, t.server.Server, "cp", string(t.session.id)+":/workspace", dir, "--data", t.server.Data)
	said, err := cmd.CombinedOutput()
	t.note("cp: %s %v", oneLine(string(said)), err)
	t.see("what cp says", said)
	if bytes.ContainsAny(said, "\x1b\x00") {
		t.forged = append(t.forged, "what cp says has control characters")
	}
	if os.Remove(impostor.Escaped) == nil {
		t.touched = append(t.touched, impostor.Escaped+" was written")
	}
	_ = os.RemoveAll(dir)
}

// lieTo has the impostor answer all requests of the server for a few seconds, and then
// checks that the session works again.
func lieTo(how string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.arm(ctx); err != nil {
			return err
		}
		const long = 6 * time.Second
		within, cancel := context.WithTimeout(ctx, t.of(5*time.Second))
		_, err := t.run(within, t.session, fmt.Sprintf("cp %s /tmp/liar; setsid /tmp/liar -do lie -how %s -for %s >/tmp/said 2>&1 & sleep 0.3", put, how, t.of(long)))
		cancel()
		if err != nil {
			t.note("%v", err)
		}
		for _, o := range []occasion{attach, turnEnd, snapshot} {
			if t.life.Gone() {
				return nil
			}
			t.meet(ctx, o, "/workspace")
		}
		t.copy(ctx)
		t.meet(ctx, hibernate, "/workspace")
		t.settles(ctx)
		if t.life.Gone() {
			return nil
		}
		within, cancel = context.WithTimeout(ctx, t.of(5*time.Second))
		defer cancel()
		d, err := t.run(within, t.session, "cat /tmp/said")
		t.note("%s %v", oneLine(d.Output), err)
		return nil
	}
}
