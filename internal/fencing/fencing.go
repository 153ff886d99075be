//go:build linux

// Package fencing ends servers that still act after their lease has run out.
//
// All servers of one data directory run on one machine. Each of them keeps a file in a
// register there, locked for as long as its process lives and named after the lease
// that it works under. A server that hangs keeps its file, and every other lock it has,
// for as long as it hangs. Once its lease has run out, another server ends it: the
// kernel then frees all locks at once, and no call it was about to make can come late.
//
// A process is ended only if it is proven to be the one that signed: it has the number, the
// start time and the open file that the name says, in this boot and this PID namespace. A
// pidfd refers to it meanwhile, so that no other process which gets the number later is
// killed.
package fencing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/pidfd"
)

// ErrUnproven means that a server cannot be ended, because nothing proves that the process
// found is the one that signed.
var ErrUnproven = errors.New("the process that holds on cannot be proven to be that server")

// endWithin is how long a killed process may take to be gone: the kernel finishes its
// system calls first.
const endWithin = 5 * time.Second

// Register has the signatures of the servers of one data directory, as one of them sees
// it.
type Register struct {
	dir   string
	store string
	self  process
	n     uint64 // tells the registers of one process apart

	mu   sync.Mutex
	file *os.File // guarded by mu; locked from Open to Close
	name string   // guarded by mu; of the file now
}

// opened counts the registers of this process.
var opened atomic.Uint64

// process identifies a process for as long as the machine runs.
type process struct {
	pid   int
	start uint64 // when it began, in ticks since the boot
	place string // the boot and the PID namespace that these are of
}

// Open signs in a directory, under no lease yet. Store names the database whose clock
// judges the leases, in letters and digits.
func Open(dir, store string) (*Register, error) {
	if store == "" || strings.ContainsFunc(store, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}) {
		return nil, fmt.Errorf("fencing: %q is no name of a store", store)
	}
	r := &Register{dir: dir, store: store, n: opened.Add(1)}
	var err error
	r.self.pid = os.Getpid()
	if r.self.place, err = place(); err == nil {
		r.self.start, err = started(r.self.pid)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = r.enter(0)
	}
	if err != nil {
		return nil, fmt.Errorf("fencing: %w", err)
	}
	return r, nil
}

// enter creates this server's file. Another server that removes stale files locks them
// first: if it was quicker, the file is created again.
func (r *Register) enter(incarnation uint64) error {
	name := r.fileName(incarnation)
	for {
		f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := flock.Lock(f, flock.Exclusive); err != nil {
			return errors.Join(err, f.Close())
		}
		mine, err := f.Stat()
		if there, e := os.Stat(f.Name()); err == nil && e == nil && os.SameFile(mine, there) {
			r.file, r.name = f, name
			return nil
		}
		_ = f.Close()
	}
}

// Sign records the incarnation under which this server works from now on; 0 means that it
// does nothing under any. It must be 0 before a server joins again: a server that is about
// to end this one checks it once more before it does.
func (r *Register) Sign(incarnation uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := r.fileName(incarnation)
	err := os.Rename(filepath.Join(r.dir, r.name), filepath.Join(r.dir, name))
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed
		_ = r.file.Close()
		if err = os.MkdirAll(r.dir, 0o700); err == nil {
			err = r.enter(incarnation)
		}
	}
	if err != nil {
		return fmt.Errorf("sign as incarnation %d: %w", incarnation, err)
	}
	r.name = name
	return nil
}

// Close removes the signature.
func (r *Register) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := os.Remove(filepath.Join(r.dir, r.name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, r.file.Close())
}

// Holder is another server that works under a lease, or did when it was last heard of.
type Holder struct {
	Incarnation uint64
	PID         int

	process
	path string
}

// Others lists the other servers of this store that hold a signature under a lease.
// The files of dead servers are removed.
func (r *Register) Others() ([]Holder, error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who has signed: %w", err)
	}
	var all []Holder
	for _, e := range entries {
		h, store, ok := parse(e.Name())
		if !ok || h.process == r.self {
			continue
		}
		h.path = filepath.Join(r.dir, e.Name())
		if h.held() && store == r.store && h.Incarnation != 0 {
			all = append(all, h)
		}
	}
	return all, nil
}

// held reports whether the signature is there and locked. One that is not locked is
// removed: its process has ended.
func (h Holder) held() bool {
	f, err := os.Open(h.path)
	if err != nil {
		return false // it is there under another name now, or gone
	}
	defer func() { _ = f.Close() }()
	if locked, _ := flock.TryLock(f, flock.Exclusive); !locked {
		return true
	}
	_ = os.Remove(h.path)
	return false
}

// Stopped reports whether the process was stopped by a signal.
func (h Holder) Stopped() bool {
	state, _, err := stat(h.pid)
	return err == nil && (state == "T" || state == "t")
}

// End ends a server that goes on after its lease, and returns once it is gone. Ban is called when
// the process is proven to be that server: it must report true only if the lease has
// run out by the clock that decides, and must from then on keep this incarnation from
// joining again. A server that has released its signature is left alone, and so is one that
// is not banned.
func (r *Register) End(ctx context.Context, h Holder, ban func(context.Context) (bool, error)) (ended bool, err error) {
	if h.process == r.self {
		return false, ErrUnproven
	}
	p, err := r.prove(h)
	if err != nil || p == nil {
		return false, err
	}
	defer p.Close()
	if ok, err := ban(ctx); err != nil || !ok {
		return false, err
	}
	crash.At(crash.FenceBanned)
	// A server that joins again has signed 0 before, and is refused now: from here on this
	// process has no lease and gets none.
	if !h.held() {
		return false, nil
	}
	p.Signal(unix.SIGKILL)
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		return false, fmt.Errorf("process %d was killed and is still there: %w", h.pid, err)
	}
	h.held() // which removes its file
	return true, nil
}

// prove opens the process that signed. It returns nil if it has released its signature.
func (r *Register) prove(h Holder) (*pidfd.Process, error) {
	if h.place != r.self.place {
		return nil, fmt.Errorf("it is of another PID namespace or boot: %w", ErrUnproven)
	}
	p, err := pidfd.Open(h.pid)
	if err == nil {
		if err = h.is(p); err == nil {
			return p, nil
		}
		p.Close()
	}
	// A child that it was starting when it died has its files open for an instant.
	if errors.Is(err, unix.ESRCH) || errors.Is(err, errEnded) || !h.held() {
		return nil, nil //nolint:nilnil // there is no server to fence
	}
	return nil, fmt.Errorf("%w: process %d: %w", ErrUnproven, h.pid, err)
}

// is returns an error unless a process is the one that signed.
func (h Holder) is(p *pidfd.Process) error {
	start, err := started(p.PID)
	if err != nil {
		return err
	}
	if start != h.start {
		return errors.New("its number belongs to another process now")
	}
	err = hasOpen(p.PID, h.path)
	if p.Ended() { // what was read may be of the next one with its number
		return errEnded
	}
	return err
}

// errEnded means that a process ended while it was looked at.
var errEnded = errors.New("it ended meanwhile")

// hasOpen returns an error unless a process has a file open.
func hasOpen(pid int, path string) error {
	want, err := os.Stat(path)
	if err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if has, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && os.SameFile(has, want) {
			return nil
		}
	}
	return errors.New("it has not opened what it is said to hold")
}

// fileName is the name of this server's file.
func (r *Register) fileName(incarnation uint64) string {
	return fmt.Sprintf("%s.%d.%d.%d.%s.%d", r.store, incarnation, r.self.pid, r.self.start, r.self.place, r.n)
}

// parse parses a name that fileName made.
func parse(name string) (h Holder, store string, ok bool) {
	parts := strings.Split(name, ".")
	const all = 6
	if len(parts) != all {
		return h, "", false
	}
	var err, err1, err2 error
	h.Incarnation, err = strconv.ParseUint(parts[1], 10, 64)
	h.pid, err1 = strconv.Atoi(parts[2])
	h.start, err2 = strconv.ParseUint(parts[3], 10, 64)
	h.place, h.PID = parts[4], h.pid
	return h, parts[0], errors.Join(err, err1, err2) == nil && h.pid > 0
}

// place names this boot of the machine and this PID namespace.
func place() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimSpace(string(boot)), "-", "") + "-" + strconv.FormatUint(ns.Ino, 16), nil
}

// started is when a process began.
func started(pid int) (uint64, error) {
	_, start, err := stat(pid)
	return start, err
}

func stat(pid int) (state string, start uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	text := string(b)
	text = text[strings.LastIndexByte(text, ')')+1:] // its name may hold anything
	fields := strings.Fields(text)
	const began = 19 // field 22, the first after the name being the third
	if len(fields) <= began {
		return "", 0, fmt.Errorf("%s is not as expected", "/proc/PID/stat")
	}
	start, err = strconv.ParseUint(fields[began], 10, 64)
	return fields[0], start, err
}
