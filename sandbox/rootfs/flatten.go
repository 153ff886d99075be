//go:build linux

package rootfs

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/dormouse-run/dormouse/internal/imagefile"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// flattening is one image that is being applied to a directory.
type flattening struct {
	image    *image
	rootfs   *layer.RootFS
	progress func(Progress) // may be nil
	done     Progress
	reported int64 // of done.Bytes
	stored   int64 // bytes that may still be read
	plain    int64 // bytes that they may still unpack to
	stall    time.Duration
}

// reportEvery is how many bytes are read between two reports of progress.
const reportEvery = 1 << 20

var errStalled = errors.New("the registry sends nothing any more")

// run applies all layers.
func (f *flattening) run(ctx context.Context) error {
	f.done.Layers = len(f.image.Layers)
	for _, l := range f.image.Layers {
		f.done.Total += l.Size
	}
	for i, l := range f.image.Layers {
		f.done.Layer = i + 1
		f.report()
		if err := f.layer(ctx, l, f.image.Config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	f.report()
	return nil
}

// layer applies a layer, unless the registry stalls.
func (f *flattening) layer(ctx context.Context, l imagefile.Layer, want v1.Hash) error {
	if f.image.abandon == nil {
		return f.unpack(ctx, l, want, func() {})
	}
	timer := time.AfterFunc(f.stall, f.image.abandon)
	err := f.unpack(ctx, l, want, func() { timer.Reset(f.stall) })
	if !timer.Stop() && err != nil {
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}

// unpack applies a layer and checks it against the DiffID of the configuration.
func (f *flattening) unpack(ctx context.Context, l imagefile.Layer, want v1.Hash, came func()) (err error) {
	sum, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return err
	}
	from, err := l.Open()
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	stored := readerFunc(func(b []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := from.Read(b)
		if n > 0 {
			came()
		}
		f.read(n)
		return n, err
	})
	plain, stop, err := imagefile.Decompress(bufio.NewReaderSize(capped(stored, &f.stored), 64<<10))
	if err != nil {
		return err
	}
	defer stop()
	out := io.TeeReader(capped(plain, &f.plain), sum)
	if err := f.rootfs.Apply(ctx, out); err != nil {
		return tooLarge(err)
	}
	// The digest covers what follows the end of the tar, too.
	if _, err := io.Copy(io.Discard, out); err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Hex {
		return fmt.Errorf("it is damaged: it unpacks to %s, not %s", got, want.Hex)
	}
	return nil
}

func (f *flattening) read(n int) {
	f.done.Bytes += int64(n)
	if f.done.Bytes-f.reported >= reportEvery {
		f.report()
	}
}

func (f *flattening) report() {
	f.reported, f.done.Entries = f.done.Bytes, f.rootfs.Entries()
	if f.progress != nil {
		f.progress(f.done)
	}
}

var (
	errTooMany = errors.New("the image has too many entries")
	errTooBig  = errors.New("the image is too large")
)

// tooLarge says of an image what a limit that all its layers share says of the last.
func tooLarge(err error) error {
	switch {
	case errors.Is(err, layer.ErrTooMany):
		return fmt.Errorf("%w: %w", errTooMany, err)
	case errors.Is(err, layer.ErrTooBig):
		return fmt.Errorf("%w: %w", errTooBig, err)
	}
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// capped reads until there are no bytes left.
func capped(from io.Reader, left *int64) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		n, err := from.Read(b)
		if *left -= int64(n); *left < 0 {
			return 0, errTooBig
		}
		return n, err
	})
}
