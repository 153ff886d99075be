package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	sessionTurns = 200
	// storedFile is how large the files are that turns change.
	storedFile = 16 << 10
	taken      = "\nevent: snapshot.taken\n"
)

// storage measures what a session adds to the disk that works on a tree for many
// turns, with a snapshot of each. Beside it stands a packed copy of the whole tree
// after each turn.
func (b *bench) storage(ctx context.Context, s *server) error {
	session, err := s.create(ctx, map[string]any{"model": "scripted", "sleep_after": "0s"})
	if err != nil {
		return err
	}
	dir, err := b.space("storage")
	if err != nil {
		return err
	}
	t, err := makeTree(dir, fewFiles, fewFiles*storedFile)
	if err != nil {
		return err
	}
	if err := t.put(ctx, s, session); err != nil {
		return err
	}
	f, err := s.follow(ctx, "/api/sessions/"+session+"/events?follow=1", taken, 64<<10)
	if err != nil {
		return err
	}
	defer f.close()
	if _, err := s.snapshot(ctx, session); err != nil {
		return err
	}
	if err := f.rest(); err != nil {
		return err
	}
	before, err := s.stored()
	if err != nil {
		return err
	}
	turns := b.times(sessionTurns)
	copies := max(1, turns/10) // between two copies of everything, which are about as large
	var each sample
	var full, looks int64
	for n := range turns {
		work := storedWork(n)
		if err := errors.Join(t.do(ctx, work), each.timed(func() error {
			return errors.Join(s.prompt(ctx, session, storedTurn(n, work)), f.rest())
		})); err != nil {
			return fmt.Errorf("turn %d: %w", n, err)
		}
		if n%copies != 0 {
			continue
		}
		packed := filepath.Join(dir, "tree.tar.zst")
		if err := t.pack(ctx, packed); err != nil {
			return err
		}
		info, err := os.Stat(packed)
		if err != nil {
			return err
		}
		full, looks = full+info.Size(), looks+1
	}
	after, err := s.settled()
	if err != nil {
		return err
	}
	perTurn := func(name string, bytes int64) number {
		return number{name, float64(bytes) / float64(turns) / (1 << 10), kibibytes}
	}
	us, them := perTurn("ours", after.blobs-before.blobs), number{"tar-zstd", float64(full) / float64(looks) / (1 << 10), kibibytes}
	b.report("bench", line{
		Name: "snapshot-storage", Numbers: []number{
			us, them, ratio(us, them), perTurn("with-cache", after.disk-before.disk), took("turn", each.median()), count("turns", turns), count("files", fewFiles),
		},
		Targets: []target{atMost("ratio", 0.05)},
	})
	return nil
}

// storedWork is a command for bash that changes three files and makes one.
func storedWork(n int) string {
	var command strings.Builder
	for _, file := range []int{n, 7 * n, 13 * n} {
		fmt.Fprintf(&command, "echo turn %d >>%s/%s; ", n, treeName, fileOf(file%fewFiles))
	}
	fmt.Fprintf(&command, "echo turn %d >%s/new-%d", n, treeName, n)
	return command.String()
}

// storedTurn is a prompt whose turn runs a command.
func storedTurn(n int, command string) string {
	return fmt.Sprintf(`turn %d SCRIPT[{"tool":"bash","input":{"command":%q}},{"text":"done"}]`, n, command)
}

// storage is what a server has on its disk for snapshots.
type storage struct {
	blobs int64 // what the layers are packed to
	disk  int64 // of this machine, with the directories that are mounted
}

// settled returns what is stored once nothing is added any more: chains are compacted in
// the background.
func (s *server) settled() (storage, error) {
	last, err := s.stored()
	for err == nil {
		time.Sleep(time.Second)
		was := last
		if last, err = s.stored(); last == was {
			break
		}
	}
	return last, err
}

// stored is what there is now. A file with several names counts once.
func (s *server) stored() (k storage, err error) {
	seen := make(map[uint64]bool)
	for _, dir := range []string{"blobs", "snapshots"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(s.data, dir), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return gone(err)
			}
			info, err := e.Info()
			if err != nil {
				return gone(err)
			}
			at, ok := info.Sys().(*syscall.Stat_t)
			if !ok || seen[at.Ino] {
				return nil
			}
			seen[at.Ino] = true
			const block = 512
			k.disk += at.Blocks * block
			if dir == "blobs" && e.Type().IsRegular() {
				k.blobs += info.Size()
			}
			return nil
		}))
	}
	return k, err
}

// gone ignores that a file was removed while it was counted.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
