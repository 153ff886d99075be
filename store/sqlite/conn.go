package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"

	"modernc.org/sqlite"
)

// conn is the one connection that writes. It uses the driver directly, without
// database/sql: a pool of one adds cost to every statement and protects nothing. Only the
// writer's goroutine uses it.
type conn struct {
	driver.Conn
	stmts [statements]driver.Stmt
	args  []driver.NamedValue
	files openFiles

	// rows caches the index rows of sessions, which only this connection
	// changes; it is emptied whenever a transaction is rolled back.
	rows map[string]*row
}

// dsn says where a database is and which pragmas every connection to it has.
func dsn(path string, query url.Values, pragmas ...string) string {
	for _, p := range pragmas {
		query.Add("_pragma", p)
	}
	query.Set("_error_rc", "1")
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}
	return u.String()
}

func dial(path string) (*conn, error) {
	c, err := new(sqlite.Driver).Open(dsn(path, url.Values{},
		"busy_timeout(5000)",
		"journal_mode(WAL)",
		// Every commit waits for the disk. NORMAL loses acknowledged commits in a
		// power cut.
		"synchronous(FULL)",
		// Enough for the pages of 64 sessions. SQLite goes through the whole cache at
		// every commit, so a larger one is slower.
		"cache_size(-6000)",
		"temp_store(MEMORY)",
		// The writer checkpoints the log itself: SQLite would not report a disk that
		// failed meanwhile.
		"wal_autocheckpoint(0)",
		"journal_size_limit(33554432)",
	))
	if err != nil {
		return nil, asUnknown(err)
	}
	return &conn{Conn: c, rows: make(map[string]*row)}, nil
}

// prepare readies the statements, which need the newest schema.
func (c *conn) prepare() error {
	for s, text := range texts {
		stmt, err := c.Prepare(text)
		if err != nil {
			return fmt.Errorf("prepare %q: %w", text, err)
		}
		c.stmts[s] = stmt
	}
	return nil
}

// Close gives the statements and the connection back.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.stmts {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, c.Conn.Close())...)
}

// script runs text that has no arguments and is run once.
func (c *conn) script(ctx context.Context, text string) error {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return errors.New("driver cannot execute")
	}
	_, err := e.ExecContext(ctx, text, nil)
	return err
}

// exec runs a statement and returns how many rows it touched.
func (c *conn) exec(ctx context.Context, s statement, args ...driver.Value) (int64, error) {
	e, ok := c.stmts[s].(driver.StmtExecContext)
	if !ok {
		return 0, errors.New("driver cannot execute")
	}
	res, err := e.ExecContext(ctx, c.named(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// queryRow runs a statement for its first row and reports whether there is one.
func (c *conn) queryRow(ctx context.Context, s statement, dest []driver.Value, args ...driver.Value) (bool, error) {
	q, ok := c.stmts[s].(driver.StmtQueryContext)
	if !ok {
		return false, errors.New("driver cannot query")
	}
	rows, err := q.QueryContext(ctx, c.named(args))
	if err != nil {
		return false, err
	}
	err = rows.Next(dest)
	if errors.Is(err, io.EOF) {
		return false, rows.Close()
	}
	return err == nil, errors.Join(err, rows.Close())
}

// named numbers arguments in a slice that every statement shares.
func (c *conn) named(args []driver.Value) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}
