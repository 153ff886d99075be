package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Look after the database",
		Long: `Look after the database: check it, keep a copy of it, move to another one. The
server must be stopped.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(newExport(), newImport(), newMigrate(), newRebuild())
	return cmd
}

// deployment is all that a server keeps and an archive holds. While we have it
// no server has.
type deployment struct {
	data  string
	store store.Store
	blobs blob.Store
}

func openDeployment(cmd *cobra.Command) (*deployment, error) {
	data, err := cmd.Flags().GetString("data")
	if err != nil {
		return nil, err
	}
	s, err := sqlite.Open(cmd.Context(), data, sqlite.Options{})
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("%w; stop the server that uses it", err)
	}
	if err != nil {
		return nil, err
	}
	blobs, err := dir.Open(filepath.Join(data, "blobs"))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &deployment{data, s, blobs}, nil
}

func (d *deployment) Close() error { return d.store.Close() }

// report prints what was done: as JSON if asked for, otherwise by say.
func report(cmd *cobra.Command, w io.Writer, v any, say func(io.Writer)) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(w).Encode(v)
	}
	say(w)
	return nil
}

// progress tells somebody who waits how far it is: often on a terminal, and now
// and then elsewhere.
type progress struct {
	out   io.Writer
	every time.Duration
	line  string // how a line begins
	end   string // and how it ends
	told  time.Time
}

func newProgress(out io.Writer) *progress {
	if isTerminal(out) {
		return &progress{out: out, every: 200 * time.Millisecond, line: "\r\x1b[K"}
	}
	return &progress{out: out, every: 10 * time.Second, end: "\n", told: time.Now()}
}

func (p *progress) tell(format string, args ...any) {
	if now := time.Now(); now.Sub(p.told) >= p.every {
		p.told = now
		fmt.Fprintf(p.out, p.line+format+p.end, args...)
	}
}

// done leaves the terminal to others.
func (p *progress) done() { fmt.Fprint(p.out, p.line) }

// plural is n of a thing.
func plural[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
