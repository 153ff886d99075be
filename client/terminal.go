package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/coder/websocket"

	"github.com/dormouse-run/dormouse"
)

// TerminalID is the header that names the terminal a WebSocket shows.
const TerminalID = "Terminal-Id"

// TerminalEnd is the reason that a WebSocket is closed with once the command of
// its terminal has ended.
type TerminalEnd struct {
	Exit int `json:"exit"`
}

// TerminalOptions say which terminal is opened.
type TerminalOptions struct {
	// ID is its name: if a terminal of this name lives, the view attaches to it. Without a
	// name the terminal is new.
	ID string
	// Rows and Cols are its size; 0 is as it is, or the usual one.
	Rows, Cols int
	// Command is what runs in it; a login shell if it is empty.
	Command []string
}

// Terminal is a view of a terminal in a sandbox. Reading it is what it prints, writing to it
// is typing. It reads io.EOF once its command has ended, and *Closed if the server ended
// the view; then, or if the connection is lost, the terminal may live on.
type Terminal struct {
	*socket
	// ID is what it is attached to by.
	ID string
	// Exit is how its command ended, once io.EOF was read.
	Exit int
}

// OpenTerminal opens a terminal in a session's sandbox, which it wakes. The view lasts as
// long as ctx.
func (c *Client) OpenTerminal(ctx context.Context, id dormouse.SessionID, o TerminalOptions) (*Terminal, error) {
	q := query("id", o.ID, "rows", number(o.Rows), "cols", number(o.Cols))
	if len(o.Command) > 0 {
		q["command"] = o.Command
	}
	s, err := c.dial(ctx, of(id, "terminal")+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	return &Terminal{socket: s, ID: s.header.Get(TerminalID)}, nil
}

// Read reads what the terminal prints.
func (t *Terminal) Read(b []byte) (int, error) {
	n, err := t.socket.Read(b)
	if errors.Is(err, io.EOF) {
		var end TerminalEnd
		if json.Unmarshal([]byte(t.reason), &end) != nil {
			return n, &Closed{t.reason}
		}
		t.Exit = end.Exit
	}
	return n, err
}

// Resize sets the size of the terminal.
func (t *Terminal) Resize(rows, cols int) error {
	return t.write(websocket.MessageText, fmt.Appendf(nil, `{"resize":{"rows":%d,"cols":%d}}`, rows, cols))
}

// TerminalReport is a terminal as its sandbox knows it.
type TerminalReport struct {
	ID      string   `json:"id"`
	Command []string `json:"command"`
	PID     int      `json:"pid"`
	Rows    uint16   `json:"rows"`
	Cols    uint16   `json:"cols"`
	// Attached counts the views that are open.
	Attached int `json:"attached"`
	// Exit is how its command ended, 128+n after signal n; nil while it runs. It
	// is remembered for a minute.
	Exit *int `json:"exit,omitempty"`
}

// Terminals is a list of them.
type Terminals struct {
	Terminals []TerminalReport `json:"terminals"`
}

// Terminals lists the terminals of a session's sandbox. It does not wake it.
func (c *Client) Terminals(ctx context.Context, id dormouse.SessionID) ([]TerminalReport, error) {
	a, err := get[Terminals](ctx, c, of(id, "terminals"), nil)
	return a.Terminals, err
}

// EndTerminal ends a terminal and what runs in it.
func (c *Client) EndTerminal(ctx context.Context, id dormouse.SessionID, terminal string) error {
	return c.Call(ctx, http.MethodDelete, of(id, "terminals", terminal), nil, nil)
}

// Port is a TCP port that something in a sandbox listens on.
type Port struct {
	Port uint16 `json:"port"`
	// Address is what it is bound to, such as 127.0.0.1 or ::.
	Address string `json:"address"`
	// PID and Command say who listens, where that can be seen.
	PID     int    `json:"pid,omitempty"`
	Command string `json:"command,omitempty"`
}

// Ports is what listens in a sandbox.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Ports lists what listens in a session's sandbox, lowest port first. It wakes nothing.
func (c *Client) Ports(ctx context.Context, id dormouse.SessionID) ([]Port, error) {
	a, err := get[Ports](ctx, c, of(id, "ports"), nil)
	return a.Ports, err
}

// PortConn is a connection to a port in a sandbox. It reads io.EOF when the far end has
// closed its side for writing. Reading must go on then: only after a second io.EOF, or
// another error, can nothing be written any more.
type PortConn struct{ *socket }

// DialPort connects to a port in a session's sandbox, which it wakes. The connection lasts
// as long as ctx.
func (c *Client) DialPort(ctx context.Context, id dormouse.SessionID, port uint16) (*PortConn, error) {
	s, err := c.dial(ctx, of(id, "ports", strconv.Itoa(int(port)), "stream"))
	if err != nil {
		return nil, err
	}
	s.halves = true
	return &PortConn{s}, nil
}

// CloseWrite closes this side for writing.
func (p *PortConn) CloseWrite() error { return p.write(websocket.MessageBinary, nil) }
