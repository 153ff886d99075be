//go:build linux

package volume

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// errUnsupported says that sizes cannot be limited here.
var errUnsupported = errors.New("the size of workspaces is not limited")

// volumeSize is the size of a volume in a directory: the limit, but no more than the whole
// disk, since ext4's tables grow with it.
func volumeSize(dir string, l dormouse.Limits) (int64, error) {
	on, err := statDisk(dir)
	const unit = 1 << 20
	return max(min(l.Disk, on.total/unit*unit), unit), err
}

// checkRoom refuses to make a volume in a directory where there is no room to open it. It
// is sparse: mounted on a full disk it would be ruined by what ext4 writes to it, all of
// which is lost.
func checkRoom(dir string) error {
	on, err := statDisk(dir)
	if err == nil && on.free < minHeadroom {
		err = errNoRoom(minHeadroom, on.free)
	}
	return err
}

// Supported says why the size of volumes cannot be limited here, if it cannot.
func Supported() error {
	_, err := volumeTool()
	return err
}

// volumeTool finds mkfs.ext4, and fails if this machine cannot mount what it makes.
func volumeTool() (string, error) {
	mkfs, err := findTool("mkfs.ext4")
	if err == nil {
		_, err = os.Stat("/dev/loop-control")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUnsupported, err)
	}
	return mkfs, nil
}

// unnamed ends the name of an image that is not complete.
const unnamed = ".new"

// makeFileSystem creates an ext4 image with these limits, whole or not at all.
func makeFileSystem(name string, l dormouse.Limits) error {
	mkfs, err := volumeTool()
	if err != nil {
		return err
	}
	if err := checkRoom(filepath.Dir(name)); err != nil {
		return err
	}
	tmp := name + unnamed
	defer func() { _ = os.Remove(tmp) }()
	if err := os.WriteFile(tmp, nil, 0o600); err != nil {
		return err
	}
	size, err := volumeSize(filepath.Dir(name), l)
	if err == nil {
		err = os.Truncate(tmp, size)
	}
	if err != nil {
		return err
	}
	args := []string{"-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"}
	if l.Inodes > 0 {
		const perInode = 4096 // or a small volume would consist of inodes
		args = append(args, "-N", strconv.FormatInt(min(int64(float64(l.Inodes)*float64(size)/float64(l.Disk)), size/perInode), 10))
	}
	cmd := exec.Command(mkfs, append(args, tmp)...) //nolint:gosec,noctx // it is quick
	cmd.Env = []string{}                            // nil would inherit our own
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a file system: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := atomicfile.SyncFile(tmp); err != nil {
		return fmt.Errorf("make a file system: %w", err)
	}
	return os.Rename(tmp, name)
}

// toolDirs are where administration programs are.
var toolDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/run/current-system/sw/bin"}

// findTool finds a program that may not be in PATH.
func findTool(name string) (string, error) {
	for _, dir := range toolDirs {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
