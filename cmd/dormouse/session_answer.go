package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

func newAnswer() *cobra.Command {
	var allow, deny, isError bool
	var message, content string
	cmd := &cobra.Command{
		Use:   "answer SESSION [CALL]",
		Short: "Answer a tool call that waits for people",
		Long: `Allow or deny a tool call that needs permission, or give the result of a custom
tool. "dormouse session show" lists the calls that wait; when only one does, it need
not be named. The first answer wins.`,
		Example: `  dormouse session answer sesn_… --allow
  dormouse session answer sesn_… sevt_… --deny --message 'not in production'
  dormouse session answer sesn_… sevt_… --content '{"rows": 3}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed("content")
			if n := count(allow, deny, given); n != 1 {
				return usage("give one of --allow, --deny and --content")
			}
			call, err := waitingCall(cmd, args)
			if err != nil {
				return err
			}
			in := map[string]any{"tool_use_id": call, "result": "allow"}
			switch {
			case deny:
				in["result"] = "deny"
				if message != "" {
					in["deny_message"] = message
				}
			case given:
				in = map[string]any{"custom_tool_use_id": call, "content": content, "is_error": isError}
			}
			return command(cmd, args[0], "answers", in)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&allow, "allow", false, "let it run")
	f.BoolVar(&deny, "deny", false, "do not let it run")
	f.StringVar(&message, "message", "", "with --deny: why, for the agent")
	f.StringVar(&content, "content", "", "the result of a custom tool")
	f.BoolVar(&isError, "is-error", false, "with --content: the result is an error")
	return cmd
}

func count(flags ...bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// waitingCall is the tool call that was named, or the one that waits.
func waitingCall(cmd *cobra.Command, args []string) (dormouse.EventID, error) {
	session := args[0]
	if len(args) == 2 {
		return dormouse.EventID(args[1]), nil
	}
	c, err := connect(cmd)
	if err != nil {
		return "", err
	}
	var s rest.Session
	if _, err := c.call(cmd.Context(), http.MethodGet, sessionPath(session), nil, &s); err != nil {
		return "", err
	}
	var waiting []dormouse.EventID
	for _, t := range s.Threads {
		if t.Turn == nil {
			continue
		}
		for _, w := range t.Turn.Waiting {
			waiting = append(waiting, w.ID)
		}
	}
	if len(waiting) != 1 {
		return "", fmt.Errorf(`%d tool calls wait for an answer; name one of those that "dormouse session show %s" lists`, len(waiting), session)
	}
	return waiting[0], nil
}
