package main

import (
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func newShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show SESSION",
		Short:   "Show where a session stands",
		Example: `  dormouse session show sesn_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			var s rest.Session
			raw, err := c.call(cmd.Context(), http.MethodGet, sessionPath(args[0]), nil, &s)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error { return showSession(w, s) })
		},
	}
}

func showSession(out io.Writer, s rest.Session) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	line("session", "%s", s.Session)
	if s.Title != "" {
		line("title", "%s", s.Title)
	}
	line("phase", "%s", s.Phase)
	if s.Attention != "" {
		line("attention", "%s", s.Attention)
	}
	if s.Ended != "" {
		line("ended", "%s", s.Ended)
	}
	line("agent", "%s, model %s", s.Agent.Name, s.Agent.Model)
	line("sandbox", "%s, generation %d", s.Sandbox.Phase, s.Sandbox.Generation)
	line("queue", "%d waiting", s.Queue)
	line("usage", "%d tokens in, %d out, %.1f s active", s.Usage.InputTokens, s.Usage.OutputTokens, s.Usage.ActiveSeconds)
	line("events", "%d, the last %s", s.Seq, ago(s.Updated))
	for _, t := range s.Threads {
		if t.Turn == nil {
			continue
		}
		line("turn", "%s, attempt %d", t.Turn.ID, t.Turn.Attempt)
		switch t.Turn.Blocked {
		case dormouse.BlockedOnRecovery:
			line("", "a crash stopped it: retry or continue")
		case dormouse.BlockedOnPeople:
			line("", "waits for an answer")
		}
		for _, u := range t.Turn.Waiting {
			line("waiting", "%s %s %s %s", u.ID, u.Gate, u.Name, compactJSON(u.Input))
		}
	}
	return w.Flush()
}
