package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"runtime"
	"sync"

	"modernc.org/sqlite"
)

// bareLog is SQLite with nothing around it: one table, one insert for each
// append, and one goroutine that puts whatever waits into one commit.
type bareLog struct {
	conn    driver.Conn
	jobs    chan bareJob
	running sync.WaitGroup
	seqs    [writers]int64

	begin, insert, commit driver.StmtExecContext
}

type bareJob struct {
	writer int
	done   chan error
}

// bareGroup is how many appends share a commit at most.
const bareGroup = 256

func newBareLog(dir string) (*bareLog, error) {
	c, err := new(sqlite.Driver).Open("file:" + filepath.Join(dir, "bare.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	b := &bareLog{conn: c, jobs: make(chan bareJob, bareGroup)}
	var errs []error
	prepare := func(text string) driver.StmtExecContext {
		s, err := c.Prepare(text)
		errs = append(errs, err)
		e, _ := s.(driver.StmtExecContext)
		return e
	}
	if create := prepare(`CREATE TABLE events (session INTEGER NOT NULL, seq INTEGER NOT NULL, payload TEXT, UNIQUE (session, seq)) STRICT`); create != nil {
		errs = append(errs, exec1(create))
	}
	b.begin, b.commit = prepare(`BEGIN IMMEDIATE`), prepare(`COMMIT`)
	b.insert = prepare(`INSERT INTO events (session, seq, payload) VALUES (?, ?, ?)`)
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	b.running.Go(b.run)
	return b, nil
}

func exec1(s driver.StmtExecContext, args ...driver.Value) error {
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	_, err := s.ExecContext(context.Background(), named)
	return err
}

func (b *bareLog) append(writer int) error {
	j := bareJob{writer, make(chan error, 1)}
	b.jobs <- j
	return <-j.done
}

func (b *bareLog) run() {
	for j := range b.jobs {
		group := []bareJob{j}
		runtime.Gosched() // let those just answered share this commit, as ours does
		for len(group) < bareGroup && len(b.jobs) > 0 {
			group = append(group, <-b.jobs)
		}
		err := exec1(b.begin)
		for _, j := range group {
			if err == nil {
				b.seqs[j.writer]++
				err = exec1(b.insert, int64(j.writer), b.seqs[j.writer], string(eventBody))
			}
		}
		if err == nil {
			err = exec1(b.commit)
		}
		for _, j := range group {
			j.done <- err
		}
	}
}

func (b *bareLog) close() error {
	close(b.jobs)
	b.running.Wait()
	return b.conn.Close()
}
