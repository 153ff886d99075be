package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// cutKinds are about a machine that loses power: the server, its sandboxes and what was not
// synced are gone at once, and the next server finds files that were never closed.
func cutKinds() []Kind {
	own := []string{"--sandbox-disk", "256M", "--sandbox-inodes", "4096"}
	return []Kind{
		{Name: "cut", Create: warm(), Play: cuts(loseFiles), Look: (*Play).mended, Kills: true},
		{Name: "cut-volume", Create: warm(), Flags: own, Play: cuts(reopenVolume), Look: (*Play).recoveredOnce, Kills: true},
	}
}

// cuts has files in a snapshot, and then the power fails.
func cuts(how func(context.Context, *Play) (after func() error, err error)) func(context.Context, *Play) error {
	return func(ctx context.Context, p *Play) error {
		if _, err := p.mustRun(ctx, "mkdir -p d; echo one > d/corrupt; echo two > d/gone; sleep 0.05"); err != nil {
			return err
		}
		if err := p.again(ctx, "snapshots", map[string]any{"id": "kept"}); err != nil {
			return err
		}
		if _, err := p.mustRun(ctx, "echo x > d/later"); err != nil {
			return err
		}
		if err := p.cut(ctx, how); err != nil {
			return fmt.Errorf("cut the power: %w", err)
		}
		return p.recoveredOnce(ctx)
	}
}

// cut ends the machine and starts it anew.
func (p *Play) cut(ctx context.Context, how func(context.Context, *Play) (after func() error, err error)) error {
	p.Keeper.Hold()
	defer p.Keeper.Resume()
	if l := p.Keeper.Now(); l != nil {
		l.Kill()
	}
	after, err := how(ctx, p)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Keeper.Clear(), after()); err != nil {
		return err
	}
	return os.WriteFile(p.Boot, []byte(" again"), 0o600)
}

// session is where the driver has what belongs to the session.
func (p *Play) session(names ...string) string {
	return filepath.Join(append([]string{p.Keeper.Data, "sandbox", rig.GVisor, "sessions", string(p.ID)}, names...)...)
}

// loseFiles has a file end up empty and another one gone, as disks leave them.
func loseFiles(_ context.Context, p *Play) (func() error, error) {
	in := func(name string) string { return p.session("volume", "upper", "d", name) }
	return func() error { return errors.Join(os.Truncate(in("corrupt"), 0), os.Remove(in("gone"))) }, nil
}

// reopenVolume leaves the volume as it is on the disk while it is open.
func reopenVolume(ctx context.Context, p *Play) (func() error, error) {
	image := p.session("volume.img")
	out, err := exec.CommandContext(ctx, "cp", "--sparse=always", image, image+".cut").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return func() error { return os.Rename(image+".cut", image) }, err
}

// mended checks that the files of the snapshot are there, and what was found instead of them.
func (p *Play) mended(ctx context.Context) error {
	const want = "one two x found 1"
	result, err := p.mustRun(ctx, "echo $(cat d/corrupt d/gone d/later) found $(ls d | grep -c corrupt.found)")
	if got := strings.TrimSpace(result.Output); err == nil && got != want {
		err = fmt.Errorf("after the cut there is %q, not %q", got, want)
	}
	return errors.Join(err, p.recoveredOnce(ctx))
}

// recoveredOnce checks that the files of the snapshot are there, and that the log says
// once that they were recovered.
func (p *Play) recoveredOnce(ctx context.Context) error {
	result, err := p.mustRun(ctx, "cat d/corrupt d/gone")
	if err != nil {
		return err
	}
	log, err := p.Events(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, e := range log {
		if e.Type == dormouse.WorkspaceRecovered {
			n++
		}
	}
	if result.Output != "one\ntwo\n" || n != 1 {
		return fmt.Errorf("after the cut the files hold %q, and the log speaks of %d recoveries", result.Output, n)
	}
	return nil
}
