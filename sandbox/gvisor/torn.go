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

// gVisor does not replace its notes of a kernel, it writes over them, and writes
// them when the kernel has long begun. A server that is killed in the middle leaves
// notes that nobody can read, or a lock and a socket without any, of a kernel that
// may well live. It cannot be told anything any more, and so is ended.

// tornNotes reports whether there are notes of a kernel that cannot be read. Who
// asks has found them so while nobody could be writing.
func tornNotes(dir, id string) bool {
	for _, name := range notesOf(dir, id) {
		if raw, err := os.ReadFile(name); err == nil && filepath.Ext(name) == ".state" && !json.Valid(raw) {
			return true
		}
	}
	return false
}

// noted is the box that a note is about, by the note's name.
func noted(name string) string {
	const prefix, long = "sbx_", 20
	at := strings.Index(name, prefix)
	if at < 0 || len(name) < at+long {
		return ""
	}
	return name[at : at+long]
}

func notesOf(dir, id string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*"+id+"*")) // the pattern is our own
	return found
}

// endTorn ends a kernel without its notes and removes them.
func endTorn(dir, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoWithin) //nolint:forbidigo // it is quick, and nobody waits for less
	defer cancel()
	for {
		left, err := carriers(dir, id)
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
	for _, name := range notesOf(dir, id) {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("remove the notes of a kernel: %w", err)
		}
	}
	return nil
}

// carriers finds the living processes of a kernel by what is on their command
// lines.
func carriers(dir, id string) ([]*pidfd.Process, error) {
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
