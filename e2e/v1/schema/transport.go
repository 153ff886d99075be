package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// Transport passes requests on and holds every answer against the description.
// What it passes on is what came.
type Transport struct {
	Spec   *Spec
	Report *Report
	// Base does the asking; http.DefaultTransport if nil.
	Base http.RoundTripper
	// Stream, if not nil, is told every stream once it has ended.
	Stream func(Stream)
}

// Stream is one connection that followed a session.
type Stream struct {
	// Path is the path that was asked for, Previews the types whose previews were.
	Path     string
	Previews []string
	// Events are what it carried, as they came.
	Events []json.RawMessage
}

// maxReply bounds what is read of an answer that is not a stream.
const maxReply = 64 << 20

// RoundTrip asks, and looks at the answer.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	var asked []byte
	if r.Body != nil && r.Body != http.NoBody && small(r) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		asked = b
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	res, err := base.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return res, err
	}
	t.look(r, asked, res)
	return res, nil
}

// small reports whether the body of a request is worth reading: what is refused
// for its size is not.
func small(r *http.Request) bool {
	const most = 1 << 20
	return r.ContentLength >= 0 && r.ContentLength <= most
}

// look holds an answer against the description and puts its body back.
func (t *Transport) look(r *http.Request, asked []byte, res *http.Response) {
	op := t.Spec.Find(r)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // what is wrong with it is said below
	if op != nil && op.Streams() && kind == "text/event-stream" {
		t.Report.reply(op.String(), res.StatusCode)
		t.stream(op, r, res)
		return
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	rest := res.Body
	if err != nil { // the server died while it answered
		t.Report.with(func(c *counts) { c.Cut++ })
		res.Body = restored{io.MultiReader(bytes.NewReader(body), failing{err}), rest}
		return
	}
	res.Body = restored{io.MultiReader(bytes.NewReader(body), rest), rest}
	name := r.Method + " " + r.URL.Path
	if op != nil {
		name = op.String()
		t.Report.reply(name, res.StatusCode)
		err = op.Reply(res.StatusCode, res.Header, body)
	} else {
		if res.StatusCode < http.StatusBadRequest {
			t.Report.Violation("%s answers %d and is not described", name, res.StatusCode)
			return
		}
		err = t.Spec.Failure(res.StatusCode, res.Header, body)
	}
	if err != nil {
		t.Report.Violation("%s %d: %v in %s", name, res.StatusCode, err, clip(body))
	}
	if op == nil || res.StatusCode >= http.StatusBadRequest {
		return
	}
	if asked != nil {
		if err := op.Request(asked); err != nil {
			t.Report.Violation("%s took what is not described: %v in %s", name, err, clip(asked))
		}
	}
	if strings.HasSuffix(op.Path, "/events") {
		t.tally(body, t.Report.event)
		if r.Method == http.MethodPost {
			t.tally(body, t.Report.sent)
		}
	}
}

// tally counts the events that an answer lists.
func (t *Transport) tally(body []byte, count func(string)) {
	var list struct {
		Data []struct {
			Type string `json:"type"`
		} `json:"data"`
	}
	_ = json.Unmarshal(body, &list) // what is not a list was told above
	for _, e := range list.Data {
		count(e.Type)
	}
}

// clip shortens a body for people.
func clip(b []byte) string {
	const most = 600
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}

// restored is a body that was read and is given back.
type restored struct {
	io.Reader
	io.Closer
}

// failing is where a body broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stream looks at each frame as it passes.
func (t *Transport) stream(op *Operation, r *http.Request, res *http.Response) {
	if e := res.Header.Get("Content-Encoding"); e != "" {
		t.Report.Violation("%s is encoded as %s", op, e)
	}
	if res.Header.Get("Request-Id") == "" {
		t.Report.Violation("%s has no request-id", op)
	}
	tap := &tap{t: t, op: op, body: res.Body}
	tap.seen = Stream{Path: r.URL.Path, Previews: r.URL.Query()["event_deltas[]"]}
	tap.frames.See = tap.see
	res.Body = tap
}

// tap passes a stream on to its reader and inspects it on the way.
type tap struct {
	t      *Transport
	op     *Operation
	body   io.ReadCloser
	frames Frames
	seen   Stream
	once   sync.Once
}

func (p *tap) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if _, bad := p.frames.Write(b[:n]); bad != nil {
		p.t.Report.Violation("%s: %v", p.op, bad)
	}
	if errors.Is(err, io.EOF) {
		if bad := p.frames.Rest(); bad != nil {
			p.t.Report.Violation("%s: %v", p.op, bad)
		}
	}
	if err != nil {
		p.end()
	}
	return n, err
}

// Close ends the stream for its reader.
func (p *tap) Close() error {
	p.end()
	return p.body.Close()
}

func (p *tap) end() {
	p.once.Do(func() {
		if p.t.Stream != nil {
			p.t.Stream(p.seen)
		}
	})
}

// see looks at one frame.
func (p *tap) see(f Frame) {
	p.t.Report.with(func(c *counts) { c.Frames++ })
	switch {
	case !f.Named:
		p.t.Report.Violation("%s: a frame without an event line, which no client sees: %s", p.op, clip(f.Data))
	case f.Event == "ping":
		return
	case f.Event == "error":
		if err := p.t.Spec.Named("BetaErrorResponse", f.Data); err != nil {
			p.t.Report.Violation("%s: an error frame: %v in %s", p.op, err, clip(f.Data))
		}
		return
	case f.Event != "message":
		p.t.Report.Violation("%s: a frame is called %q, which old clients drop", p.op, f.Event)
	}
	if f.Lines != 1 {
		p.t.Report.Violation("%s: an event in %d lines: %s", p.op, f.Lines, clip(f.Data))
	}
	if err := p.op.Event(f.Data); err != nil {
		p.t.Report.Violation("%s: %v in %s", p.op, err, clip(f.Data))
	}
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(f.Data, &e) // told above
	p.t.Report.event(e.Type)
	p.seen.Events = append(p.seen.Events, f.Data)
}
