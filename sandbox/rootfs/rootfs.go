// Package rootfs turns OCI images into root file systems: directories that
// sandboxes start from and never write to.
//
// An image comes from a registry or from a file of this machine. It is flattened once,
// under its digest, and atomically: after a crash or a power cut it is complete or not
// there. An image is hostile input: nothing outside its own directory is created, changed
// or read, it is what its digest says, and it has a limited size. Under Dir:
//
//	ALGORITHM-HEX/       an image: root/, and what its configuration says
//	.new-ALGORITHM-HEX/  one that is being made or removed
//	.lock-…              held while one is made or removed
//	refs/                the digest of each reference, and when it was resolved
//
// Files keep the owners and modes that the image gives them, set-user-ID included: inside
// a sandbox they have that effect, and outside only root can enter Dir.
package rootfs

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"time"
)

// Options says where images are kept and how large they may be.
type Options struct {
	// Dir holds everything. Only its owner can enter it.
	Dir string
	// MaxBytes bounds an image, both as it is stored and unpacked: 20 GiB if zero.
	MaxBytes int64
	// MaxEntries bounds the files, directories and links in all layers of an
	// image: two million if zero.
	MaxEntries int
	// Dial connects to registries that clients name which are not trusted with this
	// server's network and credentials: it decides what may be reached, and no credentials
	// are sent. Without it connections are made as by any program.
	Dial   dialer
	Logger *slog.Logger
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

const (
	defaultMaxBytes   = 20 << 30
	defaultMaxEntries = 2_000_000

	// resolveEvery is how long the resolution of a tag is cached.
	resolveEvery = 5 * time.Minute
	// maxConcurrent bounds the images that are being fetched and unpacked.
	maxConcurrent = 4
	// stallAfter ends a pull that gets no byte.
	stallAfter = 2 * time.Minute
	// gracePeriod protects an image that was returned to a caller from being collected
	// before the caller has recorded that it uses it.
	gracePeriod = time.Hour
)

// Root is a root file system, to be mounted read-only, and what its image says
// of the processes in it.
type Root struct {
	Dir string `json:"-"`
	// Digest names the image: that of its manifest, or of its configuration if it
	// was saved without one. A plain directory has none.
	Digest  string   `json:"digest"`
	Env     []string `json:"env,omitempty"` // NAME=value
	User    string   `json:"user,omitempty"`
	Workdir string   `json:"workdir,omitempty"` // absolute, or empty
	// Entrypoint and Cmd are what the image would start. A sandbox starts a runner.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Progress is how far the unpacking of an image has come.
type Progress struct {
	Layer, Layers int   // the one at hand, counted from one, and how many there are
	Bytes, Total  int64 // read, and to be read, of all layers as they are stored
	Entries       int   // files, directories and links
}

// The kinds of references that lead to files of this machine.
const (
	tarballRef = "tarball:" // an image in a tar, of docker save or an OCI layout
	layoutRef  = "oci:"     // an OCI layout
	dirRef     = "dir:"     // a directory, used as it is
)

// Local reports whether a reference leads to files of this machine instead of a registry.
// Its author can read the files that it names, so references from clients must not be
// local.
func Local(ref string) bool {
	kind, _ := splitRef(ref)
	return kind != ""
}

// splitRef splits a reference into its kind, empty for one to a registry, and what it
// names.
func splitRef(ref string) (kind, rest string) {
	for _, kind := range []string{tarballRef, layoutRef, dirRef} {
		if path, ok := strings.CutPrefix(ref, kind); ok {
			return kind, path
		}
	}
	return "", ref
}
