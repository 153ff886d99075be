//go:build linux

package archives

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/internal/dockerd"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// startDocker starts a Docker of our own, for the tests that need one.
func startDocker(t *testing.T) *dockerd.Daemon {
	t.Helper()
	if os.Getenv("DORMOUSE_DOCKER") == "" {
		t.Skip("make images runs this")
	}
	at, err := os.MkdirTemp("", "docker-") //nolint:usetesting // a socket is in it, whose path must be short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(at)) })
	d, err := dockerd.Start(t.Context(), at)
	must(t, err)
	t.Cleanup(func() { must(t, d.Stop(t.Context())) })
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// layered is a workspace whose chain grows by layers.
type layered struct {
	*snapshot.Store
	t      *testing.T
	dir    string
	layers []dormouse.Layer
}

func newLayered(t *testing.T) *layered {
	t.Helper()
	at := t.TempDir()
	blobs, err := dir.Open(filepath.Join(at, "blobs"))
	must(t, err)
	t.Cleanup(func() { must(t, blobs.Close()) })
	s, err := snapshot.Open(snapshot.Options{Dir: filepath.Join(at, "store"), Blobs: blobs})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &layered{Store: s, t: t, dir: at}
}

// add adds a layer that fill writes, in a root that is like every other.
func (l *layered) add(fill func(in func(name string) string)) {
	l.t.Helper()
	g, err := l.Stage(l.t.Context())
	must(l.t, err)
	must(l.t, os.Mkdir(filepath.Join(g.Dir, "work"), 0o755))
	fill(func(name string) string { return filepath.Join(g.Dir, "work", name) })
	must(l.t, os.Chmod(g.Dir, 0o755))
	old := time.Unix(1_500_000_000, 0)
	must(l.t, os.Chtimes(filepath.Join(g.Dir, "work"), old, old))
	put, err := l.Put(l.t.Context(), g)
	must(l.t, err)
	l.layers = append(l.layers, put)
}

// show is what is seen of a workspace of layers.
func (l *layered) show(number uint64, layers []dormouse.Layer) string {
	l.t.Helper()
	dirs, err := l.Acquire(l.t.Context(), owner, number, layers, nil)
	must(l.t, err)
	at := l.t.TempDir()
	if len(dirs) == 1 { // which no overlay is made of
		empty := filepath.Join(filepath.Dir(dirs[0]), "empty")
		must(l.t, os.MkdirAll(empty, 0o755))
		dirs = append([]string{empty}, dirs...)
	}
	layertest.Mount(l.t, at, dirs, "")
	l.t.Cleanup(func() { must(l.t, unix.Unmount(at, unix.MNT_DETACH)) })
	out, err := exec.CommandContext(l.t.Context(), filepath.Join(at, "show"), filepath.Join(at, "work")).CombinedOutput()
	if err != nil {
		l.t.Fatalf("show: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// export writes layers to a file that Docker loads.
func (l *layered) export(name string, layers []dormouse.Layer) string {
	l.t.Helper()
	var b bytes.Buffer
	must(l.t, l.Export(l.t.Context(), &b, layers, snapshot.Meta{Name: name, Created: time.Unix(1, 0)}))
	file := filepath.Join(l.dir, "image.tar")
	must(l.t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}

// program is the one that shows a directory, which needs nothing beside it.
func (l *layered) program() []byte {
	l.t.Helper()
	to := filepath.Join(l.t.TempDir(), "show")
	build := exec.CommandContext(l.t.Context(), "go", "build", "-o", to, "./testdata/show")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		l.t.Fatalf("build: %v: %s", err, out)
	}
	raw, err := os.ReadFile(to)
	must(l.t, err)
	return raw
}

// first adds a layer with the program, and a little of everything.
func (l *layered) first() {
	program := l.program()
	l.add(func(in func(string) string) {
		must(l.t, os.WriteFile(in("../show"), program, 0o755))
		must(l.t, os.WriteFile(in("gone"), []byte("1"), 0o644))
		must(l.t, os.MkdirAll(in("hidden/below"), 0o750))
		must(l.t, os.WriteFile(in("hidden/file"), []byte("1"), 0o644))
		must(l.t, os.WriteFile(in("changes"), []byte("1"), 0o644))
		must(l.t, os.WriteFile(in("sparse"), []byte("begins"), 0o644))
		must(l.t, os.Truncate(in("sparse"), 5<<20))
		must(l.t, os.WriteFile(in("nobody's"), nil, 0))
		must(l.t, os.WriteFile(in("program"), []byte("x"), 0o755))
		must(l.t, os.Lchown(in("program"), 1234, 1235))
		must(l.t, unix.Chmod(in("program"), 0o6755))
		must(l.t, os.WriteFile(in("one"), []byte("two names"), 0o600))
		must(l.t, os.Link(in("one"), in("two")))
		must(l.t, os.Symlink("/srv/one", in("link")))
		must(l.t, os.Symlink("nowhere", in("dangling")))
		must(l.t, os.WriteFile(in("new\nline é"), nil, 0o600))
		must(l.t, unix.Mkfifo(in("pipe"), 0o640))
	})
}

// Docker runs what was exported and sees what we see, and what it saves comes back.
func TestDockerRunsWhatWasExported(t *testing.T) {
	docker := startDocker(t)
	l := newLayered(t)
	l.first()
	l.add(func(in func(string) string) {
		must(t, unix.Mknod(in("gone"), unix.S_IFCHR, 0))
		must(t, os.Mkdir(in("hidden"), 0o755))
		must(t, unix.Setxattr(in("hidden"), "trusted.overlay.opaque", []byte("y"), 0))
		must(t, os.WriteFile(in("hidden/new"), []byte("2"), 0o644))
		must(t, os.WriteFile(in("changes"), []byte("22"), 0o600))
	})
	l.add(func(in func(string) string) {
		must(t, os.WriteFile(in("gone"), []byte("and back"), 0o644))
		must(t, os.Mkdir(in("changes"), 0o711))
	})
	want := l.show(1, l.layers)
	for _, name := range []string{`"gone"`, `"hidden/new"`, `"pipe"`, ` also "one"`, "mode 106755 owner 1234:1235"} {
		if !strings.Contains(want, name) {
			t.Fatalf("there is no %s:\n%s", name, want)
		}
	}
	if strings.Contains(want, "hidden/file") {
		t.Fatalf("hidden/file is not hidden:\n%s", want)
	}
	if out, err := docker.Do(t.Context(), "load", "--input", l.export("dormouse/workspace:test", l.layers)); err != nil || !strings.Contains(out, "dormouse/workspace:test") {
		t.Fatalf("load: %s, %v", out, err)
	}
	got, err := docker.Do(t.Context(), "run", "--rm", "--network", "none", "dormouse/workspace:test", "/show", "/work")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in Docker (-want +got):\n%s", diff)
	}
	saved := filepath.Join(l.dir, "saved.tar")
	_, err = docker.Do(t.Context(), "save", "--output", saved, "dormouse/workspace:test")
	must(t, err)
	f, err := os.Open(saved)
	must(t, err)
	defer func() { _ = f.Close() }()
	back, err := l.Import(t.Context(), f, layer.Limits{})
	must(t, err)
	if diff := cmp.Diff(want, l.show(2, back)); diff != "" {
		t.Errorf("what Docker saved (-want +got):\n%s", diff)
	}
}

// A line that is longer than Docker takes is one layer to it.
func TestDockerRunsALongChain(t *testing.T) {
	docker := startDocker(t)
	l := newLayered(t)
	l.first()
	for n := range 80 {
		l.add(func(in func(string) string) {
			must(t, os.WriteFile(in(fmt.Sprint(n)), []byte("x"), 0o644))
			if n > 0 {
				must(t, unix.Mknod(in(fmt.Sprint(n-1)), unix.S_IFCHR, 0))
			}
		})
	}
	want := l.show(1, l.layers)
	_, err := docker.Do(t.Context(), "load", "--input", l.export("dormouse/long:test", l.layers))
	must(t, err)
	got, err := docker.Do(t.Context(), "run", "--rm", "--network", "none", "dormouse/long:test", "/show", "/work")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in Docker (-want +got):\n%s", diff)
	}
}
