//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// identity is what a directory in layers holds. It never changes.
type identity struct {
	// Content names what is in it: the DiffID of a layer, or all that were merged.
	Content dormouse.Digest
	// Blob is the layer packed. A directory that was merged for a mount has none.
	Blob dormouse.Digest
}

func layerIdentity(l dormouse.Layer) identity { return identity{Content: l.DiffID, Blob: l.Digest} }

// mergedIdentity is the identity of layers that are merged with nothing below them.
func mergedIdentity(layers []dormouse.Layer) identity {
	return identity{Content: dormouse.DigestOf([]byte("merged " + chainKey(layers)))}
}

// chainKey names consecutive layers of a chain.
func chainKey(layers []dormouse.Layer) string {
	var b strings.Builder
	for _, l := range layers {
		b.WriteString(string(l.DiffID))
		b.WriteByte(' ')
	}
	return b.String()
}

// A directory is named by the first digits of its digest, and by more of them if those
// are taken. Names are short because the mount options of an overlay, which list all of
// them, must fit into one page.
const (
	minNameLen  = 16
	nameLenStep = 8
)

// name finds the name of a directory, or gives it one. The caller holds the lock of Dir,
// so that the name is not swept before it is used. The identity is stored as the target of
// a symbolic link, which is created atomically with its content.
func (s *Store) name(id identity) (string, error) {
	hex := hexOf(id.Content)
	for n := minNameLen; n <= len(hex); n += nameLenStep {
		name := hex[:n]
		err := os.Symlink(string(id.Content)+" "+string(id.Blob), s.path(namesDir, name))
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", err
		}
		is, err := s.identity(name)
		if err != nil {
			return "", err
		}
		if is.Content == id.Content {
			return name, s.touch(name)
		}
	}
	return "", fmt.Errorf("another directory has the name of %s", id.Content)
}

// identity reads the identity of a name.
func (s *Store) identity(name string) (identity, error) {
	text, err := os.Readlink(s.path(namesDir, name))
	if err != nil {
		return identity{}, err
	}
	content, blob, _ := strings.Cut(text, " ")
	return identity{Content: dormouse.Digest(content), Blob: dormouse.Digest(blob)}, nil
}

// touch records that a directory was just used.
func (s *Store) touch(name string) error {
	now := unix.NsecToTimeval(time.Now().UnixNano())
	return unix.Lutimes(s.path(namesDir, name), []unix.Timeval{now, now})
}

// exists reports whether a directory exists. If so, it is complete.
func (s *Store) exists(name string) (bool, error) {
	_, err := os.Lstat(s.path(layersDir, name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// install gives a directory that was made elsewhere its name. One that exists already
// stays.
func (s *Store) install(dir, name string) error {
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, s.path(layersDir, name), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return s.discard(dir)
	}
	return err
}

// singleFlight waits until no other goroutine of this process builds what has the name.
func (s *Store) singleFlight(ctx context.Context, name string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		s.mu.Lock()
		other, busy := s.inFlight[name]
		if !busy {
			s.inFlight[name] = mine
		}
		s.mu.Unlock()
		if !busy {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, name)
		close(mine)
	}, nil
}
