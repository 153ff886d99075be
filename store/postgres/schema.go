package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/store"
)

// Schema returns the step that the schema of a database is at, 0 if it has none
// yet, and the newest step that this program knows. A database that this program may not
// use is store.ErrNewer. It changes nothing.
func Schema(ctx context.Context, dsn string) (at, newest int, err error) {
	all, err := store.Steps(migrations)
	if err != nil {
		return 0, 0, err
	}
	config, err := configure(dsn, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("read schema: %w", err)
	}
	have, err := schemaAt(ctx, config)
	if err == nil {
		_, err = store.Missing(all, have)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read schema of database %s on %s: %w", config.Database, config.Host, explain(err))
	}
	return have.At, len(all), nil
}

func schemaAt(ctx context.Context, config *pgx.ConnConfig) (have store.Schema, err error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return have, err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	have, _, err = steps(ctx, c)
	return have, err
}
