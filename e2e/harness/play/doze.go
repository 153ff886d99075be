package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// counter is a command that leaves a process behind. It goes on from where the
// file ends, and knows the last number only from its memory.
const counter = `touch count; export n=$(tail -n 1 count)
setsid bash -c 'while :; do n=$((n+1)); echo $n >> count; sleep 0.05; done' dormouse-counter </dev/null >/dev/null 2>&1 &
echo $! > counter`

// look is a command that says how far the counter has come, whether it counts,
// whether it ever went back or forgot one, and which notes there are. Then it takes a note.
const look = `order=ordered state=still; mapfile -t before < count
for i in {1..50}; do
	grep -qa '[d]ormouse-counter' /proc/$(<counter)/cmdline || break
	mapfile -t now < count; [ ${#now[@]} -gt ${#before[@]} ] && state=counts && break
	sleep 0.1
done 2>/dev/null
mapfile -t now < count
for i in ${!now[@]}; do [ "${now[i]}" = $((i+1)) ] || order=torn; done
echo ${#now[@]} $state $order note-*
echo > `

// doze starts a counter and sends it to sleep again and again.
func doze(ctx context.Context, p *Play) error {
	if err := p.startCounter(ctx); err != nil {
		return err
	}
	for range 3 {
		if err := p.look(ctx); err != nil {
			return err
		}
		cold := func(s rig.Shown) bool { return s.Sandbox.Phase != "active" }
		if err := ignoreConflict(p.Insist(ctx, "hibernate", nil, cold)); err != nil {
			return err
		}
		if _, err := p.Until(ctx, func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" }); err != nil {
			return err
		}
	}
	return p.look(ctx)
}

// startCounter begins to count where it was left off.
func (p *Play) startCounter(ctx context.Context) error {
	told, err := p.mustRun(ctx, counter)
	if err != nil {
		return err
	}
	p.looks = append(p.looks, oracle.Look{Exec: told.ID, Started: true})
	return nil
}

// look sees what became of the counter and of the notes. One that was lost is
// started again; whether it may have been is for the oracle to say.
func (p *Play) look(ctx context.Context) error {
	note := fmt.Sprintf("note-%d", len(p.looks))
	told, err := p.mustRun(ctx, look+note)
	if err != nil {
		return err
	}
	words := strings.Fields(told.Output)
	const least = 3
	if len(words) < least {
		return fmt.Errorf("looking at the counter printed %q", told.Output)
	}
	l := oracle.Look{
		Exec: told.ID, Counts: slices.Contains(words, "counts"), Ordered: slices.Contains(words, "ordered"), Notes: words[least:], Wrote: note,
	}
	if l.Count, err = strconv.Atoi(words[0]); err != nil {
		return fmt.Errorf("looking at the counter printed %q: %w", told.Output, err)
	}
	p.looks = append(p.looks, l)
	if !l.Counts {
		return p.startCounter(ctx)
	}
	return nil
}

// mustRun has a command run to its end. One of which nobody knows whether it ran
// is asked for once more, under another id.
func (p *Play) mustRun(ctx context.Context, command string) (rig.Exec, error) {
	const tries = 5
	for range tries {
		p.nonce++
		told, err := p.Ask(ctx, rig.Asked{ClientID: p.lastNonce(), Command: command})
		if err != nil || told.Ran() {
			return told, err
		}
	}
	return rig.Exec{}, errors.New("no command was run to its end")
}

// dozeKinds are about processes that outlive servers and sandboxes. Their volumes
// are file systems of their own, as they are by default.
func dozeKinds() []Kind {
	own := []string{"--sandbox-disk", "256M", "--sandbox-inodes", "4096"}
	return []Kind{
		{Name: "doze", Create: warm(), Flags: own, Play: doze, Look: (*Play).look},
		{Name: "doze-branch", Create: warm(), Flags: own, Play: fork, Look: (*Play).look},
		{Name: "doze-lost", Create: warm(), Flags: own, Play: doze, Look: (*Play).look, KillsRunner: true},
	}
}
