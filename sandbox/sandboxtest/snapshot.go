package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// chain is the snapshots of a session: each is a layer over another, or over nothing.
type chain struct {
	*world
	dir    string
	driver sandbox.Snapshotter
	layers map[dormouse.SnapshotID][]string
	now    sandbox.Workspace
}

func (w *world) chain(t *testing.T) *chain {
	t.Helper()
	s, ok := w.Driver.(sandbox.Snapshotter)
	if !ok {
		t.Skip("this driver takes no snapshots")
	}
	return &chain{world: w, dir: t.TempDir(), driver: s, layers: make(map[dormouse.SnapshotID][]string)}
}

// start starts a generation with the workspace that the session has.
func (l *chain) start(t *testing.T, generation uint64) sandbox.Sandbox {
	t.Helper()
	s, err := l.Driver.Create(within(t), l.spec(generation))
	if err != nil {
		t.Fatal(err)
	}
	l.cleanUp(t, s)
	return s
}

func (l *chain) spec(generation uint64) sandbox.Spec {
	return sandbox.Spec{Fence: l.fence(generation, generation), Workspace: l.now}
}

func (l *chain) stop(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	if err := errors.Join(s.Close(), l.Driver.Stop(within(t), s.Handle(), Newest(s.Handle()))); err != nil {
		t.Fatal(err)
	}
}

// over makes the next workspace one over a snapshot.
func (l *chain) over(snap dormouse.SnapshotID) {
	l.now = sandbox.Workspace{Number: l.now.Number + 1, Base: snap, Layers: l.layers[snap]}
}

// snapshot takes a snapshot of the workspace of a sandbox, or of none.
func (l *chain) snapshot(t *testing.T, s sandbox.Sandbox, generation uint64, since, as dormouse.SnapshotID) sandbox.SnapshotResult {
	t.Helper()
	done, err := l.driver.Snapshot(within(t), l.request(t, s, generation, since, as))
	if err != nil {
		t.Fatal(err)
	}
	if err := layer.BreakHardLinks(within(t), l.at(as), layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	l.layers[as] = append(slices.Clone(l.layers[done.Since]), l.at(as))
	return done
}

func (l *chain) at(snap dormouse.SnapshotID) string { return filepath.Join(l.dir, string(snap)) }

func (l *chain) request(t *testing.T, s sandbox.Sandbox, generation uint64, since, as dormouse.SnapshotID) sandbox.SnapshotRequest {
	t.Helper()
	if err := errors.Join(os.RemoveAll(l.at(as)), os.Mkdir(l.at(as), 0o700)); err != nil {
		t.Fatal(err)
	}
	c := sandbox.SnapshotRequest{
		Fence: l.fence(generation, generation), Workspace: l.now, Since: since, As: as, Needed: true, To: l.at(as),
		Limits: layer.Limits{Entries: 1 << 20, Bytes: 1 << 30},
	}
	if s != nil {
		c.Handle = s.Handle()
	}
	return c
}

// tree is what a sandbox sees of its workspace.
func (l *chain) tree(t *testing.T, s sandbox.Sandbox) string {
	t.Helper()
	return l.sh(t, s, `find . -exec stat -c '%n %F %a %u:%g' {} + | sort
find . -type f -exec stat -c '%n %h' {} + | sort; find . -type f -exec sha256sum {} + | sort; find . -type l -exec readlink {} + | sort`)
}

// names are what is in the layer of a snapshot.
func (l *chain) names(t *testing.T, snap dormouse.SnapshotID) []string {
	t.Helper()
	var names []string
	err := filepath.Walk(l.at(snap), func(path string, _ os.FileInfo, err error) error {
		if path != l.at(snap) {
			names = append(names, strings.TrimPrefix(path, l.at(snap)+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func snapshotWritesChanges(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, `mkdir -p keep/deep drop && echo 1 >keep/deep/a && echo 1 >b && echo 1 >drop/c && ln -s keep link && chmod 711 . && chmod 640 b`)
	before := l.tree(t, s)
	if done := l.snapshot(t, s, 1, "", "snap_1"); done.Since != "" || done.Entries != 8 || done.Bytes != 6 || done.Count != 0 {
		t.Errorf("took %+v", done)
	}
	l.snapshotUntilUnchanged(t, s)
	l.sh(t, s, `echo 2 >keep/deep/a && rm -r drop && mkdir new && echo 2 >new/file`)
	after := l.tree(t, s)
	if done := l.snapshot(t, s, 1, "snap_2", "snap_3"); done.Since != "snap_2" {
		t.Errorf("took %+v", done)
	}
	if diff := cmp.Diff([]string{"drop", "keep", "keep/deep", "keep/deep/a", "new", "new/file"}, l.names(t, "snap_3")); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	l.stop(t, s)
	for n, c := range []struct {
		snap dormouse.SnapshotID
		want string
	}{{"snap_3", after}, {"snap_1", before}} {
		l.over(c.snap)
		s := l.start(t, uint64(2+n))
		if diff := cmp.Diff(c.want, l.tree(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.snap, diff)
		}
		l.stop(t, s)
	}
}

// snapshotUntilUnchanged takes snap_2 until it is empty: what was written just before a
// snapshot may be in the next one too.
func (l *chain) snapshotUntilUnchanged(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	last := dormouse.SnapshotID("snap_1")
	eventually(t, "nothing is new", func() bool {
		done := l.snapshot(t, s, 1, last, "snap_2")
		if done.Since != last {
			t.Fatalf("took %+v", done)
		}
		l.layers["snap_2"] = l.layers["snap_1"] // the same files
		last = "snap_2"
		return done.Entries == 0 && done.Bytes == 0
	})
}

func snapshotKnowsTheLastTwo(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	for n := range 3 {
		l.sh(t, s, fmt.Sprintf("echo %d >file%d", n, n))
		snap := dormouse.SnapshotID(fmt.Sprintf("snap_%d", n))
		for range 2 { // the same snapshot twice
			l.snapshot(t, s, 1, "", snap)
		}
	}
	for snap, want := range map[dormouse.SnapshotID]dormouse.SnapshotID{"snap_2": "snap_2", "snap_never": "", "": ""} {
		if done := l.snapshot(t, s, 1, snap, "snap_2"); done.Since != want {
			t.Errorf("since %q: took %+v", snap, done)
		}
	}
	if done := l.snapshot(t, s, 1, "snap_0", "snap_3"); done.Since != "" || !slices.Contains(l.names(t, "snap_3"), "file0") {
		t.Errorf("since one long ago: took %+v", done)
	}
	// The next server knows as much.
	next, ok := l.Restart(t).(sandbox.Snapshotter)
	if !ok {
		t.Fatal("the next server takes no snapshots")
	}
	l.driver = next
	if done := l.snapshot(t, s, 1, "snap_2", "snap_4"); done.Since != "snap_2" {
		t.Errorf("since the one before: took %+v", done)
	}
}

func workspaceOverLayers(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, "mkdir dir gone && echo base >dir/a && echo other >dir/b && echo gone >gone/c && echo same >same && echo home >~/file")
	l.snapshot(t, s, 1, "", "snap_1")
	l.stop(t, s)
	l.over("snap_1")
	s = l.start(t, 2)
	if got := l.sh(t, s, "cat dir/a same ~/file"); got != "base\nsame\nhome" {
		t.Errorf("found %q", got)
	}
	l.sh(t, s, "echo new >dir/a && rm dir/b && rm -r gone && mkdir gone && echo new >gone/d && chmod 600 same")
	want := l.tree(t, s)
	l.stop(t, s)
	s = l.start(t, 3) // the same workspace
	if diff := cmp.Diff(want, l.tree(t, s)); diff != "" {
		t.Errorf("the next generation (-want +got):\n%s", diff)
	}
	if done := l.snapshot(t, s, 3, "snap_1", "snap_2"); done.Since != "snap_1" {
		t.Errorf("took %+v", done)
	}
	l.stop(t, s)
	l.over("snap_2")
	s = l.start(t, 4)
	if diff := cmp.Diff(want, l.tree(t, s)); diff != "" {
		t.Errorf("over what was layer (-want +got):\n%s", diff)
	}
	// The layers were not written to.
	l.stop(t, s)
	l.over("snap_1")
	s = l.start(t, 5)
	if got := l.sh(t, s, "cat dir/* gone/* same"); got != "base\nother\ngone\nsame" {
		t.Errorf("the first snapshot is %q", got)
	}
}

func workspaceStaysUntilStarted(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo mine >file")
	l.snapshot(t, s, 1, "", "snap_1")
	l.sh(t, s, "echo later >file")
	l.stop(t, s)
	was := l.now
	l.layers["snap_bad"] = []string{filepath.Join(l.dir, "nowhere")}
	l.over("snap_bad")
	if s, err := l.Driver.Create(within(t), l.spec(2)); err == nil {
		_ = s.Close()
		t.Fatal("created over a layer that is not there")
	}
	l.now = was
	s = l.start(t, 3)
	if got := l.sh(t, s, "cat file"); got != "later" {
		t.Errorf("found %q", got)
	}
	l.stop(t, s)
	l.over("snap_1")
	l.over("snap_1")
	s = l.start(t, 4)
	if got := l.sh(t, s, "cat file"); got != "mine" {
		t.Errorf("found %q", got)
	}
	l.stop(t, s)
	for number := range l.now.Number {
		spec := l.spec(5)
		spec.Workspace.Number = number
		if s, err := l.Driver.Create(within(t), spec); !errors.Is(err, runner.ErrStale) {
			t.Errorf("create with workspace %d: %v, %v", number, s, err)
		}
		c := l.request(t, nil, 4, "", "snap_9")
		c.Workspace.Number = number
		if _, err := l.driver.Snapshot(within(t), c); !errors.Is(err, runner.ErrStale) {
			t.Errorf("snapshot of workspace %d: %v", number, err)
		}
	}
}

func snapshotRunsOn(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	// Two files that are written over, one after the other: at no instant is one
	// further than one step ahead.
	l.sh(t, s, "mkdir between; for n in $(seq 300); do echo $n >between/$n; done")
	writer := l.exec(`n=0; while :; do n=$((n+1)); printf %08d $n 1<>a; printf %08d $n 1<>z; echo x >>beats; done`)
	start(t, s, writer)
	eventually(t, "the writer writes", func() bool { return l.count(t, s, "beats") > 3 })
	since := dormouse.SnapshotID("")
	for n := range 10 {
		snap := dormouse.SnapshotID(fmt.Sprintf("snap_%d", n))
		before := l.count(t, s, "beats")
		l.snapshot(t, s, 1, since, snap)
		since = snap
		eventually(t, "the writer writes on", func() bool { return l.count(t, s, "beats") > before })
		if !l.Pauses {
			continue
		}
		if a, z := l.number(t, snap, "a"), l.number(t, snap, "z"); a != z && a != z+1 {
			t.Fatalf("snapshot %d is of several instants: %d and %d", n, a, z)
		}
	}
	if rep, err := s.Ask(within(t), writer.Op); err != nil || rep.State != runner.Running {
		t.Errorf("the writer: %+v, %v", rep, err)
	}
}

// number is what a file of a snapshot holds.
func (l *chain) number(t *testing.T, snap dormouse.SnapshotID, name string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.at(snap), name))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func snapshotIsFenced(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo mine >file")
	newer := l.attach(t, l.Restart(t), s.Handle(), 1, 5)
	l.sh(t, newer, "true")
	if _, err := l.driver.Snapshot(within(t), l.request(t, s, 1, "", "snap_1")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("snapshot under an older epoch: %v", err)
	}
	c := l.request(t, s, 2, "", "snap_1")
	if _, err := l.driver.Snapshot(within(t), c); !errors.Is(err, runner.ErrForeign) {
		t.Errorf("snapshot as another generation: %v", err)
	}
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	c = l.request(t, s, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if _, err := l.driver.Snapshot(ctx, c); !errors.Is(err, why) {
		t.Errorf("snapshot that nobody wants: %v", err)
	}
	l.sh(t, newer, "true")
	l.Kill(t, s.Handle())
	isGone(t, newer)
	c = l.request(t, s, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if _, err := l.driver.Snapshot(within(t), c); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("snapshot of a dead sandbox: %v", err)
	}
	c = l.request(t, nil, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if done, err := l.driver.Snapshot(within(t), c); err != nil || done.Since != "" {
		t.Errorf("snapshot of what it left: %+v, %v", done, err)
	}
	if diff := cmp.Diff([]string{"file"}, l.names(t, "snap_1")); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func snapshotOfNothing(t *testing.T, w *world) {
	l := w.chain(t)
	if done := l.snapshot(t, nil, 1, "", "snap_1"); done.Since != "" || done.Entries != 0 {
		t.Errorf("took %+v of no workspace", done)
	}
	s := l.start(t, 1)
	l.sh(t, s, "chmod 711 . && echo mine >file")
	want := l.tree(t, s)
	l.stop(t, s)
	l.snapshot(t, nil, 1, "", "snap_2")
	l.over("snap_2")
	if done := l.snapshot(t, nil, 1, "snap_2", "snap_3"); done.Since != "snap_2" || done.Entries != 0 {
		t.Errorf("took %+v of a workspace that nobody had", done)
	}
	l.over("snap_3")
	s = l.start(t, 2)
	if diff := cmp.Diff(want, l.tree(t, s)); diff != "" {
		t.Errorf("over it (-want +got):\n%s", diff)
	}
}

func snapshotHasLimits(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, "truncate -s 100M big; touch a b c")
	for want, limits := range map[error]layer.Limits{
		layer.ErrTooBig:  {Entries: 100, Bytes: 1 << 20},
		layer.ErrTooMany: {Entries: 3, Bytes: 1 << 30},
	} {
		c := l.request(t, s, 1, "", "snap_1")
		c.Limits = limits
		if _, err := l.driver.Snapshot(within(t), c); !errors.Is(err, want) {
			t.Errorf("taken with %+v: %v", limits, err)
		}
	}
	l.sh(t, s, "true") // it runs on
	l.snapshot(t, s, 1, "", "snap_1")
}

func linksOverABase(t *testing.T, w *world) {
	l := w.chain(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo 1 >a && ln a b && mkdir d && ln a d/c")
	l.snapshot(t, s, 1, "", "snap_1")
	l.stop(t, s)
	l.over("snap_1")
	s = l.start(t, 2)
	// Each name is a file of its own now, for readers of before and after.
	if got := l.sh(t, s, "cat a b d/c >/dev/null; echo 2 >>a; echo 3 >>b; cat a; echo; cat b; echo; cat d/c"); got != "1\n2\n\n1\n3\n\n1" {
		t.Errorf("what is written to one name of several: %q", got)
	}
	l.sh(t, s, "ln b e; rm d/c")
	contents := l.sh(t, s, "cat a b e; ls d")
	l.snapshot(t, s, 2, "snap_1", "snap_2")
	l.stop(t, s)
	l.over("snap_2")
	s = l.start(t, 3)
	if got := l.sh(t, s, "cat a b e; ls d"); got != contents {
		t.Errorf("found %q, want %q", got, contents)
	}
}

func sealKeepsProcesses(t *testing.T, w *world) {
	l := w.chain(t)
	freezer, ok := l.Driver.(sandbox.Freezer)
	if !ok {
		t.Skip("what runs in sandboxes of this driver does not outlive them")
	}
	s := l.start(t, 1)
	task := runner.Call{Op: l.op(), Kind: dormouse.OpTask, Exec: &runner.Exec{Command: "exec 3>>open; n=1000; while :; do n=$((n+1)); echo $n >&3; echo x >>beats; sleep 0.02; done"}}
	do(t, s, task)
	eventually(t, "it runs", func() bool { return l.count(t, s, "beats") > 2 })
	for generation, c := range []struct {
		sealed, fresh, same bool
		kept, lost          bool
	}{
		{sealed: true, kept: true},
		{same: true, kept: true},
		{sealed: true, kept: true},
		{lost: true},
		{sealed: true, fresh: true},
	} {
		at := uint64(generation) + 1
		if err := errors.Join(s.Close(), freezer.Freeze(within(t), s.Handle(), l.fence(at, at))); err != nil {
			t.Fatal(err)
		}
		if !c.same {
			snap := dormouse.SnapshotID(fmt.Sprintf("snap_%d", generation))
			l.snapshot(t, nil, at, l.now.Base, snap)
			l.over(snap)
			l.now.Sealed = c.sealed
		}
		spec := l.spec(at + 1)
		spec.Fresh = c.fresh
		next, err := l.Driver.Create(within(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		l.cleanUp(t, next)
		woken, ok := next.(sandbox.Restored)
		if !ok {
			t.Fatal("it does not say what became of its processes")
		}
		if p := woken.Processes(); p.Kept != c.kept || (p.Lost != "") != c.lost {
			t.Fatalf("%+v: %+v", c, p)
		}
		if c.kept {
			before := l.count(t, next, "beats")
			eventually(t, "it runs on", func() bool { return l.count(t, next, "beats") > before })
			if got := l.sh(t, next, "sort -n open | uniq -d"); got != "" {
				t.Errorf("it counted twice: %s", got)
			}
		} else {
			l.idle(t, next, "beats")
			do(t, next, runner.Call{Op: l.op(), Kind: dormouse.OpTask, Exec: task.Exec})
			time.Sleep(50 * time.Millisecond)
		}
		s = next
	}
}
