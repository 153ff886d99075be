// Command dormouse is the whole system on one machine: the server, and the
// commands that talk to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// The exit codes.
const (
	exitError          = 1 // it did not work
	exitUsage          = 2 // it was not said right
	exitNeedsAttention = 3 // it worked, and found a problem that a person has to look at
)

// ownProcess says that the process is this program's own, and not that of a test.
var ownProcess bool

func main() {
	gvisor.Main()
	ownProcess = true
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	began := false
	root := newRoot(&began)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	switch {
	case errors.Is(err, errSilent):
		return exitError
	case errors.Is(err, errNeedsAttention):
		return exitNeedsAttention
	}
	fmt.Fprintln(errs, "dormouse:", err)
	var u *usageError
	if !began || errors.As(err, &u) {
		fmt.Fprintf(errs, "Try \"%s --help\".\n", cmd.CommandPath())
		return exitUsage
	}
	return exitError
}

// errSilent is an error that was already printed.
var errSilent = errors.New("printed already")

// errNeedsAttention means that a problem was found and printed.
var errNeedsAttention = errors.New("a problem was found that somebody has to look at")

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func newRoot(began *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "dormouse",
		Short: "A runtime for agent sessions that survive anything",
		Long: `Dormouse runs agent sessions: a conversation with an agent and the sandbox it
works in. A session can be killed at any instant and goes on where it was.

Start a server, then talk to it from another terminal:

  dormouse serve
  dormouse session create --prompt '$ uname -a' --follow`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// What comes before this is about the words on the command line.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := prepare(cmd)
			*began = err == nil
			return err
		},
	}
	root.PersistentFlags().String("data", defaultData(), "`directory` of everything the server keeps")
	root.AddCommand(newSession(), newSnapshot(), newRevert(), newBranch(), newLog(), newExec(), newShell(), newCp(), newPorts(), newForward(), newPs(), newVault(),
		newVersion(), newModelsTopic())
	root.AddCommand(serverCommands()...)
	root.InitDefaultCompletionCmd()
	return root
}
