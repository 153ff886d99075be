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

// Import keeps the layers of a container image that comes as a tar: one of Export,
// of docker save, or an OCI layout; compressed or not, as a whole or each layer.
// The limits, or where they are zero those of a layer, are of the whole image. An
// image that is refused leaves nothing: none of it is kept before all of it is read.
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

// asInvalid says in our words that a layer is too large, or none.
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
	// What nobody names yet is left alone for so long.
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.Idle/2, fmt.Errorf("it took too long to keep: %w", dormouse.ErrUnavailable))
	defer cancel()
	for i, g := range stages {
		kept, err := s.Put(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, errors.Join(err, context.Cause(ctx)))
		}
		layers = append(layers, kept)
	}
	return layers, nil
}

// readImage unpacks each layer of an image on a stage of its own. The caller closes
// the stages, also those that come with an error.
func (s *Store) readImage(ctx context.Context, r io.Reader, limits layer.Limits) (stages []*Stage, err error) {
	name, err := s.spool(ctx, r, limits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(name)) }()
	files, err := imagefile.OpenTar(name)
	if err != nil { // how we call the file is nobody's business
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

// spool writes what comes to a file, from which it can be read in any order.
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

// budget is what an image may still take.
type budget struct {
	layer.Limits
	plain int64 // bytes that layers unpack to
}

// unpackLayer unpacks one layer of an image, which may take what is left.
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

// unpackVerified unpacks a layer and makes sure that it was what the configuration says.
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
	left, err := layer.UnpackOCI(ctx, in, allowed.Limits, dir)
	if err != nil {
		return err
	}
	// What follows the end of a tar is part of the layer all the same.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if got := digestOf(sum); string(got) != want.String() {
		return fmt.Errorf("it is damaged: it unpacks to %s, not %.100s", got, want)
	}
	allowed.plain = capped.left
	if left > 0 {
		s.opts.Log.WarnContext(ctx, "devices left out of a layer", "layer", string(digestOf(sum)), "count", left)
	}
	return nil
}
