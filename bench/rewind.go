package main

import (
	"context"
	"errors"
	"fmt"
)

// How long chains of small snapshots are, and how many files they lie over.
const (
	shortChain, longChain = 50, 500
	fewFiles, manyFiles   = 1_000, 100_000
	smallFile             = 400
)

// past is a point that sessions go back to and branch from.
type past struct {
	name    string // of the lines about it
	session string
	point   string
	files   int
	chain   int // how many snapshots lead up to it

	timings
}

// rewinds measures how soon sessions can be worked with that went back, or branched
// off: up to the first file that is read, and up to the result of the first
// command. A sandbox is ready each time. Beside it stands Docker, which starts a
// container from the image it committed.
func (b *bench) rewinds(ctx context.Context, k *keepers) error {
	all, err := b.makePasts(ctx, k)
	if err != nil {
		return err
	}
	runs := make(timings)
	for n := range 1 + b.times(5) {
		for _, p := range all {
			if n == 1 { // the round before only warmed things up
				p.forget()
				runs.forget()
			}
			if err := p.round(ctx, k.server); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if err := k.runCommitted(ctx, runs); err != nil {
				return err
			}
		}
	}
	for _, p := range all {
		p.report(b, runs)
	}
	return b.branches(ctx, k, all[0])
}

// runCommitted times a container from the committed image.
func (k *keepers) runCommitted(ctx context.Context, to timings) error {
	return to.times(dockerRun, 1, func() error {
		got, err := k.docker.runFrom(ctx, dockerCommitted, "/bin/bash", "-c", firstLine(0))
		if err == nil && got != lineOf(0) {
			err = fmt.Errorf("a file begins %q", got)
		}
		return err
	})
}

// makePasts makes the points: of the tree, of few and of many files, and at the
// ends of chains.
func (b *bench) makePasts(ctx context.Context, k *keepers) ([]*past, error) {
	s := k.server
	point, err := s.snapshot(ctx, k.sealed)
	if err != nil {
		return nil, err
	}
	all := []*past{{name: "tree", session: k.sealed, point: point, files: treeFiles, chain: 1, timings: make(timings)}}
	for _, p := range []*past{{name: "few", files: fewFiles}, {name: "many", files: b.times(manyFiles)}} {
		p.timings, p.chain = make(timings), 1
		if p.session, err = s.createBox(ctx); err != nil {
			return nil, err
		}
		if err := grow(ctx, s, p.session, p.files, smallFile); err != nil {
			return nil, err
		}
		if p.point, err = s.snapshot(ctx, p.session); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	few := all[1]
	session, err := s.branch(ctx, few.session, few.point)
	if err != nil {
		return nil, err
	}
	for n := 2; n <= b.times(longChain); n++ {
		step := fmt.Sprintf("echo %d >>%s/%s; echo %d >step", n, treeName, fileOf(n), n)
		if _, err := s.exec(ctx, session, "main", step); err != nil {
			return nil, err
		}
		point, err := s.snapshot(ctx, session)
		if err != nil {
			return nil, err
		}
		if n == b.times(shortChain) || n == b.times(longChain) {
			all = append(all, &past{name: fmt.Sprintf("chain-%d", n), session: session, point: point, files: fewFiles, chain: n, timings: make(timings)})
		}
	}
	return all, nil
}

// The names of what is timed.
const restoreRead, restoreRun, branchRead, branchRun = "restore read", "restore run", "branch read", "branch run"

// round goes back twice, and branches twice.
func (p *past) round(ctx context.Context, s *server) error {
	read := func(session string) error { return s.reads(ctx, session, treeName+"/"+fileOf(0), lineOf(0)) }
	run := func(session string) error { return s.says(ctx, session, "main", firstLine(0), lineOf(0)) }
	back := func(then func(session string) error) (string, error) {
		return "", errors.Join(s.restore(ctx, p.session, p.point), then(p.session))
	}
	off := func(then func(session string) error) (string, error) {
		session, err := s.branch(ctx, p.session, p.point)
		if err == nil {
			err = then(session)
		}
		return session, err
	}
	for _, t := range []struct {
		name string
		do   func(then func(session string) error) (made string, err error)
		then func(session string) error
	}{{restoreRead, back, read}, {restoreRun, back, run}, {branchRead, off, read}, {branchRun, off, run}} {
		if err := s.awaitSpares(ctx, 1); err != nil {
			return err
		}
		var made string
		if err := p.times(t.name, 1, func() (err error) { made, err = t.do(t.then); return err }); err != nil {
			return err
		}
		if made != "" {
			if err := s.remove(ctx, made); err != nil {
				return err
			}
		}
	}
	return nil
}

// report compares what was timed.
func (p *past) report(b *bench, runs timings) {
	for _, l := range []struct{ verb, read, run string }{{"restore", restoreRead, restoreRun}, {"branch", branchRead, branchRun}} {
		us, them := p.median(l.run, "command"), runs.median(dockerRun, "docker-run")
		b.report("bench", line{
			Name: l.verb + "-" + p.name,
			Numbers: []number{
				p.median(l.read, "read"), us, them, ratio(us, them), count("files", p.files), count("chain", p.chain),
				p.least(l.read, "read-min"), p.least(l.run, "command-min"),
			},
			Targets: []target{atMost("read", 50), atMost("command", 250)},
		})
	}
}

// branches times ten branches in a row, each up to the first file that is read,
// while a sandbox is ready only for the first. Docker starts as many containers.
func (b *bench) branches(ctx context.Context, k *keepers, p *past) error {
	const many = 10
	all := make(timings)
	for range 1 + b.times(2) {
		if err := k.server.awaitSpares(ctx, 1); err != nil {
			return err
		}
		var made []string
		err := all.times(branchRead, 1, func() error {
			for range many {
				session, err := k.server.branch(ctx, p.session, p.point)
				if err != nil {
					return err
				}
				made = append(made, session)
				if err := k.server.reads(ctx, session, treeName+"/"+fileOf(0), lineOf(0)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, session := range made {
			err = errors.Join(err, k.server.remove(ctx, session))
		}
		if err != nil {
			return err
		}
		runs := make(timings)
		if err := all.times(dockerRun, 1, func() error {
			for range many {
				if err := k.runCommitted(ctx, runs); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	us, them := all.median(branchRead, "ours"), all.median(dockerRun, "docker-run")
	b.report("bench", line{Name: "branches", Numbers: []number{us, them, ratio(us, them), count("branches", many), count("files", p.files)}})
	return nil
}
