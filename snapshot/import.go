//go:build linux

package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/imagefile"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Import stores the layers of a container image that comes as a tar: one of Export, of
// docker save, or an OCI layout; compressed or not, as a whole or each layer. The limits
// are of the whole image; where they are zero, those of a layer count. An image that is
// refused leaves nothing behind: none of it is stored before all of it is read.
func (s *Store) Import(ctx context.Context, r io.Reader, limits layer.Limits) ([]dormouse.Layer, error) {
	limits = Options{Limits: limits}.withDefaults().Limits
	limits.Entries, limits.Bytes = min(limits.Entries, s.opts.Limits.Entries), min(limits.Bytes, s.opts.Limits.Bytes)
	limits.Paths = min(limits.Paths, s.opts.Limits.Paths)
	layers, err := s.importFrom(ctx, r, limits)
	if err != nil {
		return nil, fmt.Errorf("import an image: %w", asInvalid(layer.Full(err)))
	}
	return layers, nil
}

// asInvalid translates the errors of layers into those of the root package.
func asInvalid(err error) error {
	switch {
	case errors.Is(err, dormouse.ErrInvalid):
		return err
	case errors.Is(err, layer.ErrTooBig), errors.Is(err, layer.ErrTooMany):
		return fmt.Errorf("%w: %w", dormouse.ErrTooLarge, err)
	case errors.Is(err, layer.ErrMalformed):
		return fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	return err
}

func (s *Store) importFrom(ctx context.Context, r io.Reader, limits layer.Limits) (layers []dormouse.Layer, err error) {
	stages, err := s.readImage(ctx, r, limits)
	defer func() {
		for _, g := range stages {
			err = errors.Join(err, g.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	crash.At(crash.ImageRead)
	// Unreferenced directories are spared for so long.
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Idle/2, fmt.Errorf("it took too long to store: %w", dormouse.ErrUnavailable))
	defer cancel()
	for i, g := range stages {
		stored, err := s.Put(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, errors.Join(err, context.Cause(ctx)))
		}
		layers = append(layers, stored)
	}
	return layers, nil
}

// readImage unpacks each layer of an image into a stage of its own. The caller closes the
// stages, also those returned with an error.
func (s *Store) readImage(ctx context.Context, r io.Reader, limits layer.Limits) (stages []*Stage, err error) {
	name, err := s.spool(ctx, r, limits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(name)) }()
	files, err := imagefile.OpenTar(name)
	if err != nil { // without the name of our file
		return nil, fmt.Errorf("%w: it is no tar, or not all of one: %w", dormouse.ErrInvalid, errors.Unwrap(err))
	}
	defer func() { _ = files.Close() }()
	image, err := imagefile.Read(files)
	if err == nil {
		err = image.Described()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	left := budget{limits, tarLimit(limits)}
	for i, l := range image.Layers {
		g, err := s.Stage(ctx)
		if err != nil {
			return stages, err
		}
		stages = append(stages, g)
		if err := s.unpackLayer(ctx, l, image.Config.RootFS.DiffIDs[i], &left, g.Dir); err != nil {
			return stages, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return stages, nil
}

// spool writes the image to a file, from which it can be read in any order.
func (s *Store) spool(ctx context.Context, r io.Reader, limits layer.Limits) (name string, err error) {
	f, err := os.CreateTemp(s.temp.Name(), "import-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	came := &watchedReader{from: readerFunc(func(b []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(b)
	})}
	plain, stop, err := imagefile.Decompress(bufio.NewReaderSize(came, bufferSize))
	if err == nil {
		defer stop()
		_, err = io.Copy(f, &cappedReader{plain, tarLimit(limits)})
	}
	switch {
	case err == nil:
		return f.Name(), nil
	case came.err != nil:
		return "", came.err
	case errors.Is(err, layer.ErrTooBig), errors.Is(layer.Full(err), dormouse.ErrFull):
		return "", err
	}
	return "", fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// budget is how much an image may still hold.
type budget struct {
	layer.Limits
	plain int64 // bytes that layers unpack to
}

// unpackLayer unpacks one layer of an image within the budget, and charges it.
func (s *Store) unpackLayer(ctx context.Context, l imagefile.Layer, want v1.Hash, left *budget, dir string) error {
	if err := s.unpackVerified(ctx, l, want, left, dir); err != nil {
		if errors.Is(err, layer.ErrTooBig) || errors.Is(err, layer.ErrTooMany) || errors.Is(layer.Full(err), dormouse.ErrFull) || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	index, _, err := layer.Scan(ctx, dir, s.opts.Limits)
	if err != nil {
		return err
	}
	entries, bytes, _ := measure(index)
	left.Entries -= entries
	left.Bytes -= bytes
	return nil
}

// unpackVerified unpacks a layer and checks it against the DiffID of the configuration.
func (s *Store) unpackVerified(ctx context.Context, l imagefile.Layer, want v1.Hash, allowed *budget, dir string) error {
	stored, err := l.Open()
	if err != nil {
		return err
	}
	defer func() { _ = stored.Close() }()
	plain, stop, err := imagefile.Decompress(bufio.NewReaderSize(stored, bufferSize))
	if err != nil {
		return err
	}
	defer stop()
	sum := sha256.New()
	capped := &cappedReader{plain, allowed.plain}
	in := io.TeeReader(capped, sum)
	skipped, err := layer.UnpackOCI(ctx, in, allowed.Limits, dir)
	if err != nil {
		return err
	}
	// The digest covers what follows the end of the tar, too.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if got := digestOf(sum); string(got) != want.String() {
		return fmt.Errorf("it is damaged: it unpacks to %s, not %.100s", got, want)
	}
	allowed.plain = capped.left
	if skipped > 0 {
		s.opts.Log.WarnContext(ctx, "devices left out of a layer", "layer", string(digestOf(sum)), "count", skipped)
	}
	return nil
}
