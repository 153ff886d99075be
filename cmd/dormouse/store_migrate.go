//go:build !windows

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// migrated is what a migration did, or would do.
type migrated struct {
	// From and To are steps of the schema; 0 is no database.
	From int `json:"from"`
	To   int `json:"to"`
	// Needed says that From is not yet To.
	Needed bool `json:"needed"`
}

func newMigrate(where *places) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema to this version",
		Long: `Bring the schema of the database to this version of the program, and say from which
step to which. A server does so by itself when it starts; this does it before.
There is no way back. Most steps only add, and programs that do not know them go on;
after one that does not, an older program refuses the database. With several servers
such a step is refused while any of them runs.

With --check nothing is changed. The exit code is 0 if there is nothing to do and 3
if there is.`,
		Example: `  dormouse store migrate --check || dormouse store migrate`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, where, err := locate(cmd, *where)
			if err != nil {
				return err
			}
			at, newest, err := schemaOf(cmd.Context(), data, where.store)
			if err != nil {
				return err
			}
			m := migrated{From: at, To: newest, Needed: at < newest}
			if !check {
				log := newLogger(config{LogLevel: "warn"}, cmd.ErrOrStderr())
				if err := claimData(cmd.Context(), data, log); err != nil {
					return err
				}
				s, err := openStore(cmd.Context(), data, where.store, log)
				if err != nil {
					return err
				}
				if err := s.Close(); err != nil {
					return err
				}
				m.Needed = false
			}
			if err := report(cmd, cmd.OutOrStdout(), m, m.say); err != nil {
				return err
			}
			if m.Needed {
				return errNeedsAttention
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only say whether it is needed")
	return cmd
}

func (m migrated) say(w io.Writer) {
	switch {
	case m.Needed:
		fmt.Fprintf(w, "schema is at step %d and this program needs step %d\n", m.From, m.To)
	case m.From < m.To:
		fmt.Fprintf(w, "schema was at step %d and is at step %d\n", m.From, m.To)
	case m.From > m.To:
		fmt.Fprintf(w, "schema is at step %d; this program knows %d, and can use it\n", m.From, m.To)
	default:
		fmt.Fprintf(w, "schema is at step %d, the newest\n", m.To)
	}
}
