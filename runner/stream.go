package runner

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Limits of what a stream may name.
const (
	MaxStreamID  = 64
	MaxPath      = 4096
	maxWords     = 256       // of a command or an environment
	maxWordBytes = 128 << 10 // what the kernel takes of one
)

// Stream describes what a separate connection carries. Exactly one field is set.
type Stream struct {
	Terminal *Terminal   `json:"terminal,omitempty"`
	Port     *PortStream `json:"port,omitempty"`
	Tree     *Tree       `json:"tree,omitempty"`
	Watch    *Watch      `json:"watch,omitempty"`
}

// Validate refuses a stream that no runner could open.
func (s Stream) Validate() error {
	set := 0
	var err error
	if s.Terminal != nil {
		set++
		err = s.Terminal.validate()
	}
	if s.Port != nil {
		set++
		if s.Port.Port == 0 {
			err = fmt.Errorf("port 0: %w", dormouse.ErrInvalid)
		}
	}
	if s.Tree != nil {
		set++
		err = validatePath(s.Tree.Path)
	}
	if s.Watch != nil {
		set++
		err = validatePath(s.Watch.Path)
	}
	if set != 1 {
		return fmt.Errorf("a stream carries one thing, not %d: %w", set, dormouse.ErrInvalid)
	}
	return err
}

func (s Stream) String() string {
	switch {
	case s.Terminal != nil:
		return fmt.Sprintf("terminal %q", s.Terminal.ID)
	case s.Port != nil:
		return fmt.Sprintf("port %d", s.Port.Port)
	case s.Tree != nil:
		return fmt.Sprintf("tree %q", s.Tree.Path)
	case s.Watch != nil:
		return fmt.Sprintf("watch over %q", s.Watch.Path)
	}
	return "stream"
}

func validatePath(path string) error {
	if path == "" || len(path) > MaxPath || strings.ContainsRune(path, 0) {
		return fmt.Errorf("path %.100q: %w", path, dormouse.ErrInvalid)
	}
	return nil
}

func validateWords(what string, words []string) error {
	bad := func(w string) bool { return len(w) > maxWordBytes || strings.ContainsRune(w, 0) }
	if len(words) > maxWords || slices.ContainsFunc(words, bad) {
		return fmt.Errorf("%s of %d words: %w", what, len(words), dormouse.ErrInvalid)
	}
	return nil
}

// Duplex is raw bytes both ways, either of which can be closed without the other.
type Duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Conn is an open stream: raw bytes both ways, and either way can be closed
// without the other.
type Conn struct {
	*net.UnixConn
	link *Link
}

// Write sends bytes to the far end.
func (c *Conn) Write(b []byte) (int, error) {
	c.link.opts.Priority.Touch()
	return c.UnixConn.Write(b)
}

// Close ends the stream.
func (c *Conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.streams, c)
	c.link.mu.Unlock()
	return c.UnixConn.Close()
}

// Open makes the runner open a stream and returns once both ends are connected. The
// stream ends when either side closes it, when the link ends, and when the runner is
// bound to a newer epoch.
func (l *Link) Open(ctx context.Context, s Stream) (*Conn, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c, err := l.open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	return c, nil
}

func (l *Link) open(ctx context.Context, s Stream) (*Conn, error) {
	id := rand.Text()
	arrives := make(chan *Conn, 1)
	l.mu.Lock()
	l.opening[id] = arrives
	l.mu.Unlock()
	// After stop no connection arrives any more. It returns one that arrived too late.
	stop := func() *Conn {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.opening, id)
		select {
		case c := <-arrives:
			return c
		default:
			return nil
		}
	}
	p, err := l.register(Frame{Kind: KindOpen, StreamID: id, Stream: &s}, false)
	if err != nil {
		stop()
		return nil, err
	}
	defer l.unregister(p, KindOpen)
	select {
	case c := <-arrives:
		return c, nil
	case a := <-p.answer: // it comes after the connection
		err = a.err
	case <-l.done:
		err = l.cause()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c := stop()
	switch {
	case err == nil && c == nil:
		return nil, fmt.Errorf("runner made no connection: %w", dormouse.ErrInvalid)
	case err != nil && c != nil:
		return nil, errors.Join(err, c.Close())
	}
	return c, err
}

// join hands the connection of a stream to the caller that requested it, and refuses
// one that no caller waits for.
func (l *Link) join(c DeadlineConn, r *bufio.Reader, id string, late *time.Timer) error {
	if !late.Stop() {
		return fmt.Errorf("stream came too slowly: %w", dormouse.ErrInvalid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	arrives := l.opening[id]
	if arrives == nil || l.err != nil || l.quiescing || r.Buffered() > 0 {
		return errors.Join(fmt.Errorf("nobody waits for stream %.40q: %w", id, dormouse.ErrInvalid),
			l.greet(c, Frame{Kind: KindRefused, Refusal: RefusedNever}))
	}
	// The order matters: the first bytes of the stream come after the greeting, and the
	// answer to the request comes after the stream.
	if err := l.greet(c, Frame{Kind: KindBound}); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	delete(l.opening, id)
	s := &Conn{UnixConn: c.UnixConn, link: l}
	l.streams[s] = true
	arrives <- s
	return nil
}

// greet writes the only frame on a stream's connection. It never blocks, because the
// socket buffer is empty.
func (l *Link) greet(c DeadlineConn, f Frame) error {
	b, err := AppendFrame(nil, f)
	if err == nil {
		_, err = c.Write(b)
	}
	return err
}

// closeStreams must be called with mu held.
func (l *Link) closeStreams() {
	for c := range l.streams {
		_ = c.UnixConn.Close()
	}
	clear(l.streams)
}
