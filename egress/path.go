package egress

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxDecodings is how often a path may have been percent-encoded.
const maxDecodings = 3

// checkPath refuses a path that the far end could understand otherwise than we do: where
// a grant holds for some paths only, that would be a way around it. The path is given as
// it was written.
func checkPath(written string) error {
	if strings.ContainsAny(written, ";") || !strings.HasPrefix(written, "/") {
		return errPath
	}
	path := written
	for range maxDecodings {
		if tricky(path) {
			return errPath
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			return errPath
		}
		if decoded == path {
			return nil
		}
		// A slash that was encoded separates segments for some and not for others.
		if strings.Count(decoded, "/") != strings.Count(path, "/") {
			return errPath
		}
		path = decoded
	}
	return errPath
}

// tricky reports whether a path has what is understood in different ways.
func tricky(path string) bool {
	if strings.Contains(path, "//") || strings.ContainsAny(path, `\;`) || !utf8.ValidString(path) {
		return true
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }) {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// errPath is the refusal of such a path.
const errPath = invalid("its path has “//”, “.”, “..”, “;”, a backslash, an encoded slash or a control character, and which credential it gets depends on the path")
