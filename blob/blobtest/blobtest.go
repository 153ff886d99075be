// Package blobtest tests the promises of package blob.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

// Run holds a store to its promises. It calls open for an empty store as often
// as it needs one.
//
// What only the disk can show, a kill, a power cut, a full disk and rotten
// bytes, is left to the tests of each store.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Run("get must return the bytes of d", func(t *testing.T) {
		s := open(t)
		for _, b := range [][]byte{[]byte("hello"), {}, {0, 255, '\n'}, bytes.Repeat([]byte("large "), 1<<20)} {
			d := put(t, s, b)
			if d != dormouse.DigestOf(b) {
				t.Errorf("put = %s, want %s", d, dormouse.DigestOf(b))
			}
			has(t, s, d, b)
		}
	})

	t.Run("get must return ErrNotFound", func(t *testing.T) {
		s := open(t)
		put(t, s, []byte("hello"))
		for _, d := range []dormouse.Digest{
			dormouse.DigestOf([]byte("other")), "", "hello", "sha256:", "sha256:../../../../etc/passwd",
			"sha256:" + dormouse.Digest(bytes.Repeat([]byte("."), 64)),
		} {
			if b, err := s.Get(t.Context(), d); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("get %q = %q, %v, want ErrNotFound", d, b, err)
			}
		}
	})

	t.Run("putting the same bytes again must succeed and change nothing but when they were last put", func(t *testing.T) {
		s := open(t)
		first := put(t, s, []byte("hello"))
		other := put(t, s, []byte("other"))
		if again := put(t, s, []byte("hello")); again != first {
			t.Errorf("put again = %s, want %s", again, first)
		}
		has(t, s, first, []byte("hello"))
		has(t, s, other, []byte("other"))
	})

	t.Run("delete must succeed for what is not there", func(t *testing.T) {
		s := open(t)
		d, other := put(t, s, []byte("hello")), put(t, s, []byte("other"))
		for range 2 {
			if err := s.Delete(t.Context(), d); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
		if _, err := s.Get(t.Context(), d); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("get after delete = %v, want ErrNotFound", err)
		}
		if err := s.Delete(t.Context(), "sha256:../.."); err != nil {
			t.Errorf("delete of what cannot be there: %v", err)
		}
		has(t, s, other, []byte("other"))
		has(t, s, put(t, s, []byte("hello")), []byte("hello"))
	})

	t.Run("what a caller does with its bytes afterwards changes nothing", func(t *testing.T) {
		s := open(t)
		b := []byte("hello")
		d := put(t, s, b)
		b[0] = '!'
		got, err := s.Get(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		got[0] = '?'
		has(t, s, d, []byte("hello"))
	})

	t.Run("many may put and get at once, the same bytes too", func(t *testing.T) {
		s := open(t)
		var running sync.WaitGroup
		for n := range 32 {
			running.Go(func() {
				for i := range 8 {
					b := fmt.Appendf(nil, "blob %d", (n+i)%16)
					d, err := s.Put(t.Context(), b)
					if err != nil {
						t.Error(err)
						continue
					}
					has(t, s, d, b)
				}
			})
		}
		running.Wait()
	})

	t.Run("a caller who has already left changes nothing", func(t *testing.T) {
		s := open(t)
		kept := put(t, s, []byte("kept"))
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		leave(gone)
		if _, err := s.Put(ctx, []byte("hello")); !errors.Is(err, gone) {
			t.Errorf("put = %v, want the cause", err)
		}
		if err := s.Delete(ctx, kept); !errors.Is(err, gone) {
			t.Errorf("delete = %v, want the cause", err)
		}
		has(t, s, kept, []byte("kept"))
	})

	runStreams(t, open)
}

func put(t *testing.T, s blob.Store, b []byte) dormouse.Digest {
	t.Helper()
	d, err := s.Put(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func has(t *testing.T, s blob.Store, d dormouse.Digest, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), d)
	if err != nil {
		t.Errorf("get: %v", err)
	} else if !bytes.Equal(got, want) {
		t.Errorf("get = %d other bytes", len(got))
	}
}
