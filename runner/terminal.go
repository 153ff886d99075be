package runner

import (
	"context"
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse"
)

const (
	// MaxTerminals bounds the running terminals of one sandbox.
	MaxTerminals = 32

	maxTerminalID = 128
)

// Terminal is a command on a pseudo-terminal of the runner. Opening a stream to an ID
// attaches to the running terminal of that ID, or starts it.
type Terminal struct {
	ID string `json:"id"`
	// Command defaults to a login shell. It and the fields below apply when the terminal
	// is started; the size applies at every attach.
	Command []string `json:"command,omitempty"`
	// Dir is the workspace unless it is given.
	Dir string `json:"dir,omitempty"`
	// Env is added to the environment of commands.
	Env  []string `json:"env,omitempty"`
	Rows uint16   `json:"rows,omitempty"`
	Cols uint16   `json:"cols,omitempty"`
}

func (t Terminal) validate() error {
	if t.ID == "" || len(t.ID) > maxTerminalID || strings.ContainsFunc(t.ID, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("terminal %.100q: %w", t.ID, dormouse.ErrInvalid)
	}
	if err := validateWords("command", t.Command); err != nil {
		return err
	}
	if t.Dir != "" {
		if err := validatePath(t.Dir); err != nil {
			return err
		}
	}
	return validateWords("environment", t.Env)
}

// TerminalReport describes a terminal.
type TerminalReport struct {
	ID      string   `json:"id"`
	Command []string `json:"command"`
	PID     int      `json:"pid"`
	Rows    uint16   `json:"rows"`
	Cols    uint16   `json:"cols"`
	// Attached counts the streams that are open to it.
	Attached int `json:"attached"`
	// Exit is how its command ended, 128+n after signal n; nil while it runs. It
	// is remembered for a minute.
	Exit *int `json:"exit,omitempty"`
}

// Terminals returns the running terminals and those that ended recently, by ID.
func (l *Link) Terminals(ctx context.Context) ([]TerminalReport, error) {
	f, err := l.request(ctx, Frame{Kind: KindTerminals}, nil)
	if err == nil && len(f.Terminals) > 2*MaxTerminals {
		err = fmt.Errorf("runner reported %d: %w", len(f.Terminals), dormouse.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("list terminals: %w", err)
	}
	return f.Terminals, nil
}

// Resize changes the size of a running terminal.
func (l *Link) Resize(ctx context.Context, id string, rows, cols uint16) error {
	if _, err := l.request(ctx, Frame{Kind: KindResize, Terminal: &Terminal{ID: id, Rows: rows, Cols: cols}}, nil); err != nil {
		return fmt.Errorf("resize terminal %q: %w", id, err)
	}
	return nil
}

// EndTerminal ends a terminal and every process started on it, and returns once they
// are gone. It does nothing to a terminal that has ended.
func (l *Link) EndTerminal(ctx context.Context, id string) error {
	if _, err := l.request(ctx, Frame{Kind: KindEndTerminal, Terminal: &Terminal{ID: id}}, nil); err != nil {
		return fmt.Errorf("end terminal %q: %w", id, err)
	}
	return nil
}
