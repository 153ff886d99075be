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

// counter is a command that leaves a process behind. The process begins with the last number
// in the file, and from then on has it only in memory.
const counter = `touch count; export n=$(tail -n 1 count)
setsid bash -c 'while :; do n=$((n+1)); echo $n >> count; sleep 0.05; done' dormouse-counter </dev/null >/dev/null 2>&1 &
echo $! > counter`

// look is a command that prints how far the counter has come, whether it counts, whether it
// ever went back or left out a number, and which notes there are. Then it writes a note.
const look = `order=ordered state=idle; mapfile -t before < count
for i in {1..50}; do
	grep -qa '[d]ormouse-counter' /proc/$(<counter)/cmdline || break
	mapfile -t now < count; [ ${#now[@]} -gt ${#before[@]} ] && state=counts && break
	sleep 0.1
done 2>/dev/null
mapfile -t now < count
for i in ${!now[@]}; do [ "${now[i]}" = $((i+1)) ] || order=lost; done
echo ${#now[@]} $state $order note-*
echo > `

// count starts a counter and hibernates it again and again.
func count(ctx context.Context, p *Play) error {
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

// startCounter starts the counter where it ended.
func (p *Play) startCounter(ctx context.Context) error {
	result, err := p.mustRun(ctx, counter)
	if err != nil {
		return err
	}
	p.looks = append(p.looks, oracle.Look{Exec: result.ID, Started: true})
	return nil
}

// look records the state of the counter and of the notes. A lost counter is started again;
// the oracle judges whether it may have been lost.
func (p *Play) look(ctx context.Context) error {
	note := fmt.Sprintf("note-%d", len(p.looks))
	result, err := p.mustRun(ctx, look+note)
	if err != nil {
		return err
	}
	words := strings.Fields(result.Output)
	const least = 3
	if len(words) < least {
		return fmt.Errorf("looking at the counter printed %q", result.Output)
	}
	l := oracle.Look{
		Exec: result.ID, Counts: slices.Contains(words, "counts"), Ordered: slices.Contains(words, "ordered"), Notes: words[least:], Wrote: note,
	}
	if l.Count, err = strconv.Atoi(words[0]); err != nil {
		return fmt.Errorf("looking at the counter printed %q: %w", result.Output, err)
	}
	p.looks = append(p.looks, l)
	if !l.Counts {
		return p.startCounter(ctx)
	}
	return nil
}

// mustRun runs a command to its end. If it is unknown whether the command ran, it is sent
// once more under another id.
func (p *Play) mustRun(ctx context.Context, command string) (rig.Exec, error) {
	const tries = 5
	for range tries {
		p.nonce++
		result, err := p.Ask(ctx, rig.Asked{ClientID: p.lastNonce(), Command: command})
		if err != nil || result.Ran() {
			return result, err
		}
	}
	return rig.Exec{}, errors.New("no command was run to its end")
}

// counterKinds are about processes that outlive servers and sandboxes. Their volumes
// are file systems of their own, as they are by default.
func counterKinds() []Kind {
	own := []string{"--sandbox-disk", "256M", "--sandbox-inodes", "4096"}
	return []Kind{
		{Name: "counter", Create: warm(), Flags: own, Play: count, Look: (*Play).look},
		{Name: "counter-branch", Create: warm(), Flags: own, Play: fork, Look: (*Play).look},
		{Name: "counter-lost", Create: warm(), Flags: own, Play: count, Look: (*Play).look, KillsRunner: true},
	}
}
