//go:build linux

package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// How the OCI image format says that something is removed.
const (
	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
	// aufsPrefix is how the names begin under which AUFS stored metadata in its layers.
	aufsPrefix = whiteoutPrefix + whiteoutPrefix
)

const (
	// recordName is the path of a file whose name looks like a whiteout. It has an escaped
	// name in the tar.
	recordName = "DORMOUSE.name"
	recordLink = "DORMOUSE.link" // the same for the target of a hard link
	// escapePrefix is what an escaped name begins with instead of whiteoutPrefix.
	escapePrefix = ".dormouse" + whiteoutPrefix
)

// nameKind is what a name in a tar says of a path.
type nameKind int

const (
	entryName    nameKind = iota // it is there
	whiteoutName                 // it is removed
	opaqueName                   // it is a directory that hides what lower layers have in it
	aufsName                     // it is metadata of AUFS
)

// encode is the name in a tar that says so.
func (k nameKind) encode(path string) string {
	switch k {
	case whiteoutName:
		return join(escapePath(parent(path)), whiteoutPrefix+escapePath(base(path)))
	case opaqueName:
		return join(escapePath(path), opaqueMarker)
	case entryName, aufsName:
	}
	return escapePath(path)
}

// needsEscape reports whether a path has a name that would be taken for a whiteout.
func needsEscape(path string) bool {
	return strings.HasPrefix(path, whiteoutPrefix) || strings.Contains(path, "/"+whiteoutPrefix)
}

func escapePath(path string) string {
	if !needsEscape(path) {
		return path
	}
	names := strings.Split(path, "/")
	for i, name := range names {
		if rest, ok := strings.CutPrefix(name, whiteoutPrefix); ok {
			names[i] = escapePrefix + rest
		}
	}
	return strings.Join(names, "/")
}

var (
	errName     = errors.New("its name is none that a layer has")
	errOutside  = errors.New("its name leaves the image")
	errLongName = errors.New("its name is too long")
)

// name is the path that an entry is about, and what its name says of that.
func (p policy) name(h *tar.Header) (string, nameKind, error) {
	if p.canonical {
		return parseName(h.Name, h.PAXRecords[recordName])
	}
	name, err := p.clean(h.Name)
	if err != nil {
		return "", entryName, err
	}
	if last := base(name); strings.HasPrefix(last, aufsPrefix) && last != opaqueMarker {
		return name, aufsName, nil
	}
	if p.records {
		return parseName(name, h.PAXRecords[recordName])
	}
	at, kind := splitName(name)
	if kind == whiteoutName && (at == "." || !validName(at)) {
		return "", kind, errors.New("it hides nothing")
	}
	return at, kind, nil
}

// linkTarget is the path of the file that a hard link is another name of.
func (p policy) linkTarget(h *tar.Header) (to string, err error) {
	kind := entryName
	to = h.Linkname
	if !p.canonical {
		to, err = p.clean(to)
	}
	if err == nil && p.records {
		to, kind, err = parseName(to, h.PAXRecords[recordLink])
	}
	if err == nil && kind != entryName {
		err = errName
	}
	if err != nil {
		return "", fmt.Errorf("link to %.200q: %w", h.Linkname, err)
	}
	return to, nil
}

// clean is a name as it is below the root. Some archives have names from the root of a
// machine, which mean the same.
func (p policy) clean(name string) (string, error) {
	if len(name) > p.maxPath {
		return "", errLongName
	}
	name = path.Clean(strings.TrimLeft(name, "/"))
	if !filepath.IsLocal(name) {
		return "", errOutside
	}
	return name, nil
}

// splitName takes a name in a tar apart.
func splitName(name string) (at string, kind nameKind) {
	switch removed, marked := strings.CutPrefix(base(name), whiteoutPrefix); {
	case base(name) == opaqueMarker:
		return parent(name), opaqueName
	case marked:
		return join(parent(name), removed), whiteoutName
	}
	return name, entryName
}

// validName reports whether a path has the one canonical form of a path below the root.
func validName(at string) bool {
	return at != "" && at == path.Clean(at) && filepath.IsLocal(at) && !strings.ContainsRune(at, 0)
}

// parseName finds the path that a name in a tar is about, and what it says of it. It
// takes only names as encode writes them. Unescaped is the path that goes with an
// escaped name, empty if the name is not escaped.
func parseName(name, unescaped string) (string, nameKind, error) {
	name = strings.TrimSuffix(name, "/")
	at, kind := splitName(name)
	if unescaped != "" {
		at = unescaped
	}
	switch {
	case len(at) > maxPath:
		return "", kind, errLongName
	case !validName(at) || strings.HasSuffix(name, "/"):
		return "", kind, errName
	case needsEscape(at) != (unescaped != "") || kind.encode(at) != name || kind == whiteoutName && at == ".":
		return "", kind, errName
	}
	return at, kind, nil
}
