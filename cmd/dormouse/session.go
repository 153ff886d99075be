package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

func newSession() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "Make sessions and talk to them",
		Example: `  dormouse session create --title 'a look around' --prompt '$ ls -la' --follow
  dormouse session list
  dormouse session send sesn_… 'and what is in there?' --follow`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	clientFlags(cmd)
	cmd.AddCommand(newCreate(), newList(), newShow(), newSet(), newSend(), newFollow(), newEvents(), newQueue(), newOps(),
		newQuestions(), newAnswer(), newWakeups(), newThreads(), newChildren(), newInterrupt(), newTerminate(), newDelete())
	cmd.AddCommand(plainCommands()...)
	return cmd
}

// printed prints an answer: as it came if JSON was asked for, otherwise by show.
func printed(cmd *cobra.Command, raw []byte, show func(io.Writer) error) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		_, err := cmd.OutOrStdout().Write(raw)
		return err
	}
	return show(cmd.OutOrStdout())
}

// table prints rows under a header.
func table(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// pairs reads what was given as key=value.
func pairs(flag string, given []string) (map[string]string, error) {
	all := make(map[string]string, len(given))
	for _, pair := range given {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usage("--%s %q is not key=value", flag, pair)
		}
		all[key] = value
	}
	return all, nil
}

// clean keeps what others wrote from driving the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is the beginning of s on one line.
func oneLine(s string) string {
	const most = 80
	s = strings.Join(strings.Fields(clean(s)), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// ago says how long ago something was.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// compactJSON is raw on one line.
func compactJSON(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	return oneLine(string(raw))
}
