//go:build linux

package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// exported is a layer as other programs read it: a tar that is not compressed, since some
// of them read nothing else, with sparse files expanded.
type exported struct {
	dormouse.Layer
	expanded bool // it differs from what we have packed
	digest   v1.Hash
	size     int64
}

// Export writes layers as a container image, in one tar that is both an OCI layout and
// readable by docker load.
func (s *Store) Export(ctx context.Context, w io.Writer, layers []dormouse.Layer, meta Meta) error {
	if err := s.export(ctx, w, layers, meta); err != nil {
		return fmt.Errorf("export %d layers: %w", len(layers), err)
	}
	return nil
}

func (s *Store) export(ctx context.Context, w io.Writer, layers []dormouse.Layer, meta Meta) error {
	if err := validate(layers); err != nil {
		return err
	}
	if len(layers) == 0 {
		return fmt.Errorf("there are none: %w", dormouse.ErrInvalid)
	}
	if len(layers) > MaxMounted {
		// Docker takes only a few more.
		merged, err := s.putMerged(ctx, nil, layers)
		if err != nil {
			return err
		}
		layers = []dormouse.Layer{merged}
	}
	all := make([]exported, len(layers))
	for i, l := range layers {
		var err error
		if all[i], err = s.measure(ctx, l); err != nil {
			return fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	docs, err := documents(all, meta)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, d := range docs {
		if err := out.WriteHeader(exportHeader(d.name, int64(len(d.content)))); err != nil {
			return err
		}
		if _, err := out.Write(d.content); err != nil {
			return err
		}
	}
	done := make(map[v1.Hash]bool)
	for _, e := range all {
		if done[e.digest] {
			continue
		}
		done[e.digest] = true
		if err := out.WriteHeader(exportHeader(blobPath(e.digest), e.size)); err != nil {
			return err
		}
		if err := s.writeExported(ctx, e, out); err != nil {
			return fmt.Errorf("layer %s: %w", e.Digest, err)
		}
	}
	return out.Close()
}

func exportHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}
}

func blobPath(d v1.Hash) string { return "blobs/" + d.Algorithm + "/" + d.Hex }

// measure finds out the size and digest of a layer as it is exported.
func (s *Store) measure(ctx context.Context, l dormouse.Layer) (e exported, err error) {
	ours, theirs := &sizer{}, &sizer{Hash: sha256.New()}
	err = s.read(ctx, l, nil, func(plain io.Reader) (err error) {
		plain = io.TeeReader(plain, ours)
		if e.expanded, err = layer.ExpandSparse(ctx, plain, s.opts.Limits, theirs); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, plain)
		return err
	})
	if err != nil {
		return e, err
	}
	e.Layer, e.size = l, ours.n
	digest := l.DiffID
	if e.expanded {
		e.size, digest = theirs.n, digestOf(theirs)
	}
	e.digest, err = v1.NewHash(string(digest))
	return e, err
}

// sizer counts what is written to it, and hashes it unless Hash is nil.
type sizer struct {
	hash.Hash
	n int64
}

func (c *sizer) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	if c.Hash == nil {
		return len(b), nil
	}
	return c.Hash.Write(b)
}

// writeExported writes a layer as measure has measured it.
func (s *Store) writeExported(ctx context.Context, e exported, w io.Writer) error {
	return s.read(ctx, e.Layer, nil, func(plain io.Reader) (err error) {
		if e.expanded {
			_, err = layer.ExpandSparse(ctx, plain, s.opts.Limits, w)
		} else {
			_, err = io.Copy(w, plain)
		}
		return err
	})
}

// document is a small file of an image.
type document struct {
	name    string
	content []byte
}

// documents are the manifest, the configuration and the rest of the JSON of an image.
func documents(layers []exported, meta Meta) ([]document, error) {
	tag, err := tagOf(meta.Name)
	if err != nil {
		return nil, err
	}
	config := v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Created: v1.Time{Time: meta.Created.UTC()},
		Config: v1.Config{Labels: meta.Labels}, RootFS: v1.RootFS{Type: "layers"},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	saved := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{RepoTags: tag}
	for _, e := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, e.digest)
		config.History = append(config.History, v1.History{Created: config.Created, CreatedBy: "dormouse"})
		manifest.Layers = append(manifest.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: e.size, Digest: e.digest})
		saved.Layers = append(saved.Layers, blobPath(e.digest))
	}
	var docs []document
	var failed error
	add := func(name string, v any) (d v1.Descriptor) {
		raw, err := json.Marshal(v)
		if err == nil {
			d.Size = int64(len(raw))
			d.Digest, _, err = v1.SHA256(bytes.NewReader(raw))
		}
		if name == "" {
			name = blobPath(d.Digest)
		}
		docs, failed = append(docs, document{name, raw}), errors.Join(failed, err)
		return d
	}
	add("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	manifest.Config = add("", config)
	manifest.Config.MediaType = types.OCIConfigJSON
	found := add("", manifest)
	found.MediaType = types.OCIManifestSchema1
	if len(tag) > 0 {
		found.Annotations = map[string]string{"io.containerd.image.name": tag[0], "org.opencontainers.image.ref.name": tag[0][strings.LastIndexByte(tag[0], ':')+1:]}
	}
	add("index.json", v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{found}})
	saved.Config = blobPath(manifest.Config.Digest)
	add("manifest.json", []any{saved})
	return docs, failed
}

// tagOf is what an image is to be called, if anything.
func tagOf(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	tag, err := name.NewTag(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	if !strings.HasSuffix(text, ":"+tag.TagStr()) {
		text += ":" + tag.TagStr()
	}
	return []string{text}, nil
}
