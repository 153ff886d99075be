package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newExec() *cobra.Command {
	var o client.ExecOptions
	cmd := &cobra.Command{
		Use:   "exec SESSION -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a session's sandbox",
		Long: `Run a command in a session's sandbox, beside what the agent does there, and exit as
it does. A sandbox that sleeps is woken. One argument is given to the shell as it
is; several are quoted.

The command survives the server: if it is killed, run the same line again with the
same --id to be told how it ended. It is never run twice.`,
		Example: `  dormouse exec sesn_… -- ls -la
  dormouse exec sesn_… 'cd src && make test' --timeout 10m
  dormouse exec sesn_… --shell mine 'cd src'; dormouse exec sesn_… --shell mine pwd`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			o.Command = commandLine(args[1:])
			asJSON, _ := cmd.Flags().GetBool("json")
			var live io.Writer
			if !asJSON && isTerminal(cmd.OutOrStdout()) {
				live = cmd.OutOrStdout()
			}
			e, err := c.Exec(cmd.Context(), dormouse.SessionID(args[0]), o, live)
			if err != nil {
				return err
			}
			if live == nil {
				err = printExec(cmd, e)
			}
			return errors.Join(err, asItEnded(cmd.ErrOrStderr(), e))
		},
	}
	cmd.Flags().StringVar(&o.ID, "id", "", "your own `id` for the command: the same one twice is one command")
	cmd.Flags().StringVar(&o.Shell, "shell", "", "`name` of a shell that lives on from one command to the next")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "how long it may take; 0 for as long as it likes")
	clientFlags(cmd)
	return cmd
}

// commandLine is what the shell is given.
func commandLine(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// printExec prints what a command printed, to the byte.
func printExec(cmd *cobra.Command, e client.Exec) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return printed(cmd, append(raw, '\n'), func(w io.Writer) error {
		if e.Raw != nil {
			_, err := w.Write(e.Raw)
			return err
		}
		_, err := io.WriteString(w, e.Output)
		return err
	})
}

// asItEnded prints how a command ended if its exit code does not say so, and returns the
// error with which this program exits with the same code.
func asItEnded(errs io.Writer, e client.Exec) error {
	switch {
	case e.Unknown:
		return fmt.Errorf("nobody knows whether the command ran: %s", e.Error)
	case e.Error != "":
		return errors.New(e.Error)
	case e.TimedOut:
		fmt.Fprintln(errs, "dormouse: the command took too long and was ended")
	case e.Omitted > 0:
		fmt.Fprintf(errs, "dormouse: %d bytes of output were left out in the middle\n", e.Omitted)
	}
	if e.Exit != 0 {
		return exitCode(e.Exit)
	}
	return nil
}

// exitCode is the error that makes this program exit with the code of a command.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }
