package main

import (
	"github.com/spf13/cobra"
)

func newAnswer() *cobra.Command {
	var allow, deny, tool, message, content string
	var isError bool
	cmd := &cobra.Command{
		Use:   "answer SESSION",
		Short: "Answer a tool call that waits for people",
		Long: `Allow or deny a tool call that needs permission, or give the result of a custom
tool. "dormouse session show" lists the calls that wait. The first answer wins.`,
		Example: `  dormouse session answer sesn_… --allow sevt_…
  dormouse session answer sesn_… --deny sevt_… --message 'not in production'
  dormouse session answer sesn_… --tool sevt_… --content '{"rows": 3}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var in map[string]any
			switch {
			case allow != "" && deny == "" && tool == "":
				in = map[string]any{"tool_use_id": allow, "result": "allow"}
			case deny != "" && allow == "" && tool == "":
				in = map[string]any{"tool_use_id": deny, "result": "deny"}
				if message != "" {
					in["deny_message"] = message
				}
			case tool != "" && allow == "" && deny == "":
				in = map[string]any{"custom_tool_use_id": tool, "content": content, "is_error": isError}
			default:
				return usage("give one of --allow, --deny and --tool")
			}
			return command(cmd, args[0], "answers", in)
		},
	}
	f := cmd.Flags()
	f.StringVar(&allow, "allow", "", "tool `call` to allow")
	f.StringVar(&deny, "deny", "", "tool `call` to deny")
	f.StringVar(&message, "message", "", "with --deny: why, for the agent")
	f.StringVar(&tool, "tool", "", "custom tool `call` to answer")
	f.StringVar(&content, "content", "", "with --tool: the result")
	f.BoolVar(&isError, "is-error", false, "with --tool: the result is an error")
	return cmd
}
