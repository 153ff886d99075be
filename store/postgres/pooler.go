package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// refusePooler refuses a pooler in transaction mode, which gives a connection to another
// client after every transaction: settings, prepared statements and LISTEN do not survive
// that. It is recognised by the connection that one client just released and the next one
// gets.
func refusePooler(ctx context.Context, c *pgx.Conn, config *pgx.ConnConfig) (err error) {
	mine, err := backend(ctx, c)
	if err != nil {
		return err
	}
	other, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Close(context.WithoutCancel(ctx))) }()
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	otherBackend, err1 := backend(ctx, tx)
	again, err2 := backend(ctx, c)
	if err := errors.Join(err1, err2, tx.Rollback(ctx)); err != nil {
		return err
	}
	if mine == otherBackend || mine != again {
		return fmt.Errorf("a pooler shares its connections between transactions; "+
			"connect to the database itself or let the pooler keep one connection per session: %w", ErrServer)
	}
	return nil
}

// backend is the process of the database that answers.
func backend(ctx context.Context, a querier) (pid int, err error) {
	err = a.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid, err
}
