//go:build linux

package snapshot_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

var (
	seed  = flag.Uint64("seed", 1, "of the random workspace")
	steps = flag.Int("steps", 1200, "of the random workspace")
)

var plenty = layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}

// Whatever is done in a workspace, every snapshot of its chain can be restored,
// compacted, unpacked and mounted.
func TestAChainRestoresWhatWasThere(t *testing.T) {
	h := open(t)
	r := rand.New(rand.NewPCG(*seed, 1))
	at := t.TempDir()
	w := &layertest.Workspace{T: t, R: r, Dir: filepath.Join(at, "merged")}
	upper := filepath.Join(at, "upper")
	for _, dir := range []string{w.Dir, upper, filepath.Join(at, "work"), filepath.Join(at, "empty")} {
		must(t, os.Mkdir(dir, 0o755))
	}
	layertest.Mount(t, w.Dir, []string{filepath.Join(at, "empty")}, fmt.Sprintf(",upperdir=%s,workdir=%s", upper, filepath.Join(at, "work")))
	t.Cleanup(func() { must(t, unix.Unmount(w.Dir, unix.MNT_DETACH)) })
	type point struct {
		line []dormouse.Layer
		tree string
	}
	var line []dormouse.Layer
	var index layer.Index
	var points []point
	longest := 0
	for range *steps {
		w.Step()
		if r.IntN(20) > 0 {
			continue
		}
		g, err := h.Stage(t.Context())
		must(t, err)
		index = capture(t, upper, index, g.Dir)
		l, err := h.Put(t.Context(), g)
		must(t, err)
		line = append(slices.Clone(line), l)
		points = append(points, point{line, layertest.Describe(t, w.Dir)})
		if r.IntN(3) > 0 {
			must(t, h.Compact(t.Context(), line))
		}
		if r.IntN(3) > 0 {
			line = h.Compacted(line)
		}
		longest = max(longest, len(line))
	}
	t.Logf("%d points, %d layers at the end, %d at most", len(points), len(line), longest)
	for n, p := range points {
		switch r.IntN(6) {
		case 0:
			h.forget()
		case 1:
			must(t, h.Compact(t.Context(), p.line))
			p.line = h.Compacted(p.line)
		}
		if got := h.shown(p.line); got != p.tree {
			t.Fatalf("point %d, of %d layers, is not what was there:\n%s", n, len(p.line), layertest.Difference(p.tree, got))
		}
	}
}

// capture copies what has changed in a directory.
func capture(t *testing.T, from string, before layer.Index, to string) layer.Index {
	t.Helper()
	now, _, err := layer.Scan(t.Context(), from, plenty)
	must(t, err)
	torn, err := layer.Copy(t.Context(), from, layer.Diff(before, now), to)
	must(t, err)
	if len(torn) > 0 {
		t.Fatalf("%v is torn", torn)
	}
	return now
}

// shown is what a chain shows when it is mounted.
func (h *home) shown(line []dormouse.Layer) string {
	h.t.Helper()
	at := h.t.TempDir()
	dirs := h.use(1, line...)
	empty := filepath.Join(filepath.Dir(dirs[0]), "empty")
	must(h.t, os.MkdirAll(empty, 0o700))
	layertest.Mount(h.t, at, append([]string{empty}, dirs...), "")
	defer func() { must(h.t, unix.Unmount(at, unix.MNT_DETACH)) }()
	return layertest.Describe(h.t, at)
}

func TestAChainOfEqualLayersStaysShort(t *testing.T) {
	h := open(t)
	put := &measuring{Store: h.blobs}
	s := openAt(t, h.dir, put)
	base := s.keep("base", noise(1, 4<<20))
	put.n = 0
	line := []dormouse.Layer{base}
	const most = 300
	for n := range most {
		line = append(slices.Clone(line), s.keep(fmt.Sprintf("f%d", n), noise(n, 100)))
		must(t, s.Compact(t.Context(), line))
		if line = s.Compacted(line); len(line) > 16 {
			t.Fatalf("after %d steps there are %d layers", n, len(line))
		}
	}
	if line[0] != base {
		t.Error("the base was written again")
	}
	if put.n > 1<<20 {
		t.Errorf("%d bytes were put for %d", put.n, most*100)
	}
	t.Logf("%d layers, %d bytes put", len(line), put.n)
	at := t.TempDir()
	layertest.Mount(t, at, s.use(1, line...), "")
	defer func() { must(t, unix.Unmount(at, 0)) }()
	if names := list(t, at); len(names) != most+1 {
		t.Errorf("there are %d files", len(names))
	}
}

// However large the steps are, there are few layers and not much is written twice.
func TestAChainOfAnyLayersStaysShort(t *testing.T) {
	for name, size := range map[string]func(r *rand.Rand, n int) int{
		"alternating": func(_ *rand.Rand, n int) int { return 100 + n%2*100_000 },
		"growing":     func(_ *rand.Rand, n int) int { return 100 + n*n*20 },
		"shrinking":   func(_ *rand.Rand, n int) int { return 100 + (100-n)*(100-n)*20 },
		"random":      func(r *rand.Rand, _ int) int { return 1 << r.IntN(20) },
		"a ruler":     func(_ *rand.Rand, n int) int { return (n&-n)*(n&-n)*100 + 100 },
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			put := &measuring{Store: h.blobs}
			s := openAt(t, h.dir, put)
			r := rand.New(rand.NewPCG(1, 1))
			var line []dormouse.Layer
			sum, longest := 0, 0
			for n := range 100 {
				sum += size(r, n)
				line = append(slices.Clone(line), s.keep(fmt.Sprintf("f%d", n), noise(n, size(r, n))))
				must(t, s.Compact(t.Context(), line))
				line = s.Compacted(line)
				longest = max(longest, len(line))
			}
			t.Logf("at most %d layers, %d bytes put for %d", longest, put.n, sum)
			if longest > 16 || put.n > int64(6*sum)+1<<20 {
				t.Errorf("there are %d layers, and %d bytes were put for %d", longest, put.n, sum)
			}
		})
	}
}

// measuring counts the bytes that are put.
type measuring struct {
	blob.Store
	n int64
}

func (m *measuring) Put(ctx context.Context, b []byte) (dormouse.Digest, error) {
	m.n += int64(len(b))
	return m.Store.Put(ctx, b)
}

func (m *measuring) PutFrom(ctx context.Context, r io.Reader) (dormouse.Digest, int64, error) {
	d, n, err := m.Store.PutFrom(ctx, r)
	m.n += n
	return d, n, err
}

// noise is what cannot be compressed.
func noise(n, size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return string(b)
}

func TestWhatIsHiddenStaysHiddenInAMerge(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{h.keep("gone", noise(1, 4<<20), "d/", "", "d/x", "1", "kept", "1")}
	line = append(line, h.keep("-gone", ""), h.keep("-d", ""), h.keep("new", "1"), h.keep("-new", ""))
	must(t, h.Compact(t.Context(), line))
	short := h.Compacted(line)
	if len(short) != 2 || short[0] != line[0] {
		t.Fatalf("it is merged to %v", short)
	}
	dirs := h.use(1, short...)
	if names := list(t, dirs[1]); !slices.Equal(names, []string{"d", "gone"}) {
		t.Errorf("the merge has %v", names) // nothing hides what was never below
	}
	at := t.TempDir()
	layertest.Mount(t, at, dirs, "")
	defer func() { must(t, unix.Unmount(at, 0)) }()
	if names := list(t, at); !slices.Equal(names, []string{"kept"}) {
		t.Errorf("there is %v", names)
	}
}

func TestWhatWasMergedLongAgoIsNotOffered(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3"), h.keep("d", "4")}
	must(t, h.Compact(t.Context(), line))
	short := h.Compacted(line)
	if len(short) != 1 {
		t.Fatalf("it is merged to %v", short)
	}
	note := filepath.Join(h.dir, "runs", list(t, filepath.Join(h.dir, "runs"))[0])
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(note, old, old))
	// A collector may be about to delete this one.
	if got := h.Compacted(line); len(got) != 4 {
		t.Errorf("offered is %v", got)
	}
	put := &measuring{Store: h.blobs}
	must(t, openAt(t, h.dir, put).Compact(t.Context(), line))
	if got := h.Compacted(line); !slices.Equal(got, short) || put.n != short[0].Size {
		t.Errorf("offered is %v, and %d bytes were put", got, put.n)
	}
	// It has been collected.
	must(t, os.Chtimes(note, old, old))
	must(t, h.blobs.Delete(t.Context(), short[0].Digest))
	must(t, h.Compact(t.Context(), line))
	h.forget()
	if got := h.Compacted(line); !slices.Equal(got, short) || content(t, h.use(1, got...)[0], "c") != "3" {
		t.Errorf("offered is %v", got)
	}
}

func TestALostNoteCostsOnlyWork(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3"), h.keep("d", "4")}
	must(t, h.Compact(t.Context(), line))
	short := h.Compacted(line)
	note := filepath.Join(h.dir, "runs", list(t, filepath.Join(h.dir, "runs"))[0])
	for name, spoil := range map[string]func(string) error{
		"lost":    os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"cut off": func(path string) error { return os.Truncate(path, 100) },
		"another": func(path string) error { return os.WriteFile(path, []byte(`{"layers":[],"bottom":true}`), 0o600) },
	} {
		must(t, spoil(note))
		if got := h.Compacted(line); len(got) != 4 {
			t.Errorf("%s: offered is %v", name, got)
		}
		must(t, h.Compact(t.Context(), line))
		if got := h.Compacted(line); !slices.Equal(got, short) {
			t.Errorf("%s: offered is %v, was %v", name, got, short)
		}
	}
}

func TestCompactFailsWithoutHarm(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3"), h.keep("d", "4")}
	h.forget()
	must(t, h.blobs.Delete(t.Context(), line[2].Digest))
	if err := h.Compact(t.Context(), line); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("compact = %v, want ErrNotFound", err)
	}
	if got := h.Compacted(line); !slices.Equal(got, line) {
		t.Errorf("offered is %v", got)
	}
	line[2] = h.keep("c", "3")
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("because")
	cancel(because)
	if err := h.Compact(ctx, line); !errors.Is(err, because) {
		t.Errorf("compact = %v", err)
	}
	must(t, h.Compact(t.Context(), line))
	if got := h.Compacted(line); len(got) != 1 {
		t.Errorf("offered is %v", got)
	}
	if left := list(t, filepath.Join(h.dir, "tmp")); len(left) == 0 {
		t.Error("no process is there")
	}
	for _, process := range list(t, filepath.Join(h.dir, "tmp")) {
		for _, name := range list(t, filepath.Join(h.dir, "tmp", process)) {
			if !strings.HasPrefix(name, "gone-") && !strings.HasPrefix(name, "stage-") {
				t.Errorf("%s is left", name)
			}
		}
	}
}

// What is too much for one layer is left in several.
func TestAMergeIsWithinTheLimits(t *testing.T) {
	h := open(t, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 10, Bytes: 1 << 20} })
	line := []dormouse.Layer{h.keep("a", "1", "b", "1", "c", "1"), h.keep("d", "1", "e", "1", "f", "1"), h.keep("g", "2"), h.keep("h", "3")}
	must(t, h.Compact(t.Context(), line))
	if got := h.Compacted(line); len(got) != 4 {
		t.Errorf("offered is %v", got)
	}
}

func TestManyCompactTheSameChainAtOnce(t *testing.T) {
	h := open(t)
	var line []dormouse.Layer
	for n := range 20 {
		line = append(line, h.keep(fmt.Sprint(n), ""))
	}
	var all sync.WaitGroup
	for range 3 {
		s := h.again()
		for range 3 {
			all.Go(func() {
				if err := s.Compact(t.Context(), line); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if got := h.Compacted(line); len(got) != 2 {
		t.Errorf("offered is %v", got)
	}
}
