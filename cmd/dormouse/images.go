//go:build !windows

package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

// images are what sandboxes start from. What the operator named is fetched as any
// program would; what only a session named, as nobody, and from nowhere that a
// sandbox could not reach either.
type images struct {
	usual  string
	allow  rootfs.Allow
	ours   *rootfs.Store
	theirs *rootfs.Store
	log    *slog.Logger
}

func openImages(data string, c config, way *egress.Proxy, log *slog.Logger) (*images, error) {
	i := &images{usual: c.Image, log: log}
	i.allow, _ = rootfs.ParseAllow(c.ImageAllow) // checked with the rest of the configuration
	o := rootfs.Options{Dir: filepath.Join(data, "images"), Logger: log}
	var err error
	if i.ours, err = rootfs.Open(o); err != nil {
		return nil, err
	}
	o.Dial = way.Dial
	i.theirs, err = rootfs.Open(o)
	return i, err
}

// fetch returns what a reference leads to, or led to when it had a digest. Whether
// a session may have it was decided when the session was made.
func (i *images) fetch(ctx context.Context, ref, digest string) (gvisor.Image, error) {
	from := i.theirs
	if ref == i.usual || i.allow.Lists(ref) || rootfs.Local(ref) {
		from = i.ours
	}
	told := time.Now()
	progress := func(p rootfs.Progress) {
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			i.log.InfoContext(ctx, "fetching image", "image", ref, "layer", p.Layer, "layers", p.Layers, "bytes", p.Bytes, "total", p.Total)
		}
	}
	var root rootfs.Root
	var err error
	if digest == "" {
		root, err = from.Root(ctx, ref, progress)
	} else {
		root, err = from.Pinned(ctx, ref, digest, progress)
	}
	return gvisor.Image{Dir: root.Dir, Digest: root.Digest, Env: root.Env}, err
}
