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

// images fetches the images that sandboxes start from. Images that the operator listed are
// trusted: they are fetched with the operator's credentials, from anywhere. Images that only a
// session names are not: they are fetched without credentials, and only from hosts that a
// sandbox could reach too.
type images struct {
	usual     string
	allow     rootfs.Allow
	trusted   *rootfs.Store
	untrusted *rootfs.Store
	log       *slog.Logger
}

func openImages(data string, c config, way *egress.Proxy, log *slog.Logger) (*images, error) {
	i := &images{usual: c.Image, log: log}
	i.allow, _ = rootfs.ParseAllow(c.ImageAllow) // checked with the rest of the configuration
	o := rootfs.Options{Dir: filepath.Join(data, "images"), Logger: log}
	var err error
	if i.trusted, err = rootfs.Open(o); err != nil {
		return nil, err
	}
	o.Dial = way.Dial
	i.untrusted, err = rootfs.Open(o)
	return i, err
}

// fetch returns the image of a reference, or the one of this digest. Whether a session
// may use it was decided when the session was created.
func (i *images) fetch(ctx context.Context, ref, digest string) (gvisor.Image, error) {
	from := i.untrusted
	if ref == i.usual || i.allow.Lists(ref) || rootfs.Local(ref) {
		from = i.trusted
	}
	logged := time.Now()
	progress := func(p rootfs.Progress) {
		if time.Since(logged) > 2*time.Second {
			logged = time.Now()
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
