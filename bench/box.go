package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// serveSandboxes starts a server with real sandboxes. It does not end with a context,
// because what it leaves has to be cleaned up.
func (b *bench) serveSandboxes(ctx context.Context, name string, spares int, args ...string) (*server, error) {
	data, err := b.space(name)
	if err != nil {
		return nil, err
	}
	return b.serve(context.WithoutCancel(ctx), data, append([]string{"--sandbox", "gvisor", "--spares", fmt.Sprint(spares)}, args...)...)
}

// createBox makes a session whose sandbox is wanted at once, and sleeps only when
// told to.
func (s *server) createBox(ctx context.Context) (string, error) {
	return s.create(ctx, map[string]any{"sleep_after": "0s"})
}

// says runs a command in a session's sandbox, which has to say what is expected.
func (s *server) says(ctx context.Context, session, shell, command, want string) error {
	got, err := s.exec(ctx, session, shell, command)
	if err == nil && got != want {
		err = fmt.Errorf("%s said %q and not %q", command, got, want)
	}
	return err
}

// exec runs a command in a session's sandbox. A shell that is named lives on.
func (s *server) exec(ctx context.Context, session, shell, command string) (string, error) {
	var answer struct {
		Exit   int    `json:"exit"`
		Output string `json:"output"`
		Error  string `json:"error"`
	}
	err := s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/execs", map[string]any{"command": command, "shell": shell}, &answer)
	if err == nil && (answer.Exit != 0 || answer.Error != "") {
		err = fmt.Errorf("%s: exit %d, %s: %s", command, answer.Exit, answer.Error, answer.Output)
	}
	return strings.TrimSpace(answer.Output), err
}

// awaitSpares returns once the server has n sandboxes of each kind ready.
func (s *server) awaitSpares(ctx context.Context, n int) error {
	return until(ctx, func() (bool, error) {
		text, err := s.ask(ctx, http.MethodGet, "/metrics", nil)
		for _, kind := range []string{"spare", "blank"} {
			if !strings.Contains(string(text), fmt.Sprintf("\ndormouse_sandboxes_%s %d\n", kind, n)) {
				return false, err
			}
		}
		return true, err
	})
}

// remove deletes a session and returns once nothing of it is left.
func (s *server) remove(ctx context.Context, session string) error {
	if err := s.call(ctx, http.MethodDelete, "/api/sessions/"+session, nil, nil); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		left, err := s.sessions(ctx)
		return !slices.Contains(left, session), err
	})
}

// sessions lists the newest of a server.
func (s *server) sessions(ctx context.Context) ([]string, error) {
	var page struct {
		Sessions []struct {
			Session string `json:"session"`
		} `json:"sessions"`
	}
	err := s.call(ctx, http.MethodGet, "/api/sessions?limit=200", nil, &page)
	var ids []string
	for _, one := range page.Sessions {
		ids = append(ids, one.Session)
	}
	return ids, err
}

// clear deletes every session and stops the server, which leaves no process, no
// mount and no limit behind.
func (s *server) clear(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	left, err := s.sessions(ctx)
	for _, session := range left {
		err = errors.Join(err, s.remove(ctx, session))
	}
	return errors.Join(err, s.stop())
}
