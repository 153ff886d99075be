package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/s3"
)

var small = []byte("hello")

// through opens a store behind a proxy.
func through(t *testing.T) (*s3.Store, *proxy, s3.Options) {
	t.Helper()
	o := options(t)
	o.Tries = 3
	p := newProxy(t, &o)
	return open(t, o), p, o
}

// unsure fails unless an error is one after which the blob may well be there.
func unsure(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, dormouse.ErrUnavailable) {
		t.Errorf("%s = %v, want ErrUnavailable", what, err)
	}
	for _, not := range []error{blob.ErrCorrupt, dormouse.ErrNotFound, io.EOF} {
		if errors.Is(err, not) {
			t.Errorf("%s = %v, which is taken for %v", what, err, not)
		}
	}
}

func TestTroubleThatPassesIsNotNoticed(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]lie{
		"not now":        refuses(http.StatusServiceUnavailable, "SlowDown"),
		"broken":         refuses(http.StatusInternalServerError, "InternalError"),
		"no gateway":     says(http.StatusBadGateway, "<html>bad gateway</html>"),
		"a reset":        resets,
		"nothing stored": says(http.StatusOK, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := through(t)
			if name == "nothing stored" {
				p.begin(on("PUT sha256", first(2, l)))
			} else {
				p.begin(first(2, l))
			}
			d, err := s.Put(t.Context(), small)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
				t.Errorf("get = %q, %v", b, err)
			}
			if collected, err := s.Collect(t.Context(), d, time.Now().Add(-time.Hour)); collected || err != nil {
				t.Errorf("collect = %t, %v", collected, err)
			}
			if err := s.Delete(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTroubleThatStaysIsAnErrorAndSaysNothingOfTheBlob(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]lie{
		"down":          func(w http.ResponseWriter, _ *http.Request, _ string, _ int, _ http.Handler) { reset(w) },
		"not now":       refuses(http.StatusServiceUnavailable, "SlowDown"),
		"a reset":       resets,
		"it hangs up":   hangsUp,
		"no rights":     refuses(http.StatusForbidden, "AccessDenied"),
		"no bucket":     refuses(http.StatusNotFound, "NoSuchBucket"),
		"somebody else": says(http.StatusNotFound, "<html>not found</html>"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := through(t)
			d, err := s.Put(t.Context(), small)
			if err != nil {
				t.Fatal(err)
			}
			p.begin(l)
			_, err = s.Get(t.Context(), d)
			unsure(t, "get", err)
			if n := p.count("GET sha256"); n > 2*3 { // HTTP itself may ask twice
				t.Errorf("it was asked for %d times", n)
			}
			_, err = s.Put(t.Context(), []byte("other"))
			unsure(t, "put", err)
			_, _, err = s.PutFrom(t.Context(), strings.NewReader("other"))
			unsure(t, "put from", err)
			unsure(t, "each", s.Each(t.Context(), time.Now(), func(dormouse.Digest) error { return nil }))
			p.begin(truth)
			if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
				t.Errorf("get afterwards = %q, %v", b, err)
			}
			if _, err := s.Get(t.Context(), dormouse.DigestOf([]byte("other"))); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("get of what was not put = %v", err)
			}
		})
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Patience, o.Tries = 5*time.Second, 2
	p := newProxy(t, &o)
	s := open(t, o)
	p.begin(on("PUT sha256", first(1, hangs)))
	d, err := s.Put(t.Context(), small)
	if err != nil {
		t.Fatalf("put to a server that was silent once: %v", err)
	}
	p.begin(on("GET sha256", hangs))
	_, err = s.Get(t.Context(), d)
	unsure(t, "get", err)
	if n := p.count("GET sha256"); n < 2 || n > 2*2 { // HTTP itself may ask twice
		t.Errorf("a silent server was asked %d times, want 2", n)
	}
}

func TestWhoLeavesASilentServerIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Patience = time.Hour
	p := newProxy(t, &o)
	s := open(t, o)
	d, err := s.Put(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	for name, do := range map[string]func(context.Context) error{
		"put":      func(ctx context.Context) error { _, err := s.Put(ctx, []byte("other")); return err },
		"put from": func(ctx context.Context) error { _, _, err := s.PutFrom(ctx, large(40<<20)); return err },
		"get":      func(ctx context.Context) error { _, err := s.Get(ctx, d); return err },
		"delete":   func(ctx context.Context) error { return s.Delete(ctx, d) },
		"collect":  func(ctx context.Context) error { _, err := s.Collect(ctx, d, time.Now()); return err },
		"each":     func(ctx context.Context) error { return s.Each(ctx, time.Now(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancelCause(t.Context())
			p.begin(func(w http.ResponseWriter, r *http.Request, name string, _ int, next http.Handler) {
				leave(gone)
				hangs(w, r, name, 0, next)
			})
			if err := do(ctx); !errors.Is(err, gone) {
				t.Errorf("%s = %v, want the cause", name, err)
			}
		})
	}
}

func TestABrokenDownloadGoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	s, p, _ := through(t)
	b := bytes.Repeat([]byte("0123456789"), 1<<18)
	d, err := s.Put(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	p.begin(on("GET sha256", first(2, cuts(len(b)/4))))
	if got, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(got, b) {
		t.Errorf("get = %d bytes, %v", len(got), err)
	}
	if n := p.count("GET sha256"); n != 3 {
		t.Errorf("it was asked for %d times, want 3", n)
	}
	// It may break as often as something comes each time, and not for ever.
	p.begin(on("GET sha256", func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler) {
		cuts(max(0, 1000-before*1000))(w, r, name, before, next)
	}))
	_, err = s.Get(t.Context(), d)
	unsure(t, "get", err)
	p.begin(on("GET sha256", func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler) {
		if before > 0 {
			hangsUp(w, r, name, before, next)
		}
		cuts(1000)(w, r, name, before, next)
	}))
	_, err = s.Get(t.Context(), d)
	unsure(t, "get", err)
}

func TestOtherBytesAreCorrupt(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(http.Header, []byte) []byte{
		"changed": func(_ http.Header, b []byte) []byte { b[0] ^= 1; return b },
		"cut off": func(h http.Header, b []byte) []byte { h.Set("Content-Length", "3"); return b[:3] },
		"empty":   func(h http.Header, _ []byte) []byte { h.Set("Content-Length", "0"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := through(t)
			d, err := s.Put(t.Context(), small)
			if err != nil {
				t.Fatal(err)
			}
			p.begin(on("GET sha256", changes(f)))
			if b, err := s.Get(t.Context(), d); !errors.Is(err, blob.ErrCorrupt) {
				t.Errorf("get = %q, %v, want ErrCorrupt", b, err)
			}
		})
	}
}

// What an ETag is differs from server to server, so that it proves nothing.
func TestAnETagIsNotBelieved(t *testing.T) {
	t.Parallel()
	s, p, _ := through(t)
	p.begin(changes(func(h http.Header, b []byte) []byte {
		if h.Get("ETag") != "" {
			h.Set("ETag", `"00000000000000000000000000000000"`)
		}
		return b
	}))
	d, err := s.Put(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
		t.Errorf("get = %q, %v", b, err)
	}
	// The server itself compares those of the parts.
	if _, _, err := s.PutFrom(t.Context(), large(20<<20)); err == nil {
		t.Error("parts with other ETags became a blob")
	}
}

func TestPutMustHaveMadeItDurable(t *testing.T) {
	t.Parallel()
	big, err := io.ReadAll(large(20 << 20))
	if err != nil {
		t.Fatal(err)
	}
	complete := `<CompleteMultipartUploadResult><Bucket>blobs</Bucket><Key>k</Key><ETag>"e-2"</ETag></CompleteMultipartUploadResult>`
	for name, test := range map[string]struct {
		bytes []byte
		lie   lie
	}{
		"nothing is stored":        {small, on("PUT sha256", says(http.StatusOK, ""))},
		"no part becomes a blob":   {big, on("COMPLETE sha256", says(http.StatusOK, complete))},
		"a part is not stored":     {big, on("PART 2", says(http.StatusOK, ""))},
		"a part breaks":            {big, on("PART 2", resets)},
		"an error that looks well": {big, on("COMPLETE sha256", refuses(http.StatusOK, "InternalError"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := through(t)
			p.begin(test.lie)
			if d, err := s.Put(t.Context(), test.bytes); err == nil {
				t.Errorf("put = %s", d)
			}
			if _, _, err := s.PutFrom(t.Context(), bytes.NewReader(test.bytes)); err == nil {
				t.Error("put from a stream succeeded")
			}
			p.begin(truth)
			if _, err := s.Get(t.Context(), dormouse.DigestOf(test.bytes)); !errors.Is(err, dormouse.ErrNotFound) {
				t.Errorf("get = %v, want ErrNotFound", err)
			}
			d, err := s.Put(t.Context(), test.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, test.bytes) {
				t.Errorf("get after all = %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestOtherBytesThatWereStoredAreNoticedWhenTheyArePut(t *testing.T) {
	t.Parallel()
	s, p, o := through(t)
	d := dormouse.DigestOf(small)
	p.begin(on("PUT sha256", func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler) {
		if err := os.MkdirAll(filepath.Dir(path(o, d)), 0o700); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(path(o, d), []byte("hellO"), 0o600); err != nil {
			t.Error(err)
		}
		says(http.StatusOK, "")(w, r, name, before, next)
	}))
	if _, err := s.Put(t.Context(), small); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("put = %v, want ErrCorrupt", err)
	}
	p.begin(truth)
	if _, err := s.Put(t.Context(), small); err != nil {
		t.Errorf("put to an honest server: %v", err)
	}
	if b, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(b, small) {
		t.Errorf("get = %q, %v", b, err)
	}
}

func TestAServerWithoutChecksumsIsReadBack(t *testing.T) {
	t.Parallel()
	s, p, o := through(t)
	p.begin(on("HEAD sha256", changes(func(h http.Header, b []byte) []byte {
		h.Del("X-Amz-Checksum-Sha256")
		return b
	})))
	for _, b := range [][]byte{small, bytes.Repeat([]byte("large"), 5<<20)} {
		d, err := s.Put(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if p.count("GET sha256") == 0 {
			t.Error("nothing was read back")
		}
		if err := os.WriteFile(path(o, d), bytes.Repeat([]byte("x"), len(b)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), d); err != nil || !bytes.Equal(got, b) {
			t.Errorf("get of what rotted and was put again = %d bytes, %v", len(got), err)
		}
	}
}

func TestAServerWithChecksumsIsNotReadBack(t *testing.T) {
	t.Parallel()
	s, p, _ := through(t)
	for _, size := range []int64{0, 5, partSize, partSize + 1, 3 * partSize} {
		for range 2 {
			if _, _, err := s.PutFrom(t.Context(), large(size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := p.count("GET sha256"); n != 0 {
		t.Errorf("it was read %d times", n)
	}
	if n := p.count("PUT sha256") + p.count("COMPLETE sha256"); n != 5 {
		t.Errorf("five blobs were sent %d times", n)
	}
}

func TestAServerWithoutConditionsWorksToo(t *testing.T) {
	t.Parallel()
	s, p, _ := through(t)
	refused := 0
	p.begin(func(w http.ResponseWriter, r *http.Request, name string, before int, next http.Handler) {
		if r.Header.Get("If-None-Match") != "" {
			refused++
			refuses(http.StatusNotImplemented, "NotImplemented")(w, r, name, before, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	for _, text := range []string{"one", "two"} {
		d, err := s.Put(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Get(t.Context(), d); err != nil || string(b) != text {
			t.Errorf("get = %q, %v", b, err)
		}
	}
	if refused != 1 {
		t.Errorf("a condition was sent %d times, want once", refused)
	}
}

func TestWhatAnotherPutMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{"at once": small, "in parts": bytes.Repeat([]byte("large"), 5<<20)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			other := open(t, o)
			p := newProxy(t, &o)
			s := open(t, o)
			var put os.FileInfo
			p.begin(func(w http.ResponseWriter, r *http.Request, _ string, _ int, next http.Handler) {
				if put == nil && r.Header.Get("If-None-Match") != "" {
					d, err := other.Put(r.Context(), b)
					if err != nil {
						t.Error(err)
					}
					if put, err = os.Stat(path(o, d)); err != nil {
						t.Error(err)
					}
				}
				next.ServeHTTP(w, r)
			})
			d, err := s.Put(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if now, err := os.Stat(path(o, d)); err != nil || put == nil || !os.SameFile(put, now) {
				t.Errorf("the other's object is gone: %v", err)
			}
		})
	}
}

func TestAFullServerMustBeErrFull(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]lie{
		"by its status": says(http.StatusInsufficientStorage, ""),
		"by its word":   refuses(http.StatusForbidden, "QuotaExceeded"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := through(t)
			p.begin(on("PUT sha256", l))
			if _, err := s.Put(t.Context(), small); !errors.Is(err, dormouse.ErrFull) {
				t.Errorf("put = %v, want ErrFull", err)
			}
		})
	}
}

func TestAStreamThatDoesNotFitMustBeErrFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	o := options(t)
	if err := syscall.Mount("tmpfs", o.Temp, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(o.Temp, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, o)
	if _, _, err := s.PutFrom(t.Context(), large(2<<20)); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("put from = %v, want ErrFull", err)
	}
	// What did not fit gave its room back.
	if _, _, err := s.PutFrom(t.Context(), large(1<<19)); err != nil {
		t.Errorf("put of what fits: %v", err)
	}
}

func TestNothingIsLeftOfAStream(t *testing.T) {
	t.Parallel()
	s, p, o := through(t)
	if _, _, err := s.PutFrom(t.Context(), large(20<<20)); err != nil {
		t.Fatal(err)
	}
	p.begin(on("PART 2", refuses(http.StatusBadRequest, "BadDigest")))
	if _, _, err := s.PutFrom(t.Context(), io.MultiReader(large(20<<20), strings.NewReader("more"))); err == nil {
		t.Error("a refused part became a blob")
	}
	if n := p.count("ABORT sha256"); n != 1 {
		t.Errorf("the upload was ended %d times, want once", n)
	}
	left, err := os.ReadDir(o.Temp)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

const partSize = 16 << 20

// large is a stream of n bytes.
func large(n int64) io.Reader { return io.LimitReader(zeros{}, n) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
