package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/visit"
)

// terminal attaches a WebSocket to a terminal: the one of an id, or a new one.
func (s *Server) terminal(c call) error {
	q, err := c.query("id", "rows", "cols", "command+", "wake")
	if err != nil {
		return err
	}
	want, err := terminalOf(q)
	if err != nil {
		return err
	}
	wake, err := wakeParam(q)
	if err != nil {
		return err
	}
	if err := wantsSocket(c.R); err != nil {
		return err
	}
	v, err := s.visit(c, wake)
	if err != nil {
		return err
	}
	defer v.Close()
	conn, err := openStream(c, v, visit.Stream{Terminal: &want})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	c.W.Header().Set(TerminalID, want.ID)
	k, err := s.accept(c, conn)
	if err != nil {
		return err
	}
	k.text = func(b []byte) error { return resize(v, want.ID, b) }
	k.carry(v.Life(), s.KeepAlive, func(cause error) (websocket.StatusCode, string) { return terminalEnd(v, want.ID, cause) })
	return nil
}

func terminalOf(q url.Values) (t visit.Terminal, err error) {
	t.ID, t.Command = q.Get("id"), q["command"]
	if t.ID == "" {
		t.ID = session.NewID("term_")
	}
	if t.Rows, err = side(q, "rows"); err != nil {
		return t, err
	}
	if t.Cols, err = side(q, "cols"); err != nil {
		return t, err
	}
	return t, visit.Stream{Terminal: &t}.Validate()
}

// side reads one side of a terminal; zero keeps the size it has, or is the default.
func side(q url.Values, name string) (uint16, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := strconv.ParseUint(q.Get(name), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("parameter %q must be a number up to 65535: %w", name, dormouse.ErrInvalid)
	}
	return uint16(n), nil
}

// terminalMessage is a text frame that a client sends to a terminal.
type terminalMessage struct {
	Resize *struct {
		Rows uint16 `json:"rows"`
		Cols uint16 `json:"cols"`
	} `json:"resize"`
}

func decodeResize(b []byte) (rows, cols uint16, err error) {
	var say terminalMessage
	if err := decodeJSON(b, &say); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errFrame, err)
	}
	if say.Resize == nil || say.Resize.Rows == 0 || say.Resize.Cols == 0 {
		return 0, 0, fmt.Errorf(`%w: a text says {"resize":{"rows":24,"cols":80}}`, errFrame)
	}
	return say.Resize.Rows, say.Resize.Cols, nil
}

// resize carries out a text frame. A terminal that has ended meanwhile is no error: its
// end closes the WebSocket.
func resize(v *visit.Visit, id string, b []byte) error {
	rows, cols, err := decodeResize(b)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(v.Life(), askWithin, errNoAnswer)
	defer cancel()
	if err := v.Resize(ctx, id, rows, cols); err != nil && !errors.Is(err, dormouse.ErrNotFound) {
		return err
	}
	return nil
}

// terminalEnd is why the WebSocket of a terminal is closed.
func terminalEnd(v *visit.Visit, id string, cause error) (websocket.StatusCode, string) {
	if errors.Is(cause, errFrame) {
		return closeReason(cause)
	}
	ctx, cancel := context.WithTimeoutCause(v.Life(), askWithin, errNoAnswer)
	defer cancel()
	all, err := v.Terminals(ctx)
	if err != nil {
		return closeReason(err)
	}
	for _, t := range all {
		if t.ID == id && t.Exit != nil {
			b, err := json.Marshal(client.TerminalEnd{Exit: *t.Exit})
			if err != nil {
				return closeReason(err)
			}
			return websocket.StatusNormalClosure, string(b)
		}
	}
	if errors.Is(cause, io.EOF) {
		return websocket.StatusTryAgainLater, "this view of the terminal was cut off; the terminal lives on"
	}
	return closeReason(cause)
}

func (s *Server) terminals(c call) error {
	return s.askSandbox(c, func(ctx context.Context, v *visit.Visit) error {
		all, err := v.Terminals(ctx)
		if err != nil {
			return err
		}
		answer := Terminals{Terminals: make([]client.TerminalReport, len(all))}
		for i, t := range all {
			answer.Terminals[i] = client.TerminalReport(t)
		}
		return c.Answer(http.StatusOK, answer)
	})
}

func (s *Server) endTerminal(c call) error {
	return s.askSandbox(c, func(ctx context.Context, v *visit.Visit) error {
		want := visit.Terminal{ID: c.R.PathValue("terminal")}
		if err := (visit.Stream{Terminal: &want}).Validate(); err != nil {
			return err
		}
		if err := v.EndTerminal(ctx, want.ID); err != nil {
			return err
		}
		c.NoContent()
		return nil
	})
}
