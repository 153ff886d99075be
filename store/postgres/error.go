package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dormouse-run/dormouse"
)

// The conditions we tell apart, as PostgreSQL numbers them.
const (
	uniqueViolation      = "23505"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	readOnly             = "25006"
	idleInTransaction    = "25P03"
	diskFull             = "53100"
	tooManyConnections   = "53300"
	configurationLimit   = "53400"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014"
	adminShutdown        = "57P01"
	crashShutdown        = "57P02"
	cannotConnectNow     = "57P03"
)

// code is the condition the database reported, or "" if it reported none.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// constraint is the name of what a row violated, or "".
func constraint(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.ConstraintName
	}
	return ""
}

// connectionEnded reports whether the database ended the connection with this error.
func connectionEnded(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Severity != "ERROR"
}

// transient reports whether an error is temporary or of the connection, so
// that the same may work when it is tried again.
func transient(err error) bool {
	switch code(err) {
	case serializationFailure, deadlockDetected, readOnly, idleInTransaction, tooManyConnections, configurationLimit,
		adminShutdown, crashShutdown, cannotConnectNow:
		return true
	case "":
		return connectionLost(err)
	}
	return false
}

// connectionLost reports whether the connection broke.
func connectionLost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) {
		return true
	}
	_, dialing := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return code(err) == "" && (dialing || network)
}

// connectionUnusable reports whether a connection is of no use after this error.
func connectionUnusable(err error) bool {
	return connectionLost(err) || connectionEnded(err) || code(err) == readOnly
}

// serverBusy reports whether the database said that it accepts no connections now.
func serverBusy(err error) bool {
	c := code(err)
	return c == tooManyConnections || c == configurationLimit || c == cannotConnectNow
}

// explain puts PostgreSQL's errors into our words.
func explain(err error) error {
	c := code(err)
	switch {
	case err == nil:
		return nil
	case c == uniqueViolation && constraint(err) == "client_ids_pkey":
		return fmt.Errorf("a client has given this id before: %w: %w", dormouse.ErrConflict, err)
	case c == diskFull:
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	case c == tooManyConnections, c == configurationLimit:
		return fmt.Errorf("%w: it takes no more connections (max_connections): %w", dormouse.ErrUnavailable, err)
	case c == cannotConnectNow:
		return fmt.Errorf("%w: it is starting or stopping: %w", dormouse.ErrUnavailable, err)
	case c == lockNotAvailable, c == queryCanceled, transient(err), errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w: %w", dormouse.ErrUnavailable, err)
	case len(c) == 5 && c[:2] == "54":
		return fmt.Errorf("%w: %w", dormouse.ErrTooLarge, err)
	case len(c) == 5 && (c[:2] == "22" || c[:2] == "23"):
		return fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	return err
}
