package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newWakeups() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wakeups SESSION",
		Short: "List the prompts a session will give itself later",
		Long: `List the wake-ups of a session. One that was missed while the server was down fires
once, as soon as it can. A session has at most 20.`,
		Example: `  dormouse session wakeups sesn_…
  dormouse session wakeups add sesn_… --in 10m 'is the build green?'
  dormouse session wakeups cancel sesn_… wake_…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.Wakeup, error) {
				return c.Wakeups(ctx, dormouse.SessionID(args[0]))
			}, func(w io.Writer, wakeups []client.Wakeup) error {
				var rows [][]string
				for _, wake := range wakeups {
					rows = append(rows, []string{string(wake.ID), at(wake.At), wake.Cron, wake.Text})
				}
				return table(w, "WAKEUP\tNEXT\tCRON\tTEXT", rows)
			})
		},
	}
	cmd.AddCommand(newWakeupAdd(), &cobra.Command{
		Use: "cancel SESSION WAKEUP", Short: "Cancel a wake-up, which frees its place",
		Example: `  dormouse session wakeups cancel sesn_… wake_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.CancelWakeup(ctx, dormouse.SessionID(args[0]), dormouse.WakeupID(args[1]))
			})
		},
	})
	return cmd
}

func newWakeupAdd() *cobra.Command {
	var o client.WakeupOptions
	cmd := &cobra.Command{
		Use:   "add SESSION TEXT…",
		Short: "Have a session prompt itself later",
		Long: `Schedule a prompt: once, at a time or after a while, or again and again by a cron line
of five fields in UTC. Print the wake-up's id and when it fires.`,
		Example: `  dormouse session wakeups add sesn_… --in 10m 'is the build green?'
  dormouse session wakeups add sesn_… --at 2030-01-02T15:04:05Z 'happy new year'
  dormouse session wakeups add sesn_… --cron '0 9 * * 1-5' 'what is new?'`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count(o.At != "", o.In != "", o.Cron != "") != 1 {
				return usage("give one of --at, --in and --cron")
			}
			o.Prompt = []dormouse.Block{dormouse.Text(strings.Join(args[1:], " "))}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Wakeup, error) {
				return c.Schedule(ctx, dormouse.SessionID(args[0]), o)
			}, func(w io.Writer, made client.Wakeup) error {
				_, err := fmt.Fprintf(w, "%s %s\n", made.ID, at(made.At))
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.At, "at", "", "`time` to fire at, such as 2030-01-02T15:04:05Z")
	fs.StringVar(&o.In, "in", "", "`duration` to fire after, such as 10m")
	fs.StringVar(&o.Cron, "cron", "", "five `fields`, in UTC")
	fs.StringVar(&o.ID, "id", "", "your own `id`: as long as it is scheduled, the same id is the same wake-up")
	threadFlag(cmd, &o.Thread)
	return cmd
}

// at says when something will be, in the reader's own time.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
