package hibernation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// leave deletes half of the sessions, stops the server, ends what it left awake, and
// counts after each step the resources that belong to no session. In the end nothing
// keeps the data directory from being removed.
func (n *trial) leave(ctx context.Context) error {
	stay := n.deleteHalf(ctx)
	n.leaks(ctx, "half of the sessions were deleted and the others sleep", true, nil, stay)
	few := stay[:min(len(stay), 3)]
	for _, s := range few {
		if err := s.within(ctx, s.look); err != nil {
			n.add(oracle.Stuck, "%s %s: %v", s.Name, s.ID, err)
		}
	}
	if err := n.fleet.Halt(ctx); err != nil {
		n.add(oracle.Stuck, "the server did not stop: %v", err)
		return nil
	}
	n.leaks(ctx, "the server was stopped with sandboxes awake", false, few, stay)
	if err := n.end(ctx); err != nil {
		n.add(oracle.Stuck, "%v", err)
	}
	n.leaks(ctx, "all sandboxes were ended", false, nil, stay)
	n.fleet.Resume()
	for _, s := range few {
		if err := s.within(ctx, s.after); err != nil {
			n.add(oracle.Stuck, "%s %s: %v", s.Name, s.ID, err)
		}
	}
	if err := n.fleet.Halt(ctx); err != nil {
		n.add(oracle.Stuck, "the server did not stop: %v", err)
		return nil
	}
	n.leaks(ctx, "the server was stopped with everything asleep", false, nil, stay)
	n.checkVolumes(ctx, stay)
	if wrong, err := n.keeper.Check(ctx); err != nil || wrong != "" {
		n.add(oracle.Diverged, "%s %v", wrong, err)
	}
	if n.sum.OK() {
		if err := os.RemoveAll(n.keeper.Data); err != nil {
			n.add(oracle.Stuck, "the data directory cannot be removed: %v", err)
		}
	}
	return nil
}

// deleteHalf deletes every other session and returns the rest. Some of those that
// are deleted are awake.
func (n *trial) deleteHalf(ctx context.Context) (stay []*sleeper) {
	var deleting sync.WaitGroup
	for i, s := range n.sleepers {
		if s.Session == nil {
			continue
		}
		if i%2 == 0 {
			stay = append(stay, s)
			continue
		}
		deleting.Go(func() {
			n.slots <- struct{}{}
			defer func() { <-n.slots }()
			err := s.within(ctx, func(ctx context.Context) error {
				if i%10 == 1 {
					if err := s.Wake(ctx); err != nil {
						return err
					}
				}
				return s.Delete(ctx)
			})
			if err != nil {
				n.add(oracle.Stuck, "%s %s was not deleted: %v", s.Name, s.ID, err)
			}
			if left := n.keeper.Left(s.ID); err == nil && len(left) > 0 {
				n.add(oracle.Diverged, "%s %s was deleted and left %v", s.Name, s.ID, left)
			}
		})
	}
	deleting.Wait()
	return stay
}

// leaks counts resources without an owner. It is repeated for a while, since a server may
// be making a spare just then.
func (n *trial) leaks(ctx context.Context, when string, serving bool, awake, all []*sleeper) {
	var up, down []dormouse.SessionID
	for _, s := range all {
		if slices.Contains(awake, s) {
			up = append(up, s.ID)
		} else {
			down = append(down, s.ID)
		}
	}
	const within = 10 * time.Second
	for end := time.Now().Add(within); ; {
		l, err := n.keeper.Leaks(serving, up, down)
		if err != nil {
			n.add(oracle.Stuck, "count what is left: %v", err)
			return
		}
		if l.None() || time.Now().After(end) || sleep.For(ctx, 100*time.Millisecond) != nil {
			fmt.Fprintf(n.Out, "naps: %s: %s\n", when, l)
			n.count(func(s *Summary) { s.Leaks = s.Leaks.And(l) })
			return
		}
	}
}

// end ends the sandboxes of a server that is not there.
func (n *trial) end(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, n.Server, "sandboxes", "end", "--data", n.keeper.Data).CombinedOutput()
	if err != nil {
		return fmt.Errorf("end all sandboxes: %w: %s", err, out)
	}
	return nil
}

// after looks at a session whose sandbox was ended: its files are there, and the
// log says that its processes are not.
func (s *sleeper) after(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	records, err := s.copyOut(ctx)
	if err != nil {
		return err
	}
	if err := s.hibernate(ctx, false); err != nil {
		return err
	}
	log, err := s.Events(ctx)
	if err != nil {
		return err
	}
	s.trial.merge(s, evidence{Records: records, Writers: s.writers, Looks: s.looks, Log: log}.judge())
	return nil
}

// checkVolumes has the file systems of sessions that sleep checked.
func (n *trial) checkVolumes(ctx context.Context, all []*sleeper) {
	fsck := "/usr/sbin/e2fsck"
	if found, err := exec.LookPath("e2fsck"); err == nil {
		fsck = found
	}
	for _, s := range all {
		image := filepath.Join(n.keeper.Data, "sandbox", rig.GVisor, "sessions", string(s.ID), "volume.img")
		if out, err := exec.CommandContext(ctx, fsck, "-fn", image).CombinedOutput(); err != nil {
			n.add(Corrupt, "%s %s: its file system is damaged: %v: %s", s.Name, s.ID, err, strings.TrimSpace(string(out)))
		}
	}
}
