package main

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

func newPorts() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ports SESSION",
		Short: "List what listens in a session's sandbox",
		Long:  `List the TCP ports that something in a session's sandbox listens on. It wakes nothing.`,
		Example: `  dormouse ports sesn_…
  dormouse forward sesn_… $(dormouse ports sesn_… --json | jq '.ports[].port')`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.Port, error) {
				return c.Ports(ctx, dormouse.SessionID(args[0]))
			}, func(w io.Writer, ports []client.Port) error {
				var rows [][]string
				for _, port := range ports {
					pid := ""
					if port.PID != 0 {
						pid = strconv.Itoa(port.PID)
					}
					rows = append(rows, []string{strconv.Itoa(int(port.Port)), port.Address, pid, port.Command})
				}
				return table(w, "PORT\tADDRESS\tPID\tCOMMAND", rows)
			})
		},
	}
	clientFlags(cmd)
	return cmd
}
