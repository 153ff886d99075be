//go:build linux

package wall

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// caseWithin bounds one case.
const caseWithin = 3 * time.Minute

// try plays a case in a session of its own, and sees what became of the server.
func (w *world) try(ctx context.Context, c Case) *trial {
	ctx, cancel := context.WithTimeout(ctx, w.of(caseWithin))
	defer cancel()
	t := &trial{world: w}
	t.mostLines = c.mostLines
	from := w.logged()
	w.bait.begin()
	t.watch = startWatch(w.life, w.bait.under, memory{})
	if err := t.attack(ctx, c); err != nil {
		t.unsettled = "the attack itself failed: " + err.Error()
	}
	if w.life.Gone() && t.died == "" && !t.killed() {
		t.died = fmt.Sprintf("%v: %s", w.life.Err(), oneLine(w.server.Tail()))
	}
	if !w.life.Gone() {
		if err := w.answers(ctx); err != nil {
			t.neighbour = err.Error()
		}
		if t.session != nil {
			t.read(ctx, t.session)
			began := time.Now()
			if err := t.delete(ctx, t.session); err != nil {
				t.undeleted = oneLine(err.Error())
			}
			t.deleted = time.Since(began)
		}
	}
	t.pauseWatch()
	t.touched = append(t.touched, w.bait.touched()...)
	slices.Sort(t.touched)
	t.touched = slices.Compact(t.touched)
	log := w.log(from)
	t.lines = bytes.Count(log, []byte("\n"))
	for _, found := range w.find.in(log) {
		t.leaks = append(t.leaks, "the log: "+found)
	}
	t.forged = append(t.forged, takenByLog(log)...)
	return t
}

func (t *trial) attack(ctx context.Context, c Case) (err error) {
	if t.session, err = t.create(ctx, "wall"); err != nil {
		return err
	}
	if _, err := t.run(ctx, t.session, "true"); err != nil {
		return err
	}
	return c.carry(ctx, t)
}

// pauseWatch takes in what was seen of the server so far, which is about to end.
func (t *trial) pauseWatch() {
	if t.watch == nil {
		return
	}
	grew, opened, killed := t.watch.end()
	t.grew = max(t.grew, grew)
	t.touched = append(t.touched, opened...)
	if killed {
		t.died = fmt.Sprintf("it was killed when its memory had grown by %d MiB", grew>>20)
	}
	t.before, t.watch = t.watch.before, nil
}

// resumeWatch watches the server that came after. What it holds is held against the one
// before, which had done everything once.
func (t *trial) resumeWatch() { t.watch = startWatch(t.life, t.bait.under, t.before) }

func (t *trial) killed() bool {
	t.watch.mu.Lock()
	defer t.watch.mu.Unlock()
	return t.watch.killed
}
