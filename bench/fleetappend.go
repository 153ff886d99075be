package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/postgres"
)

// appenders is how many servers append at once.
const appenders = 3

// fleetAppends compares appends through three servers on one PostgreSQL, each
// with its rows, with plain inserts that are committed one by one on as many
// connections as there are sessions.
func (b *bench) fleetAppends(ctx context.Context, db *pgserver.Server, name string) (err error) {
	var ours []*appendServer
	defer func() {
		for _, a := range ours {
			err = errors.Join(err, a.end())
		}
	}()
	for i := range appenders {
		share := writers / appenders
		if i < writers%appenders {
			share++
		}
		a, err := startAppendServer(ctx, db.URL(name), i, share)
		if err != nil {
			return err
		}
		ours = append(ours, a)
	}
	plain, err := newPlainInserts(ctx, db.URL(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.close(ctx)) }()
	const rounds = 6
	each := b.times(48_000) / rounds / writers
	var our, their time.Duration
	for range rounds {
		began := time.Now()
		if err := fromAll(appenders, 1, func(i int) error { return ours[i].round(each) }); err != nil {
			return err
		}
		our += time.Since(began)
		began = time.Now()
		if err := fromAll(writers, each, func(i int) error { return plain.insert(ctx, i) }); err != nil {
			return err
		}
		their += time.Since(began)
	}
	n := rounds * each * writers
	us, them := rate("ours", n, our), rate("plain", n, their)
	b.report("bench", line{
		Name: "fleet-append", Numbers: []number{us, them, ratio(us, them), count("servers", appenders), count("sessions", writers)},
		Targets: []target{atLeast("ratio", 1)},
	})
	return nil
}

// appendServer is a process that appends through a store of its own, as a server
// does, whenever it is told to.
type appendServer struct {
	cmd  *exec.Cmd
	tell io.WriteCloser
	hear *bufio.Scanner
}

func startAppendServer(ctx context.Context, dsn string, n, sessions int) (*appendServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &appendServer{cmd: exec.CommandContext(ctx, self, "-append", dsn, "-append-as", fmt.Sprint("bench-", n), "-append-sessions", strconv.Itoa(sessions))}
	a.cmd.Stderr = os.Stderr
	if a.tell, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.hear = bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	return a, a.heard("ready")
}

func (a *appendServer) heard(word string) error {
	if !a.hear.Scan() || a.hear.Text() != word {
		return fmt.Errorf("an appending server said %q, not %q: %w", a.hear.Text(), word, a.hear.Err())
	}
	return nil
}

// round has every session of the server append so many times.
func (a *appendServer) round(each int) error {
	if _, err := fmt.Fprintln(a.tell, each); err != nil {
		return err
	}
	return a.heard("done")
}

func (a *appendServer) end() error { return errors.Join(a.tell.Close(), a.cmd.Wait()) }

// serveAppends is the child process: a store that has joined the fleet, with sessions
// that it owns.
func serveAppends(ctx context.Context, dsn, name string, sessions int, in io.Reader, out io.Writer) (err error) {
	s, err := postgres.Open(ctx, dsn, postgres.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Join(ctx, store.Server{Name: name, Addr: name, Place: "bench"}, time.Hour); err != nil {
		return err
	}
	a := &appender{store: s}
	for i := range sessions {
		if a.sessions[i], err = newHistory(ctx, s, fmt.Sprintf("%s %d", name, i)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		each, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			return err
		}
		if err := fromAll(sessions, each, func(i int) error { return a.append(ctx, i) }); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, "done"); err != nil {
			return err
		}
	}
	return s.Leave(ctx)
}

// plainInserts is plain PostgreSQL: a table, and for each writer a connection that
// commits every insert by itself.
type plainInserts struct {
	conns [writers]*pgx.Conn
	seqs  [writers]int64
}

func newPlainInserts(ctx context.Context, dsn string) (*plainInserts, error) {
	p := new(plainInserts)
	for i := range p.conns {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, errors.Join(err, p.close(ctx))
		}
		p.conns[i] = c
	}
	_, err := p.conns[0].Exec(ctx, `CREATE TABLE plain (session bigint NOT NULL, seq bigint NOT NULL, payload text, UNIQUE (session, seq))`)
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

func (p *plainInserts) insert(ctx context.Context, writer int) error {
	p.seqs[writer]++
	_, err := p.conns[writer].Exec(ctx, `INSERT INTO plain (session, seq, payload) VALUES ($1, $2, $3)`,
		int64(writer), p.seqs[writer], string(eventBody))
	return err
}

func (p *plainInserts) close(ctx context.Context) error {
	var errs []error
	for _, c := range p.conns {
		if c != nil {
			errs = append(errs, c.Close(ctx))
		}
	}
	return errors.Join(errs...)
}
