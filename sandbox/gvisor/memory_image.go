//go:build linux

package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// memoryImage is what a hibernated session runs: the memory of its sandbox, with its
// runner's state. It belongs to the files as the same generation has left them, and can be
// restored once.
type memoryImage struct {
	Generation uint64 `json:"generation"`
	Secret     string `json:"secret"`
	// Runner, Program and Host are the versions that the memory depends on. It cannot be
	// restored with others.
	Runner  string      `json:"runner"`
	Program string      `json:"program"`
	Host    string      `json:"host"`
	Spec    *boxSpec    `json:"made,omitempty"` // nil in images of older versions
	Files   []imageFile `json:"files"`
	// Workspace is the number of the one that it ran over.
	Workspace uint64 `json:"workspace,omitempty"`
	// Layout is that of the sandbox.
	Layout int `json:"layout,omitempty"`
	// Lost is why it must not be restored, though it never was.
	Lost string `json:"lost,omitempty"`
	dir  string `json:"-"`
}

type imageFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	CRC  uint32 `json:"crc"`
}

const imageNote = "image.json"

func (v sessionDir) imageDir() string { return filepath.Join(v.Dir, "image") }

// newImageDir is where an image is made. One that stays is of a server that was killed, or
// of a power cut, and as large as the memory of a sandbox.
func (v sessionDir) newImageDir() string { return v.imageDir() + ".new" }

func (v sessionDir) wakingDir() string { return filepath.Join(v.Dir, "waking") }

// readImage returns the session's memory image, nil if there is none.
func (v sessionDir) readImage() (*memoryImage, error) {
	raw, err := os.ReadFile(filepath.Join(v.imageDir(), imageNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read the memory image: %w", err)
	}
	im := &memoryImage{dir: v.imageDir()}
	if err := json.Unmarshal(raw, im); err != nil {
		return nil, fmt.Errorf("read the memory image: %w", err)
	}
	return im, nil
}

// seal notes what an image in dir consists of, makes it durable together with the files it
// belongs to, and puts it in its place.
func (im memoryImage) seal(dir string, v sessionDir) error {
	durable := make(chan error, 1)
	go func() { durable <- errors.Join(syncImage(dir), v.Sync()) }() // while it is read
	var verified error
	for _, name := range imageFiles {
		f, err := checksum(filepath.Join(dir, name))
		verified = errors.Join(verified, err)
		im.Files = append(im.Files, f)
	}
	if err := errors.Join(verified, <-durable); err != nil {
		return fmt.Errorf("verify the memory image: %w", err)
	}
	raw, err := json.Marshal(im) //nolint:gosec // only we can read it, and it is worth nothing outside
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, imageNote), raw, 0o600)
	}
	if err == nil {
		err = os.RemoveAll(v.imageDir())
	}
	if err == nil {
		err = os.Rename(dir, v.imageDir())
	}
	if err == nil {
		if err = atomicfile.SyncDir(v.Dir); err != nil {
			// The sandbox is resumed. The next freeze must not find memory that is older
			// than the files.
			err = errors.Join(err, os.RemoveAll(v.imageDir()))
		}
	}
	if err != nil {
		return fmt.Errorf("keep the memory image: %w", err)
	}
	return nil
}

// dropImage gives up the session's memory image, if there is one: its files have changed.
func (v sessionDir) dropImage(why string) error {
	im, err := v.readImage()
	if err != nil || im == nil || im.Lost != "" {
		return nil //nolint:nilerr // an image that cannot be read is not restored
	}
	im.Lost = why
	raw, err := json.Marshal(im) //nolint:gosec // as above
	if err == nil {
		err = atomicfile.Write(filepath.Join(v.imageDir(), imageNote), raw, 0o600)
	}
	for _, name := range imageFiles {
		if err == nil {
			err = os.Remove(filepath.Join(v.imageDir(), name))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give up the memory image: %w", err)
	}
	return nil
}

// claimImage moves the session's memory image, durably, to where it is restored from once.
// As long as it is in its place, the files are those that it belongs to.
func (v sessionDir) claimImage() error {
	err := os.Rename(v.imageDir(), v.wakingDir())
	if err == nil {
		err = atomicfile.SyncDir(v.Dir)
	}
	return err
}

// discardUnfinished removes the memory image of a freeze or a restore that did not finish.
// The directory of a restore stays, so that the next start reports that the processes were
// lost.
func (v sessionDir) discardUnfinished() error {
	if err := os.RemoveAll(v.newImageDir()); err != nil {
		return err
	}
	parts, err := os.ReadDir(v.wakingDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range parts {
		err = errors.Join(err, os.RemoveAll(filepath.Join(v.wakingDir(), e.Name())))
	}
	return err
}

// removeImages removes all memory images of a session durably.
func (v sessionDir) removeImages() error {
	_, err := os.Lstat(v.imageDir())
	there := err == nil
	err = errors.Join(os.RemoveAll(v.imageDir()), os.RemoveAll(v.wakingDir()))
	if err == nil && there {
		err = atomicfile.SyncDir(v.Dir)
	}
	return err
}

// verify says why an image cannot be used, nil if it can.
func (im memoryImage) verify() error {
	for _, want := range im.Files {
		got, err := checksum(filepath.Join(im.dir, want.Name))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s of the memory image is damaged", want.Name)
		}
	}
	return nil
}

// syncImage makes the files of an image durable.
func syncImage(dir string) error {
	for _, name := range imageFiles {
		if err := atomicfile.SyncFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// checksum reads a file.
func checksum(name string) (imageFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return imageFile{}, err
	}
	defer func() { _ = f.Close() }()
	crc := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(struct{ io.Writer }{crc}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return imageFile{Name: filepath.Base(name), Size: n, CRC: crc.Sum32()}, err
}

// programVersion is the version of gVisor in this program.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "gvisor.dev/gvisor" {
			return dep.Version + " " + info.GoVersion
		}
	}
	return info.GoVersion
}

// hostVersion changes whenever the root file system has other programs: memory that has a
// library mapped must not be restored beside another one.
func hostVersion(m boxSpec) string {
	if len(m.Host) == 0 {
		return m.Root + m.PackageLayer // both are named by their content
	}
	sum := sha256.New()
	fmt.Fprintln(sum, m.Root)
	if m.PackageLayer != "" {
		fmt.Fprintln(sum, m.PackageLayer)
	}
	for _, name := range []string{
		"/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/etc/ld.so.cache",
		"/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/bin", "/usr/local/lib",
	} {
		if at, err := os.Stat(name); err == nil {
			fmt.Fprintf(sum, "%s %d %d\n", name, at.Size(), at.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
