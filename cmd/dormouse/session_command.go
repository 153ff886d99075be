package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/session"
)

// command posts to a session and prints the phase it is in then.
func command(cmd *cobra.Command, id, verb string, in any) error {
	return request(cmd, http.MethodPost, sessionPath(id, verb), in)
}

func request(cmd *cobra.Command, method, path string, in any) error {
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	var row session.Row
	raw, err := c.call(cmd.Context(), method, path, in, &row)
	if err != nil {
		return err
	}
	return printed(cmd, raw, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s %s\n", row.Session, row.Phase)
		return err
	})
}

// plainCommands are those that need nothing but a session, or a thread of it.
func plainCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, c := range []struct {
		verb, short, long string
		threads           bool
	}{
		{"retry", "Try again what a crash or an error stopped", "Take up again a turn that a crash left waiting (--recovery ask), or the prompts of a turn that failed.", true},
		{"continue", "Leave a turn that a crash stopped as it is", "Close a turn that a crash left waiting (--recovery ask) and go on with what is queued.", true},
		{"hibernate", "Put the sandbox to sleep", "Put the sandbox to sleep. Its files are kept and, with gVisor, what runs in it; the next prompt or command or a wake brings it back. A turn at work is interrupted.", false},
		{"wake", "Start the sandbox", "Start the sandbox of a hibernated session without asking anything of it.", false},
		{"archive", "End a session and put it away", "End a session that is not running and leave it out of lists that do not ask for it. Its events stay readable. Twice is once.", false},
	} {
		var thread *string
		cmd := &cobra.Command{
			Use: c.verb + " SESSION", Short: c.short, Long: c.long,
			Example: "  dormouse session " + c.verb + " sesn_…",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return command(cmd, args[0], c.verb, onThread(make(map[string]any), thread))
			},
		}
		if c.threads {
			thread = threadFlag(cmd)
		}
		all = append(all, cmd)
	}
	return all
}

// threadFlag adds the flag that names a thread.
func threadFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("thread", "", "`thread` that is meant; the primary one if not given")
}

// onThread adds the thread to a request, if one was named.
func onThread(in map[string]any, thread *string) map[string]any {
	if thread != nil && *thread != "" {
		in["thread"] = *thread
	}
	return in
}

func newInterrupt() *cobra.Command {
	var flush bool
	var thread *string
	cmd := &cobra.Command{
		Use: "interrupt SESSION", Short: "Stop the turn",
		Long: `Stop the turn that is at work, and with --flush-queue cancel what is queued behind
it. Other threads go on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return command(cmd, args[0], "interrupt", onThread(map[string]any{"flush_queue": flush}, thread))
		},
	}
	cmd.Flags().BoolVar(&flush, "flush-queue", false, "also cancel the prompts that are queued")
	thread = threadFlag(cmd)
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
			in := make(map[string]string)
			if reason != "" {
				in["reason"] = reason
			}
			return command(cmd, args[0], "terminate", in)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the log")
	return cmd
}
