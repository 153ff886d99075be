package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
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
			type answer struct {
				Wakeups []rest.Wakeup `json:"wakeups"`
			}
			return get(cmd, sessionPath(args[0], "wakeups"), func(w io.Writer, a answer) error {
				var rows [][]string
				for _, wake := range a.Wakeups {
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
			return request(cmd, http.MethodDelete, sessionPath(args[0], "wakeups", args[1]), nil)
		},
	})
	return cmd
}

func newWakeupAdd() *cobra.Command {
	var when, in, cron, id string
	var thread *string
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
			if count(when != "", in != "", cron != "") != 1 {
				return usage("give one of --at, --in and --cron")
			}
			request := onThread(map[string]any{"prompt": strings.Join(args[1:], " ")}, thread)
			for key, v := range map[string]string{"at": when, "in": in, "cron": cron, "id": id} {
				if v != "" {
					request[key] = v
				}
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			var made rest.Wakeup
			raw, err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "wakeups"), request, &made)
			if err != nil {
				return err
			}
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %s\n", made.ID, at(made.At))
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&when, "at", "", "`time` to fire at, such as 2030-01-02T15:04:05Z")
	fs.StringVar(&in, "in", "", "`duration` to fire after, such as 10m")
	fs.StringVar(&cron, "cron", "", "five `fields`, in UTC")
	fs.StringVar(&id, "id", "", "your own `id`: as long as it is scheduled, the same id is the same wake-up")
	thread = threadFlag(cmd)
	return cmd
}

// at says when something will be, in the reader's own time.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
