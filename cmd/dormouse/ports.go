package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/door/rest"
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
			return get(cmd, sessionPath(args[0], "ports"), func(w io.Writer, p rest.Ports) error {
				var rows [][]string
				for _, port := range p.Ports {
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
