//go:build linux

package layer

import (
	"errors"
	"fmt"
)

// contents is what the archive of one layer has held so far.
type contents struct {
	kinds map[string]Kind
	paths int64          // how many bytes of them there may still be
	dirs  Index          // in the order in which they came
	index map[string]int // where each of them is in dirs
}

func newContents(l Limits) *contents {
	return &contents{kinds: map[string]Kind{".": Dir}, paths: l.MaxPaths(), index: make(map[string]int)}
}

// add remembers an entry. The author of an archive chooses the paths, so they are
// limited to what a scan accepts.
func (c *contents) add(e Entry) error {
	if c.paths -= int64(len(e.Path)); c.paths < 0 {
		return ErrTooMany
	}
	c.kinds[e.Path] = e.Kind
	if e.Kind == Dir {
		c.index[e.Path] = len(c.dirs)
		c.dirs = append(c.dirs, e)
	}
	return nil
}

// record checks an entry against those before it, and remembers it. It reports whether
// the entry is a directory that is there already.
func (u *unpacker) record(it item) (again bool, err error) {
	c := u.layer
	if err := u.implyDir(parent(it.Path)); err != nil {
		return false, err
	}
	n, known := c.index[it.Path]
	if known && it.Kind == Dir && !u.canonical {
		c.dirs[n] = it.Entry
		return true, nil
	}
	// The root is there before anything describes it, which comes first if at all.
	if _, there := c.kinds[it.Path]; there && (it.Path != "." || len(c.dirs) > 0) {
		return false, errors.New("it is there twice")
	}
	if c.kinds[parent(it.Path)] != Dir {
		return false, errors.New("it comes before its directory")
	}
	if it.link && (c.kinds[it.to] != File || it.to == it.Path) {
		return false, fmt.Errorf("it is a link to %.200q, which is no file that came before", it.to)
	}
	return false, c.add(it.Entry)
}

// implyDir makes a directory that no entry has described yet, and those that it is in.
// A canonical archive describes each. What is there and is no directory is left for the
// caller to find.
func (u *unpacker) implyDir(path string) error {
	c := u.layer
	if _, described := c.index[path]; described || u.canonical {
		return nil
	}
	if path != "." {
		if _, there := c.kinds[path]; there {
			return nil
		}
		if err := u.implyDir(parent(path)); err != nil {
			return err
		}
		if c.kinds[parent(path)] != Dir {
			return nil
		}
	}
	if err := u.count(); err != nil {
		return err
	}
	e := Entry{Path: path, Kind: Dir, Mode: 0o755}
	if err := c.add(e); err != nil {
		return err
	}
	return u.to.dir(item{Entry: e}, false)
}
