package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dormouse-run/dormouse/door/rest"
)

func newShell() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "shell SESSION [-- COMMAND [ARGUMENT…]]",
		Short: "Open a terminal in a session's sandbox",
		Long: `Open a terminal in a session's sandbox: a login shell in its workspace, or a command.
A sandbox that sleeps is woken. It exits as the command does.

A terminal lives in the sandbox. If the connection is lost it goes on, and can be
attached to again by its name; several people can look at one terminal.`,
		Example: `  dormouse shell sesn_…
  dormouse shell sesn_… -- htop
  dormouse shell sesn_… --terminal work
  echo 'ls -la' | dormouse shell sesn_…`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			t := &shell{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), session: args[0], name: name, command: args[1:]}
			return t.run(cmd.Context(), c)
		},
	}
	clientFlags(cmd)
	cmd.Flags().StringVar(&name, "terminal", "", "`name` of the terminal: attach to it if it lives, start it if not")
	return cmd
}

// shell shows a terminal in a sandbox here, on a terminal or through pipes.
type shell struct {
	in      io.Reader
	out     io.Writer
	session string
	name    string
	command []string
	ws      *websocket.Conn
}

// tty is the terminal that the person sits at, nil if there is none at both ends.
func (s *shell) tty() *os.File {
	f, ok := s.in.(*os.File)
	if !ok || !isTerminal(f) || !isTerminal(s.out) {
		return nil
	}
	return f
}

func (s *shell) run(ctx context.Context, c *client) (err error) {
	q := url.Values{}
	if s.name != "" {
		q.Set("id", s.name)
	}
	if len(s.command) > 0 {
		q["command"] = s.command
	}
	tty := s.tty()
	if tty != nil {
		if cols, rows, err := term.GetSize(int(tty.Fd())); err == nil {
			q.Set("rows", strconv.Itoa(rows))
			q.Set("cols", strconv.Itoa(cols))
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ws, header, err := c.dial(ctx, sessionPath(s.session, "terminal")+"?"+q.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	s.ws, s.name = ws, header.Get(rest.TerminalID)
	if tty != nil {
		before, err := term.MakeRaw(int(tty.Fd()))
		if err != nil {
			return fmt.Errorf("take the terminal over: %w", err)
		}
		defer func() { err = errors.Join(err, term.Restore(int(tty.Fd()), before)) }()
	}
	return s.attend(ctx, tty)
}

// attend carries what is typed and shows what is printed, until the terminal
// ends.
func (s *shell) attend(ctx context.Context, tty *os.File) error {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if tty != nil {
		following.Go(func() { s.follow(ctx, tty) })
	}
	// Reading what is typed cannot be stopped everywhere; it ends with the program.
	go s.enter(ctx)
	for {
		kind, b, err := s.ws.Read(ctx)
		if err != nil {
			return s.end(ctx, err)
		}
		if kind != websocket.MessageBinary {
			continue
		}
		if _, err := s.out.Write(b); err != nil {
			return fmt.Errorf("show the terminal: %w", err)
		}
	}
}

// end is what the end of a terminal means to who sat at it.
func (s *shell) end(ctx context.Context, err error) error {
	again := fmt.Sprintf("the terminal may live on: dormouse shell %s --terminal %s", s.session, s.name)
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; %s", again)
	}
	closed, ok := closedBy(err)
	if !ok {
		return fmt.Errorf("the connection was lost; %s", again)
	}
	var end rest.TerminalEnd
	if closed.Code != websocket.StatusNormalClosure || json.Unmarshal([]byte(closed.Reason), &end) != nil {
		return fmt.Errorf("%s; %s", closed.Reason, again)
	}
	if end.Exit != 0 {
		return exitCode(end.Exit)
	}
	return nil
}

// follow tells the terminal in the sandbox the size of the one here.
func (s *shell) follow(ctx context.Context, tty *os.File) {
	changed, stop := resized()
	defer stop()
	var wasCols, wasRows int
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		cols, rows, err := term.GetSize(int(tty.Fd()))
		if err != nil || rows <= 0 || cols <= 0 || cols == wasCols && rows == wasRows {
			continue
		}
		wasCols, wasRows = cols, rows
		_ = s.ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"resize":{"rows":%d,"cols":%d}}`, rows, cols))
	}
}

// enter sends what is typed. After the end of what came through a pipe it says
// so as a person would, again and again: a command that is on its way out does
// not hear it.
func (s *shell) enter(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.in.Read(buf)
		if n > 0 {
			if s.ws.Write(ctx, websocket.MessageBinary, buf[:n]) != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	const endOfText = "\x04"
	for s.ws.Write(ctx, websocket.MessageBinary, []byte(endOfText)) == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second / 2):
		}
	}
}
