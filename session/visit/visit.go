// Package visit is what people and programs do in a sandbox besides the agent: terminals,
// ports and files. The log does not hold what is done on a visit, only that files may
// have changed.
package visit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// What visitors speak in. It is the runner's, wherever the sandbox is.
type (
	// Conn is an open stream.
	Conn = runner.Duplex
	// Stream says what a stream is to carry.
	Stream = runner.Stream
	// Terminal is a command on a terminal that lives in a sandbox.
	Terminal = runner.Terminal
	// TerminalReport is a terminal as its sandbox knows it.
	TerminalReport = runner.TerminalReport
	// PortStream is a connection to a port.
	PortStream = runner.PortStream
	// Port is one that something inside listens on.
	Port = runner.Port
	// Usage is what goes on in a sandbox.
	Usage = runner.Usage
	// TreeStatus is how a tree of files ended.
	TreeStatus = runner.TreeStatus
)

// Visit is one visitor's way into a sandbox. It is for the moment: no log holds
// what is done on it, and it ends with the sandbox it leads to.
type Visit struct {
	target     Target
	generation uint64
	ctx        context.Context //nolint:containedctx // the life of the visit
	end        context.CancelCauseFunc
	leave      func()
}

// Target is a sandbox as a visit reaches it: on this server, or on another.
type Target interface {
	Run(ctx context.Context, e Errand) (Findings, error)
	Open(ctx context.Context, s Stream) (Conn, error)
}

// newVisit returns a visit of the sandbox of a generation. It ends with life, and calls
// leave when it is closed.
func newVisit(life context.Context, target Target, generation uint64, leave func()) *Visit {
	v := &Visit{target: target, generation: generation, leave: leave}
	v.ctx, v.end = context.WithCancelCause(life)
	return v
}

// errLeft ends a visit whose visitor has left.
var errLeft = fmt.Errorf("the visit is over: %w", dormouse.ErrConflict)

// Close ends the visit, and the streams that were opened on it. It must be
// called once.
func (v *Visit) Close() {
	v.end(errLeft)
	v.leave()
}

// Generation is that of the sandbox.
func (v *Visit) Generation() uint64 { return v.generation }

// Life ends with the visit. Err says why.
func (v *Visit) Life() context.Context { return v.ctx }

// Err says why the visit has ended; nil as long as it has not.
func (v *Visit) Err() error {
	if v.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(v.ctx)
	if errors.Is(cause, context.Canceled) {
		return dormouse.ErrClosing // an actor that ends without a reason was unloaded
	}
	return Reachable(cause)
}

// Open opens a stream into the sandbox. It ends with the visit.
func (v *Visit) Open(ctx context.Context, s Stream) (Conn, error) {
	if err := errors.Join(v.Err(), s.Validate()); err != nil {
		return nil, err
	}
	ctx, done := v.during(ctx)
	defer done()
	c, err := v.target.Open(ctx, s)
	if err != nil {
		return nil, v.why(err)
	}
	return &stream{Conn: c, stop: context.AfterFunc(v.ctx, func() { _ = c.Close() })}, nil
}

// stream is one that ends with its visit.
type stream struct {
	Conn
	stop func() bool
}

func (s *stream) Close() error {
	s.stop()
	return s.Conn.Close()
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	return n, runner.CutOff(err)
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	return n, runner.CutOff(err)
}

// Ports says what listens inside.
func (v *Visit) Ports(ctx context.Context) ([]Port, error) {
	f, err := v.Run(ctx, Errand{Ask: AskPorts})
	return f.Ports, err
}

// Usage says what runs inside.
func (v *Visit) Usage(ctx context.Context) (Usage, error) {
	f, err := v.Run(ctx, Errand{Ask: AskUsage})
	return f.Usage, err
}

// Terminals says which live, and how others ended a moment ago.
func (v *Visit) Terminals(ctx context.Context) ([]TerminalReport, error) {
	f, err := v.Run(ctx, Errand{Ask: AskTerminals})
	return f.Terminals, err
}

// Resize changes the size of a living terminal.
func (v *Visit) Resize(ctx context.Context, id string, rows, cols uint16) error {
	_, err := v.Run(ctx, Errand{Ask: AskResize, Terminal: Terminal{ID: id, Rows: rows, Cols: cols}})
	return err
}

// EndTerminal ends a terminal and everything started on it.
func (v *Visit) EndTerminal(ctx context.Context, id string) error {
	_, err := v.Run(ctx, Errand{Ask: AskEndTerminal, Terminal: Terminal{ID: id}})
	return err
}

// GetTree copies a file or a directory to w, as a tar. It returns nil only if
// all of it was copied.
func (v *Visit) GetTree(ctx context.Context, path string, w io.Writer) (TreeStatus, error) {
	c, err := v.Open(ctx, Stream{Tree: &runner.Tree{Path: path}})
	if err != nil {
		return TreeStatus{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }() // all that could be lost is known by then
	status, err := runner.ReadTree(c, w)
	return status, v.why(err)
}

// PutTree unpacks the tar that r reads below path. It returns nil only once all
// of it is there.
func (v *Visit) PutTree(ctx context.Context, path string, r io.Reader) (TreeStatus, error) {
	c, err := v.Open(ctx, Stream{Tree: &runner.Tree{Path: path, Put: true}})
	if err != nil {
		return TreeStatus{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	status, err := runner.WriteTree(c, r)
	return status, v.why(err)
}

// Run does what an errand says.
func (v *Visit) Run(ctx context.Context, e Errand) (Findings, error) {
	ctx, done := v.during(ctx)
	defer done()
	if err := v.Err(); err != nil {
		return Findings{}, err
	}
	f, err := v.target.Run(ctx, e)
	return f, v.why(err)
}

// during ends a request with the visit.
func (v *Visit) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(v.ctx, func() { cancel(v.Err()) })
	return ctx, func() { stop(); cancel(nil) }
}

// why makes an error say that the visit has ended, if it has.
func (v *Visit) why(err error) error {
	if ended := v.Err(); err != nil && ended != nil {
		return ended
	}
	return Reachable(err)
}

// Reachable replaces an error that only says how a sandbox was lost by one that visitors
// can act on.
func Reachable(err error) error {
	for _, lost := range []error{sandbox.ErrGone, runner.ErrStale, runner.ErrUnreachable, runner.ErrClosed, runner.ErrQuiesced} {
		if errors.Is(err, lost) {
			return OutOfReach(err)
		}
	}
	return err
}

// OutOfReach makes an error a conflict that says so, if it is none.
func OutOfReach(err error) error {
	if errors.Is(err, dormouse.ErrConflict) {
		return err
	}
	return fmt.Errorf("the sandbox is out of reach: %w: %w", err, dormouse.ErrConflict)
}
