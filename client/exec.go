package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// ExecOptions describe a command.
type ExecOptions struct {
	// Command is the shell command.
	Command string
	// Timeout is how long it may take; 0 is no limit.
	Timeout time.Duration
	// Shell is the name of a shell that is kept for later commands. If it is empty, the
	// command gets a shell of its own.
	Shell string
	// ID is the client's own and makes the request idempotent.
	ID string
}

// MarshalJSON writes a request.
func (o ExecOptions) MarshalJSON() ([]byte, error) {
	var timeout string
	if o.Timeout > 0 {
		timeout = o.Timeout.String()
	}
	return json.Marshal(struct {
		Command string `json:"command"`
		Timeout string `json:"timeout,omitempty"`
		Shell   string `json:"shell,omitempty"`
		ID      string `json:"id,omitempty"`
	}{o.Command, timeout, o.Shell, o.ID})
}

// Exec is the result of a command in the sandbox.
type Exec struct {
	ID   dormouse.EventID `json:"id"`
	Exit int              `json:"exit"`
	// Output is what it printed; Raw is the same as bytes, if it is not UTF-8.
	Output   string `json:"output"`
	Raw      []byte `json:"raw,omitempty"`
	Omitted  int64  `json:"omitted,omitempty"`
	Error    string `json:"error,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Killed   bool   `json:"killed,omitempty"`
	// Unknown says that it may or may not have run. It is never run again.
	Unknown bool `json:"unknown,omitempty"`
}

// Exec wakes a session's sandbox, runs a command in it and returns when that has ended. What
// the command prints is written to live meanwhile, unless that is nil. The command survives
// a restart of the server: another call with the same id returns its result.
func (c *Client) Exec(ctx context.Context, id dormouse.SessionID, o ExecOptions, live io.Writer) (Exec, error) {
	res, err := c.Do(ctx, http.MethodPost, of(id, "execs")+"?stream=true", o)
	if err != nil {
		return Exec{}, err
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	var seen strings.Builder
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			return Exec{}, fmt.Errorf("%w: the answer was cut off; the command may still run", err)
		}
		var line struct {
			Text  string `json:"text"`
			Exec  *Exec  `json:"exec"`
			Error string `json:"error"`
			Code  string `json:"type"` // of the error
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			return Exec{}, fmt.Errorf("read answer: %w", err)
		}
		text := line.Text
		if line.Exec != nil { // write the rest of the output, which no line of text had
			if left, ok := strings.CutPrefix(line.Exec.Output, seen.String()); ok && line.Exec.Omitted == 0 {
				text = left
			}
		}
		if live != nil {
			seen.WriteString(text)
			if _, err := io.WriteString(live, text); err != nil {
				return Exec{}, err
			}
		}
		switch {
		case line.Error != "":
			return Exec{}, &StreamError{Code: line.Code, Message: line.Error}
		case line.Exec != nil:
			return *line.Exec, nil
		}
	}
}

// EndExec ends a command.
func (c *Client) EndExec(ctx context.Context, id dormouse.SessionID, exec dormouse.EventID) (row Row, err error) {
	return row, c.Call(ctx, http.MethodDelete, of(id, "execs", string(exec)), nil, &row)
}

// Processes is the processes of a session's sandbox.
type Processes struct {
	Session dormouse.SessionID `json:"session"`
	Phase   dormouse.Phase     `json:"phase"`
	Sandbox Sandbox            `json:"sandbox"`
	// IdleSince is when the session became idle; zero while it is not.
	IdleSince time.Time `json:"idle_since,omitzero"`
	// Usage is nil if there is no sandbox.
	Usage *Used `json:"usage"`
}

// Used is the resource usage of a sandbox.
type Used struct {
	Processes  int     `json:"processes"`
	Memory     int64   `json:"memory_bytes"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Ops        int     `json:"ops"`
	Tasks      int     `json:"tasks"`
	Terminals  int     `json:"terminals"`
	// Active is the time of the last activity of an op, a terminal or a port, by the
	// clock of the sandbox.
	Active time.Time `json:"active,omitzero"`
}

// Processes lists what runs in a session's sandbox. It does not wake it.
func (c *Client) Processes(ctx context.Context, id dormouse.SessionID) (Processes, error) {
	return get[Processes](ctx, c, of(id, "processes"), nil)
}
