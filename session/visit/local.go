package visit

import (
	"context"
	"fmt"
	"sync"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// local is a sandbox that this server holds.
type local struct {
	machine    sandbox.Machine
	generation uint64
	// touch records that files may change before they can, and counts the visitors that
	// may change them until what it returns is called.
	touch func(ctx context.Context, t dormouse.WorkspaceTouch) (func(), error)
}

// NewLocal returns a visit of a sandbox that this server holds. touch is called before
// files of its workspace can change; what it returns is called when they no longer can.
func NewLocal(life context.Context, m sandbox.Machine, generation uint64, touch func(context.Context, dormouse.WorkspaceTouch) (func(), error), leave func()) *Visit {
	return newVisit(life, local{m, generation, touch}, generation, leave)
}

func (l local) Open(ctx context.Context, s Stream) (Conn, error) {
	by := touches(s)
	if by == "" {
		return l.dial(ctx, s)
	}
	done, err := l.touch(ctx, dormouse.WorkspaceTouch{Generation: l.generation, By: by})
	if err != nil {
		return nil, err
	}
	c, err := l.dial(ctx, s)
	if err != nil {
		done()
		return nil, err
	}
	return &touching{Conn: c, done: sync.OnceFunc(done)}, nil
}

func (l local) dial(ctx context.Context, s Stream) (Conn, error) {
	c, err := l.machine.Open(ctx, s)
	if err != nil {
		return nil, err // not c: a nil of its type would be no nil
	}
	return c, nil
}

// touches says by what a stream may change files, nothing if it cannot.
func touches(s Stream) string {
	switch {
	case s.Tree != nil && s.Tree.Put:
		return "files"
	case s.Port != nil:
		return "port"
	case s.Terminal != nil:
		return "terminal"
	}
	return ""
}

// touching is a stream that may change files as long as it is open.
type touching struct {
	Conn
	done func()
}

func (t *touching) Close() error {
	defer t.done()
	return t.Conn.Close()
}

func (l local) Run(ctx context.Context, e Errand) (f Findings, err error) {
	f.Generation = l.generation
	switch e.Ask {
	case AskNothing:
	case AskPorts:
		f.Ports, err = l.machine.Ports(ctx)
	case AskUsage:
		f.Usage, err = l.machine.Usage(ctx)
	case AskTerminals:
		f.Terminals, err = l.machine.Terminals(ctx)
	case AskResize:
		err = l.machine.Resize(ctx, e.Terminal.ID, e.Terminal.Rows, e.Terminal.Cols)
	case AskEndTerminal:
		err = l.machine.EndTerminal(ctx, e.Terminal.ID)
	default:
		err = fmt.Errorf("a sandbox cannot be asked %.40q: %w", e.Ask, dormouse.ErrInvalid)
	}
	return f, err
}
