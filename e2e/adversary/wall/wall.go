//go:build linux

// Package wall attacks the server from inside real gVisor sandboxes: by files where the
// server may read them, and by messages to it. Whatever a sandbox does, the memory of the
// server does not grow, the server discloses nothing, touches nothing else of its host,
// and can delete the session.
package wall

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// Run plays the cases that only matches and says of each in one line what it tried and
// what was seen. It returns how many it played, and how many broke something.
func Run(ctx context.Context, o Options, out io.Writer, only *regexp.Regexp) (played, broke int, err error) {
	models, err := rig.NewModels()
	if err != nil {
		return 0, 0, err
	}
	defer models.Close()
	impostor, err := pack(ctx, o.Impostor)
	if err != nil {
		return 0, 0, err
	}
	first, err := open(ctx, o, models, impostor)
	if err != nil {
		return 0, 0, err
	}
	found, err := first.found(ctx)
	if err != nil {
		return 0, 0, errors.Join(err, first.close())
	}
	var queue []Case
	for _, c := range cases(found) {
		if only.MatchString(c.Name) {
			queue = append(queue, c)
		}
	}
	queue = sample(queue, o.Sample)
	p := &players{ctx: ctx, options: o, models: models, impostor: impostor, out: out, queue: queue}
	// Each player has a server of its own, so that a finding tells which player caused
	// it.
	n := 2
	if o.Slow > 1 {
		n = 1
	}
	var all sync.WaitGroup
	for i := range n {
		var w *world
		if i == 0 {
			w = first
		}
		all.Go(func() { p.work(w) })
	}
	all.Wait()
	return p.played, p.broke, errors.Join(append(p.errs, context.Cause(ctx))...)
}

// players play the cases of a queue.
type players struct {
	ctx      context.Context //nolint:containedctx // of all of them
	options  Options
	models   *rig.Models
	impostor []byte

	mu            sync.Mutex
	out           io.Writer // guarded by mu
	queue         []Case    // guarded by mu
	played, broke int       // guarded by mu
	errs          []error   // guarded by mu
}

func (p *players) next() (c Case, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 || p.ctx.Err() != nil || len(p.errs) > 0 {
		return c, false
	}
	c, p.queue = p.queue[0], p.queue[1:]
	p.played++
	return c, true
}

// work plays cases one after the other, in a world that is made anew when a case has
// spoiled it.
func (p *players) work(w *world) {
	fail := func(err error) {
		if err != nil {
			p.mu.Lock()
			p.errs = append(p.errs, err)
			p.mu.Unlock()
		}
	}
	for {
		c, ok := p.next()
		if !ok {
			break
		}
		if w == nil {
			var err error
			if w, err = open(p.ctx, p.options, p.models, p.impostor); err != nil {
				fail(err)
				return
			}
		}
		began := time.Now()
		t := w.try(p.ctx, c)
		why := t.broke(w.bounds)
		p.say(c, t, why, time.Since(began))
		if len(why) > 0 && t.spoiled() || t.life.Gone() {
			fail(w.close())
			w = nil
		}
	}
	if w != nil {
		fail(w.close())
	}
}

func (p *players) say(c Case, t *trial, why []string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	verdict, all := "held", ""
	if len(why) > 0 {
		p.broke++
		verdict = "BROKE"
		for _, one := range why {
			all += oneLine(one) + "; "
		}
	}
	fmt.Fprintf(p.out, "%-5s %s: %s: %s+%d MiB, deleted after %s, %d lines: %s (%s)\n", verdict, c.Name, c.Tries, all,
		t.grew>>20, t.deleted.Round(time.Millisecond), t.lines, oneLine(strings.Join(t.notes, "; ")), took.Round(10*time.Millisecond))
}

// found lists what there is below /.dormouse, as it is seen from inside.
func (w *world) found(ctx context.Context) ([]string, error) {
	d, err := (&trial{world: w}).run(ctx, w.aside, "find /.dormouse -path /.dormouse/bin -prune -o -path '/.dormouse/slot/*/*' -prune -o -mindepth 2 -print 2>/dev/null; find / -maxdepth 3 -mount -path /.dormouse -prune -o -type s -print 2>/dev/null")
	if err != nil {
		return nil, fmt.Errorf("look what there is inside: %w", err)
	}
	return slices.Sorted(strings.FieldsSeq(d.Output)), nil
}

// pack is the impostor as a tar, built if there is none.
func pack(ctx context.Context, path string) ([]byte, error) {
	if path == "" {
		dir, err := os.MkdirTemp("", "dormouse-impostor-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path = filepath.Join(dir, "impostor")
		if err := rig.Compile(ctx, path, "./e2e/cmd/impostor"); err != nil {
			return nil, err
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = w.WriteHeader(&tar.Header{Name: filepath.Base(put), Mode: 0o755, Size: int64(len(b)), Typeflag: tar.TypeReg, ModTime: time.Now()})
	if err == nil {
		_, err = w.Write(b)
	}
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
