//go:build !windows

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/store/sqlite"
	"github.com/dormouse-run/dormouse/store/transfer"
)

// corruption returns what is wrong with the pages of the database, nil if nothing is or
// if there is no database.
func corruption(cmd *cobra.Command, where places) error {
	data, where, err := locate(cmd, where)
	if err != nil {
		return err
	}
	// All of a database may be in a log that SQLite does not read.
	if _, _, err := schemaOf(cmd.Context(), data, where.store); err != nil {
		return err
	}
	return checkPages(cmd.Context(), data, where.store)
}

// withSalvage opens what can be read of a corrupt database as a deployment. When do has
// derived the rest, it replaces the corrupt one, and what is lost is printed.
func withSalvage(cmd *cobra.Command, where places, do func(context.Context, *deployment) error) (err error) {
	ctx := cmd.Context()
	data, where, err := locate(cmd, where)
	if err != nil {
		return err
	}
	log := newLogger(config{LogLevel: "warn"}, cmd.ErrOrStderr())
	if err := claimData(ctx, data, log); err != nil {
		return err
	}
	s, err := sqlite.NewSalvage(ctx, data, sqlite.Options{Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	blobs, err := openBlobs(ctx, data, where.blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	laidOut := do(ctx, &deployment{transfer.Deployment{Store: s.Store, Blobs: blobs}, data})
	if laidOut != nil && !errors.Is(laidOut, errSilent) {
		return laidOut
	}
	if err := s.Replace(); err != nil {
		return err
	}
	for _, lost := range s.Lost {
		cmd.PrintErrf("lost: %s\n", lost)
	}
	cmd.PrintErrf("the corrupt database is kept as %s\n", s.Kept)
	if laidOut == nil && len(s.Lost) > 0 {
		return errNeedsAttention
	}
	return laidOut
}
