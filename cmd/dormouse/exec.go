package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
)

func newExec() *cobra.Command {
	var id, shell string
	var timeout time.Duration
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
			request := map[string]any{"command": commandLine(args[1:])}
			for key, v := range map[string]string{"id": id, "shell": shell} {
				if v != "" {
					request[key] = v
				}
			}
			if timeout > 0 {
				request["timeout"] = timeout.String()
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			var live io.Writer
			if !asJSON && isTerminal(cmd.OutOrStdout()) {
				live = cmd.OutOrStdout()
			}
			e, err := c.exec(cmd.Context(), args[0], request, live)
			if err != nil {
				return err
			}
			if live == nil {
				err = printExec(cmd, e)
			}
			return errors.Join(err, asItEnded(cmd.ErrOrStderr(), e))
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "your own `id` for the command: the same one twice is one command")
	cmd.Flags().StringVar(&shell, "shell", "", "`name` of a shell that lives on from one command to the next")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long it may take; 0 for as long as it likes")
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

// exec runs a command in a session's sandbox. What it prints is shown as it
// comes, unless live is nil.
func (c *client) exec(ctx context.Context, session string, request map[string]any, live io.Writer) (rest.Exec, error) {
	res, err := c.send(ctx, http.MethodPost, sessionPath(session, "execs")+"?stream=true", request)
	if err != nil {
		return rest.Exec{}, err
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	var seen strings.Builder
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			return rest.Exec{}, fmt.Errorf("%w: the answer was cut off; the command may still run", err)
		}
		var line struct {
			Text  string     `json:"text"`
			Exec  *rest.Exec `json:"exec"`
			Error string     `json:"error"`
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			return rest.Exec{}, fmt.Errorf("read answer: %w", err)
		}
		text := line.Text
		if line.Exec != nil { // what was not shown yet
			if left, ok := strings.CutPrefix(line.Exec.Output, seen.String()); ok && line.Exec.Omitted == 0 {
				text = left
			}
		}
		if live != nil {
			seen.WriteString(text)
			if _, err := io.WriteString(live, text); err != nil {
				return rest.Exec{}, err
			}
		}
		switch {
		case line.Error != "":
			return rest.Exec{}, errors.New(line.Error)
		case line.Exec != nil:
			return *line.Exec, nil
		}
	}
}

// printExec prints what a command printed, to the byte.
func printExec(cmd *cobra.Command, e rest.Exec) error {
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

// asItEnded says what an exit code cannot, and is the error that ends us as the
// command ended.
func asItEnded(errs io.Writer, e rest.Exec) error {
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

// exitCode is the exit of a command that was run for somebody.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }
