//go:build linux

package archives

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// verdict is what has to come of an archive.
type verdict int

const (
	refused verdict = iota // by strict readers; the others accept what does no harm
	tamed                  // taken by all, without what does harm
	either                 // as the file system has it
)

// elsewhere is the placeholder in names for the place of the canary, which is known only
// later.
const elsewhere = "/CANARY"

func tars() []Case {
	hostile := make(map[string]func(canary string) []byte)
	for name := range layertest.Hostile(elsewhere) {
		hostile[name] = func(canary string) []byte { return layertest.Hostile(canary)[name].Bytes() }
	}
	for name := range layertest.Malformed(elsewhere) {
		hostile[name] = func(canary string) []byte { return layertest.Malformed(canary)[name] }
	}
	cases := named("tar", "an archive that is no layer", hostile, func(ctx context.Context, w *World, aimedAt func(string) []byte) (string, error) {
		return w.everyWay(ctx, aimedAt(w.Canary), limits, refused)
	})
	cases = append(cases, named("tar", "an archive with something unusual", layertest.Unusual(), func(ctx context.Context, w *World, raw []byte) (string, error) {
		return w.everyWay(ctx, raw, limits, tamed)
	})...)
	return append(cases, []Case{
		{"tar-a-header-for-all", "a header that gives all that follow another name", func(ctx context.Context, w *World) (string, error) {
			return w.everyWay(ctx, layertest.Global(), limits, refused)
		}},
		{"tar-much-attached-in-parts", "600 KB attached to one file", func(ctx context.Context, w *World) (string, error) {
			return w.everyWay(ctx, layertest.Attributes(10, 60_000), limits, either)
		}},
		{"tar-a-long-chain-of-links", "10 000 links, each to the one before", func(ctx context.Context, w *World) (string, error) {
			return w.everyWay(ctx, chain(10_000), layer.Limits{Entries: 20_000, Bytes: 1 << 20}, tamed)
		}},
		{"tar-attributes-without-end", "1000 attributes of 64 KiB", func(ctx context.Context, w *World) (string, error) {
			return w.everyWay(ctx, layertest.Attributes(1000, 64<<10), limits, refused)
		}},
		{"tar-many-attributes", "1000 attributes of a few bytes", func(ctx context.Context, w *World) (string, error) {
			return w.everyWay(ctx, layertest.Attributes(1000, 10), limits, refused)
		}},
		{"tar-inodes", "10 000 000 empty files", inodes},
		{"tar-one-large-file", "a file of 10 GiB, as it comes", largeFile},
		{"tar-mounted", "names that lead into what is mounted in the target", mounted},
	}...)
}

// everyWay plays an archive in every way there is.
func (w *World) everyWay(ctx context.Context, raw []byte, l layer.Limits, want verdict) (string, error) {
	var seen []outcome
	for _, way := range ways {
		if err := w.empty(); err != nil {
			return "", err
		}
		dirs, got, breach := way.play(ctx, w, raw, l)
		switch {
		case breach != nil:
		case got == nil && want == refused && way.strict:
			breach = errors.New("it was taken")
		case got == nil:
			breach = w.inspectAll(dirs, l)
		case want == tamed && !way.shallow:
			breach = fmt.Errorf("it was not taken: %w", got)
		}
		if breach != nil {
			return "", fmt.Errorf("%s: %w", way.name, breach)
		}
		seen = append(seen, outcome{way.name, "tamed"})
		if got != nil {
			seen[len(seen)-1].text = "refused:" + reason(got)
		}
	}
	return summary(seen), w.empty()
}

// outcome is what a way has made of an archive.
type outcome struct{ way, text string }

// summary says which ways had the same outcome.
func summary(all []outcome) string {
	var said []string
	for len(all) > 0 {
		text := all[0].text
		var names []string
		all = slices.DeleteFunc(all, func(o outcome) bool {
			if o.text == text {
				names = append(names, o.way)
			}
			return o.text == text
		})
		said = append(said, strings.Join(names, ", ")+": "+text)
	}
	return strings.Join(said, "; ")
}

// inspectAll looks at every directory that a workspace is made of.
func (w *World) inspectAll(dirs []string, l layer.Limits) error {
	var err error
	for _, dir := range dirs {
		err = errors.Join(err, w.inspect(dir, l))
	}
	return err
}

// reason is the last thing that an error says.
func reason(err error) string {
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:] // with the space
}

func chain(n int) []byte {
	a := layertest.Archive{layertest.Dir("./"), layertest.File("f0")}
	for i := range n {
		a = append(a, layertest.Hardlink(fmt.Sprintf("f%d", i+1), fmt.Sprintf("f%d", i)))
	}
	return a.Bytes()
}

// endless is a tar that a file or more is appended to as it is read.
type endless struct {
	next  func(n int, to *tar.Writer) error // of the nth entry
	left  int
	n     int
	ready bytes.Buffer
	out   *tar.Writer
}

func newEndless(entries int, next func(n int, to *tar.Writer) error) *endless {
	e := &endless{next: next, left: entries}
	e.out = tar.NewWriter(&e.ready)
	return e
}

func (e *endless) Read(b []byte) (int, error) {
	for e.ready.Len() == 0 && e.left > 0 {
		if err := e.next(e.n, e.out); err != nil {
			return 0, err
		}
		e.n++
		if e.left--; e.left == 0 {
			if err := e.out.Close(); err != nil {
				return 0, err
			}
		}
	}
	return e.ready.Read(b)
}

// inodes wants more files than a machine has room for.
func inodes(ctx context.Context, w *World) (string, error) {
	files := func(entries int) io.Reader {
		return newEndless(entries, func(n int, to *tar.Writer) error {
			if n == 0 {
				return to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755})
			}
			return to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%d", n), Mode: 0o644})
		})
	}
	if err := w.asItComes(ctx, func() io.Reader { return files(10_000_000) }, layer.ErrTooMany); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(files(100_000)) // of which all are stored before any is looked at
	if err != nil {
		return "", err
	}
	return w.everyWay(ctx, raw, limits, refused)
}

// largeFile is refused before much of it has come.
func largeFile(ctx context.Context, w *World) (string, error) {
	const size = 10 << 30
	err := w.asItComes(ctx, func() io.Reader {
		return newEndless(size/(1<<20), func(n int, to *tar.Writer) error {
			if n == 0 {
				return errors.Join(to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}), to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Size: size}))
			}
			_, err := to.Write(make([]byte, 1<<20))
			return err
		})
	}, layer.ErrTooBig)
	return "unpack, oci and apply refuse it", err
}

// asItComes unpacks, in each way that takes a stream, what is too long to be held, and
// is refused.
func (w *World) asItComes(ctx context.Context, from func() io.Reader, want error) error {
	for _, play := range []func(context.Context, io.Reader, layer.Limits) ([]string, error, error){w.unpack, w.unpackOCI, w.apply} {
		if err := w.empty(); err != nil {
			return err
		}
		_, got, breach := play(ctx, from(), limits)
		if _, err := said(got, breach, want); err != nil {
			return err
		}
	}
	return w.empty()
}

// mounted has the canary mounted where names of the archive lead.
func mounted(ctx context.Context, w *World) (string, error) {
	raw := layertest.Archive{layertest.Dir("./"), layertest.Dir("m/"), layertest.File("m/x"), layertest.Hardlink("a", "m/x")}.Bytes()
	var seen string
	for _, play := range []func(context.Context, io.Reader, layer.Limits) ([]string, error, error){w.unpack, w.unpackOCI} {
		if err := w.empty(); err != nil {
			return "", err
		}
		at := filepath.Join(w.Target, "m")
		if err := errors.Join(os.Mkdir(at, 0o700), unix.Mount(w.Canary, at, "", unix.MS_BIND, "")); err != nil {
			return "", err
		}
		_, got, breach := play(ctx, bytes.NewReader(raw), limits)
		if err := errors.Join(breach, unix.Unmount(at, unix.MNT_DETACH)); err != nil {
			return "", err
		}
		if got == nil {
			return "", errors.New("it was taken")
		}
		seen = reason(got)
	}
	return "it is refused: " + seen, w.empty()
}
