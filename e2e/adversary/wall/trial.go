//go:build linux

package wall

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// session is one session of a world.
type session struct {
	id  dormouse.SessionID
	tag string
}

func (s *session) path(what string) string { return "/api/sessions/" + string(s.id) + what }

// trial is one case in one session, and what was seen of it.
type trial struct {
	*world
	session *session
	observed
	notes  []string // what the attack itself says
	watch  *watch   // nil while no server is there
	before memory   // what the server held when the case began
}

// note says something for the line of the case.
func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// see looks through what the server gave away.
func (t *trial) see(where string, b []byte) {
	for _, piece := range plain(b, 0) {
		for _, found := range t.find.in(piece) {
			t.leaks = append(t.leaks, where+": "+found)
		}
	}
	for _, found := range taken(b) {
		t.forged = append(t.forged, where+": "+found)
	}
	slices.Sort(t.leaks)
	slices.Sort(t.forged)
	t.leaks, t.forged = slices.Compact(t.leaks), slices.Compact(t.forged)
}

// refusal is an answer that says no.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %.200s", r.status, r.text) }

// ask sends a request, looks through the answer and reads it as JSON.
func (t *trial) ask(ctx context.Context, method, path string, body, into any) error {
	var r io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		r, kind = bytes.NewReader(b), "application/x-tar"
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+t.life.Addr()+path, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+t.server.Token())
	if strings.HasPrefix(path, "/v1/") {
		req.Header.Set("Anthropic-Beta", "managed-agents-2026-04-01")
	}
	res, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	const most = 64 << 20
	b, err := io.ReadAll(io.LimitReader(res.Body, most))
	what, _, _ := strings.Cut(path, "?")
	if t.session != nil {
		what = strings.ReplaceAll(what, string(t.session.id), "ID")
	}
	t.see("the answer to "+method+" "+what, b)
	switch {
	case err != nil:
		return err
	case res.StatusCode >= http.StatusBadRequest:
		return &refusal{res.StatusCode, string(b)}
	case into == nil:
		return nil
	}
	return json.Unmarshal(b, into)
}

// create makes a session. Names are what the model knows it by.
func (w *world) create(ctx context.Context, name string) (*session, error) {
	s := &session{tag: name + "-" + rand.Text()[:8]}
	var made struct {
		Session dormouse.SessionID `json:"session"`
	}
	err := (&trial{world: w}).ask(ctx, http.MethodPost, "/api/sessions", map[string]any{"title": s.tag}, &made)
	s.id = made.Session
	if err != nil {
		return nil, fmt.Errorf("make a session: %w", err)
	}
	return s, nil
}

// done is how a command ended.
type done struct {
	Exit    int    `json:"exit"`
	Output  string `json:"output"`
	Error   string `json:"error"`
	Unknown bool   `json:"unknown"`
}

// run runs a command in a session.
func (t *trial) run(ctx context.Context, s *session, command string) (d done, err error) {
	err = t.ask(ctx, http.MethodPost, s.path("/execs"), map[string]any{"command": command, "timeout": "60s"}, &d)
	return d, err
}

// put has the impostor's program in the sandbox, at its path there.
const put = "/tmp/impostor"

func (t *trial) arm(ctx context.Context) error {
	const within = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, t.of(within))
	defer cancel()
	if err := t.ask(ctx, http.MethodPut, t.session.path("/files?path=/tmp"), t.impostor, nil); err != nil {
		return fmt.Errorf("put the impostor into the sandbox: %w", err)
	}
	return nil
}

// show asks where a session stands.
func (t *trial) show(ctx context.Context, s *session) (shown rig.Shown, err error) {
	err = t.ask(ctx, http.MethodGet, s.path(""), nil, &shown)
	return shown, err
}

// until waits for the session to be as ok says.
func (t *trial) until(ctx context.Context, s *session, ok func(rig.Shown) bool) error {
	for {
		shown, err := t.show(ctx, s)
		if err == nil && ok(shown) {
			return nil
		}
		if no, is := errors.AsType[*refusal](err); is && no.status == http.StatusNotFound {
			return err
		}
		if t.life.Gone() || sleep.For(ctx, 25*time.Millisecond) != nil {
			return fmt.Errorf("the session is %s, its sandbox %s, %s is due: %w", shown.Phase, shown.Sandbox.Phase, shown.Workspace.Due, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// delete removes a session and returns once it is gone from the server.
func (t *trial) delete(ctx context.Context, s *session) error {
	const patience = 2 // times what it may take, to tell slow from never
	ctx, cancel := context.WithTimeout(ctx, patience*t.of(deleteWithin))
	defer cancel()
	err := t.ask(ctx, http.MethodDelete, s.path(""), nil, nil)
	for {
		no, is := errors.AsType[*refusal](err)
		if is && no.status == http.StatusNotFound {
			return nil
		}
		if t.life.Gone() || sleep.For(ctx, 10*time.Millisecond) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err != nil { // it was not taken
			err = t.ask(ctx, http.MethodDelete, s.path(""), nil, nil)
			continue
		}
		if _, err = t.show(ctx, s); err != nil {
			if no, is := errors.AsType[*refusal](err); !is || no.status != http.StatusNotFound {
				err = nil // look again
			}
		}
	}
}

// read reads everything that is shown of a session: its events through both doors, and
// the server's lists.
func (t *trial) read(ctx context.Context, s *session) {
	const within = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, t.of(within))
	defer cancel()
	for after, more := uint64(0), true; more; {
		var page struct {
			Events []json.RawMessage `json:"events"`
			Next   uint64            `json:"next"`
			More   bool              `json:"more"`
		}
		if err := t.ask(ctx, http.MethodGet, s.path(fmt.Sprintf("/events?all=true&limit=1000&after=%d", after)), nil, &page); err != nil {
			t.note("events: %v", err)
			break
		}
		for _, e := range page.Events {
			var head struct {
				Type string `json:"type"`
			}
			_ = json.Unmarshal(e, &head)
			t.see("event "+head.Type, e)
		}
		more = page.More && page.Next > after
		after = page.Next
	}
	for _, path := range []string{"/v1/sessions/" + string(s.id) + "/events?limit=100", s.path(""), s.path("/ops?limit=1000"), s.path("/queue")} {
		if err := t.ask(ctx, http.MethodGet, path, nil, nil); err != nil {
			t.note("%s: %v", path, err)
		}
	}
	t.exports(ctx, s)
}

// exports reads the newest snapshot of a session as an image.
func (t *trial) exports(ctx context.Context, s *session) {
	var list struct {
		Snapshots []struct {
			ID dormouse.SnapshotID `json:"snapshot"`
		} `json:"snapshots"`
	}
	if err := t.ask(ctx, http.MethodGet, s.path("/snapshots?limit=10"), nil, &list); err != nil || len(list.Snapshots) == 0 {
		return
	}
	if err := t.ask(ctx, http.MethodGet, s.path("/snapshots/"+url.PathEscape(string(list.Snapshots[0].ID))+"/export"), nil, nil); err != nil {
		t.note("export: %v", err)
	}
}
