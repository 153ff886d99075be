//go:build linux

package wall

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/e2e/impostor"
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
		if strings.HasPrefix(f.String(), "hello.") || f.String() == "ports" || f.String() == "victims" {
			all = append(all, Case{
				Name:  "greetings-of:" + f.String(),
				Tries: "first frames with nothing but " + f.String() + ", over 100 connections",
				play:  impostorDoes("-do greet -conns 100 -for 2s -field " + quote(f.String())),
			})
		}
	}
	return append(all,
		Case{Name: "frames-of-text", Tries: "frames of every kind with one text and nothing else, for each text there is", play: texts},
		Case{Name: "frames-broken", Tries: "what is no frame, and frames with numbers, texts and nesting that are none", play: impostorDoes("-do broken")},
	)
}

// texts sends each text as long as a frame can be.
func texts(ctx context.Context, t *trial) error {
	var names []string
	for _, f := range impostor.Texts() {
		names = append(names, quote(f.String()))
	}
	return impostorScript("for f in "+strings.Join(names, " ")+"; do "+put+" -do flood -conns 8 -for 200ms -field $f; done")(ctx, t)
}

// impostorScript runs a script of what the impostor does.
func impostorScript(script string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.arm(ctx); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, t.of(40*time.Second))
		defer cancel()
		d, err := t.run(within, t.session, "("+script+") 2>&1 | sort | uniq -c | head -5")
		t.note("%s", oneLine(d.Output))
		if err != nil {
			t.note("%v", err)
		}
		return nil
	}
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

// lieTo has the impostor answer for a few seconds all that the server asks, and looks
// whether the session is of use again when that is over.
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
		for _, o := range []occasion{attach, turnEnd, snapshot, hibernate} {
			if t.life.Gone() {
				return nil
			}
			t.meet(ctx, o, "/workspace")
		}
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
