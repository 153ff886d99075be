//go:build linux

package archives

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

// tenGiB is what a bomb unpacks to.
const tenGiB = 10 << 30

func blobs() []Case {
	one := func(name, tries string, want error, pack func(good []byte) []byte) Case {
		return Case{"blob-" + name, tries, func(ctx context.Context, w *World) (string, error) {
			good := layertest.Archive{layertest.Dir("./"), layertest.File(name)}.Bytes() // which is not cached yet
			packed := pack(good)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, got, breach := w.use(ctx, packed, dormouse.DigestOf(good), limits)
			runtime.ReadMemStats(&after)
			const most = 256 << 20
			if taken := after.TotalAlloc - before.TotalAlloc; taken > most {
				breach = errors.Join(breach, fmt.Errorf("it took %d MiB of memory", taken>>20))
			}
			return said(got, breach, want)
		}}
	}
	return []Case{
		one("bomb", "10 GiB of zeros in 320 KiB", dormouse.ErrTooLarge, func([]byte) []byte { return snapshottest.ZstdBomb(tenGiB) }),
		one("bomb-after-the-end", "10 GiB that follow the end of a layer", dormouse.ErrTooLarge, func(good []byte) []byte { return append(snapshottest.Zstd(good), snapshottest.ZstdBomb(tenGiB)...) }),
		one("huge-window", "a frame that asks for terabytes", blob.ErrCorrupt, func([]byte) []byte { return snapshottest.HugeWindow() }),
		one("dictionary", "a frame that needs a dictionary", blob.ErrCorrupt, func([]byte) []byte { return snapshottest.Dictionary() }),
		one("another-archive-after-it", "a second archive behind the layer", blob.ErrCorrupt, func(good []byte) []byte { return append(snapshottest.Zstd(good), snapshottest.Zstd(good)...) }),
		one("not-what-is-said", "a layer under the digest of another", blob.ErrCorrupt, func(good []byte) []byte { return snapshottest.Zstd(append(good, 0)) }),
		one("half", "half a layer", blob.ErrCorrupt, func(good []byte) []byte { return snapshottest.Zstd(good)[:40] }),
		one("not-packed", "a layer that is not compressed", blob.ErrCorrupt, func(good []byte) []byte { return good }),
		one("nothing", "no bytes at all", blob.ErrCorrupt, func([]byte) []byte { return nil }),
		{"blob-rotten", "bytes that changed under their digest", rotten},
		{"blob-missing", "a layer that nobody has", func(ctx context.Context, w *World) (string, error) {
			_, got, breach := w.useLayer(ctx, dormouse.Layer{Digest: dormouse.DigestOf([]byte("missing")), DiffID: dormouse.DigestOf([]byte("missing, unpacked"))}, limits)
			return said(got, breach, dormouse.ErrNotFound)
		}},
		{"blob-no-digest", "digests that are paths", func(ctx context.Context, w *World) (string, error) {
			id := dormouse.DigestOf([]byte("of no layer"))
			for _, d := range []dormouse.Digest{"", "../../canary/passwd", "sha256:../../canary/passwd", dormouse.Digest(w.Canary + "/passwd"), "sha256:" + dormouse.Digest(make([]byte, 64))} {
				for _, l := range []dormouse.Layer{{Digest: d, DiffID: id}, {Digest: id, DiffID: d}} {
					_, got, breach := w.useLayer(ctx, l, limits)
					if _, err := said(got, breach, dormouse.ErrInvalid); err != nil {
						return "", fmt.Errorf("%q: %w", d, err)
					}
				}
			}
			return "all are refused", nil
		}},
	}
}

// said compares what came of an attempt with the one thing that may.
func said(got, breach, want error) (string, error) {
	switch {
	case breach != nil:
		return "", breach
	case got == nil:
		return "", errors.New("it was taken")
	case !errors.Is(got, want):
		return "", fmt.Errorf("it is refused with %w, not %w", got, want)
	}
	return "it is refused:" + reason(got), nil
}

// rotten changes a blob after it was put.
func rotten(ctx context.Context, w *World) (string, error) {
	raw := layertest.Archive{layertest.Dir("./"), layertest.File("rotten")}.Bytes()
	packed := snapshottest.Zstd(raw)
	d, err := w.Blobs.Put(ctx, packed)
	if err != nil {
		return "", err
	}
	other := snapshottest.Zstd(layertest.Archive{layertest.Dir("./"), layertest.File("ripe")}.Bytes())
	if err := os.WriteFile(filepath.Join(w.home, "blobs", "sha256", string(d[7:9]), string(d[7:])), other, 0o600); err != nil {
		return "", err
	}
	_, got, breach := w.useLayer(ctx, dormouse.Layer{Digest: d, DiffID: dormouse.DigestOf(raw), Size: int64(len(packed))}, limits)
	return said(got, breach, blob.ErrCorrupt)
}
