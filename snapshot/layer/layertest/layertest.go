//go:build linux

// Package layertest makes random changes to a workspace, and compares the
// workspace with what was made of it.
package layertest

import (
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Workspace is a directory that is written to at random, as a sandbox would.
type Workspace struct {
	T *testing.T
	R *rand.Rand
	// Dir is where it is mounted.
	Dir string
}

// Step does something to the workspace.
func (w *Workspace) Step() {
	w.T.Helper()
	must(w.T, Hand{R: w.R, Dir: w.Dir}.Step())
}

// Mount mounts layers that are in one directory, the lowest first, with more
// options if any. From there their names are short enough to be a list.
func Mount(t testing.TB, at string, layers []string, more string) {
	t.Helper()
	var names []string
	for _, dir := range slices.Backward(layers) {
		name, err := filepath.Rel(filepath.Dir(layers[0]), dir)
		must(t, err)
		names = append(names, name)
	}
	mounted := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with us
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(filepath.Dir(layers[0]))
		}
		if err == nil {
			err = unix.Mount("overlay", at, "overlay", 0, "lowerdir="+strings.Join(names, ":")+more+",redirect_dir=off,metacopy=off")
		}
		mounted <- err
	}()
	must(t, <-mounted)
}

// Describe writes down everything that can be seen of a tree.
func Describe(t testing.TB, dir string) string {
	t.Helper()
	text, err := Listing(dir)
	must(t, err)
	return text
}

// Difference shows the lines that only one of two has.
func Difference(want, got string) string {
	var b strings.Builder
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			b.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(got) {
		if !strings.Contains(want, line) {
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
