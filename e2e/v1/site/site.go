// Package site is a built server with its scripted model, behind a proxy that
// checks all traffic against the official description. At the end, the log of
// every session and all that clients followed are checked against the order that
// the API promises.
package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle/order"
	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/e2e/v1/stage"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Site is a server and all around it.
type Site struct {
	*rig.Keeper
	Models *rig.Models
	Proxy  *schema.Proxy
	Report *schema.Report

	dir  string
	http *http.Client

	mu      sync.Mutex
	streams []schema.Stream // guarded by mu
}

// Options say what is different from an ordinary server.
type Options struct {
	rig.Binary
	// Sandbox is the kind of sandboxes: what Sandboxes says, if empty.
	Sandbox string
	Store   rig.Store
	// Arms are where its lives are told to die.
	Arms []rig.Arm
	// Change changes the server before it starts.
	Change func(*rig.Server)
}

// Sandboxes is the kind of sandboxes that this user can have.
func Sandboxes() string {
	if os.Getuid() == 0 {
		return rig.GVisor
	}
	return "local"
}

// Open starts a server. It ends with Close.
func Open(ctx context.Context, o Options) (_ *Site, err error) {
	spec, err := schema.Load()
	if err != nil {
		return nil, err
	}
	s := &Site{Report: schema.NewReport()}
	var undo []func()
	defer func() {
		for i := range undo {
			undo[len(undo)-1-i]()
		}
	}()
	if s.dir, err = rig.TempDir("dormouse-v1-"); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = os.RemoveAll(s.dir) })
	if s.Models, err = rig.NewModels(); err != nil {
		return nil, err
	}
	undo = append(undo, s.Models.Close)
	server := &rig.Server{
		Binary: o.Binary, Data: filepath.Join(s.dir, "data"), Store: o.Store, Sandbox: o.Sandbox, Model: s.Models.URL(), Log: filepath.Join(s.dir, "log"),
		// Agents name real models, and the scripted one answers.
		Flags: []string{"--anthropic-url", s.Models.URL()}, Env: []string{"ANTHROPIC_API_KEY=scripted"},
	}
	if server.Sandbox == "" {
		server.Sandbox = Sandboxes()
	}
	if o.Change != nil {
		o.Change(server)
	}
	s.Keeper = rig.Keep(ctx, server, o.Arms)
	if s.Proxy, err = schema.NewProxy(spec, s.Report, s.listens); err != nil {
		return nil, err
	}
	undo = append(undo, s.Proxy.Close)
	s.Proxy.Stream = s.streamed
	s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	s.Run()
	undo = append(undo, s.Keeper.Close)
	if _, err := s.Live(ctx); err != nil {
		return nil, err
	}
	undo = nil
	return s, nil
}

// listens is where the server listens now.
func (s *Site) listens(ctx context.Context) (string, error) {
	l, err := s.Live(ctx)
	if err != nil {
		return "", err
	}
	return l.Addr(), nil
}

// Close ends everything.
func (s *Site) Close() error {
	s.Proxy.Close()
	s.http.CloseIdleConnections()
	s.Keeper.Close()
	s.Models.Close()
	err := s.Clear()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Stage is where a program of that name plays.
func (s *Site) Stage(name string) stage.Stage {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return stage.Stage{URL: s.Proxy.URL(), Key: s.Token(), Name: name}
}

// streamed stores what a client followed.
func (s *Site) streamed(st schema.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, st)
}

// Refusal is an answer that says no.
type Refusal struct {
	Status  int
	Header  http.Header
	Type    string
	Message string
	Body    []byte
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Type, r.Message) }

// Do asks for something and reads the answer, through the proxy. body may be nil,
// bytes as they are, or a value.
func (s *Site) Do(ctx context.Context, method, path string, body, into any) error {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = strings.NewReader(string(b))
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = strings.NewReader(string(text))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Proxy.URL()+path, r)
	if err != nil {
		return err
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return s.Send(req, into)
}

// Send sends a request as it is. It adds the key unless the request has another.
func (s *Site) Send(req *http.Request, into any) error {
	if req.Header.Get("Authorization") == "" && req.Header.Get("X-Api-Key") == "" {
		req.Header.Set("X-Api-Key", s.Token())
	}
	res, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", rig.ErrCut, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", rig.ErrCut, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		var e struct {
			Error struct{ Type, Message string } `json:"error"`
		}
		_ = json.Unmarshal(b, &e) // what is not JSON has no type; the proxy tells
		return &Refusal{res.StatusCode, res.Header, e.Error.Type, e.Error.Message, b}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", req.URL.Path, err)
	}
	return nil
}

// page is one page of a list.
type page struct {
	Data     []json.RawMessage `json:"data"`
	NextPage *string           `json:"next_page"`
}

// All reads a list to its end.
func (s *Site) All(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	query = own(query)
	var all []json.RawMessage
	for {
		var p page
		if err := s.Do(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &p); err != nil {
			return nil, err
		}
		all = append(all, p.Data...)
		if p.NextPage == nil || *p.NextPage == "" {
			return all, nil
		}
		query.Set("page", *p.NextPage)
	}
}

// own is a copy of a query.
func own(q url.Values) url.Values {
	mine := url.Values{}
	for k, v := range q {
		mine[k] = slices.Clone(v)
	}
	return mine
}

// Log is what a session's history lists.
func (s *Site) Log(ctx context.Context, session string) ([]json.RawMessage, error) {
	return s.All(ctx, "/v1/sessions/"+session+"/events", url.Values{"order": {"asc"}})
}

// Sessions lists the ids of all sessions.
func (s *Site) Sessions(ctx context.Context) ([]string, error) {
	all, err := s.All(ctx, "/v1/sessions", url.Values{"include_archived": {"true"}, "limit": {"100"}})
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(all))
	for _, raw := range all {
		var session struct{ ID string }
		if err := json.Unmarshal(raw, &session); err != nil {
			return nil, err
		}
		ids = append(ids, session.ID)
	}
	return ids, nil
}

// Judge holds all that was seen against what is promised. It returns what is
// wrong, one line each, and how many logs and streams it looked at.
func (s *Site) Judge(ctx context.Context) (wrong []string, looked int, err error) {
	ids, err := s.Sessions(ctx)
	if err != nil {
		return nil, 0, err
	}
	logs := make(map[string][]json.RawMessage)
	for _, id := range ids {
		log, err := s.Log(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		logs[id] = log
		looked++
		if found := order.Log(log); len(found) > 0 {
			wrong = append(wrong, fmt.Sprintf("the log of %s:\n%s", id, order.Format(found, log)))
		}
	}
	s.mu.Lock()
	streams := append([]schema.Stream(nil), s.streams...)
	s.mu.Unlock()
	for _, st := range streams {
		looked++
		if found := order.Stream(st.Events, st.Previews); len(found) > 0 {
			wrong = append(wrong, fmt.Sprintf("a stream of %s:\n%s", st.Path, order.Format(found, st.Events)))
		}
		id := strings.Split(st.Path, "/")[3]
		if log := logs[id]; log != nil && strings.HasSuffix(st.Path, "/events/stream") {
			if found := order.Within(st.Events, log); len(found) > 0 {
				wrong = append(wrong, fmt.Sprintf("a stream of %s beside its log:\n%s", st.Path, order.Format(found, st.Events)))
			}
		}
	}
	return wrong, looked, nil
}

// Rest waits until a session has nothing to do.
func (s *Site) Rest(ctx context.Context, session string) error {
	for {
		var now struct{ Status string }
		err := s.Do(ctx, http.MethodGet, "/v1/sessions/"+session, nil, &now)
		if err == nil && now.Status != "running" && now.Status != "rescheduling" {
			return nil
		}
		if err != nil && !errors.Is(err, rig.ErrCut) {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%s is %s: %w", session, now.Status, err)
		}
	}
}
