package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// use is a grant that a request makes use of.
type use struct {
	grant  *Grant
	header bool // its placeholder is in the header
	body   bool // its placeholder is in the body, or may be
}

// attach puts on a request what the session has been granted for it, and says in the audit
// why what was asked for is not among that. Secrets are revealed once nothing is left that
// could refuse the request but the journal.
func (e *exchange) attach(r *http.Request) ([]use, error) {
	uses := e.plan(r)
	body, err := e.load(r, uses)
	if err != nil {
		return nil, err
	}
	uses = slices.DeleteFunc(uses, func(u use) bool { return !u.grant.Bearer && !u.header && !u.body })
	values, err := e.reveal(r.Context(), uses)
	if err != nil {
		return nil, err
	}
	var inHeader, within []swap
	for i, u := range uses {
		if u.header {
			inHeader = append(inHeader, swap{u.grant.Placeholder, values[i]})
		}
		if u.body {
			within = append(within, swap{u.grant.Placeholder, inBody(r.Header.Get("Content-Type"), values[i])})
		}
	}
	swapHeader(r.Header, inHeader)
	for i, u := range uses {
		if u.grant.Bearer {
			r.Header["Authorization"] = []string{"Bearer " + values[i]}
		}
	}
	return uses, e.swapBody(r, body, within)
}

// reveal fetches the secrets of what is used. From here on what they are in is watched,
// and what comes back is searched.
func (e *exchange) reveal(ctx context.Context, uses []use) ([]string, error) {
	var values []string
	for _, u := range uses {
		select {
		case <-u.grant.Revoked:
			return nil, errRevoked
		default:
		}
		e.watch(ctx, u.grant)
		value, err := u.grant.reveal(ctx)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		e.rec.used(u.grant)
	}
	if len(values) > 0 {
		e.redactor = e.w.redactors.of(values)
	}
	return values, nil
}

// swapBody swaps placeholders in the body, which is there already if its length is known.
func (e *exchange) swapBody(r *http.Request, body []byte, swaps []swap) error {
	if body == nil && len(swaps) == 0 {
		return nil
	}
	if len(swaps) > 0 { // what is said of the body is no longer true
		for _, name := range []string{"Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			r.Header.Del(name)
		}
	}
	if body == nil {
		r.Body = &replaced{newSwapper(r.Body, swaps), r.Body.Close}
		return nil
	}
	if len(swaps) > 0 {
		var err error
		if body, err = io.ReadAll(newSwapper(bytes.NewReader(body), swaps)); err != nil {
			return err
		}
	}
	unload := e.unload
	r.ContentLength = int64(len(body))
	r.Body = &replaced{bytes.NewReader(body), func() error {
		unload()
		return nil
	}}
	return nil
}

// replaced is a body in the place of another.
type replaced struct {
	io.Reader
	close func() error
}

func (r *replaced) Close() error { return r.close() }

// plan is what the request may make use of, as far as its header says.
func (e *exchange) plan(r *http.Request) []use {
	var uses []use
	bearer := false
	for i := range e.granted {
		g := &e.granted[i]
		asked := holds(r.Header, g.Placeholder)
		switch why := g.refuses(r.Method, r.URL.Path); {
		case !g.covers(e.rec.to):
			if asked {
				e.rec.note(g, "this host is not in its grant")
			}
		case why != "":
			if asked || g.Bearer {
				e.rec.note(g, why)
			}
		case g.Bearer:
			if !bearer {
				uses = append(uses, use{grant: g})
			}
			bearer = true
		case g.Placeholder == "":
		default:
			uses = append(uses, use{grant: g, header: asked && g.Header, body: g.Body && e.searchable(r, g)})
			if asked && !g.Header {
				e.rec.note(g, "it is not for headers")
			}
			if inURL(r.URL, g.Placeholder) {
				e.rec.note(g, "it is not for URLs")
			}
		}
	}
	return uses
}

// searchable reports whether the body of a request is looked through for a placeholder.
func (e *exchange) searchable(r *http.Request, g *Grant) bool {
	coding := r.Header.Get("Content-Encoding")
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return false
	case coding != "" && !strings.EqualFold(coding, "identity"):
		e.rec.note(g, "the body is compressed")
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		e.rec.note(g, "the body has messages whose lengths would be wrong")
	case r.ContentLength > maxSwapped:
		e.rec.note(g, fmt.Sprintf("the body is larger than %d MiB", maxSwapped>>20))
	default:
		return true
	}
	return false
}

// load reads a body that is to be looked through and whose length is known, and leaves only
// those uses whose placeholder is there. It then has a place in swaps until unload. One
// whose length is not known is looked through as it goes: whatever may be in it is used.
func (e *exchange) load(r *http.Request, uses []use) ([]byte, error) {
	if r.ContentLength <= 0 || !slices.ContainsFunc(uses, func(u use) bool { return u.body }) {
		return nil, nil
	}
	select {
	case e.w.swaps <- struct{}{}:
		e.unload = sync.OnceFunc(func() { <-e.w.swaps })
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	for i := range uses {
		uses[i].body = uses[i].body && bytes.Contains(body, []byte(uses[i].grant.Placeholder))
	}
	return body, nil
}
