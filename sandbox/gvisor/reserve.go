//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// A volume is a file with holes, larger than what the disk may have room for. A write
// inside that meets a hole when the disk is full fails only when the kernel writes it
// back, long after it was acknowledged, and takes the volume's journal with it. So no
// block inside can be written to that has no room on the disk at its own offset:
//
//   - the file is allocated wherever the file system inside has something, or may put
//     something: data, metadata, journal and free blocks alike;
//   - all other blocks inside belong to a file of ours there, the ballast, and are
//     holes outside. What is told to a sandbox is what it can have: a full disk is
//     ENOSPC.
//
// As a volume fills, more of it is allocated, and then the ballast gives it up. What
// is free again goes the other way. Either is begun on the safe side, so that whoever
// is cut off in between leaves room unused and no block without any.

// ballastFile is where nothing in the sandbox can see it.
const ballastFile = "ballast"

func (v volume) ballast() string { return v.in(ballastFile) }

const (
	// leastHeadroom is what a volume can always be written to while it is open, for
	// as long as it is not full itself.
	leastHeadroom = 16 << 20
	mostHeadroom  = 512 << 20
	// buildHeadroom is for packages: who installs some looks first whether there is room.
	buildHeadroom = 4 << 30
	// headroomShare is the part of the disk's spare room that all volumes together are
	// given ahead.
	headroomShare = 8
	// backStep is how much is allocated at once: whoever writes waits meanwhile.
	backStep = 64 << 20

	// restHeadroom is what a volume keeps that is closed.
	restHeadroom = 2 << 20

	leastReserve, mostReserve = 32 << 20, 1 << 30
	reserveShare              = 20
)

// disk is the file system that a driver's directory is on.
type disk struct{ total, free int64 }

func diskOf(dir string) (disk, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return disk{}, fmt.Errorf("look how full the disk is: %w", err)
	}
	return disk{total: int64(at.Blocks) * at.Bsize, free: int64(at.Bavail) * at.Bsize}, nil //nolint:gosec // no disk is that large
}

// reserve is what no volume takes: it is for the database, blobs and memory images.
func (d disk) reserve() int64 {
	return min(max(d.total/reserveShare, leastReserve), mostReserve)
}

// spare is what volumes that are open may have of the disk.
func (d disk) spare() int64 { return max(d.free-d.reserve(), 0) }

// opening is what one that is opened may have: half of the reserve too, so that files
// can be removed to make room.
func (d disk) opening() int64 { return max(d.free-d.reserve()/2, 0) }

// headroom is what a volume, one of some, should have ahead of what is written to it.
func (d disk) headroom(most int64, volumes int) int64 {
	return min(max(d.spare()/headroomShare/int64(max(volumes, 1)), leastHeadroom), most)
}

// dropAhead gives up the volume that was made with a box whose session has one.
func (d *Driver) dropAhead(b box) error {
	v := b.ahead()
	d.reserves.shut(v)
	if _, err := os.Stat(v.image()); err != nil { //nolint:gosec // a box is named by us
		return nil //nolint:nilerr // there is none, or it is the session's by now
	}
	// What still holds on to it must not hold on to its room.
	if err := errors.Join(v.close(), os.Truncate(v.image(), 0)); err != nil {
		return fmt.Errorf("give up a volume made ahead: %w", err)
	}
	return os.Remove(v.image()) //nolint:gosec // as above
}

// errNoRoom says that there is no room on the disk for a volume.
func errNoRoom(need, has int64) error {
	const unit = 1 << 20
	return fmt.Errorf("%w: the files of a session need %d MiB of the disk, and it can spare %d", dormouse.ErrFull, (need+unit-1)/unit, has/unit)
}

// extent is where a part of a file lies.
type extent struct{ logical, physical, length int64 }

// extents lists where a file lies from an offset on, in the order of its offsets. What
// is not allocated is left out.
func extents(f *os.File, from int64) ([]extent, error) {
	const (
		fiemap = 0xc020660b // FS_IOC_FIEMAP
		last   = 1
		many   = 256
	)
	type mapped struct {
		Logical, Physical, Length uint64
		_                         [2]uint64
		Flags                     uint32
		_                         [3]uint32
	}
	var request struct {
		Start, Length         uint64
		Flags, Mapped, Extent uint32
		_                     uint32
		Extents               [many]mapped
	}
	var all []extent
	for at := uint64(from); ; { //nolint:gosec // offsets are not negative
		request.Start, request.Length, request.Extent = at, ^uint64(0)-at, many
		if err := ioctl(f, fiemap, &request); err != nil {
			return nil, fmt.Errorf("look where %s lies: %w", filepath.Base(f.Name()), err)
		}
		for _, e := range request.Extents[:min(request.Mapped, many)] {
			all = append(all, extent{int64(e.Logical), int64(e.Physical), int64(e.Length)}) //nolint:gosec // of a file
			at = e.Logical + e.Length
			if e.Flags&last != 0 {
				return all, nil
			}
		}
		if request.Mapped == 0 {
			return all, nil
		}
	}
}

// backing is a volume that is open, with the file that it lies in and its ballast.
type backing struct {
	image   *os.File
	size    int64
	ballast *os.File // nil if there can be none, for want of an inode
	held    int64    // by the ballast
}

// isOpen reports whether a volume is mounted. What is not has nothing to do with what
// is free where its files would be.
func (v volume) isOpen() (bool, error) {
	var at, beside unix.Stat_t
	err := unix.Stat(v.at(), &at)
	if err == nil {
		err = unix.Stat(v.dir, &beside)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && at.Dev != beside.Dev, err
}

// sameDisk reports whether two files are on one file system.
func sameDisk(a, b *os.File) (bool, error) {
	var of [2]unix.Stat_t
	err := errors.Join(unix.Fstat(int(a.Fd()), &of[0]), unix.Fstat(int(b.Fd()), &of[1]))
	return err == nil && of[0].Dev == of[1].Dev, err
}

// openBacking takes hold of the ballast of an open volume. It returns nil if somebody
// else has it just now, or if the files have no volume of their own.
func (v volume) openBacking() (_ *backing, err error) {
	if there, err := v.isOpen(); err != nil || !there {
		return nil, err
	}
	image, err := os.OpenFile(v.image(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it goes
	}
	if err != nil {
		return nil, err
	}
	b := &backing{image: image}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	at, err := image.Stat()
	if err != nil {
		return nil, err
	}
	b.size = at.Size()
	b.ballast, err = os.OpenFile(v.ballast(), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.ENOSPC) {
		b.ballast = nil
		return b, nil
	}
	if err != nil {
		b.ballast = nil
		return nil, err
	}
	if same, err := sameDisk(b.ballast, image); err != nil || same { // it was closed at this very moment
		if same {
			err = os.Remove(b.ballast.Name())
		}
		return nil, errors.Join(err, b.close())
	}
	err = unix.Flock(int(b.ballast.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, b.close()
	}
	if err != nil {
		return nil, err
	}
	if at, err = b.ballast.Stat(); err == nil {
		b.held = at.Size()
	}
	return b, err
}

func (b *backing) close() error {
	err := b.image.Close()
	if b.ballast != nil {
		err = errors.Join(err, b.ballast.Close())
	}
	return err
}

// back allocates a part of the volume's file.
func (b *backing) back(at, length int64) error {
	return again(func() error { return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, length) })
}

// unback gives a part of it back to the disk, and what is in it.
func (b *backing) unback(at, length int64) error {
	return again(func() error {
		return unix.Fallocate(int(b.image.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, at, length)
	})
}

// again does what a signal has interrupted.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// backRest allocates everything that the ballast does not hold. From then on nothing
// that is written inside can fail for want of room on the disk.
func (b *backing) backRest() error {
	var held []extent
	if b.ballast != nil {
		var err error
		if held, err = extents(b.ballast, 0); err != nil {
			return err
		}
	}
	slices.SortFunc(held, func(a, b extent) int { return cmp.Compare(a.physical, b.physical) })
	var at int64
	for _, e := range append(held, extent{physical: b.size}) {
		if e.physical > at {
			if err := b.back(at, e.physical-at); err != nil {
				return fmt.Errorf("allocate a volume: %w", err)
			}
		}
		at = max(at, e.physical+e.length)
	}
	return nil
}

// lacks is how much of the disk backRest would take, at most.
func (b *backing) lacks() (int64, error) {
	var at unix.Stat_t
	if err := unix.Fstat(int(b.image.Fd()), &at); err != nil {
		return 0, err
	}
	const sector = 512
	return max(b.size-b.held-at.Blocks*sector, 0), nil
}

// release gives blocks that the ballast holds to the file system inside, each after
// it was allocated. It stops where there is no room.
func (b *backing) release(want int64) error {
	for want > 0 && b.held > 0 {
		left := max(b.held-min(want, backStep), 0)
		ends, err := extents(b.ballast, left)
		if err != nil {
			return err
		}
		for _, e := range ends {
			skip := max(left-e.logical, 0) // an extent may begin before
			if err := b.back(e.physical+skip, e.length-skip); err != nil {
				return errors.Join(fmt.Errorf("allocate a volume: %w", err), b.unbackAll(ends, left))
			}
		}
		if err := b.ballast.Truncate(left); err != nil {
			return fmt.Errorf("give up ballast: %w", err)
		}
		want -= b.held - left
		b.held = left
	}
	return nil
}

// unbackAll gives back where a part of the ballast lies, from an offset on.
func (b *backing) unbackAll(held []extent, from int64) error {
	for _, e := range held {
		skip := max(from-e.logical, 0)
		if err := b.unback(e.physical+skip, e.length-skip); err != nil {
			return fmt.Errorf("give back a part of a volume: %w", err)
		}
	}
	return nil
}

// take has the ballast hold more blocks that are free inside, and gives them back to
// the disk. There may be fewer than was thought.
func (b *backing) take(want int64) error {
	const block = 4096
	if want -= want % block; want <= 0 || b.ballast == nil {
		return nil
	}
	from := b.held
	wrong := again(func() error { return unix.Fallocate(int(b.ballast.Fd()), 0, from, want) })
	at, err := b.ballast.Stat()
	if err != nil {
		return err
	}
	b.held = at.Size()
	if wrong != nil && !errors.Is(wrong, unix.ENOSPC) {
		return fmt.Errorf("take ballast: %w", wrong)
	}
	more, err := extents(b.ballast, from)
	if err != nil {
		return err
	}
	return b.unbackAll(more, from)
}

// free is what the file system inside has left for whoever writes.
func (v volume) free() (int64, error) {
	d, err := diskOf(v.at())
	return d.free, err
}

// balance gives a volume its headroom: more if it has less than three quarters, and
// back to the disk if it has more than times as much. It reports whether it did either.
func (v volume) balance(headroom, spare, times int64) (did bool, err error) {
	const little = 256 << 10
	if there, err := v.isOpen(); err != nil || !there {
		return false, err
	}
	has, err := v.free()
	short, much := has < headroom-headroom/4 && spare > 0, has > times*headroom+little
	if err != nil || !short && !much {
		return false, err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return false, err
	}
	before := b.held
	if short {
		err = b.release(min(headroom-has, spare))
		if errors.Is(err, unix.ENOSPC) {
			err = nil // somebody else was quicker: that is told inside
		}
	} else {
		err = b.take(has - headroom)
	}
	return b.held != before, errors.Join(err, b.close())
}

// secure sees to it that an open volume is backed, with some headroom. It fails with
// dormouse.ErrFull if there is no room for that.
func (d *Driver) secure(v volume) (err error) {
	if !d.reserves.able {
		return nil
	}
	on, err := diskOf(v.dir)
	if err != nil {
		return err
	}
	b, err := v.openBacking()
	if err != nil || b == nil {
		return full(err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.begin(v, on); err != nil {
		return full(err)
	}
	need, err := b.lacks()
	if err != nil {
		return err
	}
	if need > on.opening() {
		return errNoRoom(need, on.opening())
	}
	if err := b.backRest(); err != nil {
		return full(err)
	}
	has, err := v.free()
	// The rest of its headroom it is given while it is used already.
	if want := min(on.headroom(backStep, 1)-has, on.spare()-need); err == nil && want > 0 {
		err = b.release(want)
	}
	return full(err)
}

// fitsSpare refuses to make a volume ahead that sessions might have to do without.
func (d *Driver) fitsSpare() error {
	on, err := diskOf(d.opts.Dir)
	if err == nil && d.reserves.able && on.spare() < 2*leastHeadroom {
		err = errNoRoom(2*leastHeadroom, on.spare())
	}
	return err
}

// begin makes the ballast of a volume that has none: it is new, or from before there
// was any, or full.
func (b *backing) begin(v volume, on disk) error {
	if b.held > 0 {
		return nil
	}
	has, err := v.free()
	if err != nil || has <= restHeadroom {
		return err
	}
	if on.opening() < leastHeadroom { // the ballast itself needs some blocks
		return errNoRoom(leastHeadroom, on.opening())
	}
	return b.take(has - restHeadroom)
}

// shrink gives back to the disk what was allocated of a volume and never written to.
// All that was written is synced, and nobody writes any more. The file system may be
// there for much longer: whatever was started while it was mounted holds on to it.
func (v volume) shrink() error {
	image, err := os.OpenFile(v.image(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b := &backing{image: image}
	defer func() { _ = b.close() }()
	at, err := image.Stat()
	if err != nil {
		return err
	}
	return eachData(image, at.Size(), func(hole, start, _ int64) error {
		if start == hole {
			return nil
		}
		return b.unback(hole, start-hole)
	})
}

// full says in our words that the disk is.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", dormouse.ErrFull, err)
	}
	return err
}

// ioctl asks the file system of a file.
func ioctl[T any](f *os.File, what uintptr, request *T) error {
	return again(func() error {
		if _, _, wrong := unix.Syscall(unix.SYS_IOCTL, f.Fd(), what, uintptr(unsafe.Pointer(request))); wrong != 0 { //nolint:gosec // its layout is the kernel's
			return wrong
		}
		return nil
	})
}

// reserves keeps the volumes that are open in balance with the disk.
type reserves struct {
	able bool // the disk can allocate ahead, and give back
	dir  string
	log  *slog.Logger

	mu   sync.Mutex
	open map[string]*reserved // guarded by mu, by directory

	joined  chan struct{} // holds one: there is a volume that was not seen yet
	stop    context.CancelFunc
	running sync.WaitGroup
}

// reserved is a volume that is open.
type reserved struct {
	volume
	most  int64      // headroom
	users int        // guarded by the mu of its reserves
	mu    sync.Mutex // held while it is balanced
	gone  bool       // guarded by mu: it may be closed by now
}

const (
	// balanceEvery is how often volumes are looked at, and balanceBusy while one fills.
	balanceEvery = 50 * time.Millisecond
	balanceBusy  = 5 * time.Millisecond
	// plenty is how many times its headroom a volume keeps while there is room.
	plenty = 2
)

// begin finds out what the disk can do, and begins to keep balance.
func (r *reserves) begin(dir string, log *slog.Logger) error {
	r.dir, r.log, r.open, r.joined = dir, log, make(map[string]*reserved), make(chan struct{}, 1)
	err := probe(dir)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		log.Warn("this disk cannot be reserved: when it is full, files in sandboxes may be lost", "dir", dir)
		return nil
	case errors.Is(full(err), dormouse.ErrFull): // then it can
	case err != nil:
		return fmt.Errorf("look what the disk can do: %w", err)
	}
	r.able = true
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	r.stop = stop
	r.running.Go(func() { r.run(ctx) })
	return nil
}

// probe allocates a block on a disk, and gives it back.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	defer func() { _, _ = os.Remove(f.Name()), f.Close() }()
	const block = 4096
	b := &backing{image: f}
	if err := b.back(0, block); err != nil {
		return err
	}
	return b.unback(0, block)
}

func (r *reserves) end() {
	if r.stop != nil {
		r.stop()
		r.running.Wait()
	}
}

// join has a volume kept in balance until leave is called as often, or shut once.
func (r *reserves) join(v volume, most int64) {
	if !r.able {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[v.dir] == nil {
		r.open[v.dir] = &reserved{volume: v, most: most}
	}
	r.open[v.dir].users++
	select {
	case r.joined <- struct{}{}:
	default:
	}
}

func (r *reserves) leave(v volume) {
	r.mu.Lock()
	e := r.open[v.dir]
	if e == nil {
		r.mu.Unlock()
		return
	}
	if e.users--; e.users > 0 {
		r.mu.Unlock()
		return
	}
	delete(r.open, v.dir)
	r.mu.Unlock()
	e.forget()
}

// shut returns once nobody touches a volume any more, which may then be closed.
func (r *reserves) shut(v volume) {
	r.mu.Lock()
	e := r.open[v.dir]
	delete(r.open, v.dir)
	r.mu.Unlock()
	if e != nil {
		e.forget()
	}
}

func (e *reserved) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
}

func (r *reserves) run(ctx context.Context) {
	wrong := make(map[string]string)
	for ctx.Err() == nil {
		r.mu.Lock()
		all := slices.Collect(maps.Values(r.open))
		r.mu.Unlock()
		if len(all) == 0 {
			clear(wrong)
			select {
			case <-ctx.Done():
			case <-r.joined:
			}
			continue
		}
		pause := balanceEvery
		for _, e := range all {
			did, err := e.balance(r.dir, len(all))
			if did {
				pause = balanceBusy
			}
			if err != nil && wrong[e.dir] != err.Error() { // once, and not every time
				wrong[e.dir] = err.Error()
				r.log.WarnContext(ctx, "room for a session not reserved", "session", e.session, "error", err)
			}
		}
		_ = sleep(ctx, pause)
	}
}

// balance gives a volume what the disk has for it, or has it give back what others
// need more.
func (e *reserved) balance(dir string, volumes int) (did bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false, nil
	}
	on, err := diskOf(dir)
	if err != nil {
		return false, err
	}
	times := int64(plenty)
	if on.spare() == 0 {
		times = 1
	}
	return e.volume.balance(on.headroom(e.most, volumes), on.spare(), times)
}

// closeVolume closes a volume that nothing runs over any more. What it does not need
// is given back to the disk; if that fails it needs more than it should, and that is all.
func (d *Driver) closeVolume(v volume) error {
	d.reserves.shut(v)
	there, err := mounted(v.at())
	if err != nil {
		return err
	}
	if !there || !d.reserves.able {
		return v.close()
	}
	_, unbalanced := v.balance(restHeadroom, 0, 1)
	done, busy := v.clears(canceled) // old workspaces may still be removed
	if busy == nil {
		defer done()
	}
	if err := v.close(); err != nil {
		return err
	}
	if unbalanced == nil {
		unbalanced = v.failed()
	}
	if unbalanced == nil && busy == nil {
		unbalanced = v.shrink()
	}
	if unbalanced != nil {
		d.log.Warn("room of a session not given back", "session", v.session, "error", unbalanced)
	}
	return nil
}

// canceled is for whoever does not wait.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it is over already
	cancel()
	return ctx
}()

// secureRunning backs a volume that a server of a version which did not do that left
// open. Until then freed blocks were given back at once, which must not happen again.
func (d *Driver) secureRunning(v volume) {
	if there, err := mounted(v.at()); err != nil || !there || !d.reserves.able {
		return
	}
	if _, err := os.Lstat(v.ballast()); err == nil {
		return
	}
	err := unix.Mount("", v.at(), "", unix.MS_REMOUNT|volumeFlags, "nodiscard")
	if err == nil {
		err = d.secure(v)
	}
	if err != nil {
		d.log.Warn("room for a session not reserved", "session", v.session, "error", err)
	}
}
