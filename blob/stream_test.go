package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
)

func TestOnlyWholeBytesAreGivenToTheLast(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		of   string // the digest's
		has  io.Reader
		size int64
		want error
	}{
		"whole":            {"hello", strings.NewReader("hello"), 5, nil},
		"byte by byte":     {"hello", iotest.OneByteReader(strings.NewReader("hello")), 5, nil},
		"with its end":     {"hello", iotest.DataErrReader(strings.NewReader("hello")), 5, nil},
		"nothing":          {"", strings.NewReader(""), 0, nil},
		"other":            {"hello", strings.NewReader("hellO"), 5, blob.ErrCorrupt},
		"other, by bytes":  {"hello", iotest.OneByteReader(strings.NewReader("hellO")), 5, blob.ErrCorrupt},
		"shorter":          {"hello", strings.NewReader("hell"), 5, blob.ErrCorrupt},
		"said to be short": {"hello", strings.NewReader("hello"), 4, blob.ErrCorrupt},
		"said to be none":  {"hello", strings.NewReader("hello"), 0, blob.ErrCorrupt},
		"said to be less":  {"hello", strings.NewReader("hello"), -1, blob.ErrCorrupt},
		"broken":           {"hello", io.MultiReader(strings.NewReader("he"), iotest.ErrReader(broken)), 5, broken},
	} {
		t.Run(name, func(t *testing.T) {
			d := dormouse.DigestOf([]byte(test.of))
			r := blob.Verify(t.Context(), io.NopCloser(test.has), d, test.size)
			var got bytes.Buffer
			_, err := io.Copy(&got, r)
			if !errors.Is(err, test.want) {
				t.Errorf("read = %v, want %v", err, test.want)
			}
			if test.want == nil && got.String() != test.of {
				t.Errorf("read = %q", got.String())
			}
			if test.want != nil && test.size > 0 && int64(got.Len()) >= test.size {
				t.Errorf("%q was read to the last byte", got.String())
			}
			if _, again := r.Read(make([]byte, 1)); test.want != nil && !errors.Is(again, test.want) || test.want == nil && again != io.EOF {
				t.Errorf("read again = %v", again)
			}
		})
	}
}

// A reader that knows the size need not wait for the end.
func TestWhoHasReadAllBytesHasReadTheBlob(t *testing.T) {
	r := blob.Verify(t.Context(), io.NopCloser(strings.NewReader("hellO")), dormouse.DigestOf([]byte("hello")), 5)
	if _, err := io.ReadFull(r, make([]byte, 5)); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("read = %v, want ErrCorrupt", err)
	}
}

func TestASizeIsNotBelievedBeforeTheBytesAreThere(t *testing.T) {
	r := blob.Verify(t.Context(), io.NopCloser(strings.NewReader("hello")), dormouse.DigestOf([]byte("hello")), 1<<60)
	if _, err := blob.ReadAll(r, 1<<60); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("read = %v, want ErrCorrupt", err)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	r := blob.Verify(ctx, io.NopCloser(strings.NewReader("hello")), dormouse.DigestOf([]byte("hello")), 5)
	if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	leave(gone)
	if _, err := io.ReadAll(r); !errors.Is(err, gone) {
		t.Errorf("read = %v, want the cause", err)
	}
	if _, n, err := blob.Copy(ctx, io.Discard, strings.NewReader("hello")); n != 0 || !errors.Is(err, gone) {
		t.Errorf("copy = %d, %v, want the cause", n, err)
	}
}
