//go:build linux

package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// resolution is the digest that a reference was resolved to.
type resolution struct {
	Ref    string    `json:"ref"`
	Digest string    `json:"digest"`
	At     time.Time `json:"at"` // when the registry was last asked, whether or not it answered
}

// pull returns the root file system of an image in a registry.
func (s *Store) pull(ctx context.Context, text string, progress func(Progress), refresh bool) (Root, error) {
	ref, err := parseRef(text)
	if err != nil {
		return Root{}, err
	}
	known, err := s.readResolution(ref)
	if err != nil {
		return Root{}, err
	}
	old, err := s.cached(known)
	if err != nil {
		return Root{}, err
	}
	if old != nil && s.fresh(ref, known, refresh) {
		return *old, nil
	}
	r, err := s.resolve(ctx, ref, progress)
	switch {
	case err == nil:
		return r, s.writeResolution(ref, r.Digest)
	case old == nil, refresh, ctx.Err() != nil:
		return Root{}, err
	}
	s.log.WarnContext(ctx, "image not pulled; using the one before", "ref", ref.Name(), "digest", old.Digest, "error", err)
	return *old, s.writeResolution(ref, old.Digest)
}

// cached returns the image that a reference was resolved to before, nil if it was
// collected.
func (s *Store) cached(r *resolution) (*Root, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	root, err := s.lookup(r.Digest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it was collected
	}
	if err != nil {
		return nil, err
	}
	return &root, nil
}

// fresh reports whether a resolution is still good without asking the registry. A digest
// always is.
func (s *Store) fresh(ref name.Reference, known *resolution, refresh bool) bool {
	if _, ok := ref.(name.Digest); ok {
		return true
	}
	age := s.now().Sub(known.At)
	return !refresh && age >= 0 && age < resolveEvery
}

// resolve asks the registry for an image and flattens it.
func (s *Store) resolve(ctx context.Context, ref name.Reference, progress func(Progress)) (Root, error) {
	im, err := fromRegistry(ctx, ref, s.opts.Dial)
	if err != nil {
		return Root{}, err
	}
	defer im.abandon()
	return s.flattened(ctx, im, progress)
}

func (s *Store) refFile(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return filepath.Join(s.opts.Dir, refsDir, hex.EncodeToString(sum[:])+".json")
}

// readResolution returns the last resolution of a reference, nil if there is none.
func (s *Store) readResolution(ref name.Reference) (*resolution, error) {
	raw, err := os.ReadFile(s.refFile(ref.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it was not
	}
	if err != nil {
		return nil, fmt.Errorf("read a resolution: %w", err)
	}
	r := new(resolution)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read a resolution: %w", err)
	}
	return r, nil
}

func (s *Store) writeResolution(ref name.Reference, digest string) error {
	raw, err := json.Marshal(resolution{ref.Name(), digest, s.now()})
	if err == nil {
		err = atomicfile.Write(s.refFile(ref.Name()), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write a resolution: %w", err)
	}
	return nil
}

// expireRefs removes the resolutions to images that were collected.
func (s *Store) expireRefs() error {
	dir := filepath.Join(s.opts.Dir, refsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("expire references: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var r resolution
		raw, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(raw, &r) != nil {
			continue
		}
		name := strings.Replace(r.Digest, ":", "-", 1)
		if _, err := os.Stat(filepath.Join(s.opts.Dir, filepath.Base(name))); errors.Is(err, fs.ErrNotExist) {
			if err := ignoreNotExist(os.Remove(path)); err != nil {
				return fmt.Errorf("expire references: %w", err)
			}
		}
	}
	return nil
}

// sweepRefs removes files that were begun long ago and never finished.
func (s *Store) sweepRefs() error {
	dir := filepath.Join(s.opts.Dir, refsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.HasSuffix(e.Name(), ".json") || s.now().Sub(info.ModTime()) < gracePeriod {
			continue
		}
		if err := ignoreNotExist(os.Remove(filepath.Join(dir, e.Name()))); err != nil {
			return err
		}
	}
	return nil
}
