//go:build linux

package powercut

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file or a directory. All but what a cut takes back passes through.
type node struct {
	*fs.LoopbackNode
	disk *Disk
}

var (
	_ fs.NodeWrapChilder    = (*node)(nil)
	_ fs.NodeCreater        = (*node)(nil)
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeSetattrer      = (*node)(nil)
	_ fs.NodeFsyncer        = (*node)(nil)
	_ fs.NodeMkdirer        = (*node)(nil)
	_ fs.NodeMknoder        = (*node)(nil)
	_ fs.NodeRenamer        = (*node)(nil)
	_ fs.NodeUnlinker       = (*node)(nil)
	_ fs.NodeRmdirer        = (*node)(nil)
	_ fs.NodeOpendirHandler = (*node)(nil)
)

func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	inner, ok := ops.(*fs.LoopbackNode)
	if !ok {
		return ops
	}
	return &node{LoopbackNode: inner, disk: n.disk}
}

// path is where the node really is.
func (n *node) path() string { return filepath.Join(n.RootData.Path, n.Path(n.Root())) }

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.disk.allow(Make, filepath.Join(n.path(), name)); errno != fs.OK {
		return nil, nil, 0, errno
	}
	inode, h, _, errno := n.LoopbackNode.Create(ctx, name, flags&^syscall.O_TRUNC, mode, out)
	if errno != fs.OK {
		return nil, nil, 0, errno
	}
	if r, ok := h.(fs.FileReleaser); ok {
		r.Release(ctx)
	}
	f, flag, errno := n.disk.open(filepath.Join(n.path(), name), flags)
	return inode, f, flag, errno
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return n.disk.open(n.path(), flags)
}

// open opens a file for reading as well, since what is overwritten is read first.
// The cache may stay: all changes to the file pass through here, and a shared
// mapping lives in it.
func (d *Disk) open(path string, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	how := os.O_RDONLY
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		how = os.O_RDWR
	}
	f, err := os.OpenFile(path, how, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	if flags&syscall.O_TRUNC != 0 {
		if err := d.truncate(f, 0); err != nil {
			_ = f.Close()
			return nil, 0, fs.ToErrno(err)
		}
	}
	return &handle{file: f, disk: d}, fuse.FOPEN_KEEP_CACHE, fs.OK
}

func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if errno := n.resize(h, int64(size)); errno != fs.OK {
			return errno
		}
		in.Valid &^= fuse.FATTR_SIZE
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

func (n *node) resize(h fs.FileHandle, size int64) syscall.Errno {
	if h, ok := h.(*handle); ok {
		return fs.ToErrno(n.disk.truncate(h.file, size))
	}
	f, err := os.OpenFile(n.path(), os.O_RDWR, 0)
	if err != nil {
		return fs.ToErrno(err)
	}
	defer func() { _ = f.Close() }()
	return fs.ToErrno(n.disk.truncate(f, size))
}

// Fsync makes a file durable.
func (n *node) Fsync(_ context.Context, h fs.FileHandle, _ uint32) syscall.Errno {
	if h, ok := h.(*handle); ok {
		return fs.ToErrno(n.disk.sync(h.file))
	}
	return syscall.EBADF
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.allow(Make, filepath.Join(n.path(), name)); errno != fs.OK {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *node) Mknod(ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.allow(Make, filepath.Join(n.path(), name)); errno != fs.OK {
		return nil, errno
	}
	return n.LoopbackNode.Mknod(ctx, name, mode, dev, out)
}

func (n *node) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	p, ok := parent.(*node)
	if !ok {
		return syscall.EXDEV
	}
	from, to := filepath.Join(n.path(), name), filepath.Join(p.path(), newName)
	if errno := n.disk.allow(Rename, to); errno != fs.OK {
		return errno
	}
	return n.disk.move(from, to, func() syscall.Errno { return n.LoopbackNode.Rename(ctx, name, parent, newName, flags) })
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.disk.allow(Remove, filepath.Join(n.path(), name)); errno != fs.OK {
		return errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	if errno := n.disk.allow(Remove, filepath.Join(n.path(), name)); errno != fs.OK {
		return errno
	}
	return n.LoopbackNode.Rmdir(ctx, name)
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, flag, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if l, ok := h.(lister); ok {
		return &directory{lister: l, node: n}, flag, errno
	}
	return h, flag, errno
}

// lister is what the open directories of the library are asked for.
type lister interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// directory is an open directory.
type directory struct {
	lister
	node *node
}

// Fsyncdir makes the names in a directory durable.
func (d *directory) Fsyncdir(context.Context, uint32) syscall.Errno {
	path := d.node.path()
	switch err := d.node.disk.ask(SyncDir, path, nil); {
	case errors.Is(err, Unanswered):
		return syscall.EIO
	case err != nil:
		d.node.disk.unsettle(path)
		return fs.ToErrno(err)
	}
	d.node.disk.settle(path)
	return fs.OK
}

// handle is an open file.
type handle struct {
	file *os.File
	disk *Disk
}

var (
	_ fs.FileReader    = (*handle)(nil)
	_ fs.FileWriter    = (*handle)(nil)
	_ fs.FileFlusher   = (*handle)(nil)
	_ fs.FileReleaser  = (*handle)(nil)
	_ fs.FileGetattrer = (*handle)(nil)
	_ fs.FileAllocater = (*handle)(nil)
)

func (h *handle) Read(_ context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.file.ReadAt(buf, off)
	if err == nil || errors.Is(err, io.EOF) {
		err = h.disk.ask(Read, h.file.Name(), buf[:n])
	}
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buf[:n]), fs.OK
}

func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	data, err := h.disk.taken(h.file.Name(), data)
	if err != nil {
		return 0, fs.ToErrno(err)
	}
	n, err := h.disk.write(h.file, data, off)
	return uint32(n), fs.ToErrno(err)
}

// Allocate has room for a part of a file, or takes out what is in it.
func (h *handle) Allocate(_ context.Context, off, size uint64, mode uint32) syscall.Errno {
	if mode&^uint32(unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE) != 0 {
		return syscall.EOPNOTSUPP
	}
	return fs.ToErrno(h.disk.allocate(h.file, mode, int64(off), int64(size)))
}

func (h *handle) Flush(context.Context) syscall.Errno { return fs.OK }

func (h *handle) Release(context.Context) syscall.Errno { return fs.ToErrno(h.file.Close()) }

func (h *handle) Getattr(_ context.Context, out *fuse.AttrOut) syscall.Errno {
	var at syscall.Stat_t
	if err := syscall.Fstat(int(h.file.Fd()), &at); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStat(&at)
	return fs.OK
}
