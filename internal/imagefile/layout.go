package imagefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Read finds the image in a layout, or in what docker save writes.
func Read(from Files) (*Image, error) {
	raw, err := readDocument(from, "index.json")
	if errors.Is(err, fs.ErrNotExist) {
		return fromSaved(from)
	}
	if err != nil {
		return nil, err
	}
	return fromLayout(from, raw)
}

// maxNesting bounds how many indexes lead to an image.
const maxNesting = 4

// fromLayout finds the one image in an OCI layout that this machine can use.
func fromLayout(from Files, index []byte) (*Image, error) {
	for range maxNesting {
		d, err := choose(index)
		if err != nil {
			return nil, err
		}
		raw, err := readBlob(from, d.Digest)
		if err != nil {
			return nil, err
		}
		if d.MediaType.IsImage() {
			return layoutImage(from, d.Digest, raw)
		}
		index = raw
	}
	return nil, errors.New("its indexes are nested too deeply")
}

// choose picks the image, or the index of images, for this machine. Attestations
// and the like are for none.
func choose(index []byte) (v1.Descriptor, error) {
	m, err := v1.ParseIndexManifest(bytes.NewReader(index))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("read the index: %w", err)
	}
	var found []v1.Descriptor
	for _, d := range m.Manifests {
		fits := d.Platform == nil || d.Platform.OS == "" || d.Platform.Satisfies(Platform())
		known := len(found) > 0 && found[0].Digest == d.Digest // under another name
		if fits && !known && (d.MediaType.IsImage() || d.MediaType.IsIndex()) {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 0:
		return v1.Descriptor{}, fmt.Errorf("it holds no image for %s", Platform())
	case len(found) > 1 && found[0].Platform == nil:
		return v1.Descriptor{}, errors.New("it holds more than one image")
	}
	return found[0], nil
}

func layoutImage(from Files, digest v1.Hash, raw []byte) (*Image, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	im := &Image{Digest: digest}
	err = im.SetManifest(m, func(digest v1.Hash) (io.ReadCloser, error) {
		f, _, err := from.Open(blobName(digest))
		return f, err
	})
	if err != nil {
		return nil, err
	}
	config, err := readBlob(from, m.Config.Digest)
	if err != nil {
		return nil, err
	}
	im.Config, err = ParseConfig(config)
	return im, err
}

func blobName(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

// readBlob reads a document by its digest.
func readBlob(from Files, digest v1.Hash) ([]byte, error) {
	raw, err := readDocument(from, blobName(digest))
	if err != nil {
		return nil, err
	}
	if err := verify(raw, digest); err != nil {
		return nil, fmt.Errorf("read %s: %w", blobName(digest), err)
	}
	return raw, nil
}

// saved describes one image among those in a tar of docker save.
type saved struct {
	Config string
	Layers []string
}

// fromSaved finds the image that docker save wrote. It has no manifest: its
// configuration names it, and the layers by what they unpack to.
func fromSaved(from Files) (*Image, error) {
	raw, err := readDocument(from, "manifest.json")
	if err != nil {
		return nil, err
	}
	var all []saved
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("read manifest.json: %w", err)
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("it holds %d images, not one", len(all))
	}
	config, err := readDocument(from, all[0].Config)
	if err != nil {
		return nil, err
	}
	im := new(Image)
	if im.Digest, _, err = v1.SHA256(bytes.NewReader(config)); err != nil {
		return nil, err
	}
	if im.Config, err = ParseConfig(config); err != nil {
		return nil, err
	}
	for _, name := range all[0].Layers {
		f, size, err := from.Open(name)
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		im.Layers = append(im.Layers, Layer{size, func() (io.ReadCloser, error) {
			f, _, err := from.Open(name)
			return f, err
		}})
	}
	return im, nil
}
