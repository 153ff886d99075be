package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newQuestions() *cobra.Command {
	return &cobra.Command{
		Use:   "questions SESSION",
		Short: "List what waits for people",
		Long: `List the tool calls that wait for people: those that need permission, those of custom
tools, and questions of the agent, which expire. "answer" answers them.`,
		Example: `  dormouse session questions sesn_…
  dormouse session questions sesn_… --json | jq -r '.questions[].tool_use_id'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.Question, error) {
				return c.Questions(ctx, dormouse.SessionID(args[0]))
			}, func(w io.Writer, all []client.Question) error {
				var rows [][]string
				for _, q := range all {
					rows = append(rows, []string{string(q.ToolUse), string(q.Kind), at(q.Expires), asked(q)})
				}
				return table(w, "CALL\tKIND\tEXPIRES\tASKED", rows)
			})
		},
	}
}

// asked is what people are to answer, on one line.
func asked(q client.Question) string {
	switch {
	case q.Question == "":
		return q.Name + " " + describeInput(q.Input)
	case len(q.Options) > 0:
		return q.Question + " [" + strings.Join(q.Options, " | ") + "]"
	}
	return q.Question
}

// waiting finds what waits for people in a session.
func waiting(cmd *cobra.Command, session dormouse.SessionID, kind dormouse.OpKind) ([]client.Question, error) {
	c, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	all, err := c.Questions(cmd.Context(), session)
	return slices.DeleteFunc(all, func(q client.Question) bool { return q.Kind != kind }), err
}
