package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
)

func newDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete SESSION",
		Short: "Remove a session and everything only it had",
		Long: `End a session, whatever it does, and remove it: its events, its workspace, and its
children's right to go on. Nothing brings it back. "archive" keeps the events.

On a terminal you are asked first, unless --yes is given.`,
		Example: `  dormouse session delete sesn_…
  dormouse session delete sesn_… --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			if !yes && isTerminal(cmd.InOrStdin()) {
				question := fmt.Sprintf("Delete %s with its events and its workspace? [y/N] ", oneLine(args[0]))
				if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), question); err != nil {
					return err
				}
			}
			gone, err := c.Delete(cmd.Context(), dormouse.SessionID(args[0]))
			if err != nil {
				return err
			}
			return printDeleted(cmd, args[0], gone)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func printDeleted(cmd *cobra.Command, session string, gone bool) error {
	raw, err := json.Marshal(struct {
		Session string `json:"session"`
		Gone    bool   `json:"gone"`
	}{session, gone})
	if err != nil {
		return err
	}
	return printed(cmd, append(raw, '\n'), func(w io.Writer) error {
		word := "deleted"
		if !gone {
			word = "is being deleted"
		}
		_, err := fmt.Fprintln(w, session, word)
		return err
	})
}

// confirm asks a person, and returns nil only for a yes.
func confirm(in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was deleted")
}

// isTerminal reports whether a person is at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
