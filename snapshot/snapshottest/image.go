// Package snapshottest has malicious images and refs, and what readers must make
// of them.
package snapshottest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
)

// Tar is a tar of files, each a name and what is in it, or a directory if its name
// ends like one. One that cannot be written is a mistake in the test.
func Tar(files ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		name, content := files[i], files[i+1]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		err := w.WriteHeader(h)
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			panic(fmt.Errorf("write %q: %w", name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Image is an image as docker save has it.
type Image struct {
	Layers [][]byte // as they are stored
	IDs    []dormouse.Digest
}

// Add adds a layer, which is stored as pack makes it.
func (i *Image) Add(plain []byte, pack func([]byte) []byte) *Image {
	return i.AddAs(pack(plain), dormouse.DigestOf(plain))
}

// AddAs adds a layer under a media type that need not be its own.
func (i *Image) AddAs(stored []byte, id dormouse.Digest) *Image {
	i.Layers, i.IDs = append(i.Layers, stored), append(i.IDs, id)
	return i
}

// Tar is the image in one file.
func (i *Image) Tar() []byte {
	var names, files []string
	for n, l := range i.Layers {
		names = append(names, fmt.Sprintf("%d/layer.tar", n))
		files = append(files, names[n], string(l))
	}
	config := text(map[string]any{"os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": i.IDs}})
	manifest := text([]any{map[string]any{"Config": "config.json", "Layers": names}})
	return Tar(append(files, "config.json", config, "manifest.json", manifest)...)
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// Plain stores a layer as it is.
func Plain(b []byte) []byte { return b }

// Gzip compresses.
func Gzip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b) // neither fails
	_ = w.Close()
	return out.Bytes()
}

// Zstd compresses.
func Zstd(b []byte) []byte {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return e.EncodeAll(b, nil)
}

// HostileImages are images that must be refused.
func HostileImages() map[string][]byte {
	good := Tar("a", "1")
	image := new(Image).Add(good, Plain).Tar()
	manifest := func(layers ...string) []byte {
		raw := text([]any{map[string]any{"Config": "c", "Layers": layers}})
		return Tar("c", fmt.Sprintf(`{"rootfs":{"diff_ids":["%s"]}}`, dormouse.DigestOf(good)), "manifest.json", raw, "l", string(good))
	}
	return map[string][]byte{
		"nothing":                nil,
		"no tar":                 []byte("hello"),
		"an empty tar":           Tar(),
		"half":                   image[:700],
		"half, compressed":       Gzip(image)[:100],
		"up":                     new(Image).Add(Tar("../x", "1"), Plain).Tar(),
		"another layer":          new(Image).AddAs(good, dormouse.DigestOf(nil)).Tar(),
		"another hash":           new(Image).AddAs(good, "md5:d41d8cd98f00b204e9800998ecf8427e").Tar(),
		"a layer too few":        (&Image{nil, []dormouse.Digest{dormouse.DigestOf(good)}}).Tar(),
		"a layer of the host's":  manifest("/etc/passwd"),
		"a layer above":          manifest("../../etc/passwd"),
		"a layer too many":       manifest("l", "l"),
		"a loud layer":           manifest("\x1b[2Jnew\nline"),
		"a loud configuration":   Tar("manifest.json", `[{"Config":"\u001b[2Jnew\nline","Layers":[]}]`),
		"a loud media type":      Tar("index.json", `{"manifests":[{"mediaType":"\u001b[2Jnew\nline","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`),
		"a loud digest":          new(Image).AddAs(good, "\x1b[2Jnew\nline").Tar(),
		"no layer":               manifest("x"),
		"no JSON":                Tar("manifest.json", "x"),
		"two images":             Tar("manifest.json", "[{},{}]"),
		"no images":              Tar("manifest.json", "[]"),
		"an endless index":       Tar("index.json", `{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`),
		"half a layer":           new(Image).Add(good, func(b []byte) []byte { return Gzip(b)[:40] }).Tar(),
		"a layer that is none":   new(Image).Add([]byte("hello"), Plain).Tar(),
		"a huge window":          HugeWindow(),
		"a layer's huge window":  new(Image).AddAs(HugeWindow(), dormouse.DigestOf(good)).Tar(),
		"a dictionary":           Dictionary(),
		"a layer's dictionary":   new(Image).AddAs(Dictionary(), dormouse.DigestOf(good)).Tar(),
		"a link to the host's":   linked("/etc/passwd"),
		"a link that leads up":   linked("../../../../etc/passwd"),
		"a link that leads back": linked("l"),
	}
}

// linked is an image whose layer is a link.
func linked(to string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: to}), w.Flush()); err != nil {
		panic(err)
	}
	config := fmt.Sprintf(`{"rootfs":{"diff_ids":["%s"]}}`, dormouse.DigestOf(nil))
	return append(b.Bytes(), Tar("c", config, "manifest.json", `[{"Config":"c","Layers":["l"]}]`)...)
}

// What zstd is made of.
const (
	zstdMagic = "\x28\xb5\x2f\xfd"
	rleBlock  = 1
	maxBlock  = 128 << 10
)

// ZstdBomb is a few bytes for each 128 KiB of zeros.
func ZstdBomb(size int64) []byte {
	b := []byte(zstdMagic + "\x00\x38") // a window of 128 KiB
	for left := size; left > 0; left -= maxBlock {
		header := uint32(min(left, maxBlock))<<3 | rleBlock<<1
		if left <= maxBlock {
			header |= 1 // the last
		}
		b = append(binary.LittleEndian.AppendUint32(b, header)[:len(b)+3], 0)
	}
	return b
}

// GzipBomb is zeros, compressed as many members.
func GzipBomb(size int64) []byte {
	const each = 16 << 20
	return bytes.Repeat(Gzip(make([]byte, each)), int((size+each-1)/each))
}

// HugeWindow is a stream whose window is larger than any machine's memory.
func HugeWindow() []byte { return []byte(zstdMagic + "\x00\xff\x01\x00\x00") }

// Dictionary is what was compressed with something that is not there.
func Dictionary() []byte { return []byte(zstdMagic + "\x01\x38\x07\x01\x00\x00") }
