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
	// maxVisits bounds the entries that one search visits, maxPending the directories
	// that it has found and not visited yet.
	maxVisits  = 2_000_000
	maxPending = 200_000
	// walkBatch is how many entries of a directory are read at once.
	walkBatch = 1024
)

// errEnough ends a walk that has reached its limit of results.
var errEnough = errors.New("enough")

// searchRoot is the directory, or the file, that is searched.
type searchRoot struct {
	path  string // absolute, without symbolic links
	shown string // as the caller named it, empty for the workspace
	file  bool
}

// searchRootOf resolves the path of a search.
func (r *Runner) searchRootOf(path string) (searchRoot, error) {
	p := searchRoot{path: r.opts.Workspace, shown: path}
	var err error
	if path != "" {
		if p.path, err = r.resolve(path); err != nil {
			return p, err
		}
	}
	if p.path, err = filepath.EvalSymlinks(p.path); err != nil {
		return p, err
	}
	at, err := os.Stat(p.path)
	if err != nil {
		return p, err
	}
	p.file = !at.IsDir()
	return p, nil
}

// displayPath is the path of a file below, relative to what the caller named.
func (p searchRoot) displayPath(rel string) string {
	if p.shown == "" {
		return rel
	}
	return filepath.Join(p.shown, rel)
}

// walkEntry is one file of a walk. Callers open it relative to dir, because in a sandbox
// every component of a path costs time.
type walkEntry struct {
	fs.DirEntry
	rel string // its name from where the walk began
	dir int    // its directory, open
}

// walk visits every file below a directory, at most depth directories deep, without a
// limit if depth is negative. It follows no symbolic links and skips the directories of
// version control, and directories that it cannot read.
func (p searchRoot) walk(ctx context.Context, depth int, visit func(walkEntry) error) error {
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
		err := p.entries(ctx, dir.rel, func(e walkEntry) error {
			if visits++; visits > maxVisits || len(todo)+len(below) > maxPending {
				return fmt.Errorf("there is too much below %s to look at", p.path)
			}
			if !e.IsDir() {
				return visit(e)
			}
			if dir.depth != 0 && !p.skips(e.rel, e.Name()) {
				below = append(below, pending{e.rel, dir.depth - 1})
			}
			return nil
		})
		if err != nil {
			return err
		}
		slices.Reverse(below) // todo is a stack
		todo = append(todo, below...)
	}
	return nil
}

// entries reads a directory in batches, each sorted by name.
func (p searchRoot) entries(ctx context.Context, rel string, each func(walkEntry) error) error {
	d, err := os.OpenFile(filepath.Join(p.path, rel), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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
			if err := each(walkEntry{e, name, at}); err != nil {
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

// skips reports whether a walk leaves a directory out. A search that begins there does
// read it.
func (p searchRoot) skips(rel, name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".jj":
		return true
	case "proc", "sys", "dev":
		return p.path == "/" && rel == name
	}
	return false
}

// stopNote describes why a walk ended early, if it did.
func stopNote(err error) (note string, rest error) {
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
