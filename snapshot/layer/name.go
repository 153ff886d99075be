//go:build linux

package layer

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
)

// How the image format says that something is gone.
const (
	whiteoutPrefix  = ".wh."
	opaqueMarker = ".wh..wh..opq"
)

const (
	// recordName is the path of what people called as if it were a whiteout, which
	// stands in the tar under another.
	recordName = "DORMOUSE.name"
	recordLink = "DORMOUSE.link" // the same for what a link leads to
	// escapePrefix is what such a name begins with instead.
	escapePrefix = ".dormouse" + whiteoutPrefix
)

// nameKind is what a name in a tar says of a path.
type nameKind int

const (
	entryName  nameKind = iota // it is there
	whiteoutName               // it is gone
	opaqueName             // it is a directory that hides what is below it
)

// encode is the name in a tar that says so.
func (f nameKind) encode(path string) string {
	switch f {
	case whiteoutName:
		return join(escapePath(parent(path)), whiteoutPrefix+escapePath(base(path)))
	case opaqueName:
		return join(escapePath(path), opaqueMarker)
	case entryName:
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
	errLongName = errors.New("its name is too long")
)

// parseName finds the path that a name in a tar is about, and what it says. own is the
// path that goes with a name which is not its own, empty if it is.
func parseName(name, own string) (string, nameKind, error) {
	name = strings.TrimSuffix(name, "/")
	says, at := entryName, name
	switch hidden, marked := strings.CutPrefix(base(name), whiteoutPrefix); {
	case base(name) == opaqueMarker:
		says, at = opaqueName, parent(name)
	case marked:
		says, at = whiteoutName, join(parent(name), hidden)
	}
	if own != "" {
		at = own
	}
	switch {
	case len(at) > maxPath:
		return "", says, errLongName
	case at == "" || at != path.Clean(at) || !filepath.IsLocal(at) || strings.ContainsRune(at, 0) || strings.HasSuffix(name, "/"):
		return "", says, errName
	case needsEscape(at) != (own != "") || says.encode(at) != name || says == whiteoutName && at == ".":
		return "", says, errName
	}
	return at, says, nil
}
