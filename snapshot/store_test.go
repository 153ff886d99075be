//go:build linux

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

const owner dormouse.SessionID = "sesn_1"

// home is where a test keeps layers.
type home struct {
	*snapshot.Store
	t     testing.TB
	dir   string
	blobs blob.Store
}

func open(t testing.TB, more ...func(*snapshot.Options)) *home {
	t.Helper()
	asRoot(t)
	at := t.TempDir()
	blobs, err := dir.Open(filepath.Join(at, "blobs"))
	must(t, err)
	t.Cleanup(func() { must(t, blobs.Close()) })
	return openAt(t, filepath.Join(at, "snapshots"), blobs, more...)
}

func openAt(t testing.TB, at string, blobs blob.Store, more ...func(*snapshot.Options)) *home {
	t.Helper()
	opts := snapshot.Options{Dir: at, Blobs: blobs}
	for _, change := range more {
		change(&opts)
	}
	s, err := snapshot.Open(opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &home{Store: s, t: t, dir: at, blobs: blobs}
}

// again is another store of the same layers.
func (h *home) again() *home { return openAt(h.t, h.dir, h.blobs) }

// keep keeps a layer of files, which are names and what is in them. A name that
// ends in a slash is a directory, and one that begins with a minus is gone.
func (h *home) keep(files ...string) dormouse.Layer {
	h.t.Helper()
	l, err := h.Put(h.t.Context(), h.staged(files...))
	must(h.t, err)
	return l
}

func (h *home) staged(files ...string) *snapshot.Stage {
	h.t.Helper()
	g, err := h.Stage(h.t.Context())
	must(h.t, err)
	h.t.Cleanup(func() { must(h.t, g.Close()) })
	fill(h.t, g.Dir, files...)
	return g
}

func fill(t testing.TB, at string, files ...string) {
	t.Helper()
	for i := 0; i+1 < len(files); i += 2 {
		name, gone := strings.CutPrefix(files[i], "-")
		name = filepath.Join(at, name)
		switch {
		case gone:
			must(t, unix.Mknod(name, unix.S_IFCHR, 0))
		case strings.HasSuffix(files[i], "/"):
			must(t, os.Mkdir(name, 0o755))
		default:
			must(t, os.WriteFile(name, []byte(files[i+1]), 0o644))
		}
		// The same files must be the same layer.
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, name, make([]unix.Timespec, 2), unix.AT_SYMLINK_NOFOLLOW))
	}
	must(t, os.Chmod(at, 0o755))
	must(t, os.Chtimes(at, zero, zero))
}

func (h *home) use(number uint64, layers ...dormouse.Layer) []string {
	h.t.Helper()
	dirs, err := h.Acquire(h.t.Context(), owner, number, layers, nil)
	must(h.t, err)
	return dirs
}

// forget removes all directories, as if the machine had started anew.
func (h *home) forget() {
	h.t.Helper()
	must(h.t, os.WriteFile(filepath.Join(h.dir, "boot"), []byte("another"), 0o600))
	h.again()
	if names := list(h.t, filepath.Join(h.dir, "layers")); len(names) > 0 {
		h.t.Fatalf("%v are trusted", names)
	}
}

func TestALayerThatWasPutCanBeAcquired(t *testing.T) {
	h := open(t)
	l := h.keep("a", "one", "d/", "", "d/b", "two")
	if l.Entries != 3 || l.Bytes != 6 || l.Size == 0 || l.Digest == l.DiffID {
		t.Errorf("layer is %+v", l)
	}
	check := func() {
		t.Helper()
		dirs := h.use(1, l)
		if len(dirs) != 1 || content(t, dirs[0], "d/b") != "two" || content(t, dirs[0], "a") != "one" {
			t.Errorf("used are %v", dirs)
		}
		if name := filepath.Base(dirs[0]); len(name) != 16 || !strings.HasPrefix(string(l.DiffID), "sha256:"+name) {
			t.Errorf("it is called %s", name)
		}
	}
	check()
	h.forget()
	check() // from the blob
	must(t, h.Release(owner, 1))
	must(t, h.Release(owner, 1))
	if left := list(t, filepath.Join(h.dir, "uses")); len(left) > 0 {
		t.Errorf("uses are %v", left)
	}
}

func TestTheSameLayerIsStoredOnce(t *testing.T) {
	h := open(t)
	one, two, other := h.keep("a", "x"), h.keep("a", "x"), h.keep("a", "y")
	if one != two || one.DiffID == other.DiffID {
		t.Errorf("layers are %v, %v and %v", one, two, other)
	}
	if names := list(t, filepath.Join(h.dir, "layers")); len(names) != 2 {
		t.Errorf("directories are %v", names)
	}
}

func TestLargeLayersArePut(t *testing.T) {
	h := open(t)
	noise := make([]byte, 5<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(noise)
	l := h.keep("noise", string(noise))
	h.forget()
	var told []int64
	dirs, err := h.Acquire(t.Context(), owner, 1, []dormouse.Layer{l}, func(done, total int64) {
		if total != l.Size {
			t.Errorf("total is %d, not %d", total, l.Size)
		}
		told = append(told, done)
	})
	must(t, err)
	if content(t, dirs[0], "noise") != string(noise) {
		t.Error("it is not what it was")
	}
	if len(told) < 2 || !slices.IsSorted(told) || told[len(told)-1] != l.Size {
		t.Errorf("told were %v of %d", told, l.Size)
	}
}

func TestANumberIsGivenTheSameDirectories(t *testing.T) {
	h := open(t)
	base, step := h.keep("a", "1"), h.keep("a", "2")
	first := h.use(1, base, step)
	if again := h.again().use(1, base, step); !slices.Equal(first, again) {
		t.Errorf("used were %v, then %v", first, again)
	}
	if other := h.use(1, base); len(other) != 1 || other[0] != first[0] {
		t.Errorf("of one layer used are %v", other)
	}
}

func TestReleaseAllReleasesNoOthers(t *testing.T) {
	h := open(t)
	l := h.keep("a", "1")
	for _, owner := range []dormouse.SessionID{"sesn_1", "sesn_1-2", "sesn_12"} {
		for n := range uint64(3) {
			_, err := h.Acquire(t.Context(), owner, n, []dormouse.Layer{l}, nil)
			must(t, err)
		}
	}
	must(t, h.ReleaseAll("sesn_1"))
	if left := list(t, filepath.Join(h.dir, "uses")); len(left) != 6 {
		t.Errorf("uses are %v", left)
	}
}

// More layers than can be mounted are merged, whatever they hide.
func TestALongChainCanBeMounted(t *testing.T) {
	h := open(t)
	var line []dormouse.Layer
	for n := range 200 {
		line = append(line, h.keep(fmt.Sprintf("f%d", n%90), fmt.Sprint(n), fmt.Sprintf("-g%d", n), ""))
	}
	for _, n := range []int{64, 65, 96, 97, 200} {
		dirs := h.use(uint64(n), line[:n]...)
		if len(dirs) > snapshot.MaxMounted {
			t.Errorf("%d layers are mounted as %d", n, len(dirs))
		}
		at := t.TempDir()
		layertest.Mount(t, at, dirs, "")
		if got := content(t, at, fmt.Sprintf("f%d", (n-1)%90)); got != fmt.Sprint(n-1) {
			t.Errorf("of %d layers the last says %q", n, got)
		}
		if got := content(t, at, "f0"); got != fmt.Sprint((n-1)/90*90) {
			t.Errorf("of %d layers f0 says %q", n, got)
		}
		if names := list(t, at); len(names) != min(n, 90) {
			t.Errorf("of %d layers there is %v", n, names)
		}
		must(t, unix.Unmount(at, 0))
	}
}

func TestTheSameLayerTwiceInAChainCanBeMounted(t *testing.T) {
	h := open(t)
	nothing, one, two := h.keep(), h.keep("a", "1", "d/", ""), h.keep("a", "2", "d/", "", "d/x", "2")
	dirs := h.use(1, nothing, one, nothing, two, one, nothing)
	at := t.TempDir()
	layertest.Mount(t, at, dirs, "")
	defer func() { must(t, unix.Unmount(at, 0)) }()
	if content(t, at, "a") != "1" || content(t, at, "d/x") != "2" {
		t.Errorf("of %v there is %v", dirs, list(t, at))
	}
}

func TestPutFailsUnlessTheLayerCanBeReadBack(t *testing.T) {
	h := open(t)
	g := h.staged("a", "1")
	s := openAt(t, h.dir, rotten{h.blobs})
	if _, err := s.Put(t.Context(), g); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("keep = %v, want ErrCorrupt", err)
	}
	if names := list(t, filepath.Join(h.dir, "layers")); len(names) > 0 {
		t.Errorf("directories are %v", names)
	}
	// The stage is as it was.
	l, err := h.Put(t.Context(), g)
	must(t, err)
	if got := content(t, h.use(1, l)[0], "a"); got != "1" {
		t.Errorf("it says %q", got)
	}
}

// rotten is a store that loses what it is given.
type rotten struct{ blob.Store }

func (r rotten) Put(ctx context.Context, b []byte) (dormouse.Digest, error) {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return r.Store.Put(ctx, b)
}

func TestWhatIsNotALayerIsNotUsed(t *testing.T) {
	h := open(t)
	l, other := h.keep("a", "1"), h.keep("b", "2")
	h.forget()
	for name, c := range map[string]struct {
		layer dormouse.Layer
		want  error
	}{
		"missing":            {dormouse.Layer{Digest: l.DiffID, DiffID: l.DiffID}, dormouse.ErrNotFound},
		"another":            {dormouse.Layer{Digest: other.Digest, DiffID: l.DiffID}, blob.ErrCorrupt},
		"no digest":          {dormouse.Layer{Digest: "../../x", DiffID: l.DiffID}, dormouse.ErrInvalid},
		"no DiffID":          {dormouse.Layer{Digest: l.Digest, DiffID: "sha256:.."}, dormouse.ErrInvalid},
		"not packed":         {dormouse.Layer{Digest: h.blob([]byte("hello")), DiffID: l.DiffID}, blob.ErrCorrupt},
		"nothing at all":     {dormouse.Layer{Digest: h.blob(nil), DiffID: l.DiffID}, blob.ErrCorrupt},
		"packed, and no tar": {dormouse.Layer{Digest: h.blob(snapshottest.Zstd([]byte("hello"))), DiffID: dormouse.DigestOf([]byte("hello"))}, dormouse.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Acquire(t.Context(), owner, 1, []dormouse.Layer{other, c.layer}, nil)
			if !errors.Is(err, c.want) {
				t.Errorf("use = %v, want %v", err, c.want)
			}
			if names := list(t, filepath.Join(h.dir, "layers")); len(names) > 1 {
				t.Errorf("directories are %v", names)
			}
			if notes := list(t, filepath.Join(h.dir, "uses")); len(notes) > 0 {
				t.Errorf("uses are %v", notes)
			}
		})
	}
	t.Run("rotten", func(t *testing.T) {
		path := filepath.Join(filepath.Dir(h.dir), "blobs", "sha256", string(l.Digest[7:9]), string(l.Digest[7:]))
		raw, err := os.ReadFile(path)
		must(t, err)
		raw[len(raw)/2] ^= 1
		must(t, os.WriteFile(path, raw, 0o600))
		if _, err := h.Acquire(t.Context(), owner, 1, []dormouse.Layer{l}, nil); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("use = %v, want ErrCorrupt", err)
		}
	})
}

func TestLayersAreCheckedByTheirBlobs(t *testing.T) {
	h := open(t)
	there, gone, short := h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3")
	must(t, h.Check(t.Context(), []dormouse.Layer{there, gone, short}))
	must(t, h.blobs.Delete(t.Context(), gone.Digest))
	short.Size++
	for l, want := range map[dormouse.Layer]error{there: nil, gone: dormouse.ErrNotFound, short: blob.ErrCorrupt} {
		// Their directories are there, which may be lost at any time.
		if err := h.Check(t.Context(), []dormouse.Layer{there, l}); !errors.Is(err, want) {
			t.Errorf("check = %v, want %v", err, want)
		}
	}
}

func (h *home) blob(b []byte) dormouse.Digest {
	h.t.Helper()
	d, err := h.blobs.Put(h.t.Context(), b)
	must(h.t, err)
	return d
}

func TestLimitsHoldForPutAndAcquire(t *testing.T) {
	h := open(t)
	large, many := h.keep("a", strings.Repeat("x", 2000)), h.keep("a", "", "b", "", "c", "", "d", "")
	h.forget()
	small := openAt(t, h.dir, h.blobs, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 4, Bytes: 1000} })
	for want, l := range map[error]dormouse.Layer{layer.ErrTooBig: large, layer.ErrTooMany: many} {
		if _, err := small.Acquire(t.Context(), owner, 1, []dormouse.Layer{l}, nil); !errors.Is(err, want) || !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("use = %v, want %v", err, want)
		}
	}
	if _, err := small.Put(t.Context(), small.staged("a", strings.Repeat("x", 2000))); !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("keep = %v, want ErrTooBig", err)
	}
	if _, err := small.Put(t.Context(), small.staged("a", "", "b", "", "c", "", "d", "")); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("keep = %v, want ErrTooMany", err)
	}
	// A tar that unpacks to nothing, at length.
	bomb := bytes.Repeat([]byte{0}, 1<<20)
	l := dormouse.Layer{Digest: h.blob(snapshottest.Zstd(bomb)), DiffID: dormouse.DigestOf(bomb)}
	if _, err := small.Acquire(t.Context(), owner, 1, []dormouse.Layer{l}, nil); !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("use of a bomb = %v, want ErrTooBig", err)
	}
}

func TestACancelledCallLeavesNothing(t *testing.T) {
	h := open(t)
	l := h.keep("a", "1")
	h.forget()
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("because")
	cancel(because)
	if _, err := h.Stage(ctx); !errors.Is(err, because) {
		t.Errorf("stage = %v", err)
	}
	if _, err := h.Put(ctx, h.staged("b", "2")); !errors.Is(err, because) {
		t.Errorf("keep = %v", err)
	}
	if _, err := h.Acquire(ctx, owner, 1, []dormouse.Layer{l}, nil); !errors.Is(err, because) {
		t.Errorf("use = %v", err)
	}
	if names := list(t, filepath.Join(h.dir, "layers")); len(names) > 0 {
		t.Errorf("directories are %v", names)
	}
}

func TestDirectoriesOfOthersAreNotMistaken(t *testing.T) {
	h := open(t)
	l := h.keep("a", "1")
	h.forget()
	// Another layer has the name already.
	short := string(l.DiffID[7 : 7+16])
	must(t, os.Symlink(string(dormouse.DigestOf(nil))+" ", filepath.Join(h.dir, "names", short)))
	must(t, os.Mkdir(filepath.Join(h.dir, "layers", short), 0o700))
	dirs := h.use(1, l)
	if name := filepath.Base(dirs[0]); len(name) != 24 || !strings.HasPrefix(name, short) || content(t, dirs[0], "a") != "1" {
		t.Errorf("used is %v", dirs)
	}
}

func TestManyUseTheSameLayersAtOnce(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{h.keep("a", "1"), h.keep("b", "2"), h.keep("c", "3")}
	h.forget()
	opened := &counting{Store: h.blobs}
	s := openAt(t, h.dir, opened)
	var all sync.WaitGroup
	for n := range uint64(8) {
		all.Go(func() {
			if dirs, err := s.Acquire(t.Context(), owner, n, line, nil); err != nil || len(dirs) != 3 {
				t.Errorf("use = %v, %v", dirs, err)
			}
		})
	}
	all.Wait()
	if opened.n != 3 {
		t.Errorf("%d blobs were opened, want 3", opened.n)
	}
}

// counting counts the blobs that are opened.
type counting struct {
	blob.Store
	mu sync.Mutex
	n  int // guarded by mu
}

func TestOpenRemovesWhatTheDeadLeft(t *testing.T) {
	h := open(t)
	l := h.keep("a", "1")
	left := filepath.Join(h.dir, "tmp", "of the dead", "stage-1")
	must(t, os.MkdirAll(left, 0o700))
	living := h.staged("b", "2")
	h.again()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stage of the dead is left: %v", err)
	}
	if got := content(t, living.Dir, "b"); got != "2" {
		t.Errorf("a stage of the living says %q", got)
	}
	if got := content(t, h.use(1, l)[0], "a"); got != "1" {
		t.Errorf("a layer says %q", got)
	}
}

// Whatever a process was doing when it died, what it has left is no obstacle.
func TestPutCanBeKilledAtEveryPoint(t *testing.T) {
	want := func(h *home) dormouse.Layer { return h.keep("a", "1") }
	for name, leave := range map[string]func(t *testing.T, h *home, l dormouse.Layer){
		"staged": func(*testing.T, *home, dormouse.Layer) {},
		"put":    func(_ *testing.T, h *home, _ dormouse.Layer) { want(h); h.forget() },
		"named": func(t *testing.T, h *home, l dormouse.Layer) {
			want(h)
			must(t, os.RemoveAll(filepath.Join(h.dir, "layers", string(l.DiffID[7:23]))))
		},
		"kept": func(_ *testing.T, h *home, _ dormouse.Layer) { want(h) },
		"forgetful": func(t *testing.T, h *home, _ dormouse.Layer) {
			want(h)
			must(t, os.RemoveAll(filepath.Join(h.dir, "layers")))
			must(t, os.Remove(filepath.Join(h.dir, "boot")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := want(open(t))
			h := open(t)
			leave(t, h, l)
			h = h.again()
			if got := want(h); got != l {
				t.Errorf("layer is %+v, want %+v", got, l)
			}
			if got := content(t, h.use(1, l)[0], "a"); got != "1" {
				t.Errorf("it says %q", got)
			}
		})
	}
}
