package blobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

// Collectable is a store with its collectable part.
type Collectable interface {
	blob.Store
	blob.Collectable
}

// Tick is how long to wait until the time has certainly changed: longer than the times of
// a store's blobs may be off.
type Tick time.Duration

// RunCollectable holds a store to the promises that a collector needs.
func RunCollectable(t *testing.T, tick Tick, open func(t *testing.T) Collectable) {
	t.Run("each must call f with every blob that was last put before a time", func(t *testing.T) {
		s := open(t)
		var early, late []dormouse.Digest
		for n := range 40 {
			early = append(early, put(t, s, fmt.Appendf(nil, "early %d", n)))
		}
		middle := tick.pass()
		for n := range 40 {
			late = append(late, put(t, s, fmt.Appendf(nil, "late %d", n)))
		}
		end := tick.pass()
		listed(t, s, middle.Add(-time.Hour))
		listed(t, s, middle, early...)
		listed(t, s, end, slices.Concat(early, late)...)
	})

	t.Run("each must end with the error of f", func(t *testing.T) {
		s := open(t)
		for n := range 10 {
			put(t, s, fmt.Appendf(nil, "blob %d", n))
		}
		enough, calls := errors.New("enough"), 0
		err := s.Each(t.Context(), tick.pass(), func(dormouse.Digest) error {
			calls++
			if calls == 3 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || calls != 3 {
			t.Errorf("each = %v after %d calls", err, calls)
		}
	})

	t.Run("each may collect as it goes", func(t *testing.T) {
		s := open(t)
		for n := range 10 {
			put(t, s, fmt.Appendf(nil, "blob %d", n))
		}
		end := tick.pass()
		kept := put(t, s, []byte("kept"))
		err := s.Each(t.Context(), end, func(d dormouse.Digest) error {
			_, err := s.Collect(t.Context(), d, end)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		listed(t, s, tick.pass(), kept)
	})

	t.Run("collect must delete d and report so unless it was put again since", func(t *testing.T) {
		s := open(t)
		old, again := put(t, s, []byte("old")), put(t, s, []byte("again"))
		middle := tick.pass()
		put(t, s, []byte("again"))
		listed(t, s, middle, old)
		for _, test := range []struct {
			d      dormouse.Digest
			before time.Time
			want   bool
		}{
			{old, middle.Add(-time.Hour), false},
			{again, middle, false},
			{old, middle, true},
			{old, middle, false},
			{again, tick.pass(), true},
		} {
			if collected, err := s.Collect(t.Context(), test.d, test.before); collected != test.want || err != nil {
				t.Errorf("collect = %t, %v, want %t", collected, err, test.want)
			}
		}
		for _, d := range []dormouse.Digest{old, again} {
			if _, err := s.Get(t.Context(), d); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("get of what was collected = %v, want ErrNotFound", err)
			}
		}
	})

	t.Run("collect of what is not there must succeed", func(t *testing.T) {
		s := open(t)
		for _, d := range []dormouse.Digest{dormouse.DigestOf([]byte("other")), "", "sha256:../.."} {
			if collected, err := s.Collect(t.Context(), d, time.Now()); collected || err != nil {
				t.Errorf("collect %q = %t, %v", d, collected, err)
			}
		}
	})

	t.Run("a blob that was last put at or after before must stay, whoever puts it at the very moment", func(t *testing.T) {
		s := open(t)
		PutAgainWhileCollecting(t, tick, s, s)
	})

	t.Run("a caller who has already left collects nothing", func(t *testing.T) {
		s := open(t)
		d := put(t, s, []byte("kept"))
		end := tick.pass()
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		leave(gone)
		if collected, err := s.Collect(ctx, d, end); collected || !errors.Is(err, gone) {
			t.Errorf("collect = %t, %v, want the cause", collected, err)
		}
		if err := s.Each(ctx, end, func(dormouse.Digest) error { return nil }); !errors.Is(err, gone) {
			t.Errorf("each = %v, want the cause", err)
		}
		has(t, s, d, []byte("kept"))
	})
}

// PutAgainWhileCollecting puts old blobs again through one store while they are
// collected through another, which may be the same or share its bytes, and fails
// if one that was put is gone.
func PutAgainWhileCollecting(t *testing.T, tick Tick, puts, collects Collectable) {
	t.Helper()
	const blobs = 60
	var bytes [blobs][]byte
	began := time.Now()
	for n := range bytes {
		bytes[n] = fmt.Appendf(nil, "blob %d", n)
		put(t, puts, bytes[n])
	}
	later := 2 * time.Since(began) / blobs / blobs
	end := tick.pass()
	for n, b := range bytes {
		var running sync.WaitGroup
		begin := time.Now()
		running.Go(func() {
			for time.Since(begin) < time.Duration(n)*later {
				// Collect a little later each time: before, while and after it is put.
			}
			if _, err := collects.Collect(t.Context(), dormouse.DigestOf(b), end); err != nil {
				t.Error(err)
			}
		})
		put(t, puts, b)
		running.Wait()
		has(t, puts, dormouse.DigestOf(b), b)
	}
}

// pass waits, and returns an instant that is certainly after everything before the call
// and before everything after it.
func (tick Tick) pass() time.Time {
	time.Sleep(time.Duration(tick))
	now := time.Now()
	time.Sleep(time.Duration(tick))
	return now
}

// listed fails unless these are the blobs last put before a time.
func listed(t *testing.T, s Collectable, before time.Time, want ...dormouse.Digest) {
	t.Helper()
	var got []dormouse.Digest
	err := s.Each(t.Context(), before, func(d dormouse.Digest) error {
		got = append(got, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("blobs last put before %v (-want +got):\n%s", before, diff)
	}
}
