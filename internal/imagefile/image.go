// Package imagefile reads images from files: OCI layouts, and what docker save
// writes. Nothing in them is trusted, and all of it is bounded.
package imagefile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// MaxDocument bounds a manifest, an index and a configuration.
	MaxDocument = 8 << 20
	// maxLayers bounds the layers of an image. No file system would mount more.
	maxLayers = 512
)

// Image is an image as it lies somewhere, with nothing of it believed yet but
// its digest and its configuration.
type Image struct {
	Digest v1.Hash
	Config *v1.ConfigFile
	Layers []Layer // the lowest first
}

// Layer is a tar, compressed or not. What it unpacks to is in the configuration.
type Layer struct {
	Size int64 // as it is stored
	Open func() (io.ReadCloser, error)
}

// Platform is what an image has to be for.
func Platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Check reports why an image cannot be used here.
func (im *Image) Check() error {
	want, is := Platform(), v1.Platform{OS: im.Config.OS, Architecture: im.Config.Architecture}
	if is.OS != "" && is.OS != want.OS || is.Architecture != "" && is.Architecture != want.Architecture {
		return fmt.Errorf("the image is for %.100q, not %s", is, want)
	}
	return im.Described()
}

// Described reports whether the configuration says what the layers are.
func (im *Image) Described() error {
	switch {
	case len(im.Layers) > maxLayers:
		return fmt.Errorf("the image has %d layers", len(im.Layers))
	case len(im.Layers) != len(im.Config.RootFS.DiffIDs):
		return fmt.Errorf("the image has %d layers and describes %d", len(im.Layers), len(im.Config.RootFS.DiffIDs))
	}
	return nil
}

// SetManifest takes over what a manifest says of the layers. Each is opened by
// its digest.
func (im *Image) SetManifest(m *v1.Manifest, open func(v1.Hash) (io.ReadCloser, error)) error {
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("it is no image but %.100q", m.Config.MediaType)
	}
	for _, d := range m.Layers {
		switch {
		case !d.MediaType.IsLayer():
			return fmt.Errorf("a layer is %.100q", d.MediaType)
		case !d.MediaType.IsDistributable(), len(d.URLs) > 0:
			// Otherwise the image would choose the URLs that this machine fetches.
			return errors.New("a layer lies elsewhere")
		case d.Size < 0:
			return fmt.Errorf("a layer has %d bytes", d.Size)
		}
		im.Layers = append(im.Layers, Layer{d.Size, func() (io.ReadCloser, error) { return open(d.Digest) }})
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

// ParseConfig reads a configuration.
func ParseConfig(raw []byte) (*v1.ConfigFile, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return c, nil
}
