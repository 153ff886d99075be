package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/law"
)

// execer runs commands in sandboxes.
type execer interface {
	Exec(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.ExecAsk, out func(text string)) (dormouse.ExecAnswer, error)
}

type execRequest struct {
	Command string `json:"command"`
	Timeout string `json:"timeout"`
	Shell   string `json:"shell"`
	ID      string `json:"id"`
}

func execOf(a dormouse.ExecAnswer) Exec {
	e := Exec{
		ID: a.Exec, Exit: a.Exit, Output: string(a.Output), Omitted: a.Omitted, Error: a.Error,
		TimedOut: a.TimedOut, Killed: a.Killed, Unknown: a.Unknown,
	}
	if !utf8.Valid(a.Output) {
		e.Output, e.Raw = dormouse.CleanText(e.Output), a.Output
	}
	return e
}

// maxOutputPart is how much of a command's output is encoded at a time.
const maxOutputPart = 32 << 10

// encode writes e as json.Marshal would, but never holds all of it in memory: control
// characters are six times as long when they are escaped.
func encode(e Exec, put func([]byte)) {
	rest := dormouse.Encode(struct {
		Exec
		Output *string `json:"output,omitempty"` // in place of those of e
		Raw    *string `json:"raw,omitempty"`
	}{Exec: e})
	put(bytes.TrimSuffix(rest, []byte("}")))
	put([]byte(`,"output":"`))
	for text := e.Output; text != ""; {
		n := min(len(text), maxOutputPart)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		piece := dormouse.Encode(text[:n])
		put(piece[1 : len(piece)-1])
		text = text[n:]
	}
	if e.Raw != nil {
		put([]byte(`","raw":"`))
		const whole = maxOutputPart / 3 * 3 // no padding before the end
		for b := range slices.Chunk(e.Raw, whole) {
			put(base64.StdEncoding.AppendEncode(nil, b))
		}
	}
	put([]byte(`"}`))
}

// ask is what is asked of the session.
func (req execRequest) ask(id dormouse.SessionID) (dormouse.ExecAsk, error) {
	a := dormouse.ExecAsk{Command: req.Command, Shell: req.Shell}
	if req.ID != "" {
		a.Exec = dormouse.EventID(named(dormouse.EventPrefix, id, req.ID))
	}
	if err := checkName("id", req.ID); err != nil {
		return a, err
	}
	if err := checkName("shell", req.Shell); err != nil {
		return a, err
	}
	if req.Timeout != "" {
		d, err := time.ParseDuration(req.Timeout)
		if err != nil || d <= 0 {
			return a, fmt.Errorf("timeout %q is no duration such as 30s: %w", shorten(req.Timeout), dormouse.ErrInvalid)
		}
		a.TimeoutMS = max(d.Milliseconds(), 1)
	}
	return a, a.Validate()
}

// exec runs a command in the sandbox, which it wakes, and answers when it has
// ended. With stream=true what it prints comes line by line before that.
func (s *Server) exec(c call) error {
	q, err := c.query("stream")
	if err != nil {
		return err
	}
	var req execRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	looking, cancel := c.Context()
	defer cancel()
	id, err := s.own(looking, c)
	if err != nil {
		return err
	}
	ask, err := req.ask(id)
	if err != nil {
		return err
	}
	ctx := c.R.Context() // without an end: a command may take hours
	out := door.NewStream(c.W, s.WriteTimeout)
	if q.Get("stream") != "true" {
		a, err := s.Sessions.Exec(ctx, id, c.Who.Actor, ask, nil)
		if err != nil {
			return err
		}
		out.ArmDeadline()
		if len(a.Output) <= maxOutputPart {
			return c.Answer(http.StatusOK, execOf(a))
		}
		c.W.Header().Set("Content-Type", "application/json")
		c.Status = http.StatusOK
		encode(execOf(a), out.Put)
		out.Flush()
		return nil
	}
	return s.streamExec(ctx, c, out, id, ask)
}

// streamExec answers in lines of JSON: what is printed, and last how it ended.
func (s *Server) streamExec(ctx context.Context, c call, out *door.Stream, id dormouse.SessionID, ask dormouse.ExecAsk) error {
	begun := false
	begin := func() {
		if begun {
			return
		}
		begun = true
		c.W.Header().Set("Content-Type", "application/x-ndjson")
		c.W.Header().Set("X-Accel-Buffering", "no")
		c.Status, c.Stream = http.StatusOK, true
		c.W.WriteHeader(http.StatusOK)
	}
	line := func(v any) {
		begin()
		b, err := json.Marshal(v)
		if err == nil {
			out.Send(string(b) + "\n")
		}
	}
	a, err := s.Sessions.Exec(ctx, id, c.Who.Actor, ask, func(text string) {
		line(struct {
			Text string `json:"text"`
		}{text})
	})
	switch {
	case err == nil:
		begin()
		out.Put([]byte(`{"exec":`))
		encode(execOf(a), out.Put)
		out.Send("}\n")
	case !begun:
		return err
	case ctx.Err() == nil:
		// It runs on; a request with the same id returns how it ended.
		reply := door.ReplyTo(err)
		line(struct {
			Error string `json:"error"`
			Type  string `json:"type"`
		}{"cut off: " + reply.Message, reply.Type})
		if reply.Status == http.StatusInternalServerError {
			return err // for the log: the client was told that it is there
		}
	}
	return nil
}

// endExec ends a command.
func (s *Server) endExec(c call) error {
	exec := dormouse.EventID(c.R.PathValue("exec"))
	if err := exec.Validate(); err != nil {
		return fmt.Errorf("command %q: %w", shorten(string(exec)), dormouse.ErrNotFound)
	}
	return s.command(c, law.EndExec{Exec: exec})
}
