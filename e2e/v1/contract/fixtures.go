package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/e2e/v1/site"
)

// Fixtures stands before a server and gives the SDK's tests what they expect to
// be there: for every id of theirs that a request names it makes a thing over the
// API, new for each request, and puts its id in the place of theirs.
type Fixtures struct {
	site     *site.Site
	made     atomic.Int64
	listener net.Listener
	http     *http.Server
}

// The ids that the tests name.
const (
	theAgent   = "agent_011CZkYpogX7uDKUyvBTophP"
	otherAgent = "agent_011CZkYqphY8vELVzwCUpqiQ"
	theEnv     = "env_011CZkZ9X2dpNyB7HsEFoRfW"
	theSession = "sesn_011CZkZAtmR3yMPDzynEDxu7"
	theThread  = "sthr_011CZkZVWa6oJjw1rgXZpnBt"
	theModel   = "/models/model_id"
)

// NewFixtures starts it. It ends with Close.
func NewFixtures(s *site.Site) (*Fixtures, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(s.Proxy.URL())
	if err != nil {
		return nil, err
	}
	f := &Fixtures{site: s, listener: l}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1}
	f.http = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.replace(r); err != nil {
			http.Error(w, "make a fixture: "+err.Error(), http.StatusBadGateway)
			return
		}
		pass.ServeHTTP(w, r)
	})}
	go func() { _ = f.http.Serve(l) }() // ends with Close
	return f, nil
}

// URL is where the tests find it.
func (f *Fixtures) URL() string { return "http://" + f.listener.Addr().String() }

// Close ends it.
func (f *Fixtures) Close() { _ = f.http.Close() }

// replace puts what is there in the place of what the request names.
func (f *Fixtures) replace(r *http.Request) error {
	r.Header.Del("X-Api-Key")
	r.Header.Set("Authorization", "Bearer "+f.site.Token())
	query := r.URL.Query()
	for _, cursor := range []string{"page", "after_id", "before_id"} {
		if query.Get(cursor) == cursor { // a cursor that was never returned: the first page
			query.Del(cursor)
		}
	}
	var body []byte
	if r.Body != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		body = b
	}
	all := strings.Join([]string{r.URL.Path, query.Encode(), string(body)}, "\n")
	ids, err := f.make(r.Context(), all)
	if err != nil {
		return err
	}
	pairs := make([]string, 0, 2*len(ids))
	for theirs, ours := range ids {
		pairs = append(pairs, theirs, ours)
	}
	swap := strings.NewReplacer(pairs...)
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = swap.Replace(r.URL.Path), "", swap.Replace(query.Encode())
	if body != nil {
		body = []byte(swap.Replace(string(body)))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
	}
	return nil
}

// make makes what a text names, and returns its ids by theirs.
func (f *Fixtures) make(ctx context.Context, text string) (map[string]string, error) {
	ids := make(map[string]string)
	has := func(id string) bool { return strings.Contains(text, id) }
	var errs []error
	set := func(theirs string, id string, err error) string {
		errs = append(errs, err)
		ids[theirs] = id
		return id
	}
	if has(otherAgent) {
		id, err := f.agent(ctx)
		set(otherAgent, id, err)
	}
	if has(theModel) {
		id, err := f.first(ctx, "/v1/models")
		set(theModel, "/models/"+id, err)
	}
	if !has(theAgent) && !has(theEnv) && !has(theSession) {
		return ids, errors.Join(errs...)
	}
	agent, err := f.agent(ctx)
	set(theAgent, agent, err)
	env, err := f.create(ctx, "/v1/environments", map[string]any{"name": fmt.Sprintf("contract-%d", f.made.Add(1))})
	set(theEnv, env, err)
	if has(theSession) {
		made := map[string]any{"agent": agent, "environment_id": env}
		if has(theThread) { // only a session that has worked has other threads
			made["initial_events"] = []any{map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "squeak"}}}}
		}
		session, err := f.create(ctx, "/v1/sessions", made)
		set(theSession, session, err)
		if has(theThread) && err == nil {
			thread, err := f.thread(ctx, session)
			set(theThread, thread, err)
		}
	}
	return ids, errors.Join(errs...)
}

func (f *Fixtures) agent(ctx context.Context) (string, error) {
	return f.create(ctx, "/v1/agents", map[string]any{"name": "contract", "model": "claude-opus-5-5"})
}

// thread is a second one of a session: the primary one cannot be archived alone.
func (f *Fixtures) thread(ctx context.Context, session string) (string, error) {
	if err := f.site.Rest(ctx, session); err != nil {
		return "", err
	}
	client := f.site.Client()
	defer client.Close()
	var opened struct{ ID string }
	_, err := client.Once(ctx, http.MethodPost, "/api/sessions/"+session+"/threads", map[string]any{"id": "second"}, &opened)
	return opened.ID, err
}

func (f *Fixtures) create(ctx context.Context, path string, body any) (string, error) {
	var made struct{ ID string }
	if err := f.site.Do(ctx, http.MethodPost, path, body, &made); err != nil {
		return "", fmt.Errorf("POST %s: %w", path, err)
	}
	return made.ID, nil
}

// first is the id of what a list begins with.
func (f *Fixtures) first(ctx context.Context, path string) (string, error) {
	var list struct {
		Data []struct{ ID string }
	}
	if err := f.site.Do(ctx, http.MethodGet, path, nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%s lists nothing", path)
	}
	return list.Data[0].ID, nil
}
