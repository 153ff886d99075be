package sandbox

import (
	"context"

	"github.com/dormouse-run/dormouse/runner"
)

// Machine is implemented by sandboxes that people can inspect and use beside their ops. What it does is not recorded in the log, and none of it is repeated after a crash.
type Machine interface {
	// Open must return once the stream is connected at its far end, and an error
	// that says why if it cannot be. A stream must end when a newer epoch has
	// spoken, and Close must end it. Terminals must outlive their streams.
	Open(ctx context.Context, s runner.Stream) (*runner.Conn, error)

	// Ports must say what listens inside.
	Ports(ctx context.Context) ([]runner.Port, error)

	// Usage must say what runs, and since when nothing does.
	Usage(ctx context.Context) (runner.Usage, error)

	// Terminals must say which live, and for a minute how the others ended.
	Terminals(ctx context.Context) ([]runner.TerminalReport, error)

	// Resize must change the size of a living terminal.
	Resize(ctx context.Context, id string, rows, cols uint16) error

	// EndTerminal must end a terminal and everything started on it.
	EndTerminal(ctx context.Context, id string) error
}
