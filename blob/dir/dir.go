// Package dir stores blobs as files in a directory: sha256/ab/abcdef…, one file per
// digest, each complete or absent.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/dirlock"
)

// shards is the number of directories that the blobs are spread over.
const shards = 256

// Store is a directory of blobs, which several processes may use at once.
type Store struct {
	root string
	temp *os.File // where this process writes; locked as long as it lives

	mu      sync.Mutex
	durable map[dormouse.Digest]os.FileInfo // guarded by mu; the files that are known to be durable
}

var _ blob.Store = (*Store)(nil)

// Open opens the blobs in root, makes the directory if there is none, and
// removes what a crash has left incomplete.
func Open(root string) (*Store, error) {
	s := &Store{root: root, durable: make(map[dormouse.Digest]os.FileInfo)}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("open blobs in %s: %w", root, asFull(err))
	}
	return s, nil
}

func (s *Store) prepare() (err error) {
	// The directories are made now and not when first needed, so that no blob is
	// called durable before the directory it is in.
	for i := range shards {
		if err := os.MkdirAll(s.shard(i), 0o700); err != nil {
			return err
		}
	}
	for _, d := range []string{filepath.Join(s.root, "sha256"), s.root, filepath.Dir(s.root)} {
		if err := atomicfile.SyncDir(d); err != nil {
			return err
		}
	}
	s.temp, err = dirlock.MkdirTemp(filepath.Join(s.root, "tmp"))
	return err
}

// Close releases the store, which must not be used afterwards.
func (s *Store) Close() error {
	if err := errors.Join(os.RemoveAll(s.temp.Name()), s.temp.Close()); err != nil {
		return fmt.Errorf("close blobs in %s: %w", s.root, err)
	}
	return nil
}

// shard is the directory of the blobs whose digests begin with i.
func (s *Store) shard(i int) string { return filepath.Join(s.root, "sha256", fmt.Sprintf("%02x", i)) }

// path is the file of a blob. The digest must be valid.
func (s *Store) path(d dormouse.Digest) string {
	hex := strings.TrimPrefix(string(d), "sha256:")
	return filepath.Join(s.root, "sha256", hex[:2], hex)
}

// Put stores b under its digest.
func (s *Store) Put(ctx context.Context, b []byte) (dormouse.Digest, error) {
	d := dormouse.DigestOf(b)
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("put %s: %w", d, err)
	}
	err := s.commit(ctx, d, int64(len(b)), func(path string) error {
		file := s.file()
		file.Path = path
		return file.Write(b)
	})
	if err != nil {
		return "", fmt.Errorf("put %s: %w", d, asFull(err))
	}
	return d, nil
}

// PutFrom stores what r has under its digest.
func (s *Store) PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error) {
	d, n, err := s.putFrom(ctx, r)
	if err != nil {
		return "", 0, fmt.Errorf("put a stream: %w", asFull(err))
	}
	return d, n, nil
}

func (s *Store) putFrom(ctx context.Context, r io.Reader) (_ dormouse.Digest, _ int64, err error) {
	draft, err := s.file().Draft()
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, draft.Drop()) }()
	d, n, err := blob.Copy(ctx, draft, r)
	if err != nil {
		return "", 0, err
	}
	return d, n, s.commit(ctx, d, n, draft.Commit)
}

// file says how blobs are written.
func (s *Store) file() atomicfile.File {
	return atomicfile.File{Perm: 0o600, Temp: s.temp.Name(), After: reached}
}

// commit writes the file of d, unless it exists, is intact, and this process has made it
// durable. A file of another process may be in the page cache only: if its sync failed
// there, the kernel takes it for written, and syncing it again proves nothing. The same
// holds for its name.
func (s *Store) commit(ctx context.Context, d dormouse.Digest, size int64, write func(path string) error) error {
	path := s.path(d)
	held, err := dirlock.Hold(filepath.Dir(path), syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer closeRead(held)
	if s.known(d) && s.intact(ctx, d, size) {
		if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil {
			return err
		}
		return held.Sync()
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := write(path); err != nil {
		return err
	}
	return s.remember(d)
}

// maxDurable bounds how many files are remembered as durable.
const maxDurable = 1 << 14

// remember records that the file of d is durable.
func (s *Store) remember(d dormouse.Digest) error {
	info, err := os.Stat(s.path(d))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.durable) >= maxDurable {
		clear(s.durable)
	}
	s.durable[d] = info
	return nil
}

// known reports whether the file of d is the one that was made durable here.
func (s *Store) known(d dormouse.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	then, ok := s.durable[d]
	if !ok {
		return false
	}
	now, err := os.Stat(s.path(d))
	return err == nil && os.SameFile(then, now)
}

// intact reports whether d exists and its bytes match.
func (s *Store) intact(ctx context.Context, d dormouse.Digest, size int64) bool {
	r, n, err := s.open(ctx, d)
	if err != nil {
		return false
	}
	defer closeRead(r)
	if n != size {
		return false
	}
	_, err = io.Copy(io.Discard, r)
	return err == nil
}

// reached is called after each step of a write.
func reached(step atomicfile.Step) {
	switch step {
	case atomicfile.Written:
		crash.At(crash.BlobWriting)
	case atomicfile.Synced:
		crash.At(crash.BlobSynced)
	case atomicfile.Renamed:
		crash.At(crash.BlobRenamed)
	case atomicfile.Durable:
		crash.At(crash.BlobWritten)
	}
}

// Get returns the bytes of d.
func (s *Store) Get(ctx context.Context, d dormouse.Digest) ([]byte, error) {
	r, size, err := s.open(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", d, err)
	}
	b, err := blob.ReadAll(r, size)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return b, nil
}

// Open returns a reader of d.
func (s *Store) Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	r, size, err := s.open(ctx, d)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", d, err)
	}
	return r, size, nil
}

func (s *Store) open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	if err := d.Validate(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", dormouse.ErrNotFound, err)
	}
	f, err := os.Open(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, dormouse.ErrNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return blob.Verify(ctx, f, d, info.Size()), info.Size(), nil
}

// Delete deletes d.
func (s *Store) Delete(ctx context.Context, d dormouse.Digest) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", d, err)
	}
	if err := s.remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", d, err)
	}
	return nil
}

func (s *Store) remove(d dormouse.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return os.Remove(s.path(d))
}

// asFull wraps an error that says the disk is full in dormouse.ErrFull.
func asFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	return err
}

// closeRead closes what was only read.
func closeRead(d io.Closer) { _ = d.Close() }
