//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/packages"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// packageLayer is a package layer in a volume of its own. It covers the root file system and
// each directory of the host that is bound into it:
//
//	over/N/upper  what was changed, over/0 of the root
//	over/N/work   the overlay's work directory
//	over/N/at     where both are mounted together
type packageLayer struct {
	packages.Layer
	volume volume.Volume
}

const packagesDir = "packages"

func (d *Driver) packages() packages.Store { return packages.Store{Dir: d.path(packagesDir)} }

func (d *Driver) packageLayer(name string) (packageLayer, error) {
	l, err := d.packages().Layer(name)
	return packageLayer{Layer: l, volume: volume.Volume{Dir: l.Dir}}, err
}

// packageKey names packages over the root file system of a sandbox.
func packageKey(m boxSpec, p dormouse.Packages) (string, error) {
	return packages.Key(fmt.Sprintf("%s\n%s\n%s\n%q", m.Image, m.Root, hostVersion(m), m.Env), p)
}

func (l packageLayer) over(n int, name string) string {
	return filepath.Join(l.volume.Path("over"), strconv.Itoa(n), name)
}

// at is where the root, or the Nth directory of the host, is mounted with the layer.
func (l packageLayer) at(n int) string { return l.over(n, "at") }

// lowers are the directories that a package layer covers.
func (m boxSpec) lowers() []string { return append([]string{m.Root}, m.Host...) }

// mountWritable mounts everything for packages to be installed.
func (l packageLayer) mountWritable(lowers []string) error {
	for n, dir := range lowers {
		for _, name := range []string{"upper", "work", "at"} {
			if err := filemode.MkdirAll(l.over(n, name)); err != nil {
				return fmt.Errorf("make room for packages: %w", err)
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,index=off,redirect_dir=off,metacopy=off",
			volume.EscapeOverlay(dir), volume.EscapeOverlay(l.over(n, "upper")), volume.EscapeOverlay(l.over(n, "work")))
		if err := mount.At("overlay", l.at(n), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return err
		}
	}
	return nil
}

// mountPackages mounts the package layer of a sandbox, if it has one.
func (d *Driver) mountPackages(ctx context.Context, m boxSpec) error {
	if m.PackageLayer == "" || m.build {
		return nil
	}
	l, err := d.packageLayer(m.PackageLayer)
	if err != nil {
		return err
	}
	is, err := l.Manifest()
	if err == nil && is == nil {
		err = errors.New("they are not there any more")
	}
	if err != nil {
		return fmt.Errorf("open packages: %w", err)
	}
	// Other sessions mount the same, perhaps in another server.
	unlock, err := dirlock.Lock(ctx, l.Dir)
	if err != nil {
		return fmt.Errorf("open packages: %w", err)
	}
	defer unlock()
	if there, err := l.volume.Mount(); err != nil || !there {
		return errors.Join(err, errors.New("open packages: there are no files"))
	}
	for n, dir := range m.lowers() {
		there, err := mount.Is(l.at(n))
		if err != nil {
			return err
		}
		if there {
			continue
		}
		// Nothing in the upper directory may redirect into the lower one.
		options := "lowerdir=" + volume.EscapeOverlay(l.over(n, "upper")) + ":" + volume.EscapeOverlay(dir) + ",redirect_dir=nofollow,metacopy=off"
		if err := mount.At("overlay", l.at(n), "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, options); err != nil {
			return err
		}
	}
	return nil
}

func (v sessionDir) packagesNote() string { return filepath.Join(v.Dir, "packages") }

// notePackages notes the package layer of a session's sandbox, for as long as the session
// exists.
func (v sessionDir) notePackages(name string) error {
	has, err := os.ReadFile(v.packagesNote())
	if err == nil && string(has) == name || name == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := atomicfile.Write(v.packagesNote(), []byte(name), 0o600); err != nil {
		return fmt.Errorf("note the packages of the session: %w", err)
	}
	return nil
}

// CollectPackages removes package layers that no session has had for a day.
func (d *Driver) CollectPackages(ctx context.Context) error {
	notes, err := filepath.Glob(d.path(sessionsDir) + "/*/packages")
	if err != nil {
		return err
	}
	used := make(map[string]bool)
	for _, note := range notes {
		name, err := os.ReadFile(note)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look which packages are in use: %w", err)
		}
		used[string(name)] = true
	}
	keys, err := d.packages().Keys()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		errs = append(errs, d.collectKey(ctx, key, used))
	}
	return errors.Join(errs...)
}

// collectKey removes the unused layers of one key, unless one is being made.
func (d *Driver) collectKey(ctx context.Context, key string, used map[string]bool) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	unlock, err := dirlock.Lock(short, d.packages().KeyDir(key))
	if err != nil {
		return ctx.Err() // one is being made
	}
	defer unlock()
	unused, err := d.packages().Unused(key, used)
	errs := []error{err, d.removeUnfinished(ctx, key)}
	for _, l := range unused {
		errs = append(errs, l.Retire(), removeLayer(l)) // without its manifest no sandbox begins to use it
	}
	return errors.Join(errs...)
}

// removeLayer unmounts and removes a layer.
func removeLayer(l packages.Layer) error {
	if err := (volume.Volume{Dir: l.Dir}).Close(); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		return fmt.Errorf("remove packages: %w", err)
	}
	return nil
}
