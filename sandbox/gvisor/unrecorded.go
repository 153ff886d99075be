//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// gVisor writes over its state files in place, and first writes them when the kernel has
// long started. A server that is killed meanwhile leaves a corrupt state file, or a lock and
// a socket without one, of a kernel that may well live. It cannot be controlled any more, and
// is killed.

// corruptState reports whether the state files of a kernel cannot be read. The caller has
// found them like that while no process could be writing.
func corruptState(dir, id string) bool {
	for _, name := range stateFiles(dir, id) {
		if raw, err := os.ReadFile(name); err == nil && filepath.Ext(name) == ".state" && !json.Valid(raw) {
			return true
		}
	}
	return false
}

// boxOfState is the box that a state file is about, by its name.
func boxOfState(name string) string {
	const prefix, long = "sbx_", 20
	at := strings.Index(name, prefix)
	if at < 0 || len(name) < at+long {
		return ""
	}
	return name[at : at+long]
}

func stateFiles(dir, id string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*"+id+"*")) // the pattern is our own
	return found
}

// endUnrecorded kills a kernel without usable state files and removes them.
func endUnrecorded(dir, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoWithin) //nolint:forbidigo // it is quick, and no caller waits for less
	defer cancel()
	for {
		left, err := findProcesses(dir, id)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			break
		}
		for _, p := range left {
			p.Signal(unix.SIGKILL)
			err = errors.Join(err, p.Wait(ctx))
			p.Close()
		}
		if err != nil {
			return fmt.Errorf("end a kernel without notes: %w", err)
		}
		if err := sleep.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	for _, name := range stateFiles(dir, id) {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("remove the notes of a kernel: %w", err)
		}
	}
	return nil
}

// findProcesses finds the live processes of a kernel by their command lines.
func findProcesses(dir, id string) ([]*pidfd.Process, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []*pidfd.Process
	for _, name := range lines {
		raw, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(raw), "--root="+dir+"\x00") || !strings.Contains(string(raw), id) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if p, err := pidfd.Open(pid); err == nil {
			if p.Ended() {
				p.Close()
				continue
			}
			found = append(found, p)
		}
	}
	return found, nil
}
