//go:build linux

package archives

import (
	"context"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

func images() []Case {
	cases := named("image", "an image that is none", snapshottest.HostileImages(), func(ctx context.Context, w *World, raw []byte) (string, error) {
		_, got, breach := w.load(ctx, raw, limits)
		return said(got, breach, dormouse.ErrInvalid)
	})
	good := layertest.Archive{layertest.Dir("./"), layertest.File("a")}.Bytes()
	id := dormouse.DigestOf(good)
	for _, c := range []struct {
		name, tries string
		raw         func() []byte
	}{
		{"bomb-zstd", "10 GiB as a whole", func() []byte { return snapshottest.ZstdBomb(tenGiB) }},
		{"bomb-gzip", "10 GiB as a whole", func() []byte { return snapshottest.GzipBomb(tenGiB) }},
		{"bomb-zstd-layer", "10 GiB as a layer", func() []byte { return new(snapshottest.Image).AddAs(snapshottest.ZstdBomb(tenGiB), id).Tar() }},
		{"bomb-gzip-layer", "10 GiB as a layer", func() []byte { return new(snapshottest.Image).AddAs(snapshottest.GzipBomb(tenGiB), id).Tar() }},
		{"bomb-after-the-layer", "10 GiB that follow the end of a layer", func() []byte { return bombAfter(good, id) }},
		{"many-small-layers", "12 layers that are together too much", manyLayers},
	} {
		cases = append(cases, Case{"image-" + c.name, c.tries, func(ctx context.Context, w *World) (string, error) {
			_, got, breach := w.load(ctx, c.raw(), limits)
			return said(got, breach, dormouse.ErrTooLarge)
		}})
	}
	return cases
}

// bombAfter is a layer that goes on for very long after its end.
func bombAfter(layer []byte, id dormouse.Digest) []byte {
	return new(snapshottest.Image).AddAs(append(snapshottest.Zstd(layer), snapshottest.ZstdBomb(tenGiB)...), id).Tar()
}

// manyLayers has more entries than an image may, and no layer of it has.
func manyLayers() []byte {
	image := new(snapshottest.Image)
	for n := range 12 {
		a := layertest.Archive{layertest.Dir("./")}
		for i := range 100 {
			a = append(a, layertest.File(fmt.Sprintf("%d-%d", n, i)))
		}
		image.Add(a.Bytes(), snapshottest.Gzip)
	}
	return image.Tar()
}
