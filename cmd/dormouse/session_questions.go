package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

// questions is what the server answers when it is asked what waits for people.
type questions struct {
	Questions []rest.Question `json:"questions"`
}

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
			return get(cmd, sessionPath(args[0], "questions"), func(w io.Writer, a questions) error {
				var rows [][]string
				for _, q := range a.Questions {
					rows = append(rows, []string{string(q.ToolUse), string(q.Kind), at(q.Expires), asked(q)})
				}
				return table(w, "CALL\tKIND\tEXPIRES\tASKED", rows)
			})
		},
	}
}

// asked is what people are to answer, on one line.
func asked(q rest.Question) string {
	switch {
	case q.Question == "":
		return q.Name + " " + describeInput(q.Input)
	case len(q.Options) > 0:
		return q.Question + " [" + strings.Join(q.Options, " | ") + "]"
	}
	return q.Question
}

// waiting finds what waits for people in a session.
func waiting(cmd *cobra.Command, session string, kind dormouse.OpKind) ([]rest.Question, error) {
	c, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	var a questions
	if _, err := c.call(cmd.Context(), http.MethodGet, sessionPath(session, "questions"), nil, &a); err != nil {
		return nil, err
	}
	var found []rest.Question
	for _, q := range a.Questions {
		if q.Kind == kind {
			found = append(found, q)
		}
	}
	return found, nil
}
