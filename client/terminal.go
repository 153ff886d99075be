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

// TerminalID is the response header with the id of the terminal.
const TerminalID = "Terminal-Id"

// TerminalEnd is the JSON that is the close reason of the WebSocket when the command of the
// terminal has ended.
type TerminalEnd struct {
	Exit int `json:"exit"`
}

// TerminalOptions describe a terminal.
type TerminalOptions struct {
	// ID is the id to attach to, if there is a terminal with that id, or to give to a new
	// one. If it is empty, the terminal is new and the server chooses an id.
	ID string
	// Rows and Cols are its size; 0 keeps the present size, or the default for a new one.
	Rows, Cols int
	// Command is what runs in it; a login shell if it is empty.
	Command []string
}

// Terminal is a connection to a terminal in a sandbox. Read returns its output, Write sends
// input. Read returns io.EOF once the command has ended, and *Closed if the server closed the
// connection; then, and if the connection is lost, the terminal may still run.
type Terminal struct {
	*socket
	// ID is the id with which another connection can attach to it.
	ID string
	// Exit is the exit code of the command; it is set once Read has returned io.EOF.
	Exit int
}

// OpenTerminal opens a terminal in a session's sandbox, which it wakes. The connection is
// closed when ctx ends.
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

// Read reads the output of the terminal.
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

// TerminalReport is the state of a terminal.
type TerminalReport struct {
	ID      string   `json:"id"`
	Command []string `json:"command"`
	PID     int      `json:"pid"`
	Rows    uint16   `json:"rows"`
	Cols    uint16   `json:"cols"`
	// Attached is the number of open connections.
	Attached int `json:"attached"`
	// Exit is the exit code of its command, 128+n after signal n; nil while it runs. The
	// terminal is listed for a minute after that.
	Exit *int `json:"exit,omitempty"`
}

// Terminals is a list of terminals.
type Terminals struct {
	Terminals []TerminalReport `json:"terminals"`
}

// Terminals lists the terminals of a session's sandbox. It does not wake it.
func (c *Client) Terminals(ctx context.Context, id dormouse.SessionID) ([]TerminalReport, error) {
	a, err := get[Terminals](ctx, c, of(id, "terminals"), nil)
	return a.Terminals, err
}

// EndTerminal ends a terminal and the processes in it.
func (c *Client) EndTerminal(ctx context.Context, id dormouse.SessionID, terminal string) error {
	return c.Call(ctx, http.MethodDelete, of(id, "terminals", terminal), nil, nil)
}

// Port is a TCP port that something in a sandbox listens on.
type Port struct {
	Port uint16 `json:"port"`
	// Address is what it is bound to, such as 127.0.0.1 or ::.
	Address string `json:"address"`
	// PID and Command are the process that listens, if it is known.
	PID     int    `json:"pid,omitempty"`
	Command string `json:"command,omitempty"`
}

// Ports is a list of ports.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Ports lists the ports that are listened on in a session's sandbox, lowest first. It does
// not wake it.
func (c *Client) Ports(ctx context.Context, id dormouse.SessionID) ([]Port, error) {
	a, err := get[Ports](ctx, c, of(id, "ports"), nil)
	return a.Ports, err
}

// PortConn is a connection to a port in a sandbox. Read returns io.EOF when the other end has
// closed its side for writing. Keep reading then: the connection is over only after a second
// io.EOF or another error, and until then Write still works.
type PortConn struct{ *socket }

// DialPort connects to a port in a session's sandbox, which it wakes. The connection is closed
// when ctx ends.
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
