package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show SESSION",
		Short:   "Show where a session stands",
		Example: `  dormouse session show sesn_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Session, error) {
				return c.Show(ctx, dormouse.SessionID(args[0]))
			}, showSession)
		},
	}
}

func showSession(out io.Writer, s client.Session) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	line("session", "%s", s.Session)
	for _, said := range [][2]string{
		{"title", s.Title},
		{"tags", strings.Join(s.Tags, ", ")},
		{"parent", string(s.Parent)},
		{"phase", string(s.Phase)},
		{"damaged", s.Damage},
		{"left alone", s.Newer},
		{"attention", s.Attention},
		{"ended", s.Ended},
		{"archived", at(s.Archived)},
	} {
		if said[1] != "" {
			line(said[0], "%s", said[1])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Metadata)) {
		line("metadata", "%s = %s", key, s.Metadata[key])
	}
	line("agent", "%s, model %s", s.Agent.Name, s.Agent.Model)
	line("sandbox", "%s, generation %d", s.Sandbox.Phase, s.Sandbox.Generation)
	showEnvironment(line, s)
	line("queue", "%d waiting", s.Queue)
	line("usage", "%d messages, %d tool calls, %d tokens in, %d out, %.1f s active",
		s.Metrics.Messages, s.Metrics.ToolCalls, s.Metrics.InputTokens, s.Metrics.OutputTokens, s.Metrics.ActiveSeconds)
	if s.Metrics.CostMicros > 0 {
		line("cost", "$%.4f", float64(s.Metrics.CostMicros)/1e6)
	}
	line("events", "%d, the last %s", s.Seq, ago(s.Updated))
	showWork(line, s)
	return w.Flush()
}

// showWork says what is being done, what waits, and what is to come.
func showWork(line func(name, format string, args ...any), s client.Session) {
	for _, t := range s.Threads {
		if len(s.Threads) > 1 {
			line("thread", "%s, %d waiting", t.ID, t.Queue)
		}
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
	}
	for _, q := range s.Questions {
		line("waiting", "%s %s %s", q.ToolUse, q.Kind, asked(q))
		if !q.Expires.IsZero() {
			line("", "expires %s", at(q.Expires))
		}
	}
	for _, wake := range s.Wakeups {
		line("wake-up", "%s at %s %s", wake.ID, at(wake.At), wake.Cron)
	}
	for _, c := range s.Children {
		line("child", "%s %s", c.Session, c.Stage)
	}
}
