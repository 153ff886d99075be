package hibernation

import (
	"bytes"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// evidence is everything known of the records of one session.
type evidence struct {
	Records []byte
	Writers []writer
	Looks   []look
	Log     []dormouse.Event
}

// judge: every record is there, once and as it was written, in the order its
// writer wrote it; what a follower saw is still as it was; and a writer goes on
// until the log says that it was lost.
func (e evidence) judge() oracle.Findings {
	f := make(oracle.Findings)
	written := make(map[string]int)
	e.judgeRecords(written, f)
	b := readBoxes(e.Log)
	for _, l := range e.Looks {
		switch {
		case l.Size > len(e.Records):
			f.Add(oracle.Lost, "somebody saw %d bytes of records, and there are %d", l.Size, len(e.Records))
		case sum(e.Records[:l.Size]) != l.Sum:
			f.Add(Corrupt, "the first %d bytes of the records are not those that somebody saw", l.Size)
		}
		from, to := b.of[l.Writer.Exec], b.of[l.Exec]
		reported := b.lostBetween(from, to)
		switch {
		case !l.Alive && !reported:
			f.Add(Silent, "%s was started in sandbox %d and is gone in sandbox %d, and the log does not say that it was lost", l.Writer.Name, from, to)
		case l.Alive && reported:
			f.Add(oracle.Diverged, "the log says that processes of sandbox %d were lost, and %s goes on in sandbox %d", from, l.Writer.Name, to)
		case l.Alive && written[l.Writer.Name] == 0:
			f.Add(oracle.Lost, "somebody saw %s write, and none of its records is there", l.Writer.Name)
		}
	}
	return f
}

// judgeRecords goes through the file and counts what each writer wrote.
func (e evidence) judgeRecords(written map[string]int, f oracle.Findings) {
	at := 0
	for line := range bytes.Lines(e.Records) {
		name, n, err := parse(line)
		switch last := written[name]; {
		case err != nil:
			f.Add(Corrupt, "at byte %d of the records is %.60q: %v", at, line, err)
		case n <= last:
			f.Add(oracle.Double, "record %d of %s comes again after record %d", n, name, last)
		case n > last+1:
			f.Add(oracle.Lost, "record %d of %s comes after record %d", n, name, last)
		}
		if err == nil {
			written[name] = n
		}
		at += len(line)
	}
}

// boxes is what the log says of a session's sandboxes.
type boxes struct {
	// of is the generation in which a command ran.
	of map[dormouse.EventID]uint64
	// lost are the generations whose processes were lost, as the log says.
	lost map[uint64]bool
	// Counts of what the log says.
	hibernated, woken, restored, reported int
}

func readBoxes(log []dormouse.Event) boxes {
	b := boxes{of: make(map[dormouse.EventID]uint64), lost: make(map[uint64]bool)}
	for _, e := range log {
		fact := rig.Decode[dormouse.SandboxFact](e)
		lost := fact.Processes == dormouse.ProcessesLost
		switch e.Type { //nolint:exhaustive // the others are not about sandboxes
		case dormouse.OpStarted:
			op := rig.Decode[dormouse.OpFact](e).Op
			b.of[op.Use] = op.Generation
			continue
		case dormouse.SandboxStarted:
			if fact.Generation > 1 {
				b.woken++
				b.lost[fact.Generation-1] = b.lost[fact.Generation-1] || lost
			}
			if fact.Processes == dormouse.ProcessesKept {
				b.restored++
			}
		case dormouse.SandboxStopped:
			b.hibernated++
			b.lost[fact.Generation] = b.lost[fact.Generation] || lost
		case dormouse.SandboxLost:
			b.lost[fact.Generation], lost = true, true
		default:
			continue
		}
		if lost {
			b.reported++
		}
	}
	return b
}

// lostBetween reports whether the log says that what ran in one generation was
// lost before another.
func (b boxes) lostBetween(from, to uint64) bool {
	for g := from; g < to; g++ {
		if b.lost[g] {
			return true
		}
	}
	return false
}
