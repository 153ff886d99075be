package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

// maxRequest is what the real provider takes.
const maxRequest = 32 << 20

// Server plays scripts over the Messages API: POST …/v1/messages and GET
// …/v1/models, with the record at GET /_calls.
type Server struct{ stage *stage }

// NewServer returns a server that has been asked nothing yet.
func NewServer(o Options) *Server { return &Server{newStage(o)} }

// Calls returns what has been asked so far.
func (s *Server) Calls() Calls { return s.stage.snapshot() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v1/messages"):
		s.messages(w, r)
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/v1/models"):
		_ = writeJSON(w, http.StatusOK, modelList{Data: []modelEntry{{
			Type: "model", ID: "scripted", DisplayName: "Scripted", CreatedAt: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
		}}})
	case r.Method == http.MethodGet && r.URL.Path == "/_calls":
		_ = writeJSON(w, http.StatusOK, s.Calls())
	default:
		writeFault(w, &fault{status: http.StatusNotFound, err: fmt.Errorf("no route %s %s", r.Method, r.URL.Path)})
	}
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	body, flaw := readRequest(w, r)
	p, end, err := s.stage.begin(r.Context(), r.Header.Get("Idempotency-Key"), body.request(), flaw)
	if f, ok := errors.AsType[*fault](err); ok {
		writeFault(w, f)
		return
	}
	if err == nil {
		err = s.answer(w, r, body, p)
		end(err == nil)
	}
	if err != nil && !errors.Is(err, errEnd) {
		// The only way for a handler to break a connection in the middle.
		panic(http.ErrAbortHandler)
	}
}

func readRequest(w http.ResponseWriter, r *http.Request) (wireRequest, error) {
	var body wireRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&body); err != nil {
		f := &fault{status: http.StatusBadRequest, err: fmt.Errorf("read the request: %w", err)}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			f.status = http.StatusRequestEntityTooLarge
		}
		return wireRequest{}, f
	}
	if r.Header.Get("Anthropic-Version") == "" {
		return body, fmt.Errorf("the anthropic-version header is missing: %w", dormouse.ErrInvalid)
	}
	if body.MaxTokens < 1 {
		return body, fmt.Errorf("max_tokens must be at least 1: %w", dormouse.ErrInvalid)
	}
	return body, nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, body wireRequest, p performance) error {
	if err := p.wait(r.Context()); err != nil {
		return err
	}
	p.delay = 0
	m := newMessage("msg_"+p.name, body.Model, p.reply)
	if body.Stream && p.stream {
		return writeStream(w, r, p, m)
	}
	return writeWhole(w, r, p, m)
}

// writeWhole sends the reply as one JSON document; a cut leaves half of it.
func writeWhole(w http.ResponseWriter, r *http.Request, p performance, m wireMessage) error {
	p.fragments = nil
	if err := p.broken().play(r.Context(), func(model.Delta) error { return nil }); errors.Is(err, errCut) {
		doc := encode(m)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(doc[:len(doc)/2])
		_ = http.NewResponseController(w).Flush()
		return err
	} else if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, m)
}

// writeStream sends the reply as server-sent events.
func writeStream(w http.ResponseWriter, r *http.Request, p performance, m wireMessage) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	out := eventWriter{w: w, flush: http.NewResponseController(w).Flush, spoil: p.spoil, left: r.Context().Done()}
	start := m
	start.Content, start.StopReason = []wirePart{}, nil
	start.Usage = &wireUsage{InputTokens: m.Usage.InputTokens, OutputTokens: 1}
	if err := out.send(wireEvent{Type: "message_start", Message: &start}); err != nil {
		return err
	}
	if err := out.send(wireEvent{Type: "ping"}); err != nil {
		return err
	}
	if p.reply.Thought {
		if err := out.think(); err != nil {
			return err
		}
		out.after = 1
	}
	streamed := -1
	err := p.play(r.Context(), func(d model.Delta) error {
		if streamed != d.Index {
			streamed = d.Index
			if err := out.send(wireEvent{Type: "content_block_start", Index: &d.Index, Block: &wirePart{Type: model.PartText, Text: new(string)}}); err != nil {
				return err
			}
		}
		return out.send(wireEvent{Type: "content_block_delta", Index: &d.Index, Delta: &wireDelta{Type: "text_delta", Text: &d.Text}})
	})
	if err != nil {
		return err
	}
	for i, part := range p.reply.Content {
		if err := out.finishBlock(i, part); err != nil {
			return err
		}
	}
	if err := out.send(wireEvent{
		Type: "message_delta", Delta: &wireDelta{StopReason: m.StopReason, Sequence: json.RawMessage("null")},
		Usage: &wireUsage{OutputTokens: m.Usage.OutputTokens},
	}); err != nil {
		return err
	}
	return out.send(wireEvent{Type: "message_stop"})
}

type eventWriter struct {
	w     http.ResponseWriter
	flush func() error
	spoil spoil
	left  <-chan struct{} // closed when the client is gone
	after int             // how many blocks were sent before those of the reply
}

// think sends a thought, as the first block.
func (e eventWriter) think() error {
	first := 0
	if err := e.send(wireEvent{Type: "content_block_start", Index: &first, Block: &wirePart{Type: partThinking}}); err != nil {
		return err
	}
	return e.send(wireEvent{Type: "content_block_stop", Index: &first})
}

func (e eventWriter) send(v wireEvent) error {
	if v.Index != nil {
		n := *v.Index + e.after
		v.Index = &n
	}
	if e.spoil != "" {
		return e.sendSpoiled(v)
	}
	return e.write(v)
}

func (e eventWriter) write(events ...wireEvent) error {
	for _, v := range events {
		if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", v.Type, encode(v)); err != nil {
			return err
		}
	}
	return e.flush()
}

// finishBlock sends what is left of a block: all of a tool call, in two pieces,
// and the end of a text.
func (e eventWriter) finishBlock(i int, p model.Part) error {
	var events []wireEvent
	if p.Type == model.PartToolUse {
		half := len(p.Input) / 2
		events = append(events, wireEvent{Type: "content_block_start", Index: &i, Block: &wirePart{
			Type: p.Type, ID: p.ID, Name: p.Name, Input: json.RawMessage("{}"),
		}})
		for _, piece := range []string{string(p.Input[:half]), string(p.Input[half:])} {
			events = append(events, wireEvent{Type: "content_block_delta", Index: &i, Delta: &wireDelta{Type: "input_json_delta", PartialJSON: &piece}})
		}
	}
	events = append(events, wireEvent{Type: "content_block_stop", Index: &i})
	for _, v := range events {
		if err := e.send(v); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err := bytes.NewReader(encode(v)).WriteTo(w)
	return err
}

// writeFault answers in the provider's error shape.
func writeFault(w http.ResponseWriter, f *fault) {
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.retryAfter.Seconds()))))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.retryAfter.Milliseconds(), 10))
	}
	_ = writeJSON(w, f.status, wireFailure{Type: "error", Error: wireError{Type: faultType(f.status), Message: f.Error()}})
}

func faultType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case model.StatusOverloaded:
		return "overloaded_error"
	}
	return "api_error"
}
