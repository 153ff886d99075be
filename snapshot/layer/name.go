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
	whiteout  = ".wh."
	allHidden = ".wh..wh..opq"
)

const (
	// recordName is the path of what people called as if it were a whiteout, which
	// stands in the tar under another.
	recordName = "DORMOUSE.name"
	recordLink = "DORMOUSE.link" // the same for what a link leads to
	// escaped is what such a name begins with instead.
	escaped = ".dormouse" + whiteout
)

// form is what a name in a tar says of a path.
type form int

const (
	plain  form = iota // it is there
	gone               // it is gone
	hiding             // it is a directory that hides what is below it
)

// spell is the name in a tar that says so.
func (f form) spell(path string) string {
	switch f {
	case gone:
		return join(disguise(parent(path)), whiteout+disguise(base(path)))
	case hiding:
		return join(disguise(path), allHidden)
	case plain:
	}
	return disguise(path)
}

// disguised reports whether a path has a name that would be taken for a whiteout.
func disguised(path string) bool {
	return strings.HasPrefix(path, whiteout) || strings.Contains(path, "/"+whiteout)
}

func disguise(path string) string {
	if !disguised(path) {
		return path
	}
	names := strings.Split(path, "/")
	for i, name := range names {
		if rest, ok := strings.CutPrefix(name, whiteout); ok {
			names[i] = escaped + rest
		}
	}
	return strings.Join(names, "/")
}

var (
	errName     = errors.New("its name is none that a layer has")
	errLongName = errors.New("its name is too long")
)

// read finds the path that a name in a tar is about, and what it says. own is the
// path that goes with a name which is not its own, empty if it is.
func read(name, own string) (string, form, error) {
	name = strings.TrimSuffix(name, "/")
	says, at := plain, name
	switch hidden, marked := strings.CutPrefix(base(name), whiteout); {
	case base(name) == allHidden:
		says, at = hiding, parent(name)
	case marked:
		says, at = gone, join(parent(name), hidden)
	}
	if own != "" {
		at = own
	}
	switch {
	case len(at) > maxPath:
		return "", says, errLongName
	case at == "" || at != path.Clean(at) || !filepath.IsLocal(at) || strings.ContainsRune(at, 0) || strings.HasSuffix(name, "/"):
		return "", says, errName
	case disguised(at) != (own != "") || says.spell(at) != name || says == gone && at == ".":
		return "", says, errName
	}
	return at, says, nil
}
