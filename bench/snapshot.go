package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
)

// The tree that snapshots are taken of: about a project with its libraries.
const (
	treeFiles = 17_000
	treeBytes = 300 << 20
)

// snapshots measures snapshots over the API of a real server with real sandboxes,
// beside what keeps the same files otherwise: an archive of all of them, a backup
// program that looks for what changed, and Docker. Every round takes one sample of
// each.
func (b *bench) snapshots(ctx context.Context) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	k, err := b.openKeepers(ctx, p)
	if k != nil {
		defer func() { err = errors.Join(err, k.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	rounds := 1 + b.times(10)
	for n := range rounds {
		if n == 1 {
			k.forget() // the first round only warmed things up
		}
		if err := k.round(ctx, n); err != nil {
			return err
		}
	}
	k.report(b)
	if err := b.rewinds(ctx, k); err != nil {
		return err
	}
	return b.storage(ctx, k.server)
}

// keepers are the systems that store the tree, and how long each took.
type keepers struct {
	server   *server
	sealed   string // a session over layers that have the tree
	unsealed string // a session in whose workspace the tree was written
	docker   *docker
	backup   *backup
	tree     *tree
	archive  string // the file that the whole tree is packed into

	timings
}

func (b *bench) openKeepers(ctx context.Context, p *provider) (k *keepers, err error) {
	rootfs, err := b.space("rootfs")
	if err != nil {
		return nil, err
	}
	if err := makeRootFS(ctx, rootfs); err != nil {
		return nil, err
	}
	k = &keepers{timings: make(timings), archive: filepath.Join(b.dir, "tree.tar.zst")}
	if k.tree, err = makeTree(rootfs, treeFiles, treeBytes); err != nil {
		return nil, err
	}
	dir, err := b.space("docker")
	if err != nil {
		return nil, err
	}
	if k.docker, err = startDocker(ctx, dir, rootfs); err != nil {
		return nil, err
	}
	if dir, err = b.space("restic"); err != nil {
		return k, err
	}
	if k.backup, err = startBackup(ctx, dir, k.tree); err != nil {
		return k, err
	}
	k.server, err = b.serveSandboxes(ctx, "snapshot", 1, "--scripted-url", p.url, "--snapshots-keep", strconv.Itoa(longChain))
	if err != nil {
		return k, err
	}
	return k, k.fill(ctx)
}

// fill writes the tree in the one session. The other is a branch of it: its files
// lie in layers, as they do once a session has slept or went back.
func (k *keepers) fill(ctx context.Context) (err error) {
	if k.unsealed, err = k.server.createBox(ctx); err != nil {
		return err
	}
	if err := k.tree.put(ctx, k.server, k.unsealed); err != nil {
		return err
	}
	point, err := k.server.snapshot(ctx, k.unsealed)
	if err != nil {
		return err
	}
	k.sealed, err = k.server.branch(ctx, k.unsealed, point)
	return err
}

// close ends everything, in the order in which nothing is left behind.
func (k *keepers) close(ctx context.Context) (err error) {
	if k.server != nil {
		err = k.server.clear(ctx)
	}
	return errors.Join(err, k.docker.Stop(ctx))
}

// The names of what is timed.
const (
	sealedOurs, unsealedOurs, archived, backedUp, committed = "sealed", "unsealed", "tar and zstd", "restic", "docker commit"
)

// round makes the same changes everywhere and has each system store them.
func (k *keepers) round(ctx context.Context, n int) error {
	if err := k.tree.do(ctx, changes(n)); err != nil {
		return err
	}
	if _, err := k.docker.exec(ctx, "/bin/bash", "-c", changes(n)); err != nil {
		return err
	}
	for _, session := range []string{k.sealed, k.unsealed} {
		if _, err := k.server.exec(ctx, session, "main", changes(n)); err != nil {
			return err
		}
	}
	for _, t := range []struct {
		name string
		do   func() error
	}{
		{sealedOurs, func() error { _, err := k.server.snapshot(ctx, k.sealed); return err }},
		{archived, func() error { return k.tree.pack(ctx, k.archive) }},
		{backedUp, func() error { return k.backup.again(ctx) }},
		{committed, func() error { return k.docker.commit(ctx) }},
		{unsealedOurs, func() error { _, err := k.server.snapshot(ctx, k.unsealed); return err }},
	} {
		if err := k.times(t.name, 1, t.do); err != nil {
			return err
		}
	}
	return nil
}

// report compares what was timed.
func (k *keepers) report(b *bench) {
	for _, l := range []struct {
		name, ours string
		targets    []target
	}{
		{"snapshot-sealed", sealedOurs, []target{atMost("ours", 25), atMost("ratio", 0.05)}},
		{"snapshot-unsealed", unsealedOurs, nil},
	} {
		us, them := k.median(l.ours, "ours"), k.median(archived, "tar-zstd")
		b.report("bench", line{Name: l.name, Targets: l.targets, Numbers: []number{
			us, them, ratio(us, them), k.median(backedUp, "restic"), k.median(committed, "docker-commit"),
			count("changed", changedFiles), count("files", treeFiles),
			{"holding", treeBytes >> 20, mebibytes},
			k.least(l.ours, "ours-min"),
		}})
	}
}
