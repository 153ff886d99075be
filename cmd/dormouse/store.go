//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/transfer"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Look after the database",
		Long: `Look after the database: check it, keep a copy of it, move to another one. Servers
must be stopped. --store or --store-file names the database and --blobs where large payloads are, as
they do for a server; if they are not given it is what config.json in the data
directory says, or else SQLite and the blobs there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var where places
	where.flags(cmd.PersistentFlags())
	cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(newExport(&where), newImport(&where), newMigrate(&where), newRebuild(&where))
	return cmd
}

// places are where a deployment keeps what it has.
type places struct {
	store dsn
	blobs bucket
}

func (p *places) flags(f *pflag.FlagSet) {
	storeFlag(f, &p.store)
	p.blobs.flags(f)
}

// deployment is what servers keep, and their data directory.
type deployment struct {
	transfer.Deployment
	data string
}

// workspaces is the directory of the workspaces of sessions, which no archive holds.
func (d *deployment) workspaces() (string, error) {
	return filepath.Abs(filepath.Join(d.data, "sandbox"))
}

// withDeployment opens the deployment there is, and keeps servers from it until
// do returns.
func withDeployment(cmd *cobra.Command, where places, do func(context.Context, *deployment) error) error {
	data, where, err := locate(cmd, where)
	if err != nil {
		return err
	}
	at, _, err := schemaOf(cmd.Context(), data, where.store)
	if err != nil {
		return err
	}
	if at == 0 { // one that is made now has nothing to look after
		if where.store.value == "" {
			return fmt.Errorf("there is no database in %s: %w; see --data and --store", data, dormouse.ErrNotFound)
		}
		return fmt.Errorf("nothing of ours is in %s: %w", where.store, dormouse.ErrNotFound)
	}
	return withAnyDeployment(cmd, where, do)
}

// withAnyDeployment is withDeployment where there may be none yet.
func withAnyDeployment(cmd *cobra.Command, where places, do func(context.Context, *deployment) error) (err error) {
	ctx := cmd.Context()
	data, where, err := locate(cmd, where)
	if err != nil {
		return err
	}
	log := newLogger(config{LogLevel: "warn"}, cmd.ErrOrStderr())
	if err := claimData(ctx, data, log); err != nil {
		return err
	}
	s, err := openStore(ctx, data, where.store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if shared, ok := s.(store.Shared); ok {
		held, release, err := transfer.Hold(ctx, shared)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		ctx = held
	}
	blobs, err := openBlobs(ctx, data, where.blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	if err := do(ctx, &deployment{transfer.Deployment{Store: s, Blobs: blobs}, data}); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// locate says which data directory is meant, which database and which blobs.
func locate(cmd *cobra.Command, where places) (string, places, error) {
	data, err := cmd.Flags().GetString("data")
	if err != nil {
		return "", where, err
	}
	file, err := readConfig(filepath.Join(data, configFile))
	if err != nil {
		return "", where, err
	}
	if where.store == (dsn{}) {
		where.store = dsn{value: file["store"], file: file["store_file"]}
	}
	where.blobs.fill(file)
	if err := where.store.check(); err != nil {
		return "", where, err
	}
	return data, where, where.blobs.check()
}

// report prints what was done: as JSON if asked for, otherwise by say.
func report(cmd *cobra.Command, w io.Writer, v any, say func(io.Writer)) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(w).Encode(v)
	}
	say(w)
	return nil
}
