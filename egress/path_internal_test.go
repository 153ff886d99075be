package egress

import (
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestPathsThatAreUnderstoodInTwoWaysAreRefused(t *testing.T) { // E68
	for _, written := range []string{
		"/a//b", "//a", "/a/../b", "/a/..", "/..", "/./a", "/a/.", "/a/%2e%2e/b", "/a/%2E./b", "/a/.%2e/b", "/a/%2e/b",
		"/a;b", "/a;/../b", "/a%3bb", "/a%2fb", "/a%2F..%2Fb", "/a%5cb", `/a\b`, `/a\..\b`, "/a%00b", "/a%0d%0ab", "/a%7fb", "/a%c2%85b",
		"/a/%252e%252e/b", "/a/%25252e%25252e", "/a/%2525252e", "/a%252fb", "/a%c0%ae%c0%ae/b", "/a%ff", "/a%zz", "/a%", "/a%25", "", "*", "a/b", "http://x/a",
	} {
		if err := checkPath(written); err == nil {
			t.Errorf("%q is let through", written)
		}
	}
	for _, written := range []string{"/", "/a", "/a/", "/a/b.git/info/refs", "/a/...", "/a/..b", "/a/.git", "/a%20b", "/a+b", "/%C3%A4", "/a:b@c", "/a/~b/$c,d=e'()*!&"} {
		if err := checkPath(written); err != nil {
			t.Errorf("%q: %v", written, err)
		}
	}
}

func TestAPathPrefixEndsWhereASegmentDoes(t *testing.T) {
	for _, c := range []struct {
		path, prefix string
		want         bool
	}{
		{"/owner/repo", "/owner/repo", true},
		{"/owner/repo/x", "/owner/repo", true},
		{"/owner/repo.git", "/owner/repo", false},
		{"/owner/repository", "/owner/repo", false},
		{"/owner", "/owner/repo", false},
		{"/owner/repo/x", "/owner/repo/", true},
		{"/owner/repo", "/owner/repo/", false},
		{"/Owner/repo", "/owner/repo", false},
		{"/x", "/", true},
	} {
		if got := under(c.path, c.prefix); got != c.want {
			t.Errorf("%s under %s: %v", c.path, c.prefix, got)
		}
	}
}

// FuzzPathRules holds what is let through against several ways to read a path: none of
// them leads out of the prefix.
func FuzzPathRules(f *testing.F) {
	for _, seed := range []string{"/o/r/x", "/o/r/../s", "/o/r/%2e%2e/s", "/o/r/%252e%252e/s", "/o/r;/../../s", "/o/r\\..\\s", "/o/r%2f..%2fs", "/o/r/%c0%ae%c0%ae/s"} {
		f.Add(seed)
	}
	const prefix = "/o/r"
	f.Fuzz(func(t *testing.T, written string) {
		u, err := url.ParseRequestURI(written)
		if err != nil || checkPath(u.EscapedPath()) != nil || !under(u.Path, prefix) {
			return
		}
		reading := u.EscapedPath()
		for range 6 {
			for _, read := range []string{reading, strings.ReplaceAll(reading, `\`, "/"), cutParameters(reading)} {
				if clean := path.Clean(read); clean != prefix && !strings.HasPrefix(clean, prefix+"/") {
					t.Fatalf("%q can be read as %q", written, clean)
				}
			}
			reading = lenient(reading)
		}
	})
}

// cutParameters takes ;x away from each segment, as some servers do.
func cutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// lenient decodes what can be decoded and leaves the rest.
func lenient(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			if c, err := url.PathUnescape(p[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(p[i])
	}
	return b.String()
}
