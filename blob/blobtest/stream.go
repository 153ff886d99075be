package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

// runStreams holds a store to what it promises of readers.
func runStreams(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Run("put from must keep all that r has, however it comes", func(t *testing.T) {
		s := open(t)
		for _, b := range [][]byte{{}, []byte("hello"), bytes.Repeat([]byte("large "), 1<<20)} {
			for name, r := range map[string]io.Reader{
				"whole":        bytes.NewReader(b),
				"in pieces":    iotest.HalfReader(bytes.NewReader(b)),
				"with its end": iotest.DataErrReader(bytes.NewReader(b)),
			} {
				d, n, err := s.PutFrom(t.Context(), r)
				if d != dormouse.DigestOf(b) || n != int64(len(b)) || err != nil {
					t.Fatalf("put %d bytes %s = %s, %d, %v", len(b), name, d, n, err)
				}
			}
			has(t, s, dormouse.DigestOf(b), b)
			streams(t, s, b)
		}
	})

	t.Run("what was put is there as a stream, and the other way round", func(t *testing.T) {
		s := open(t)
		b := []byte("hello")
		put(t, s, b)
		streams(t, s, b)
		if d, n, err := s.PutFrom(t.Context(), bytes.NewReader(b)); d != dormouse.DigestOf(b) || n != 5 || err != nil {
			t.Errorf("put from = %s, %d, %v", d, n, err)
		}
		streams(t, s, b)
	})

	t.Run("a stream must never be held in memory at once", func(t *testing.T) {
		s := open(t)
		const size = 100 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, n, err := s.PutFrom(t.Context(), noise(size))
		if n != size || err != nil {
			t.Fatalf("put from = %d, %v", n, err)
		}
		r, n, err := s.Open(t.Context(), d)
		if n != size || err != nil {
			t.Fatalf("open = %d, %v", n, err)
		}
		read, _, err := blob.Copy(t.Context(), io.Discard, r)
		if err := errors.Join(err, r.Close()); read != d || err != nil {
			t.Errorf("read = %s, %v, want %s", read, err, d)
		}
		// All that was ever allocated, which is more than what was held.
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > size/2 {
			t.Errorf("a stream of %d bytes took %d of memory", size, used)
		}
	})

	t.Run("if r fails nothing must be left of it", func(t *testing.T) {
		s := open(t)
		broken := errors.New("broken")
		half := bytes.Repeat([]byte("half"), 1<<18)
		_, _, err := s.PutFrom(t.Context(), io.MultiReader(bytes.NewReader(half), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("put from = %v, want the error of r", err)
		}
		if _, err := s.Get(t.Context(), dormouse.DigestOf(half)); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("get of what came before = %v, want ErrNotFound", err)
		}
	})

	t.Run("many may put the same stream at once", func(t *testing.T) {
		s := open(t)
		b := bytes.Repeat([]byte("same"), 1<<16)
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				if d, _, err := s.PutFrom(t.Context(), bytes.NewReader(b)); d != dormouse.DigestOf(b) || err != nil {
					t.Errorf("put from = %s, %v", d, err)
				}
				streams(t, s, b)
			})
		}
		running.Wait()
	})

	t.Run("open must return ErrNotFound", func(t *testing.T) {
		s := open(t)
		for _, d := range []dormouse.Digest{dormouse.DigestOf([]byte("other")), "", "sha256:../../../../etc/passwd"} {
			if _, _, err := s.Open(t.Context(), d); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("open %q = %v, want ErrNotFound", d, err)
			}
		}
	})

	t.Run("a caller who leaves midway puts nothing and reads no further", func(t *testing.T) {
		s := open(t)
		b := bytes.Repeat([]byte("never ends"), 1<<18)
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		leaving := readerFunc(func([]byte) (int, error) {
			leave(gone)
			return 0, nil
		})
		_, _, err := s.PutFrom(ctx, io.MultiReader(bytes.NewReader(b), io.LimitReader(leaving, 1)))
		if !errors.Is(err, gone) {
			t.Errorf("put from = %v, want the cause", err)
		}
		if _, err := s.Get(t.Context(), dormouse.DigestOf(b)); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("get of what came before = %v, want ErrNotFound", err)
		}
		if _, _, err := s.Open(ctx, put(t, s, b)); !errors.Is(err, gone) {
			t.Errorf("open = %v, want the cause", err)
		}

		ctx, leave = context.WithCancelCause(t.Context())
		r, _, err := s.Open(ctx, dormouse.DigestOf(b))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		leave(gone)
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, gone) {
			t.Errorf("read on = %v, want the cause", err)
		}
	})
}

// streams fails unless a store gives b as a stream.
func streams(t *testing.T, s blob.Store, b []byte) {
	t.Helper()
	r, n, err := s.Open(t.Context(), dormouse.DigestOf(b))
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer func() { _ = r.Close() }()
	if got, err := io.ReadAll(r); n != int64(len(b)) || !bytes.Equal(got, b) || err != nil {
		t.Errorf("read = %d bytes of %d, %v, want %d", len(got), n, err, len(b))
	}
}

// noise is n bytes that are always the same and cannot be packed.
func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), n) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
