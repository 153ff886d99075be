package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newPs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps [SESSION…]",
		Short: "Show what runs in sandboxes",
		Long: `Show the sandboxes of sessions: what runs in them, the memory and the time it uses,
and how long nothing was asked of the session. Without SESSION it shows all that have
not ended. It wakes nothing.`,
		Example: `  dormouse ps
  dormouse ps sesn_…
  dormouse ps --json | jq '.sessions[] | select(.usage) | .session'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			var ids []dormouse.SessionID
			for _, arg := range args {
				ids = append(ids, dormouse.SessionID(arg))
			}
			if len(args) == 0 {
				if ids, err = living(cmd.Context(), c); err != nil {
					return err
				}
			}
			all, err := processes(cmd.Context(), c, ids)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"sessions": all})
			if err != nil {
				return err
			}
			return printed(cmd, append(raw, '\n'), func(w io.Writer) error { return showProcesses(w, all) })
		},
	}
	clientFlags(cmd)
	return cmd
}

// living lists the sessions that have not ended, newest first.
func living(ctx context.Context, c *client.Client) (ids []dormouse.SessionID, err error) {
	for o := (client.ListOptions{Limit: 200}); ; {
		page, err := c.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sessions {
			if s.Phase != dormouse.PhaseTerminated {
				ids = append(ids, s.Session)
			}
		}
		if o.After = page.Next; o.After == "" {
			return ids, nil
		}
	}
}

// processes asks about sessions, several at once.
func processes(ctx context.Context, c *client.Client, ids []dormouse.SessionID) ([]client.Processes, error) {
	const atOnce = 8
	all, errs := make([]client.Processes, len(ids)), make([]error, len(ids))
	slots := make(chan struct{}, atOnce)
	var asking sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			all[i], errs[i] = c.Processes(ctx, id)
		})
	}
	asking.Wait()
	return all, errors.Join(errs...)
}

func showProcesses(w io.Writer, all []client.Processes) error {
	var rows [][]string
	for _, p := range all {
		row := []string{string(p.Session), string(p.Phase), p.Sandbox.Phase, strconv.FormatUint(p.Sandbox.Generation, 10), "-", "-", "-", idle(p.IdleSince)}
		if u := p.Usage; u != nil {
			row[4], row[5], row[6] = strconv.Itoa(u.Processes), size(u.Memory), fmt.Sprintf("%.1fs", u.CPUSeconds)
		}
		rows = append(rows, row)
	}
	return table(w, "SESSION\tPHASE\tSANDBOX\tGENERATION\tPROCESSES\tMEMORY\tCPU\tIDLE", rows)
}

// idle says for how long nothing was to be done.
func idle(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Truncate(time.Second).String()
}

// size is a number of bytes as people read it.
func size(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	x, units := float64(n)/unit, "KMGTPE"
	for x >= unit && len(units) > 1 {
		x, units = x/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", x, units[0])
}
