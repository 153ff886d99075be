package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
)

var testKey = bytes.Repeat([]byte{7}, 32)

// frames seals pieces, and the end, and returns each frame.
func frames(t testing.TB, key []byte, pieces ...string) (all [][]byte) {
	t.Helper()
	var out bytes.Buffer
	s := newSealer(&out, key)
	for _, p := range pieces {
		if _, err := s.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for b := out.Bytes(); len(b) > 0; {
		n := headSize + int(binary.BigEndian.Uint16(b)) + tagSize
		all, b = append(all, b[:n]), b[n:]
	}
	return all
}

func opened(key, b []byte) (string, error) {
	got, err := io.ReadAll(newOpener(bytes.NewReader(b), key))
	return string(got), err
}

func TestAStreamOpensOnlyAsItWasSealed(t *testing.T) {
	good := frames(t, testKey, "one", "two", "three")
	if got, err := opened(testKey, slices.Concat(good...)); err != nil || got != "onetwothree" {
		t.Fatalf("it is not its own: %q, %v", got, err)
	}
	other := frames(t, bytes.Repeat([]byte{8}, 32), "one", "two", "three")
	for name, c := range map[string]struct {
		frames [][]byte
		given  string // what was proven until then
	}{
		"a frame twice":          {[][]byte{good[0], good[0], good[1], good[2], good[3]}, "one"},
		"two in another order":   {[][]byte{good[1], good[0], good[2], good[3]}, ""},
		"one left out":           {[][]byte{good[0], good[2], good[3]}, "one"},
		"the end too early":      {[][]byte{good[0], good[3]}, "one"},
		"one of another stream":  {[][]byte{good[0], other[1], good[2], good[3]}, "one"},
		"all of another stream":  {other, ""},
		"the end of another one": {[][]byte{good[0], good[1], good[2], other[3]}, "onetwothree"},
		"an end nobody sealed":   {[][]byte{good[0], make([]byte, headSize+tagSize)}, "one"},
		"a frame nobody sealed":  {[][]byte{append([]byte{0, 1, 'x'}, make([]byte, tagSize)...)}, ""},
		"data made the end":      {[][]byte{append([]byte{0, 0}, good[0][headSize:]...)}, ""},
		"the end made data":      {[][]byte{good[0], good[1], good[2], append([]byte{0, 1, 'x'}, good[3][headSize:]...)}, "onetwothree"},
		"too large a frame":      {[][]byte{append([]byte{0x80, 1}, make([]byte, maxPiece+1+tagSize)...)}, ""},
	} {
		if got, err := opened(testKey, slices.Concat(c.frames...)); !errors.Is(err, errForged) || got != c.given {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAStreamThatIsCutOrChangedIsNotWhole(t *testing.T) {
	whole := slices.Concat(frames(t, testKey, "some words")...)
	for n := range whole {
		if got, err := opened(testKey, whole[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d of %d: %q, %v", n, len(whole), got, err)
		}
		for bit := range 8 {
			changed := bytes.Clone(whole)
			changed[n] ^= 1 << bit
			if got, err := opened(testKey, changed); err == nil || len(got) > 0 && got != "some words" {
				t.Errorf("bit %d of byte %d changed: %q, %v", bit, n, got, err)
			}
		}
	}
}

// failing takes so many bytes.
type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestNothingFollowsAFrameThatWasNotSent(t *testing.T) {
	out := &failing{left: 100}
	s := newSealer(out, testKey)
	if n, err := s.Write(make([]byte, maxPiece)); n != 0 || err == nil {
		t.Errorf("sent %d, %v", n, err)
	}
	out.left = 1 << 20
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("it goes on behind half a frame")
	}
	if err := s.Close(); err == nil {
		t.Error("it ends well behind half a frame")
	}
}

func FuzzOpenStream(f *testing.F) {
	whole := slices.Concat(frames(f, testKey, "some words", "and more")...)
	for _, s := range []string{"", "\x00\x00", "\x00\x01x", "\x00\x05abc", "\xff\xff", "\x80\x00", string(whole), string(whole[:20])} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		in := newOpener(bytes.NewReader(b), testKey)
		runtime.ReadMemStats(&before)
		_, err := io.Copy(io.Discard, struct{ io.Reader }{in})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; cap(in.buf) > maxPiece+tagSize || took > 1<<20 {
			t.Errorf("%d bytes took %d of memory, %d of them for a frame", len(b), took, cap(in.buf))
		}
		if err == nil && !bytes.HasPrefix(b, whole) && !bytes.Equal(b, frames(t, testKey)[0]) {
			t.Errorf("%x is taken for a stream", b)
		}
	})
}
