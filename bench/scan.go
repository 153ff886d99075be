package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// scanned is how many files were changed since the workspace began.
var scanned = []int{100, 10_000, 100_000}

const (
	manyScanned = 10_000
	// scannedFile is how large each of them is: much more than what a scan has to know
	// of it, so that reading them would show.
	scannedFile = 1 << 10
	turnBegun   = "\nevent: turn.started\n"
	// onlyWords is a prompt whose turn uses no sandbox.
	onlyWords = `go SCRIPT[{"text":"done"}]`
	// changesNothing is a command that could change files and does not.
	changesNothing = ":"
)

// scans measures what a turn waits for before it begins: nothing if no file can have
// changed since the last snapshot, else one scan of what was written since the workspace
// began. It is compared with find, which visits the same files.
func (b *bench) scans(ctx context.Context) (err error) {
	p, err := newProvider(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := b.serveSandboxes(ctx, "scan", 0, "--scripted-url", p.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear(ctx)) }()
	for _, files := range scanned {
		if err := b.scan(ctx, s, max(perDir, b.times(files))); err != nil {
			return fmt.Errorf("%d files: %w", files, err)
		}
	}
	return nil
}

// The names of what is timed.
const startPlain, startScans, found = "plain", "scans", "find"

// scan measures one workspace. Its snapshot is taken first, so that everything in it
// is known.
func (b *bench) scan(ctx context.Context, s *server, files int) error {
	session, err := s.create(ctx, map[string]any{"model": "scripted", "sleep_after": "0s"})
	if err != nil {
		return err
	}
	if err := grow(ctx, s, session, files, scannedFile); err != nil {
		return err
	}
	time.Sleep(5 * moment) // what was written a moment before a snapshot is looked at again
	if err := s.snapshotAll(ctx, session); err != nil {
		return err
	}
	w := &starter{s: s, session: session}
	if err := w.open(ctx); err != nil {
		return err
	}
	defer w.close()
	t, tree := make(timings), filepath.Join(s.data, "sandbox", "gvisor", "sessions", session, "volume", "upper", treeName)
	var read int64 // by one scan
	for n := range 1 + b.times(10) {
		if n == 1 {
			t.forget() // the first round only warmed things up
		}
		plain, err := w.turn(ctx, t, startPlain, 0)
		if err != nil {
			return err
		}
		if _, err := s.exec(ctx, session, "main", changesNothing); err != nil {
			return err
		}
		scans, err := w.turn(ctx, t, startScans, 1)
		if err != nil {
			return err
		}
		read = scans - plain
		if err := t.times(found, 1, func() error { return find(ctx, tree, files) }); err != nil {
			return err
		}
	}
	if whole := int64(files) * scannedFile; read > whole/8 && files >= manyScanned {
		return fmt.Errorf("a scan of files that hold %d KiB read %d KiB", whole>>10, read>>10)
	}
	added := took("added", t[startScans].median()-t[startPlain].median())
	them := t.median(found, "find")
	targets := []target{atMost("plain", 10)}
	if files >= manyScanned { // with fewer, most of it is not the scan
		targets = append(targets, atMost("ratio", 2))
	}
	b.report("bench", line{Name: fmt.Sprintf("scan-%d", files), Targets: targets, Numbers: []number{
		added, them, ratio(added, them), t.median(startPlain, "plain"), t.median(startScans, "scans"),
		t.least(startPlain, "plain-min"), t.least(startScans, "scans-min"),
		{"read", float64(read) / (1 << 10), kibibytes},
		{"holding", float64(files) * scannedFile / (1 << 10), kibibytes},
		count("files", files),
	}})
	return s.remove(ctx, session)
}

// snapshotAll takes a snapshot that may take longer than an answer may.
func (s *server) snapshotAll(ctx context.Context, session string) (err error) {
	const most = 5
	for range most {
		body := map[string]any{"id": "all"} // the same one each time
		if err = s.call(ctx, http.MethodPost, "/api/sessions/"+session+"/snapshots", body, nil); err == nil {
			break
		}
	}
	return err
}

// find has a program look at every file as a scan does, and at no content.
func find(ctx context.Context, dir string, want int) error {
	out, err := output(exec.CommandContext(ctx, "find", dir, "-type", "f", "-printf", "%i %m %U %G %s %n %T@ %C@ %P\n"))
	if n := strings.Count(out, "\n") + 1; err == nil && n < want {
		err = fmt.Errorf("find saw %d files of %d", n, want)
	}
	return err
}

// starter begins turns in a session and sees how soon they do.
type starter struct {
	s            *server
	session      string
	begins, ends *follower
	seen         uint64 // as far as the log was looked at
}

func (w *starter) open(ctx context.Context) error {
	_, err := w.scans(ctx) // those before are not counted
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/api/sessions/%s/events?follow=1&all=true&after=%d", w.session, w.seen)
	if w.begins, err = w.s.follow(ctx, path, turnBegun, 64<<10); err != nil {
		return err
	}
	if w.ends, err = w.s.follow(ctx, path, atRest, 64<<10); err != nil {
		w.begins.close()
	}
	return err
}

func (w *starter) close() {
	w.begins.close()
	w.ends.close()
}

// turn asks for one and times how long it takes to begin. The server must have scanned
// the workspace so many times for it: what came of each is told in the log.
// It returns how much the server read meanwhile.
func (w *starter) turn(ctx context.Context, t timings, name string, scans int) (read int64, err error) {
	before, err := w.s.read()
	if err != nil {
		return 0, err
	}
	if err := t.times(name, 1, func() error {
		return errors.Join(w.s.prompt(ctx, w.session, onlyWords), w.begins.rest())
	}); err != nil {
		return 0, err
	}
	after, err := w.s.read()
	if err := errors.Join(err, w.ends.rest()); err != nil {
		return 0, err
	}
	seen, err := w.scans(ctx)
	if err == nil && seen != scans {
		err = fmt.Errorf("the workspace was scanned %d times for a turn start and not %d", seen, scans)
	}
	return after - before, err
}

// scans is how often the log speaks of one since it was asked last.
func (w *starter) scans(ctx context.Context) (n int, err error) {
	for {
		var page struct {
			Events []struct {
				Type string `json:"type"`
			} `json:"events"`
			Next uint64 `json:"next"`
			More bool   `json:"more"`
		}
		path := fmt.Sprintf("/api/sessions/%s/events?limit=1000&after=%d", w.session, w.seen)
		if err := w.s.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return n, err
		}
		for _, e := range page.Events {
			if strings.HasPrefix(e.Type, "snapshot.") {
				n++
			}
		}
		if w.seen = page.Next; !page.More {
			return n, nil
		}
	}
}

// read is how many bytes the server has read from anywhere.
func (s *server) read() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), "rchar: ")
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(number, 10, 64)
}
