package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// restWithin is how long it may take after the load until nothing goes on.
const restWithin = 60 * time.Second

// rest waits until everything is idle: all sandboxes hibernate, no server has a session
// in memory, and no resource is without an owner.
func (h *half) rest(ctx context.Context) error {
	known, err := h.known(ctx)
	if err != nil {
		return err
	}
	h.client.Close()
	var busy []string
	var leaks rig.Leaks
	for end := time.Now().Add(restWithin); ; {
		if busy, err = h.busy(ctx); err != nil {
			return err
		}
		if len(busy) == 0 {
			if leaks, err = h.fleet.Keepers[0].Leaks(true, nil, known); err != nil {
				return err
			}
			if leaks.None() {
				return nil
			}
		}
		if time.Now().After(end) {
			break
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if len(busy) > 0 {
		h.add(oracle.Stuck, "%s after the load of round %d there are %s", restWithin, h.rounds, strings.Join(busy, ", "))
	}
	h.count(func(s *Summary) { s.Leaks = s.Leaks.And(leaks) })
	for _, leak := range leaks.All() {
		h.report("leak: %s", leak)
	}
	return nil
}

// known lists the sessions that are there. Those that are no member's, and descend from
// none, were made twice by clients whose answer was lost, and are deleted.
func (h *half) known(ctx context.Context) ([]dormouse.SessionID, error) {
	members := make(map[dormouse.SessionID]bool)
	for range len(h.population) {
		m := <-h.population
		members[m.ID] = true
		h.population <- m
	}
	all, err := h.client.List(ctx, "archived=true")
	if err != nil {
		return nil, err
	}
	var known []dormouse.SessionID
	for _, row := range all {
		if row.Parent != "" || members[row.Session] {
			known = append(known, row.Session)
			continue
		}
		if err := (&rig.Session{Client: h.client, ID: row.Session}).Delete(ctx); err != nil {
			return nil, fmt.Errorf("delete %q, which nobody knows: %w", row.Title, err)
		}
		h.count(func(s *Summary) { s.Strays++ })
	}
	return known, nil
}

// busy says what goes on.
func (h *half) busy(ctx context.Context) (busy []string, err error) {
	for i, k := range h.fleet.Keepers {
		l, err := k.Live(ctx)
		if err != nil {
			return nil, err
		}
		text, err := h.client.Metrics(ctx, l)
		if err != nil {
			return []string{fmt.Sprintf("server %d says nothing: %v", i, err)}, nil // it is asked again
		}
		for name, want := range map[string]float64{
			"dormouse_sandboxes_awake": 0, "dormouse_sandboxes_waiting": 0, "dormouse_sessions_loaded": 0, "dormouse_followers": 0,
			"dormouse_sandboxes_spare": 1, "dormouse_sandboxes_blank": 1,
		} {
			if n := rig.Metric(text, name); n != want {
				busy = append(busy, fmt.Sprintf("%s of server %d at %g", name, i, n))
			}
		}
	}
	orphans, err := h.fleet.Keepers[0].Orphans(ctx)
	if orphans > 0 {
		busy = append(busy, fmt.Sprintf("%d rows of no session", orphans))
	}
	return busy, err
}

// sample measures everything once, and tells how far it is.
func (h *half) sample(ctx context.Context) error {
	var reported []string
	for i, k := range h.fleet.Keepers {
		l, err := k.Live(ctx)
		if err != nil {
			return err
		}
		text, err := h.client.Metrics(ctx, l)
		memory, err1 := l.RSS()
		files, err2 := l.Descriptors()
		if err := errors.Join(err, err1, err2); err != nil {
			return fmt.Errorf("measure server %d: %w", i, err)
		}
		age := h.ages[l]
		h.ages[l]++
		p := map[string]float64{rss: float64(memory) / (1 << 20), descriptors: float64(files), goroutines: rig.Metric(text, "go_goroutines")}
		for name, value := range p {
			h.points[name] = append(h.points[name], point{h.rounds, age, value})
		}
		reported = append(reported, fmt.Sprintf("[age %d: %.0f MiB, %d descriptors, %g goroutines]", age, p[rss], files, p[goroutines]))
	}
	f, err := h.fleet.Keepers[0].Footprint(ctx)
	if err != nil {
		return fmt.Errorf("measure the data directory: %w", err)
	}
	const kib = 1 << 10
	sessions := float64(h.Sessions)
	p := map[string]float64{
		"mounts": float64(f.Mounts), "loops": float64(f.Loops), "cgroups": float64(f.Cgroups),
		"disk": float64(f.Disk) / sessions / kib, "rows": float64(f.Rows) / sessions, "layers": float64(f.Layers) / float64(h.chapters.Load()) / kib,
	}
	for name, value := range p {
		h.points[name] = append(h.points[name], point{round: h.rounds, value: value})
	}
	kills, judged := 0, 0
	h.count(func(s *Summary) { kills, judged = s.Kills, s.Judged })
	h.report("%s: round %d, %d chapters, %d judged, %d kills, %d wrong; %s; %d mounts, %d loops, %d cgroups; a session has %.0f KiB, %.1f rows; a chapter left %.0f KiB",
		h.name, h.rounds, h.chapters.Load(), judged, kills, h.wrong(), strings.Join(reported, " "), f.Mounts, f.Loops, f.Cgroups, p["disk"], p["rows"], p["layers"])
	return nil
}

// leave deletes every session, and checks whether anything is left when no server runs.
func (h *half) leave(ctx context.Context) error {
	close(h.population)
	err := h.work(ctx, func() *member { return <-h.population }, func(ctx context.Context, m *member) error {
		within, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		defer cancel()
		err := m.retire(within)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			m.wrong(oracle.Stuck, "%v", err)
		}
		h.count(func(s *Summary) { s.Judged++ })
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.fleet.Halt(ctx); err != nil {
		h.add(oracle.Stuck, "a server did not stop: %v", err)
		return nil
	}
	for _, text := range h.fleet.Crashes() {
		h.add(oracle.Stuck, "%s", text)
	}
	if wrong, err := h.fleet.Keepers[0].Check(ctx); err != nil || wrong != "" {
		h.add(oracle.Diverged, "%s %v", wrong, err)
	}
	leaks, err := h.fleet.Keepers[0].Leaks(false, nil, nil)
	h.count(func(s *Summary) { s.Leaks = s.Leaks.And(leaks) })
	return err
}
