//go:build linux

package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/imagefile"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Store stores root file systems. Several may share a directory.
type Store struct {
	opts  Options
	log   *slog.Logger
	now   func() time.Time
	stall time.Duration

	unpacking chan struct{} // a semaphore: one token for each image that is being unpacked

	mu sync.Mutex // images appear to callers and disappear under it
}

// What is in Dir, and in an image.
const (
	newPrefix  = ".new-"
	lockPrefix = ".lock-"
	refsDir    = "refs"
	rootDir    = "root"
	configFile = "image.json"
)

// Open opens a store and removes what dead processes have left unfinished in it.
func Open(opts Options) (*Store, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.MaxEntries == 0 {
		opts.MaxEntries = defaultMaxEntries
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	opts.Dir = dir
	s := &Store{opts: opts, log: opts.Logger, now: time.Now, stall: stallAfter, unpacking: make(chan struct{}, maxConcurrent)}
	if err := os.MkdirAll(filepath.Join(opts.Dir, refsDir), 0o700); err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	// Images may contain set-user-ID programs, which users of this machine must not reach.
	if err := os.Chmod(opts.Dir, 0o700); err != nil { //nolint:gosec // it is a directory
		return nil, fmt.Errorf("open images: %w", err)
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	return s, nil
}

// Root returns the root file system that a reference leads to, and makes it if
// there is none. A reference is one of
//
//	registry.example/name:tag            an image in a registry, for this machine's
//	registry.example/name@sha256:…       processor
//	tarball:/path/image.tar              one of docker save or an OCI layout, in a tar
//	oci:/path/layout                     an OCI layout
//	dir:/path                            a directory, used as it is
//
// A tag is looked up at most every five minutes. If that fails, the image it led
// to before is returned. progress may be nil; it is called from within.
func (s *Store) Root(ctx context.Context, ref string, progress func(Progress)) (Root, error) {
	r, err := s.root(ctx, ref, progress, false)
	if err != nil {
		return Root{}, fmt.Errorf("get image %.200s: %w", ref, err)
	}
	return r, nil
}

// Refresh is Root, but looks a tag up now or fails.
func (s *Store) Refresh(ctx context.Context, ref string, progress func(Progress)) (Root, error) {
	r, err := s.root(ctx, ref, progress, true)
	if err != nil {
		return Root{}, fmt.Errorf("refresh image %.200s: %w", ref, err)
	}
	return r, nil
}

// Pinned returns the image that a reference led to when it had this digest,
// wherever it leads now. A plain directory has no digest and is what it is.
func (s *Store) Pinned(ctx context.Context, ref, digest string, progress func(Progress)) (Root, error) {
	r, err := s.pinned(ctx, ref, digest, progress)
	if err != nil {
		return Root{}, fmt.Errorf("get image %.200s as %.100s: %w", ref, digest, err)
	}
	return r, nil
}

func (s *Store) pinned(ctx context.Context, ref, digest string, progress func(Progress)) (Root, error) {
	r, err := s.lookup(digest)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if !Local(ref) {
		is, err := parseRef(ref)
		if err != nil {
			return Root{}, err
		}
		ref = is.Context().Digest(digest).Name()
	}
	if r, err = s.root(ctx, ref, progress, false); err != nil {
		return Root{}, err
	}
	if r.Digest != digest {
		return Root{}, fmt.Errorf("it is %.100s now, and the other is not here any more", r.Digest)
	}
	return r, nil
}

func (s *Store) root(ctx context.Context, ref string, progress func(Progress), refresh bool) (Root, error) {
	kind, rest := splitRef(ref)
	switch kind {
	case dirRef:
		return plainDir(rest)
	case tarballRef:
		from, err := imagefile.OpenTar(rest)
		if err != nil {
			return Root{}, err
		}
		return s.fromFiles(ctx, from, progress)
	case layoutRef:
		from, err := imagefile.OpenDir(rest)
		if err != nil {
			return Root{}, err
		}
		return s.fromFiles(ctx, from, progress)
	default:
		return s.pull(ctx, rest, progress, refresh)
	}
}

// plainDir is a directory that is not managed by a store.
func plainDir(dir string) (Root, error) {
	if !filepath.IsAbs(dir) {
		return Root{}, errors.New("the path must be absolute")
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Root{}, err
	}
	if dir == "/" {
		return Root{}, errors.New("it is the machine's own root")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return Root{}, err
	}
	if !info.IsDir() {
		return Root{}, errors.New("it is no directory")
	}
	return Root{Dir: dir}, nil
}

func (s *Store) fromFiles(ctx context.Context, from imagefile.Files, progress func(Progress)) (Root, error) {
	defer func() { _ = from.Close() }()
	found, err := imagefile.Read(from)
	if err != nil {
		return Root{}, err
	}
	return s.flattened(ctx, &image{Image: found}, progress)
}

// flattened returns the root file system of an image, and makes it if there is none.
func (s *Store) flattened(ctx context.Context, im *image, progress func(Progress)) (Root, error) {
	if err := im.Check(); err != nil {
		return Root{}, err
	}
	if r, err := s.lookup(im.Digest.String()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	unlock, err := lock(ctx, s.lockFile(fileName(im.Digest)))
	if err != nil {
		return Root{}, err
	}
	defer unlock()
	if r, err := s.lookup(im.Digest.String()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := s.flatten(ctx, im, progress); err != nil {
		return Root{}, err
	}
	return s.lookup(im.Digest.String())
}

// flatten makes a root file system while its lock is held.
func (s *Store) flatten(ctx context.Context, im *image, progress func(Progress)) (err error) {
	select {
	case s.unpacking <- struct{}{}:
		defer func() { <-s.unpacking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	name := fileName(im.Digest)
	tmp := filepath.Join(s.opts.Dir, newPrefix+name)
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove an unfinished image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	root, err := layer.NewRootFS(filepath.Join(tmp, rootDir), layer.Limits{Entries: s.opts.MaxEntries, Bytes: s.opts.MaxBytes})
	if err != nil {
		return err
	}
	f := &flattening{image: im, rootfs: root, progress: progress, stored: s.opts.MaxBytes, plain: s.opts.MaxBytes, stall: s.stall}
	if err := errors.Join(f.run(ctx), root.Close()); err != nil {
		return err
	}
	if n := root.Skipped(); n > 0 {
		s.log.WarnContext(ctx, "devices and pipes left out of image", "digest", im.Digest.String(), "count", n)
	}
	note, err := json.Marshal(im.root())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, configFile), note, 0o600); err != nil {
		return err
	}
	return s.commit(tmp, name)
}

// commit syncs a directory with everything in it, and then renames it to its final name.
func (s *Store) commit(tmp, name string) error {
	d, err := os.Open(tmp)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(d.Fd())), d.Close()); err != nil {
		return fmt.Errorf("make the image durable: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(s.opts.Dir, name)); err != nil {
		return err
	}
	return atomicfile.SyncDir(s.opts.Dir)
}

// lookup returns an image that exists. The modification time of its directory is when it
// was last returned, by any store that shares the directory.
func (s *Store) lookup(digest string) (Root, error) {
	h, err := v1.NewHash(digest)
	if err != nil {
		return Root{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.opts.Dir, fileName(h))
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return Root{}, err
	}
	r := Root{Dir: filepath.Join(dir, rootDir)}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Root{}, fmt.Errorf("read %s: %w", configFile, err)
	}
	if err := os.Chtimes(dir, s.now(), s.now()); err != nil {
		return Root{}, err
	}
	return r, nil
}

// fileName is a digest as a file name. A colon would separate paths in mount options.
func fileName(h v1.Hash) string { return h.Algorithm + "-" + h.Hex }

func (s *Store) lockFile(name string) string { return filepath.Join(s.opts.Dir, lockPrefix+name) }
