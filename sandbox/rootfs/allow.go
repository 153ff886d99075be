package rootfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/dormouse-run/dormouse"
)

// Allow is which images clients may name that are not trusted with this machine's files:
// those that the operator lists, or any in a registry if the list is empty.
type Allow struct{ entries []string }

// ParseAllow reads a list of images. An entry is
//
//	registry.example/team        a repository and those below it, with any tag
//	registry.example/team:tag    one image; so is one by its digest
//	registry.example/            a whole registry, or a part of it that ends in /
//	tarball:/path, oci:/path, dir:/path
//	                             a file or directory, and what is below it
//	host                         this machine's own programs
func ParseAllow(entries []string) (Allow, error) {
	for _, e := range entries {
		kind, rest := splitRef(e)
		switch {
		case e == dormouse.HostImage:
		case kind != "":
			if !filepath.IsAbs(rest) || rest != filepath.Clean(rest) {
				return Allow{}, fmt.Errorf("%q: the path must be absolute and without detours", e)
			}
		case strings.HasSuffix(e, "/"):
			if e == "/" {
				return Allow{}, fmt.Errorf("%q names no registry", e)
			}
		default:
			if _, err := parseRef(e); err != nil {
				return Allow{}, fmt.Errorf("%q: %w", e, err)
			}
		}
	}
	return Allow{entries}, nil
}

// errNotAllowed says that the operator can allow it.
var errNotAllowed = errors.New("sessions may not choose it here; the operator allows images with --image-allow")

// Check refuses an image that may not be named. The decision depends on what
// the name resolves to, not on how it is written.
func (a Allow) Check(ref string) error {
	if a.Lists(ref) {
		return nil
	}
	if Local(ref) || ref == dormouse.HostImage {
		return errNotAllowed
	}
	if _, err := parseRef(ref); err != nil {
		return err
	}
	for _, e := range a.entries {
		if !Local(e) && e != dormouse.HostImage {
			return errNotAllowed // registries are listed, and this is none of them
		}
	}
	return nil
}

// Lists reports whether the operator has listed an image, and so trusts where it comes
// from.
func (a Allow) Lists(ref string) bool {
	for _, e := range a.entries {
		if lists(e, ref) {
			return true
		}
	}
	return false
}

// maxRef bounds a reference to a registry.
const maxRef = 1024

func parseRef(text string) (name.Reference, error) {
	if len(text) > maxRef {
		return nil, errors.New("the reference is too long")
	}
	return name.ParseReference(text)
}

func lists(entry, ref string) bool {
	kind, path := splitRef(ref)
	wants, at := splitRef(entry)
	switch {
	case entry == dormouse.HostImage || ref == dormouse.HostImage:
		return entry == ref
	case kind != wants:
		return false
	case kind != "":
		return below(path, at)
	}
	is, err := parseRef(ref)
	if err != nil {
		return false
	}
	if strings.HasSuffix(entry, "/") {
		return strings.HasPrefix(is.Name(), entry)
	}
	may, err := parseRef(entry)
	if err != nil {
		return false
	}
	if exact(entry, may) {
		return is.Name() == may.Name()
	}
	repository, within := may.Context().Name(), is.Context().Name()
	return within == repository || strings.HasPrefix(within, repository+"/")
}

// exact reports whether an entry names one image: a tag or a digest is in it.
func exact(entry string, ref name.Reference) bool {
	last := entry[strings.LastIndex(entry, "/")+1:]
	_, digest := ref.(name.Digest)
	return digest || strings.Contains(last, ":") && strings.Contains(ref.Context().Name(), "/")
}

// below reports whether a path leads to a place or below it, through whatever
// links there are.
func below(path, place string) bool {
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return false
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	if place, err = filepath.EvalSymlinks(place); err != nil {
		return false
	}
	return path == place || place == "/" || strings.HasPrefix(path, place+"/")
}
