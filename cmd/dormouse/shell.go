package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
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
			t := &shell{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), session: dormouse.SessionID(args[0])}
			return t.run(cmd.Context(), c, client.TerminalOptions{ID: name, Command: args[1:]})
		},
	}
	clientFlags(cmd)
	cmd.Flags().StringVar(&name, "terminal", "", "`name` of the terminal: attach to it if it lives, start it if not")
	return cmd
}

// shell shows a terminal in a sandbox here, on a terminal or through pipes.
type shell struct {
	in       io.Reader
	out      io.Writer
	session  dormouse.SessionID
	terminal *client.Terminal
}

// tty is the local terminal, nil unless both input and output are one.
func (s *shell) tty() *os.File {
	f, ok := s.in.(*os.File)
	if !ok || !isTerminal(f) || !isTerminal(s.out) {
		return nil
	}
	return f
}

func (s *shell) run(ctx context.Context, c *client.Client, o client.TerminalOptions) (err error) {
	tty := s.tty()
	if tty != nil {
		if cols, rows, err := term.GetSize(int(tty.Fd())); err == nil {
			o.Rows, o.Cols = rows, cols
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if s.terminal, err = c.OpenTerminal(ctx, s.session, o); err != nil {
		return err
	}
	defer func() { _ = s.terminal.Close() }()
	if tty != nil {
		before, err := term.MakeRaw(int(tty.Fd()))
		if err != nil {
			return fmt.Errorf("take the terminal over: %w", err)
		}
		defer func() { err = errors.Join(err, term.Restore(int(tty.Fd()), before)) }()
	}
	return s.attend(ctx, tty)
}

// attend copies input and output until the terminal ends.
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
	buf := make([]byte, 32<<10)
	for {
		n, err := s.terminal.Read(buf)
		if err != nil {
			return s.end(ctx, err)
		}
		if _, err := s.out.Write(buf[:n]); err != nil {
			return fmt.Errorf("show the terminal: %w", err)
		}
	}
}

// end turns the end of a terminal into an error for the user.
func (s *shell) end(ctx context.Context, err error) error {
	again := fmt.Sprintf("the terminal may live on: dormouse shell %s --terminal %s", s.session, s.terminal.ID)
	closed, ok := errors.AsType[*client.Closed](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; %s", again)
	case ok:
		return fmt.Errorf("%s; %s", closed.Reason, again)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("the connection was lost; %s", again)
	case s.terminal.Exit != 0:
		return exitCode(s.terminal.Exit)
	}
	return nil
}

// follow resizes the terminal in the sandbox to the size of the local one.
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
		_ = s.terminal.Resize(rows, cols)
	}
}

// enter sends what is typed. At the end of a pipe it sends ^D, as a person would, again and
// again, because a command that is just exiting does not read it.
func (s *shell) enter(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.in.Read(buf)
		if _, lost := s.terminal.Write(buf[:n]); lost != nil {
			return
		}
		if err != nil {
			break
		}
	}
	const endOfText = "\x04"
	for {
		if _, err := io.WriteString(s.terminal, endOfText); err != nil || sleep.For(ctx, time.Second/2) != nil {
			return
		}
	}
}
