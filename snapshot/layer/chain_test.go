//go:build linux

package layer_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

var (
	seed  = flag.Uint64("seed", 1, "of the random workspace")
	steps = flag.Int("steps", 1200, "of the random workspace")
)

var plenty = layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}

// workspace is a directory that is written to at random, as a sandbox would: an
// overlay over the layers of the chain so far.
type workspace struct {
	t      *testing.T
	r      *rand.Rand
	dir    string
	mounts int
	below  []string // the layers it lies over
	line   []string // all layers up to the last snapshot
	index  layer.Index
	points []point
}

// point is what was there at a snapshot.
type point struct {
	line []string
	tree string
}

// What was there at any snapshot can be brought back, byte for byte and attribute
// for attribute, whatever was done in between and since.
func TestAChainRestoresWhatWasThere(t *testing.T) {
	asRoot(t)
	w := &workspace{t: t, r: rand.New(rand.NewPCG(*seed, 1)), dir: t.TempDir()}
	w.mount()
	t.Cleanup(w.unmount)
	for n := range *steps {
		w.step()
		switch {
		case w.r.IntN(25) == 0:
			w.snapshot()
		case w.r.IntN(300) == 0:
			w.snapshot()
			w.seal()
		}
		if t.Failed() {
			t.Fatalf("after step %d", n)
		}
	}
	w.snapshot()
	for n, p := range w.points {
		if got := w.shown(p.line); got != p.tree {
			t.Fatalf("point %d, of %d layers, is not what was there:\n%s", n, len(p.line), difference(p.tree, got))
		}
	}
	t.Logf("%d points, %d layers", len(w.points), len(w.line))
}

func (w *workspace) at() string    { return filepath.Join(w.dir, fmt.Sprintf("m%d", w.mounts)) }
func (w *workspace) upper() string { return filepath.Join(w.dir, fmt.Sprintf("u%d", w.mounts)) }

func (w *workspace) mount() {
	w.t.Helper()
	if len(w.below) == 0 {
		w.below = []string{filepath.Join(w.dir, "empty")}
		must(w.t, os.MkdirAll(w.below[0], 0o755))
	}
	work := filepath.Join(w.dir, fmt.Sprintf("w%d", w.mounts))
	for _, dir := range []string{w.at(), w.upper(), work} {
		must(w.t, os.Mkdir(dir, 0o755))
	}
	layertest.Mount(w.t, w.at(), w.below, fmt.Sprintf(",upperdir=%s,workdir=%s", w.upper(), work))
}

func (w *workspace) unmount() { must(w.t, unix.Unmount(w.at(), unix.MNT_DETACH)) }

// seal lays a new upper over all there is.
func (w *workspace) seal() {
	w.unmount()
	w.mounts++
	w.below, w.index = w.few(w.line), nil
	w.mount()
}

// few is the same line in fewer layers: all but the last few are merged.
func (w *workspace) few(line []string) []string {
	const most = 8
	if len(line) <= most {
		return line
	}
	to := filepath.Join(w.dir, fmt.Sprintf("merged%d", w.mounts))
	must(w.t, os.Mkdir(to, 0o700))
	must(w.t, layer.Merge(w.t.Context(), line[:len(line)-most], plenty, to))
	return append([]string{to}, line[len(line)-most:]...)
}

// snapshot takes what has changed since the last.
func (w *workspace) snapshot() {
	w.t.Helper()
	dir := filepath.Join(w.dir, fmt.Sprintf("l%d", len(w.line)))
	must(w.t, os.Mkdir(dir, 0o700))
	c := layer.NewCapture(beneath.At(w.upper()), dir, w.index, w.below, plenty)
	for range w.r.IntN(3) { // ahead of the one that counts
		_, err := c.Pass(w.t.Context(), []string{"a", "b", "nowhere"}[:w.r.IntN(4)])
		must(w.t, err)
		for range w.r.IntN(20) {
			w.step()
		}
	}
	settled, err := c.Pass(w.t.Context(), nil)
	must(w.t, err)
	if !settled || len(c.Skipped()) > 0 {
		w.t.Fatalf("settled is %v, %v was left", settled, c.Skipped())
	}
	index, err := layer.DecodeIndex(c.Index().Encode(), plenty)
	must(w.t, err)
	w.line, w.index = append(w.line, w.carried(dir)), index
	w.points = append(w.points, point{line: slices.Clone(w.line), tree: describe(w.t, w.at())})
}

// carried is a layer after it was packed and unpacked.
func (w *workspace) carried(dir string) string {
	w.t.Helper()
	var packed, again bytes.Buffer
	must(w.t, layer.Pack(w.t.Context(), dir, plenty, &packed))
	to := dir + "c"
	must(w.t, os.Mkdir(to, 0o700))
	must(w.t, layer.Unpack(w.t.Context(), bytes.NewReader(packed.Bytes()), plenty, to))
	must(w.t, layer.Pack(w.t.Context(), to, plenty, &again))
	if !bytes.Equal(packed.Bytes(), again.Bytes()) {
		w.t.Fatalf("%s is packed otherwise than what it was unpacked from", dir)
	}
	if w.r.IntN(2) == 0 {
		return to
	}
	return dir
}

// shown is what a chain shows: merged, or mounted, as it is or some of it merged.
func (w *workspace) shown(line []string) string {
	w.t.Helper()
	at := filepath.Join(w.dir, "shown")
	must(w.t, os.RemoveAll(at))
	must(w.t, os.Mkdir(at, 0o755))
	if w.r.IntN(2) == 0 {
		must(w.t, layer.Merge(w.t.Context(), line, plenty, at))
		return describe(w.t, at)
	}
	short := w.short(line)
	if w.r.IntN(2) == 0 {
		short = w.inRuns(line)
	}
	layertest.Mount(w.t, at, append([]string{filepath.Join(w.dir, "empty")}, short...), "")
	defer func() { must(w.t, unix.Unmount(at, unix.MNT_DETACH)) }()
	return describe(w.t, at)
}

// short is a chain of at most as many layers as can be mounted.
func (w *workspace) short(line []string) []string {
	const most = 20
	if len(line) <= most {
		return line
	}
	to := w.t.TempDir()
	must(w.t, layer.Merge(w.t.Context(), line[:len(line)-most], plenty, to))
	return append([]string{to}, line[len(line)-most:]...)
}

// inRuns is a chain of which every layer is one of the chain, or several that lie
// over each other.
func (w *workspace) inRuns(line []string) []string {
	w.t.Helper()
	var short []string
	for len(line) > 0 {
		n := min(len(line), 1+w.r.IntN(1+len(line)/4))
		run := line[0]
		if n > 1 {
			run = w.t.TempDir()
			must(w.t, layer.MergeOver(w.t.Context(), short, line[:n], plenty, run))
			run = w.carried(run)
		}
		short, line = append(short, run), line[n:]
	}
	return short
}

// step does something to the workspace.
func (w *workspace) step() { (&layertest.Workspace{T: w.t, R: w.r, Dir: w.at()}).Step() }

func describe(t testing.TB, dir string) string { return layertest.Describe(t, dir) }

func difference(want, got string) string { return layertest.Difference(want, got) }

// asRoot leaves out what only root can do: overlays, devices, the files of others.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
