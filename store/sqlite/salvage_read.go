package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"strings"

	lib "modernc.org/sqlite/lib"
)

// eachRow calls f with every row of a table that can be read, in the order of rowids, and
// reports whether that is all. If a page was overwritten by a copy of another page, some
// rows come twice and out of order.
func (s *Salvage) eachRow(ctx context.Context, table string, columns []string, f func([]driver.Value) error) (whole bool, err error) {
	query := `SELECT rowid, ` + strings.Join(columns, ", ") + ` FROM ` + table + ` NOT INDEXED WHERE rowid >= ? ORDER BY rowid`
	whole = true
	for from := int64(math.MinInt64); ; {
		err := s.read(ctx, len(columns)+1, func(row []driver.Value) error {
			id, ok := row[0].(int64)
			whole = whole && ok && id >= from
			if ok {
				from = max(from, min(id, math.MaxInt64-1)+1)
			}
			return f(row[1:])
		}, query, from)
		if code(err) != lib.SQLITE_CORRUPT {
			return whole, err
		}
		whole = false
		next, found, err := s.beyond(ctx, table, max(from, 0))
		if err != nil || !found {
			return whole, err
		}
		from = next
	}
}

// beyond finds a rowid behind an unreadable page: the smallest one that it can find,
// greater than from, at which rows can be read again. The row read there never has a
// smaller rowid, so that each call makes progress.
func (s *Salvage) beyond(ctx context.Context, table string, from int64) (int64, bool, error) {
	reads := func(rowid int64) (bool, error) {
		ahead := true
		err := s.read(ctx, 1, func(row []driver.Value) error {
			id, ok := row[0].(int64)
			ahead = ok && id >= rowid
			return nil
		},
			`SELECT rowid FROM `+table+` NOT INDEXED WHERE rowid >= ? ORDER BY rowid LIMIT 1`, rowid)
		if code(err) == lib.SQLITE_CORRUPT {
			return false, nil
		}
		return err == nil && ahead, err
	}
	for step := int64(1); step <= math.MaxInt64/4 && from <= math.MaxInt64-step; step *= 2 {
		ok, err := reads(from + step)
		if err != nil {
			return 0, false, err
		}
		if !ok {
			continue
		}
		low, high := from+step/2, from+step
		for low+1 < high {
			middle := low + (high-low)/2
			if ok, err = reads(middle); err != nil {
				return 0, false, err
			}
			if ok {
				high = middle
			} else {
				low = middle
			}
		}
		return high, true, nil
	}
	return 0, false, nil
}

// fromBothEnds calls f with the rows of a table or index from its first up to one that
// cannot be read, and in that case also from its last back to one that cannot be read, so
// that some come twice. It reports whether all rows could be read.
func (s *Salvage) fromBothEnds(ctx context.Context, from string, columns []string, order string, f func([]driver.Value) error) (whole bool, err error) {
	query := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + from + ` ORDER BY ` + order
	if err = s.read(ctx, len(columns), f, query); code(err) != lib.SQLITE_CORRUPT {
		return err == nil, err
	}
	if err = s.read(ctx, len(columns), f, query+` DESC`); code(err) == lib.SQLITE_CORRUPT {
		err = nil
	}
	return false, err
}

// read asks the corrupt database, and calls f with each row up to the first that cannot be
// read.
func (s *Salvage) read(ctx context.Context, columns int, f func([]driver.Value) error, query string, args ...any) (err error) {
	rows, err := s.from.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		row, dest := make([]any, columns), make([]any, columns)
		for i := range row {
			dest[i] = &row[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		values := make([]driver.Value, columns)
		for i, v := range row {
			values[i] = v
		}
		if err := f(values); err != nil {
			return err
		}
	}
	return rows.Err()
}
