package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// serverCommands says where a server can run.
func serverCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:   "serve",
		Short: "Run the server, which needs Linux or macOS",
		Args:  cobra.ArbitraryArgs,
		// Whatever flags it is given, the answer is the same.
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a server needs Linux, or macOS with --sandbox local; run it there and reach it from here with --server URL")
		},
	}}
}

// prepare completes the flags of a command before it runs.
func prepare(cmd *cobra.Command) error { return fill(cmd) }
