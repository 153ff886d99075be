package main

import (
	"bufio"
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
			if live := !asJSON && isTerminal(cmd.OutOrStdout()); live {
				return execLive(cmd, c, args[0], request)
			}
			var e rest.Exec
			raw, err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "execs"), request, &e)
			if err != nil {
				return err
			}
			err = printed(cmd, raw, func(w io.Writer) error {
				if e.Raw != nil {
					_, err := w.Write(e.Raw)
					return err
				}
				_, err := io.WriteString(w, e.Output)
				return err
			})
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

// execLive shows what a command prints as it comes.
func execLive(cmd *cobra.Command, c *client, session string, request map[string]any) error {
	res, err := c.send(cmd.Context(), http.MethodPost, sessionPath(session, "execs")+"?stream=true", request)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	var seen strings.Builder
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the answer was cut off; the command may still run: %w", err)
		}
		var line struct {
			Text  string     `json:"text"`
			Exec  *rest.Exec `json:"exec"`
			Error string     `json:"error"`
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		switch {
		case line.Error != "":
			return errors.New(line.Error)
		case line.Exec == nil:
			seen.WriteString(line.Text)
			if _, err := io.WriteString(cmd.OutOrStdout(), line.Text); err != nil {
				return err
			}
		default:
			if rest, ok := strings.CutPrefix(line.Exec.Output, seen.String()); ok && line.Exec.Omitted == 0 {
				if _, err := io.WriteString(cmd.OutOrStdout(), rest); err != nil {
					return err
				}
			}
			return asItEnded(cmd.ErrOrStderr(), *line.Exec)
		}
	}
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
