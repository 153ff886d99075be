package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

type createFlags struct {
	client.CreateOptions
	tools, customTools, metadata []string
	prompt                       string
	cold, follow                 bool
	environment                  environmentFlags
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
	fs.StringVar((*string)(&f.Parent), "parent", "", "`session` this one is a child of; it has what that one has, as far as nothing else is said, and ends with it")
	fs.StringVar(&f.prompt, "prompt", "", "first prompt")
	fs.StringVar(&f.PromptID, "prompt-id", "", "your own `id` for the prompt")
	fs.BoolVar(&f.follow, "follow", false, "with --prompt: show what happens until the turn ends")
	return cmd
}

// flags are those that say what a session is like.
func (f *createFlags) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.Title, "title", "", "title shown to people")
	fs.StringArrayVar(&f.Tags, "tag", nil, "`tag` to find it by; may be given again")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "`key=value` to find it by; may be given again")
	fs.StringVar(&f.Agent, "agent", "", "name of the agent")
	fs.StringVar(&f.Model, "model", "", "model; see \"dormouse help models\"")
	fs.StringVar(&f.System, "system", "", "system prompt")
	fs.StringArrayVar(&f.tools, "tool", nil, "built-in `tool`, as name, name=ask or name=auto; default bash, read, write, edit, glob, grep, task and those for questions, wake-ups and snapshots")
	fs.StringArrayVar(&f.customTools, "custom-tool", nil, "`JSON` of a tool that the client answers")
	fs.StringVar((*string)(&f.Recovery), "recovery", "", "after a crash: auto goes on, ask waits for a person")
	fs.StringVar(&f.SleepAfter, "sleep-after", "", "stop the sandbox after this much idleness; 0s never does")
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
	o, err := f.options()
	if err != nil {
		return err
	}
	var raw []byte
	made, err := c.Create(client.KeepAnswer(cmd.Context(), &raw), o)
	if err != nil {
		return err
	}
	if f.follow && made.Prompt != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), made.Session)
		return followTurn(cmd, c, made.Session, *made.Prompt)
	}
	return printed(cmd, raw, func(w io.Writer) error {
		fmt.Fprintln(w, made.Session)
		if isTerminal(w) && made.Prompt == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "\nSay something to it:\n  dormouse session send %s '$ uname -a' --follow\n", made.Session)
		}
		return nil
	})
}

// options hold only what was said, so that the server decides the rest.
func (f *createFlags) options() (o client.CreateOptions, err error) {
	o = f.CreateOptions
	if f.prompt != "" {
		o.Prompt = []dormouse.Block{dormouse.Text(f.prompt)}
	}
	if f.cold {
		o.Warm = new(bool)
	}
	if o.Environment, err = f.environment.request(); err != nil {
		return o, err
	}
	if o.Metadata, err = pairs("metadata", f.metadata); err != nil {
		return o, err
	}
	for _, t := range f.tools {
		name, permission, _ := strings.Cut(t, "=")
		o.Tools = append(o.Tools, dormouse.ToolConfig{Name: name, Permission: dormouse.Permission(permission)})
	}
	for _, t := range f.customTools {
		if !json.Valid([]byte(t)) {
			return o, usage("--custom-tool %q is not JSON", t)
		}
		o.CustomTools = append(o.CustomTools, json.RawMessage(t))
	}
	return o, nil
}
