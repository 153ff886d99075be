//go:build linux

package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// stock is what installing packages changed of a root file system, and of each
// directory of the host that is bound into it. It is made once, over one root, and
// only read from then on, by every session whose environment says the same. It
// lies in a volume of its own:
//
//	over/N/upper  what was changed, over/0 of the root
//	over/N/work   the overlay's own
//	over/N/at     both together, while somebody needs them
//
// Beside the volume, stock.json says that it is whole, and what could not be
// installed. What has none was never finished.
type stock struct {
	volume.Volume
	name string // KEY/ID, as in made
}

const (
	stocksDir = "packages"
	stockNote = "stock.json"
	// currentNote holds the id of the stock of its key that new sessions are given.
	currentNote = "current"
	// builderNote holds the name of the box that a stock is being made in.
	builderNote = "box"

	// stockFresh is how long new sessions are given a stock before another is made of
	// what there is by then.
	stockFresh = 7 * 24 * time.Hour
	// tryAgain is how long what could not be installed stays missing.
	tryAgain = time.Hour
	// stockKept is how long a stock is kept that nobody has.
	stockKept = 24 * time.Hour
)

// stockFact is what is known of a stock that is whole.
type stockFact struct {
	Packages dormouse.Packages `json:"packages"`
	// Missing says what could not be installed, and why.
	Missing string `json:"missing,omitempty"`
}

// stockKey names what a stock is made of: the packages, over the programs that
// there are.
func stockKey(m made, p dormouse.Packages) (string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("name packages: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "1\n%s\n%s\n%s\n%q\n%s\n", m.Image, m.Root, hostVersion(m), m.Env, raw)
	const enough = 32
	return hex.EncodeToString(sum.Sum(nil))[:enough], nil
}

func (d *Driver) stockOf(name string) (stock, error) {
	key, id, ok := strings.Cut(name, "/")
	if !ok || key == "" || id == "" || strings.ContainsAny(name, ".\x00") || strings.Contains(id, "/") {
		return stock{}, fmt.Errorf("%.80q names no packages: %w", name, dormouse.ErrInvalid)
	}
	return stock{volume.Volume{Dir: filepath.Join(d.path(stocksDir), key, id)}, name}, nil
}

func (l stock) over(n int, name string) string {
	return filepath.Join(l.Path("over"), strconv.Itoa(n), name)
}

// at is where the root, or the Nth directory of the host, is with the stock over
// it.
func (l stock) at(n int) string { return l.over(n, "at") }

// below lists what a stock lies over.
func (m made) below() []string { return append([]string{m.Root}, m.Host...) }

// fact reads what is known of a stock, nil if it is not whole.
func (l stock) fact() (*stockFact, error) {
	raw, err := os.ReadFile(filepath.Join(l.Dir, stockNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it is not whole
	}
	if err != nil {
		return nil, fmt.Errorf("look at packages: %w", err)
	}
	f := new(stockFact)
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("look at packages: %w", err)
	}
	return f, nil
}

// seal notes that a stock is whole. Its files are durable by then.
func (l stock) seal(f stockFact) error {
	raw, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(filepath.Join(l.Dir, stockNote), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep packages: %w", err)
	}
	return nil
}

// mountOver mounts everything for packages to be installed in.
func (l stock) mountOver(below []string) error {
	for n, dir := range below {
		for _, name := range []string{"upper", "work", "at"} {
			if err := filemode.MkdirAll(l.over(n, name)); err != nil {
				return fmt.Errorf("make room for packages: %w", err)
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,index=off,redirect_dir=off,metacopy=off", volume.EscapeOverlay(dir), volume.EscapeOverlay(l.over(n, "upper")), volume.EscapeOverlay(l.over(n, "work")))
		if err := mount.At("overlay", l.at(n), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return err
		}
	}
	return nil
}

// showStock makes what a sandbox is made of reachable, if packages are part of it.
func (d *Driver) showStock(ctx context.Context, m made) error {
	if m.Stock == "" || m.build {
		return nil
	}
	l, err := d.stockOf(m.Stock)
	if err != nil {
		return err
	}
	f, err := l.fact()
	if err == nil && f == nil {
		err = errors.New("they are not there any more")
	}
	if err != nil {
		return fmt.Errorf("open packages: %w", err)
	}
	// The same is done for other sessions, perhaps by another server.
	unlock, err := dirlock.Lock(ctx, l.Dir)
	if err != nil {
		return fmt.Errorf("open packages: %w", err)
	}
	defer unlock()
	if there, err := l.Mount(); err != nil || !there {
		return errors.Join(err, errors.New("open packages: there are no files"))
	}
	for n, dir := range m.below() {
		there, err := mount.Is(l.at(n))
		if err != nil {
			return err
		}
		if there {
			continue
		}
		// Nothing in the upper one may lead elsewhere in the lower.
		options := "lowerdir=" + volume.EscapeOverlay(l.over(n, "upper")) + ":" + volume.EscapeOverlay(dir) + ",redirect_dir=nofollow,metacopy=off"
		if err := mount.At("overlay", l.at(n), "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, options); err != nil {
			return err
		}
	}
	return nil
}

// current is the stock of a key that new sessions are given, and when it was made.
// It is nil if there is none.
func (d *Driver) current(key string) (*stock, time.Time) {
	note := filepath.Join(d.path(stocksDir), key, currentNote)
	id, err := os.ReadFile(note)
	if err != nil {
		return nil, time.Time{}
	}
	at, err := os.Stat(note)
	if err != nil {
		return nil, time.Time{}
	}
	l, err := d.stockOf(key + "/" + string(id))
	if err != nil || d.use(l.name) == nil {
		return nil, time.Time{}
	}
	return &l, at.ModTime()
}

// use returns what is known of a stock that is there, and has it kept for some time
// from now on. One from which something was missing an hour ago is as good as none.
func (d *Driver) use(name string) *stockFact {
	l, err := d.stockOf(name)
	if err != nil {
		return nil
	}
	note := filepath.Join(l.Dir, stockNote)
	at, err := os.Stat(note)
	if err != nil {
		return nil
	}
	f, err := l.fact()
	if err != nil || f == nil {
		return nil
	}
	if f.Missing != "" { // the note is as old as the attempt
		if time.Since(at.ModTime()) > tryAgain {
			return nil
		}
		return f
	}
	now := time.Now()
	if os.Chtimes(note, now, now) != nil {
		return nil // somebody removes it
	}
	return f
}

func (v sessionDir) packagesNote() string { return filepath.Join(v.Dir, "packages") }

// notePackages notes the stock that a session's sandbox has, for as long as there
// is the session.
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

// CollectPackages removes what no session has, and has not had for a day.
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
	keys, err := filepath.Glob(d.path(stocksDir) + "/*")
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range keys {
		errs = append(errs, d.collectKey(ctx, dir, used))
	}
	return errors.Join(errs...)
}

// collectKey removes what nobody has of one key, unless some is being made.
func (d *Driver) collectKey(ctx context.Context, dir string, used map[string]bool) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	unlock, err := dirlock.Lock(short, dir)
	if err != nil {
		return ctx.Err() // it is in use
	}
	defer unlock()
	all, err := filepath.Glob(dir + "/*/" + stockNote)
	if err != nil {
		return err
	}
	errs := []error{d.clearUnfinished(ctx, dir)}
	for _, note := range all {
		l, err := d.stockOf(filepath.Base(dir) + "/" + filepath.Base(filepath.Dir(note)))
		if err != nil {
			continue
		}
		if at, err := os.Stat(note); err != nil || used[l.name] || time.Since(at.ModTime()) < stockKept {
			continue
		}
		errs = append(errs, os.Remove(note), l.remove()) // without its note nobody begins to use it
	}
	return errors.Join(errs...)
}

// remove takes a stock away.
func (l stock) remove() error {
	if err := l.Close(); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		return fmt.Errorf("remove packages: %w", err)
	}
	return nil
}
