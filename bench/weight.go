package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// weigh measures the memory of an idle sandbox, and what is left of it after hibernation.
func (b *bench) weigh(ctx context.Context, s *server) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	left, err := s.sessions(ctx)
	if err != nil {
		return err
	}
	for _, session := range left {
		if err := s.remove(ctx, session); err != nil {
			return err
		}
	}
	session, err := s.createBox(ctx)
	if err != nil {
		return err
	}
	if err := s.says(ctx, session, "main", echoShort, "hello"); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until it has come to rest
	awake, err := weightOf(limits)
	if err != nil {
		return err
	}
	if awake.processes == 0 {
		return errors.New("a sandbox that is awake has no process")
	}
	if err := s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/hibernate", nil, nil); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { return s.anyIn(ctx, "hibernated") }); err != nil {
		return err
	}
	asleep, err := weightOf(limits)
	if err != nil {
		return err
	}
	b.report("bench", line{
		Name: "sandbox-idle", Numbers: []number{awake.number("pss", awake.pss), awake.number("counted", awake.counted), count("processes", awake.processes)},
		Targets: []target{atMost("pss", 40)},
	})
	b.report("bench", line{
		Name: "sandbox-asleep", Numbers: []number{asleep.number("pss", asleep.pss), asleep.number("counted", asleep.counted), count("processes", asleep.processes)},
		Targets: []target{atMost("processes", 0), atMost("pss", 0), atMost("counted", 0)},
	})
	return nil
}

// weight is what sandboxes hold.
type weight struct {
	processes int
	pss       int64 // of the processes; what several share counts as their shares of it
	counted   int64 // by the kernel of this machine as theirs, without what it keeps of files and can drop
}

func (weight) number(name string, bytes int64) number {
	return number{name, float64(bytes) / (1 << 20), mebibytes}
}

// limits is where this machine keeps the limits of the server's sandboxes, and
// what they use.
func (s *server) limits() (string, error) {
	path, err := filepath.Abs(s.data)
	if err != nil {
		return "", err
	}
	const enough = 8 // bytes of what tells data directories apart
	digest := sha256.Sum256([]byte(path))
	instance := filepath.Join("dormouse", hex.EncodeToString(digest[:enough]))
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, instance)); err == nil {
			return filepath.Join(root, instance), nil
		}
	}
	return "", fmt.Errorf("there are no limits of sandboxes at %s", instance)
}

// weightOf adds up what is under limits.
func weightOf(limits string) (w weight, err error) {
	held, err := filepath.Glob(filepath.Join(limits, "*", "cgroup.procs"))
	if err != nil {
		return w, err
	}
	var weighed []int
	for _, file := range held {
		pids, err := os.ReadFile(file)
		if err != nil {
			return w, err
		}
		for field := range strings.FieldsSeq(string(pids)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return w, err
			}
			w.processes++
			if slices.ContainsFunc(weighed, func(other int) bool { return sameMemory(pid, other) }) {
				continue // a kernel runs what is inside in processes that share all their memory
			}
			weighed = append(weighed, pid)
			rollup, err := os.ReadFile(filepath.Join("/proc", field, "smaps_rollup"))
			if err != nil {
				return w, err
			}
			w.pss += sizeIn(string(rollup), "Pss:") << 10 // it is in KiB
		}
	}
	stat, err := os.ReadFile(filepath.Join(limits, "memory.stat"))
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	names := []string{"anon", "shmem"}
	if strings.Contains(string(stat), "total_rss ") { // the first version of cgroups
		names = []string{"total_rss", "total_shmem"}
	}
	for _, name := range names {
		w.counted += sizeIn(string(stat), name)
	}
	return w, err
}

// sameMemory reports whether two processes have one address space, as far as this
// machine tells.
func sameMemory(a, b int) bool {
	const memory = 1
	order, _, failed := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), memory, 0, 0, 0)
	return failed == 0 && order == 0
}

// sizeIn is the number behind a name in what the kernel says.
func sizeIn(text, name string) int64 {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}
