package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxVisits bounds what one search looks at, maxPending the directories that it
	// knows of and has not looked at.
	maxVisits  = 2_000_000
	maxPending = 200_000
	// walkBatch is how much of a directory is in memory at once.
	walkBatch = 1024
)

// errEnough ends a walk that has found what it may.
var errEnough = errors.New("enough")

// place is a directory, or a file, that a search begins at.
type place struct {
	real  string // where it is
	shown string // how the caller spells it, empty for the workspace
	file  bool
}

// placeOf finds where a search begins.
func (r *Runner) placeOf(path string) (place, error) {
	p := place{real: r.opts.Workspace, shown: path}
	var err error
	if path != "" {
		if p.real, err = r.resolve(path); err != nil {
			return p, err
		}
	}
	if p.real, err = filepath.EvalSymlinks(p.real); err != nil {
		return p, err
	}
	at, err := os.Stat(p.real)
	if err != nil {
		return p, err
	}
	p.file = !at.IsDir()
	return p, nil
}

// spell is how the caller would name a file below.
func (p place) spell(rel string) string {
	if p.shown == "" {
		return rel
	}
	return filepath.Join(p.shown, rel)
}

// sight is one file that a walk comes by. Who opens or looks at it does so from its
// directory: in a sandbox every part of a path costs.
type sight struct {
	fs.DirEntry
	rel string // its name from where the walk began
	dir int    // its directory, open
}

// walk visits every file below a directory. It goes at most
// depth directories down, everywhere if that is negative, follows no links, and
// leaves out what version control keeps and what is no file. A directory that
// cannot be read is passed over.
func (p place) walk(ctx context.Context, depth int, visit func(sight) error) error {
	type pending struct {
		rel   string
		depth int
	}
	todo := []pending{{"", depth}}
	visits := 0
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		var below []pending
		err := p.entries(ctx, dir.rel, func(e sight) error {
			if visits++; visits > maxVisits || len(todo)+len(below) > maxPending {
				return fmt.Errorf("there is too much below %s to look at", p.real)
			}
			if !e.IsDir() {
				return visit(e)
			}
			if dir.depth != 0 && !p.passed(e.rel, e.Name()) {
				below = append(below, pending{e.rel, dir.depth - 1})
			}
			return nil
		})
		if err != nil {
			return err
		}
		slices.Reverse(below) // the last is the next
		todo = append(todo, below...)
	}
	return nil
}

// entries reads a directory batch by batch, each in the order of names.
func (p place) entries(ctx context.Context, rel string, each func(sight) error) error {
	d, err := os.OpenFile(filepath.Join(p.real, rel), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if rel == "" {
			return err
		}
		return nil
	}
	defer func() { _ = d.Close() }()
	at := int(d.Fd())
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := d.ReadDir(walkBatch)
		slices.SortFunc(batch, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, e := range batch {
			name := e.Name()
			if rel != "" {
				name = rel + "/" + name
			}
			if err := each(sight{e, name, at}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && rel == "":
			return err
		case err != nil:
			return nil
		}
	}
}

// passed reports whether a walk leaves a directory out: who wants to know begins
// there.
func (p place) passed(rel, name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".jj":
		return true
	case "proc", "sys", "dev":
		return p.real == "/" && rel == name
	}
	return false
}

// why says in words why a walk ended early, if it did.
func why(err error) (note string, rest error) {
	switch {
	case err == nil, errors.Is(err, errEnough):
		return "", nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("stopped after %s; look in a smaller part", searchTime), nil
	case errors.Is(err, context.Canceled):
		return "", err
	}
	return err.Error(), nil
}
