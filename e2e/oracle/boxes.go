package oracle

import (
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// boxes is what the log says of a session's sandboxes.
type boxes struct {
	up   uint64          // the generation that is there
	lost map[uint64]bool // the generations that are no more
	// started and gone are when a generation was there first and last.
	started, gone map[uint64]time.Time
	// ends are where the log says that processes were lost, by seq.
	ends  []uint64
	wrong []string
}

func (b *boxes) see(e dormouse.Event) {
	if b.lost == nil {
		b.lost, b.started, b.gone = make(map[uint64]bool), make(map[uint64]time.Time), make(map[uint64]time.Time)
	}
	fact := rig.Decode[dormouse.SandboxFact](e)
	switch e.Type { //nolint:exhaustive // the others are not about sandboxes
	case dormouse.SandboxStarted:
		b.up, b.started[fact.Generation] = fact.Generation, e.Time
	case dormouse.SandboxStopping:
		b.up = 0
	case dormouse.SandboxStopped:
		b.lost[fact.Generation], b.gone[fact.Generation] = true, e.Time
	case dormouse.SandboxLost:
		b.up, b.lost[fact.Generation], b.gone[fact.Generation] = 0, true, e.Time
		b.ends = append(b.ends, e.Seq)
	case dormouse.SandboxStirred:
		if fact.Generation != b.up {
			b.wrong = append(b.wrong, fmt.Sprintf("sandbox %d stirred when sandbox %d was there", fact.Generation, b.up))
		}
		return
	default:
		return
	}
	if fact.Processes == dormouse.ProcessesLost {
		b.ends = append(b.ends, e.Seq)
	}
}

// judge: only a sandbox that is there can stir.
func (b *boxes) judge(f Findings) {
	for _, text := range b.wrong {
		f.Add(Diverged, "%s", text)
	}
}
