package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// command has a session do something and prints the phase it is in then.
func command(cmd *cobra.Command, do func(context.Context, *client.Client) (client.Row, error)) error {
	return ask(cmd, do, func(w io.Writer, row client.Row) error {
		_, err := fmt.Fprintf(w, "%s %s\n", row.Session, row.Phase)
		return err
	})
}

// plainCommands are those that need nothing but a session, or a thread of it.
func plainCommands() []*cobra.Command {
	type onThread = func(*client.Client, context.Context, dormouse.SessionID, dormouse.ThreadID) (client.Row, error)
	whole := func(do func(*client.Client, context.Context, dormouse.SessionID) (client.Row, error)) onThread {
		return func(c *client.Client, ctx context.Context, id dormouse.SessionID, _ dormouse.ThreadID) (client.Row, error) {
			return do(c, ctx, id)
		}
	}
	var all []*cobra.Command
	for _, c := range []struct {
		verb, short, long string
		threads           bool
		do                onThread
	}{
		{"retry", "Try again what a crash or an error stopped", "Take up again a turn that a crash left waiting (--recovery ask), or the prompts of a turn that failed.", true, (*client.Client).Retry},
		{"continue", "Leave a turn that a crash stopped as it is", "Close a turn that a crash left waiting (--recovery ask) and go on with what is queued.", true, (*client.Client).Continue},
		{"hibernate", "Put the sandbox to sleep", "Put the sandbox to sleep. Its files are kept and, with gVisor, what runs in it; the next prompt or command or a wake brings it back. A turn at work is interrupted.", false, whole((*client.Client).Hibernate)},
		{"wake", "Start the sandbox", "Start the sandbox of a hibernated session without asking anything of it.", false, whole((*client.Client).Wake)},
		{"archive", "End a session and put it away", "End a session that is not running and leave it out of lists that do not ask for it. Its events stay readable. Twice is once.", false, whole((*client.Client).Archive)},
	} {
		var thread dormouse.ThreadID
		cmd := &cobra.Command{
			Use: c.verb + " SESSION", Short: c.short, Long: c.long,
			Example: "  dormouse session " + c.verb + " sesn_…",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return command(cmd, func(ctx context.Context, to *client.Client) (client.Row, error) {
					return c.do(to, ctx, dormouse.SessionID(args[0]), thread)
				})
			},
		}
		if c.threads {
			threadFlag(cmd, &thread)
		}
		all = append(all, cmd)
	}
	return all
}

// threadFlag adds the flag that names a thread.
func threadFlag(cmd *cobra.Command, thread *dormouse.ThreadID) {
	cmd.Flags().StringVar((*string)(thread), "thread", "", "`thread` that is meant; the primary one if not given")
}

func newInterrupt() *cobra.Command {
	var o client.InterruptOptions
	cmd := &cobra.Command{
		Use: "interrupt SESSION", Short: "Stop the turn",
		Long: `Stop the turn that is at work, and with --flush-queue cancel what is queued behind
it. Other threads go on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.Interrupt(ctx, dormouse.SessionID(args[0]), o)
			})
		},
	}
	cmd.Flags().BoolVar(&o.FlushQueue, "flush-queue", false, "also cancel the prompts that are queued")
	threadFlag(cmd, &o.Thread)
	return cmd
}

func newTerminate() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "terminate SESSION", Short: "End a session for good",
		Long: `End a session for good, and its children with it. Its events stay readable; it takes
no more prompts. Twice is once.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.Terminate(ctx, dormouse.SessionID(args[0]), reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the log")
	return cmd
}
