package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Timeouts, the shortest first: the database ends a transaction whose client is silent,
// then a statement that waits for that one's locks gives up, then any statement, and then
// we do. So a database that stalls and a server that is frozen both end as errors, and
// nothing is stuck.
const (
	idleTimeout      = 2 * time.Second
	lockTimeout      = 4 * time.Second
	statementTimeout = 10 * time.Second
	answerTimeout    = 12 * time.Second
)

// ErrServer means that this database server cannot be used.
var ErrServer = errors.New("database server cannot be used")

// minServerVersion is the oldest server we speak to.
const minServerVersion = 13

// settings are those of every connection. They are set after connecting, because poolers
// refuse startup parameters that they do not know.
var settings = map[string]string{
	"synchronous_commit":                  "on",
	"client_encoding":                     "UTF8",
	"timezone":                            "UTC",
	"default_transaction_isolation":       "read committed",
	"idle_in_transaction_session_timeout": millis(idleTimeout),
	"lock_timeout":                        millis(lockTimeout),
	"statement_timeout":                   millis(statementTimeout),
	// Our statements are short; working out how to run them fast is not.
	"jit": "off",
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// configure reads a data source name and adds the settings that every connection needs.
// extra has more settings.
func configure(dsn string, extra map[string]string) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "dormouse"
	}
	if c.ValidateConnect == nil {
		// Of several hosts the one that can be written, and never a replica.
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	all := maps.Clone(settings)
	maps.Copy(all, extra)
	var values []string
	for name, value := range all {
		values = append(values, fmt.Sprintf("('%s', '%s')", name, value))
	}
	// A commit that also waits for a replica to apply it is more than we ask.
	text := `SELECT set_config(name, value, false) FROM (VALUES ` + strings.Join(values, ", ") + `) AS v (name, value)
		WHERE NOT (name = 'synchronous_commit' AND current_setting(name) = 'remote_apply')`
	c.AfterConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		_, err := pg.Exec(ctx, text).ReadAll()
		return err
	}
	return c, nil
}

// querier is a connection, inside a transaction or not.
type querier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// inspectServer refuses a server on which we could not keep our promises, and returns
// warnings for the operator.
func inspectServer(ctx context.Context, c *pgx.Conn) (warnings []string, err error) {
	var version int
	var encoding, fsync, pages string
	err = c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		current_setting('fsync'), current_setting('full_page_writes')`).Scan(&version, &encoding, &fsync, &pages)
	if err != nil {
		return nil, err
	}
	if version/10000 < minServerVersion {
		return nil, fmt.Errorf("it is version %d and has to be %d or newer: %w", version/10000, minServerVersion, ErrServer)
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("the database is encoded as %s and has to be UTF8: %w", encoding, ErrServer)
	}
	if fsync != "on" {
		warnings = append(warnings, "fsync is off: a power cut loses what was acknowledged")
	}
	if pages != "on" {
		warnings = append(warnings, "full_page_writes is off: a power cut may damage the database")
	}
	return warnings, nil
}
