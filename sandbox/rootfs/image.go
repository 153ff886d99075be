//go:build linux

package rootfs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// maxDocument bounds a manifest, an index and a configuration.
	maxDocument = 8 << 20
	// maxLayers bounds the layers of an image. No file system would mount more.
	maxLayers = 512
)

// image is an image as it lies somewhere, with nothing of it believed yet but
// its digest and its configuration.
type image struct {
	digest v1.Hash
	config *v1.ConfigFile
	layers []layer // the lowest first
	// abandon ends all reading. It is nil where reading cannot take for ever.
	abandon func()
}

// layer is a tar, compressed or not. What it unpacks to is in the configuration.
type layer struct {
	size int64 // as it is stored
	open func() (io.ReadCloser, error)
}

// platform is what an image has to be for.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// check reports why an image cannot be used here.
func (im *image) check() error {
	want, is := platform(), v1.Platform{OS: im.config.OS, Architecture: im.config.Architecture}
	switch {
	case is.OS != "" && is.OS != want.OS, is.Architecture != "" && is.Architecture != want.Architecture:
		return fmt.Errorf("the image is for %.100s, not %s", is, want)
	case len(im.layers) > maxLayers:
		return fmt.Errorf("the image has %d layers", len(im.layers))
	case len(im.layers) != len(im.config.RootFS.DiffIDs):
		return fmt.Errorf("the image has %d layers and describes %d", len(im.layers), len(im.config.RootFS.DiffIDs))
	}
	return nil
}

// root is what the configuration says.
func (im *image) root() Root {
	c := im.config.Config
	r := Root{Digest: im.digest.String(), User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" && !strings.Contains(v, "\x00") {
			r.Env = append(r.Env, v)
		}
	}
	if c.WorkingDir != "" && !strings.Contains(c.WorkingDir, "\x00") {
		r.Workdir = path.Join("/", c.WorkingDir)
	}
	return r
}

// setManifest takes over what a manifest says of the layers. Each is opened by
// its digest.
func (im *image) setManifest(m *v1.Manifest, open func(v1.Hash) (io.ReadCloser, error)) error {
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("it is no image but %.100q", m.Config.MediaType)
	}
	for _, d := range m.Layers {
		switch {
		case !d.MediaType.IsLayer():
			return fmt.Errorf("a layer is %.100q", d.MediaType)
		case !d.MediaType.IsDistributable(), len(d.URLs) > 0:
			// The image would choose what this machine asks for.
			return errors.New("a layer lies elsewhere")
		case d.Size < 0:
			return fmt.Errorf("a layer has %d bytes", d.Size)
		}
		im.layers = append(im.layers, layer{d.Size, func() (io.ReadCloser, error) { return open(d.Digest) }})
	}
	return nil
}

// verify reports whether bytes are what a digest names.
func verify(raw []byte, want v1.Hash) error {
	h, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return err
	}
	_, _ = h.Write(raw)
	if got := hex.EncodeToString(h.Sum(nil)); got != want.Hex {
		return fmt.Errorf("it is damaged: its digest is %s, not %s", got, want.Hex)
	}
	return nil
}

// parseConfig reads a configuration.
func parseConfig(raw []byte) (*v1.ConfigFile, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return c, nil
}
