package oracle

import (
	"slices"

	"github.com/dormouse-run/dormouse"
)

// Look is what a person once saw of a process that counts, and of files.
type Look struct {
	// Exec is the command that looked.
	Exec dormouse.EventID
	// Started says that it did not look, but has started the counter.
	Started bool
	// Count is how far the counter had come, and Counts whether it went on; Ordered
	// says that it never went back.
	Count           int
	Counts, Ordered bool
	// Notes are the files that were there, Wrote the one that was written then.
	Notes []string
	Wrote string
}

// judgeWork: what runs goes on, whatever becomes of servers, unless the log says
// that it was lost; and what was written stays.
func (l *journal) judgeWork(e Evidence, f Findings) {
	most, since := 0, uint64(0)
	var notes []string
	for _, look := range e.Looks {
		at := l.command(look.Exec).seq
		if look.Started {
			since = at
			continue
		}
		reported := slices.ContainsFunc(l.boxes.ends, func(seq uint64) bool { return since < seq && seq < at })
		switch {
		case !look.Counts && !reported:
			f.Add(LostWork, "a process is gone at %d, and the log does not say that it was lost", at)
		case look.Counts && reported:
			f.Add(Diverged, "the log says that processes were lost, and at %d one goes on", at)
		}
		if look.Count < most {
			f.Add(LostWork, "somebody has seen a count of %d, and at %d it is %d", most, at, look.Count)
		}
		if !look.Ordered {
			f.Add(LostWork, "what a process wrote before it slept is not what it went on from at %d", at)
		}
		for _, name := range notes {
			if !slices.Contains(look.Notes, name) {
				f.Add(LostWork, "%s was written and is not there at %d", name, at)
			}
		}
		most, notes = max(most, look.Count), append(notes, look.Wrote)
	}
}

// gone is an effect that the log has and the world does not: in the workspace it was
// lost.
func (e Evidence) gone() string {
	if e.Inside {
		return LostWork
	}
	return Diverged
}
