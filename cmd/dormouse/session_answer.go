package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

type answerFlags struct {
	allow, deny, isError  bool
	message, say, content string
}

func newAnswer() *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use:   "answer SESSION [CALL]",
		Short: "Answer a tool call that waits for people",
		Long: `Allow or deny a tool call that needs permission, answer a question of the agent, or
give the result of a custom tool. "dormouse session questions" lists what waits; when
only one of the kind does, it need not be named. The first answer wins.`,
		Example: `  dormouse session answer sesn_… --allow
  dormouse session answer sesn_… sevt_… --deny --message 'not in production'
  dormouse session answer sesn_… --say 'the second one'
  dormouse session answer sesn_… sevt_… --content '{"rows": 3}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, o, err := f.options(cmd)
			if err != nil {
				return err
			}
			call, err := waitingCall(cmd, args, kind)
			if err != nil {
				return err
			}
			if kind == dormouse.OpCustom {
				o.CustomToolUse = call
			} else {
				o.ToolUse = call
			}
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.Answer(ctx, dormouse.SessionID(args[0]), o)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.allow, "allow", false, "let it run")
	fs.BoolVar(&f.deny, "deny", false, "do not let it run")
	fs.StringVar(&f.message, "message", "", "with --deny: why, for the agent")
	fs.StringVar(&f.say, "say", "", "your answer to a question")
	fs.StringVar(&f.content, "content", "", "the result of a custom tool")
	fs.BoolVar(&f.isError, "is-error", false, "with --content: the result is an error")
	return cmd
}

// options are the answer, and what kind of call it answers.
func (f answerFlags) options(cmd *cobra.Command) (kind dormouse.OpKind, o client.AnswerOptions, err error) {
	say, content := cmd.Flags().Changed("say"), cmd.Flags().Changed("content")
	if count(f.allow, f.deny, say, content) != 1 {
		return "", o, usage("give one of --allow, --deny, --say and --content")
	}
	switch {
	case f.message != "" && !f.deny:
		return "", o, usage("--message goes with --deny")
	case f.isError && !content:
		return "", o, usage("--is-error goes with --content")
	case content:
		return dormouse.OpCustom, client.AnswerOptions{Content: []dormouse.Block{dormouse.Text(f.content)}, IsError: f.isError}, nil
	case say:
		return dormouse.OpQuestion, client.AnswerOptions{Answer: []dormouse.Block{dormouse.Text(f.say)}}, nil
	case f.allow:
		return dormouse.OpApproval, client.AnswerOptions{Result: "allow"}, nil
	}
	return dormouse.OpApproval, client.AnswerOptions{Result: "deny", DenyMessage: f.message}, nil
}

func count(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// waitingCall is the tool call that was named, or the only one of its kind that
// waits.
func waitingCall(cmd *cobra.Command, args []string, kind dormouse.OpKind) (dormouse.EventID, error) {
	session := dormouse.SessionID(args[0])
	if len(args) == 2 {
		return dormouse.EventID(args[1]), nil
	}
	found, err := waiting(cmd, session, kind)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf(`%d calls of kind %s wait for an answer; name one of those that "dormouse session questions %s" lists`, len(found), kind, session)
	}
	return found[0].ToolUse, nil
}
