package rig

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Metric finds a counter or a gauge without labels in what a server says of itself.
func Metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return n
		}
	}
	return 0
}

// RSS is the memory that the process holds, in bytes. What it maps of files is the
// kernel's to take back, and is left out.
func (l *Life) RSS() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d does not say how much memory it has", l.PID())
}

// Descriptors counts the files that the process has open.
func (l *Life) Descriptors() (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", l.PID()))
	return len(open), err
}

// Footprint is what a data directory with gVisor sandboxes takes of its machine.
type Footprint struct {
	Mounts, Loops, Cgroups int
	// Disk is the bytes on disk of the sessions: their volumes, their memory images
	// and, in a store of its own, the pages in use. Layers is the bytes of blobs and of
	// directories that workspaces lie over.
	Disk, Layers int64
	// Rows counts those of all tables.
	Rows int
}

// Footprint measures it. No session may be awake.
func (s *Server) Footprint(ctx context.Context) (f Footprint, err error) {
	for _, dir := range []string{s.Data, s.notes()} {
		mounts, err := mountsUnder(dir)
		if err != nil {
			return f, err
		}
		f.Mounts += len(mounts)
	}
	f.Loops, f.Cgroups = len(s.Loops()), len(s.limits())
	for _, dir := range []string{"sessions", "lost"} {
		f.Disk += blocks(filepath.Join(s.gvisorDir(), dir))
	}
	for _, dir := range []string{"blobs", "snapshots"} {
		f.Layers += blocks(filepath.Join(s.Data, dir))
	}
	if !s.Store.Shared() {
		const page = "SELECT page_count - freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
		if err := query(ctx, s, page, func(n, size int64) { f.Disk += n * size }); err != nil {
			return f, err
		}
	}
	f.Rows, err = s.rows(ctx)
	return f, err
}

// blocks is the bytes on disk of everything in a directory.
func blocks(dir string) (n int64) {
	seen := make(map[uint64]bool)
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var at syscall.Stat_t
		if err == nil && syscall.Lstat(path, &at) == nil && !seen[at.Ino] {
			seen[at.Ino] = true // a file with several names is one
			n += at.Blocks * 512
		}
		return nil // what went away meanwhile takes nothing
	})
	return n
}

// rows counts the rows of all tables.
func (s *Server) rows(ctx context.Context) (rows int, err error) {
	list := "SELECT name, 0 FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
	if s.Store.Shared() {
		list = "SELECT table_name, 0 FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
	}
	var counts []string
	err = query(ctx, s, list, func(table string, _ int) { counts = append(counts, fmt.Sprintf("SELECT count(*) AS n FROM %q", table)) })
	if err != nil {
		return 0, err
	}
	err = query(ctx, s, "SELECT CAST(sum(n) AS bigint), 0 FROM ("+strings.Join(counts, " UNION ALL ")+") AS counted", func(n, _ int) { rows = n })
	return rows, err
}
