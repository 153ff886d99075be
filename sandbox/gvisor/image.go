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

// image is what runs in a session that hibernates: the memory of its sandbox, its
// runner's state included. It belongs to the files as they were left by the
// same generation, and is good for one waking.
type image struct {
	Generation uint64 `json:"generation"`
	Secret     string `json:"secret"`
	// Runner, Program and Host are what the memory was made by and holds on to.
	// It means nothing beside others.
	Runner  string      `json:"runner"`
	Program string      `json:"program"`
	Host    string      `json:"host"`
	Made    *made       `json:"made,omitempty"` // as it is made again; none in notes from before it was noted
	Files   []imageFile `json:"files"`
	// Workspace is the number of the one that it ran over.
	Workspace uint64 `json:"workspace,omitempty"`
	// Layout is that of the sandbox.
	Layout int `json:"layout,omitempty"`
	// Lost is why nothing may carry on with it any more, though nobody has.
	Lost string `json:"lost,omitempty"`
	dir  string `json:"-"`
}

type imageFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	CRC  uint32 `json:"crc"`
}

const imageNote = "image.json"

func (v sessionDir) imageDir() string  { return filepath.Join(v.Dir, "image") }
func (v sessionDir) wakingDir() string { return filepath.Join(v.Dir, "waking") }

// readImage returns the session's memory image, nil if there is none.
func (v sessionDir) readImage() (*image, error) {
	raw, err := os.ReadFile(filepath.Join(v.imageDir(), imageNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read the memory image: %w", err)
	}
	im := &image{dir: v.imageDir()}
	if err := json.Unmarshal(raw, im); err != nil {
		return nil, fmt.Errorf("read the memory image: %w", err)
	}
	return im, nil
}

// seal notes what an image in dir consists of, makes it durable with the files it
// belongs to and puts it in its place.
func (im image) seal(dir string, v sessionDir) error {
	durable := make(chan error, 1)
	go func() { durable <- errors.Join(syncImage(dir), v.Sync()) }() // while it is read
	var verified error
	for _, name := range imageFiles {
		f, err := sum(filepath.Join(dir, name))
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
			// Its sandbox goes on. Whoever freezes that later must not find memory
			// that is older than the files.
			err = errors.Join(err, os.RemoveAll(v.imageDir()))
		}
	}
	if err != nil {
		return fmt.Errorf("keep the memory image: %w", err)
	}
	return nil
}

// dropImage gives up the session's memory image, if there is one: the files are not
// those that it belongs to any more.
func (v sessionDir) dropImage(why string) error {
	im, err := v.readImage()
	if err != nil || im == nil || im.Lost != "" {
		return nil //nolint:nilerr // what cannot be read carries on nowhere
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

// takeImage puts the session's memory image where nothing wakes from it
// again, durably: as long as it is in its place, the files are those that it belongs to.
func (v sessionDir) takeImage() error {
	err := os.Rename(v.imageDir(), v.wakingDir())
	if err == nil {
		err = atomicfile.SyncDir(v.Dir)
	}
	return err
}

// giveUpWake frees the memory image of a wake that no kernel finished. Its directory
// stays, so that the next start says what became of the processes.
func (v sessionDir) giveUpWake() error {
	parts, err := os.ReadDir(v.wakingDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range parts {
		err = errors.Join(err, os.RemoveAll(filepath.Join(v.wakingDir(), e.Name())))
	}
	return err
}

// removeImages removes what memory a session has, durably as takeImage takes it.
func (v sessionDir) removeImages() error {
	_, err := os.Lstat(v.imageDir())
	there := err == nil
	err = errors.Join(os.RemoveAll(v.imageDir()), os.RemoveAll(v.wakingDir()))
	if err == nil && there {
		err = atomicfile.SyncDir(v.Dir)
	}
	return err
}

// whole reports why an image cannot be used, nil if it can.
func (im image) whole() error {
	for _, want := range im.Files {
		got, err := sum(filepath.Join(im.dir, want.Name))
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

// sum reads a file and says what is in it.
func sum(name string) (imageFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return imageFile{}, err
	}
	defer func() { _ = f.Close() }()
	crc := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(struct{ io.Writer }{crc}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return imageFile{Name: filepath.Base(name), Size: n, CRC: crc.Sum32()}, err
}

// programVersion names what kernels are made of.
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

// hostVersion changes whenever other programs are in the root file system: memory
// that holds on to a library must not wake beside another one.
func hostVersion(m made) string {
	if len(m.Host) == 0 {
		return m.Root + m.Stock // they are named by what is in them
	}
	sum := sha256.New()
	fmt.Fprintln(sum, m.Root)
	if m.Stock != "" {
		fmt.Fprintln(sum, m.Stock)
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
