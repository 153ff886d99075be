package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door/rest"
)

type createFlags struct {
	title, agent, model, system, recovery, sleepAfter, parent string
	tools, customTools, tags, metadata                        []string
	prompt, promptID                                          string
	cold, follow                                              bool
	environment                                               environmentFlags
}

func newCreate() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a session",
		Long: `Make a session and print its id. The sandbox is started in the background; a
prompt is accepted at once and runs when the sandbox is there.`,
		Example: `  dormouse session create
  dormouse session create --title 'fix the build' --prompt '$ make' --follow
  dormouse session create --title 'nightly' --tag ci --metadata repo=dormouse
  dormouse session create --tool bash=ask --tool read --recovery ask
  dormouse session create --image debian:12 --network off --memory 1G --snapshots off
  dormouse session create --custom-tool '{"name":"lookup","input_schema":{"type":"object"}}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return create(cmd, f) },
	}
	fs := cmd.Flags()
	f.flags(fs)
	fs.StringVar(&f.parent, "parent", "", "`session` this one is a child of; it has what that one has, as far as nothing else is said, and ends with it")
	fs.StringVar(&f.prompt, "prompt", "", "first prompt")
	fs.StringVar(&f.promptID, "prompt-id", "", "your own `id` for the prompt")
	fs.BoolVar(&f.follow, "follow", false, "with --prompt: show what happens until the turn ends")
	return cmd
}

// flags are those that say what a session is like.
func (f *createFlags) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.title, "title", "", "title shown to people")
	fs.StringArrayVar(&f.tags, "tag", nil, "`tag` to find it by; may be given again")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "`key=value` to find it by; may be given again")
	fs.StringVar(&f.agent, "agent", "", "name of the agent")
	fs.StringVar(&f.model, "model", "", "model; see \"dormouse help models\"")
	fs.StringVar(&f.system, "system", "", "system prompt")
	fs.StringArrayVar(&f.tools, "tool", nil, "built-in `tool`, as name, name=ask or name=auto; default bash, read, write, edit, glob, grep, task and those for questions, wake-ups and snapshots")
	fs.StringArrayVar(&f.customTools, "custom-tool", nil, "`JSON` of a tool that the client answers")
	fs.StringVar(&f.recovery, "recovery", "", "after a crash: auto goes on, ask waits for a person")
	fs.StringVar(&f.sleepAfter, "sleep-after", "", "stop the sandbox after this much idleness; 0s never does")
	f.environment.flags(fs)
	fs.BoolVar(&f.cold, "cold", false, "start the sandbox on first need only")
}

func create(cmd *cobra.Command, f createFlags) error {
	if f.follow && f.prompt == "" {
		return usage("--follow needs a --prompt")
	}
	c, err := connect(cmd)
	if err != nil {
		return err
	}
	request, err := f.request()
	if err != nil {
		return err
	}
	var made rest.Created
	raw, err := c.call(cmd.Context(), http.MethodPost, "/api/sessions", request, &made)
	if err != nil {
		return err
	}
	if f.follow && made.Prompt != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), made.Session)
		return followTurn(cmd, string(made.Session), *made.Prompt)
	}
	return printed(cmd, raw, func(w io.Writer) error {
		fmt.Fprintln(w, made.Session)
		if isTerminal(w) && made.Prompt == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "\nSay something to it:\n  dormouse session send %s '$ uname -a' --follow\n", made.Session)
		}
		return nil
	})
}

// request holds only what was said, so that the server decides the rest.
func (f *createFlags) request() (map[string]any, error) {
	r := make(map[string]any)
	for key, v := range map[string]string{
		"title": f.title, "agent": f.agent, "model": f.model, "system": f.system, "recovery": f.recovery,
		"sleep_after": f.sleepAfter, "parent": f.parent, "prompt": f.prompt, "prompt_id": f.promptID,
	} {
		if v != "" {
			r[key] = v
		}
	}
	if f.cold {
		r["warm"] = false
	}
	environment, err := f.environment.request()
	if err != nil {
		return nil, err
	}
	if !environment.IsZero() {
		r["environment"] = environment
	}
	if len(f.tags) > 0 {
		r["tags"] = f.tags
	}
	if len(f.metadata) > 0 {
		metadata, err := pairs("metadata", f.metadata)
		if err != nil {
			return nil, err
		}
		r["metadata"] = metadata
	}
	if len(f.tools) > 0 {
		var tools []dormouse.ToolConfig
		for _, t := range f.tools {
			name, permission, _ := strings.Cut(t, "=")
			tools = append(tools, dormouse.ToolConfig{Name: name, Permission: dormouse.Permission(permission)})
		}
		r["tools"] = tools
	}
	var custom []json.RawMessage
	for _, t := range f.customTools {
		if !json.Valid([]byte(t)) {
			return nil, usage("--custom-tool %q is not JSON", t)
		}
		custom = append(custom, json.RawMessage(t))
	}
	if len(custom) > 0 {
		r["custom_tools"] = custom
	}
	return r, nil
}
