//go:build !windows

package main

import "github.com/spf13/cobra"

// serverCommands run a server or work on what one keeps.
func serverCommands() []*cobra.Command {
	return []*cobra.Command{newServe(), newDemo(), newSandboxes(), newStore(), newDoctor(), newScriptedModel()}
}

// prepare completes the flags of a command before it runs.
func prepare(cmd *cobra.Command) error {
	exposed := hideFlags(cmd.Flags())
	if err := fill(cmd); err != nil {
		return err
	}
	if err := fillFromFile(cmd); err != nil {
		return err
	}
	exposed.warn(cmd)
	return nil
}
