//go:build linux

package layertest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// Archive is a tar of entries as they are, in the order they are.
type Archive []tar.Header

const content = "content"

// Bytes is the tar. An archive that cannot be written is a mistake in the test.
func (a Archive) Bytes() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range a {
		if h.Typeflag == tar.TypeReg && h.Size == 0 && h.Mode != 0 {
			h.Size = int64(len(content))
		}
		err := w.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = io.WriteString(w, content[:min(len(content), int(h.Size))])
		}
		if err != nil {
			panic(fmt.Errorf("write %q: %w", h.Name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Dir is a directory.
func Dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

// File is a file with a little in it.
func File(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

// Symlink is a symbolic link.
func Symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

// Hardlink is another name of a file.
func Hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// With adds records, each a key and a value.
func With(h tar.Header, records ...string) tar.Header {
	h.PAXRecords, h.Format = make(map[string]string), tar.FormatPAX
	for i := 0; i+1 < len(records); i += 2 {
		h.PAXRecords[records[i]] = records[i+1]
	}
	return h
}

// Hostile are archives that no layer is packed as. Those that lead elsewhere lead
// to a directory that is not theirs, or to a file canary beside where they are
// unpacked.
func Hostile(elsewhere string) map[string]Archive {
	return map[string]Archive{
		"up":                            {Dir("./"), File("../x")},
		"up from inside":                {Dir("./"), Dir("a/"), File("a/../../x")},
		"up from a dot":                 {Dir("./"), File("./../x")},
		"a loud name that is too long":  {Dir("./"), File("\x1b[2Jnew\nline" + strings.Repeat("x", 300))},
		"a loud name there twice":       {Dir("./"), File("\x1b[2Jnew\nline"), File("\x1b[2Jnew\nline")},
		"a loud link":                   {Dir("./"), Hardlink("a", "\x1b[2Jnew\nline")},
		"a loud attribute":              {Dir("./"), With(File("a"), "SCHILY.xattr.user.\x1b[2Jnew\nline", strings.Repeat("x", 60_000), "SCHILY.xattr.user."+strings.Repeat("x", 300), "y")},
		"absolute":                      {Dir("./"), File(elsewhere + "/x")},
		"twice absolute":                {Dir("./"), File("/" + elsewhere + "/x")},
		"dotted":                        {Dir("./"), File("./x")},
		"empty name":                    {Dir("./"), File("")},
		"double slash":                  {Dir("./"), Dir("a/"), File("a//x")},
		"file as a directory":           {Dir("./"), File("a"), File("a/x")},
		"through a link":                {Dir("./"), Symlink("a", elsewhere), File("a/x")},
		"through a link to a directory": {Dir("./"), Dir("d/"), Symlink("a", "d"), File("a/x")},
		"a directory over a link":       {Dir("./"), Symlink("a", elsewhere), Dir("a/")},
		"a file over a dangling link":   {Dir("./"), Symlink("a", "nowhere"), File("a")},
		"there twice":                   {Dir("./"), File("a"), File("a")},
		"before its directory":          {Dir("./"), File("a/x")},
		"link to what comes later":      {Dir("./"), Hardlink("a", "b"), File("b")},
		"link to itself":                {Dir("./"), Hardlink("a", "a")},
		"link out":                      {Dir("./"), Hardlink("a", "../canary/passwd")},
		"link to a host's file":         {Dir("./"), Hardlink("a", elsewhere+"/passwd")},
		"link to a link":                {Dir("./"), Symlink("l", elsewhere+"/passwd"), Hardlink("a", "l")},
		"link to a directory":           {Dir("./"), Dir("d/"), Hardlink("a", "d")},
		"link to what is gone":          {Dir("./"), File(".wh.f"), Hardlink("a", "f")},
		"link to a relative file":       {Dir("./"), Hardlink("a", "passwd")},
		"link to another file system":   {Dir("./"), Hardlink("a", "/proc/self/environ")},
		"link that is overwritten":      {Dir("./"), File("a"), Hardlink("b", "a"), File("b")},
		"a link below a link":           {Dir("./"), Symlink("d", elsewhere), Symlink("d/e", "passwd")},
		"a directory that is a link":    {Dir("./"), Dir("d/"), Symlink("d", elsewhere), File("d/x")},
		"links in a circle":             {Dir("./"), Symlink("a", "b"), Symlink("b", "a"), File("a/x")},
		"a link of a process":           {Dir("./"), Symlink("a", "/proc/self/cwd"), File("a/x")},
		"a descriptor of a process":     {Dir("./"), Symlink("a", "/proc/self/fd/1"), File("a")},
		"nothing but dots":              {Dir("./"), File("..")},
		"memory":                        {Dir("./"), {Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1, Devminor: 1}},
		"disk":                          {Dir("./"), {Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}},
		"overlay's own whiteout":        {Dir("./"), {Typeflag: tar.TypeChar, Name: "gone"}},
		"hides nothing":                 {Dir("./"), File(".wh.")},
		"hides its directory":           {Dir("./"), File(".wh..")},
		"hides the one above":           {Dir("./"), File(".wh...")},
		"hides what it has":             {Dir("./"), File("a"), File(".wh.a")},
		"has what it hides":             {Dir("./"), File(".wh.a"), File("a")},
		"hides below a file":            {Dir("./"), File("a"), File("a/.wh..wh..opq")},
		"root is a file":                {File(".")},
		"root is a link":                {Symlink(".", elsewhere)},
		"another name of its own":       {Dir("./"), With(File(".dormouse.wh.x"), "DORMOUSE.name", "../x")},
		"another name for nothing":      {Dir("./"), With(File("x"), "DORMOUSE.name", "y")},
		"another name with a slash":     {Dir("./"), With(File(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x/")},
		"no such owner":                 {Dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Uid: 1 << 32}},
		"a time before all":             {Dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, ModTime: time.Unix(-1<<40, 0), Format: tar.FormatPAX}},
		"a time after all":              {Dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, ModTime: time.Unix(1<<40, 0), Format: tar.FormatPAX}},
		"larger than allowed":           {Dir("./"), With(File("a"), "DORMOUSE.size", "9223372036854775807", "DORMOUSE.pieces", "0,7")},
		"pieces that overlap":           {Dir("./"), With(File("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0,5,3,2")},
		"pieces beyond the end":         {Dir("./"), With(File("a"), "DORMOUSE.size", "5", "DORMOUSE.pieces", "0,7")},
		"pieces that are no numbers":    {Dir("./"), With(File("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0,x")},
		"half a piece":                  {Dir("./"), With(File("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0")},
		"no size":                       {Dir("./"), With(File("a"), "DORMOUSE.size", "-1")},
		"much attached":                 {Dir("./"), With(File("a"), "SCHILY.xattr.user.x", strings.Repeat("x", 100_000))},
		"a long name":                   {Dir("./"), File(strings.Repeat("x", 5000))},
		"too many":                      many(2000),
	}
}

// Unusual are archives that a layer may be packed as, with something in them that
// has to be let be, or left out.
func Unusual() map[string][]byte {
	chain := Archive{Dir("./"), File("f0")}
	for i := range 900 {
		chain = append(chain, Hardlink(fmt.Sprintf("f%d", i+1), fmt.Sprintf("f%d", i)))
	}
	return map[string][]byte{
		"a pipe": Archive{Dir("./"), {Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600}}.Bytes(),
		"attributes of the kernel": Archive{Dir("./"), With(
			File("a"), "SCHILY.xattr.security.capability", "x", "SCHILY.xattr.trusted.overlay.opaque", "y", "SCHILY.xattr.system.posix_acl_access", "x",
			"SCHILY.acl.access", "user::rwx", "SCHILY.fflags", "schg,immutable", "SCHILY.xattr.user.mine", "m")}.Bytes(),
		"an attribute that redirects": Archive{Dir("./"), With(Dir("a/"), "SCHILY.xattr.trusted.overlay.redirect", "/")}.Bytes(),
		"odd names":                   Archive{Dir("./"), File("new\nline"), File("\x1b[2J"), File("a b")}.Bytes(),
		"names that look alike":       Archive{Dir("./"), File("a"), File("A"), File("\u00e9"), File("e\u0301")}.Bytes(),
		"a directory for nobody":      Archive{Dir("./"), {Typeflag: tar.TypeDir, Name: "d/"}, File("d/x")}.Bytes(),
		"rights of others":            Archive{Dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o7755}}.Bytes(),
		"a file with a slash":         append(Archive{Dir("./")}.Bytes()[:blockSize], append(block("d/", '0', 0), make([]byte, 2*blockSize)...)...),
		"links that lead out":         Archive{Dir("./"), Symlink("a", "/"), Symlink("b", "../../.."), Symlink("c", "/proc/self/root")}.Bytes(),
		"a chain of links":            chain.Bytes(),
		"directories that lie deep":   deep(300).Bytes(),
		"an archive after it":         append(Archive{Dir("./"), File("a")}.Bytes(), Archive{File("../x")}.Bytes()...),
	}
}

func deep(n int) Archive {
	a := Archive{Dir("./")}
	for i := range n {
		a = append(a, Dir(strings.Repeat("d/", i+1)))
	}
	return a
}

func many(n int) Archive {
	a := Archive{Dir("./")}
	for i := range n {
		a = append(a, File(fmt.Sprintf("f%d", i)))
	}
	return a
}
