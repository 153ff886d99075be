//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// Only attributes in the user namespace are part of a layer. All others speak to a kernel,
// and a sandbox must not do so through a layer. The headers of a file must be less than
// 1 MiB: beside the attributes they have its path, twice if it is escaped, and its extents.
const (
	userXattr     = "user."
	maxXattrs     = 256
	maxXattrLen   = 64 << 10
	maxXattrName  = 255
	maxXattrBytes = 256 << 10 // bytes of all names and values of a file
)

// xattr is an extended attribute.
type xattr struct{ name, value string }

// readXattrs reads the attributes of an open file in the order of the file system: a file
// with as many as it can have may not take them in another order.
func readXattrs(f *os.File) ([]xattr, error) {
	n, err := unix.Flistxattr(int(f.Fd()), nil)
	if err != nil || n == 0 {
		return nil, ignoreUnsupported(err)
	}
	names := make([]byte, n)
	if n, err = unix.Flistxattr(int(f.Fd()), names); err != nil {
		return nil, ignoreUnsupported(err)
	}
	var all []xattr
	size := 0
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, userXattr) || len(all) == maxXattrs {
			continue
		}
		value := make([]byte, maxXattrLen)
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil {
			continue // it was removed in the meantime
		}
		if size+len(name)+n > maxXattrBytes {
			continue
		}
		size += len(name) + n
		all = append(all, xattr{name, string(value[:n])})
	}
	return all, nil
}

// setXattrs sets attributes of an open file. More than a file can have is ErrTooBig.
func setXattrs(f *os.File, all []xattr) error {
	for _, a := range all {
		err := unix.Fsetxattr(int(f.Fd()), a.name, []byte(a.value), 0)
		if errors.Is(err, unix.ENOSPC) && hasSpace(f) {
			return fmt.Errorf("the extended attributes of %s do not fit a file here: %w", f.Name(), ErrTooBig)
		}
		if err != nil {
			return &fs.PathError{Op: "set " + beneath.Quoted(a.name) + " of", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// hasSpace reports whether the disk of a file is not full. File systems return the same
// error if an inode has no space for more attributes.
func hasSpace(f *os.File) bool {
	var at unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &at) == nil && at.Bavail*uint64(at.Bsize) > maxXattrs*maxXattrLen //nolint:gosec // sizes of blocks are positive
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}
