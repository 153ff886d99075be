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

// line is the points of a session: each is a layer over another, or over nothing.
type line struct {
	*world
	dir    string
	driver sandbox.Snapshotter
	layers map[dormouse.SnapshotID][]string
	now    sandbox.Workspace
}

func (w *world) line(t *testing.T) *line {
	t.Helper()
	s, ok := w.Driver.(sandbox.Snapshotter)
	if !ok {
		t.Skip("workspaces of this driver cannot be captured")
	}
	return &line{world: w, dir: t.TempDir(), driver: s, layers: make(map[dormouse.SnapshotID][]string)}
}

// start starts a generation with the workspace that the session has.
func (l *line) start(t *testing.T, generation uint64) sandbox.Sandbox {
	t.Helper()
	s, err := l.Driver.Create(within(t), l.spec(generation))
	if err != nil {
		t.Fatal(err)
	}
	l.cleanUp(t, s)
	return s
}

func (l *line) spec(generation uint64) sandbox.Spec {
	return sandbox.Spec{Fence: l.fence(generation, generation), Workspace: l.now}
}

func (l *line) stop(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	if err := errors.Join(s.Close(), l.Driver.Stop(within(t), s.Handle(), Newest(s.Handle()))); err != nil {
		t.Fatal(err)
	}
}

// over makes the next workspace one over a point.
func (l *line) over(point dormouse.SnapshotID) {
	l.now = sandbox.Workspace{Number: l.now.Number + 1, Base: point, Layers: l.layers[point]}
}

// capture captures the workspace of a sandbox, or of none, as a point.
func (l *line) capture(t *testing.T, s sandbox.Sandbox, generation uint64, since, as dormouse.SnapshotID) sandbox.Captured {
	t.Helper()
	done, err := l.driver.Capture(within(t), l.request(t, s, generation, since, as))
	if err != nil {
		t.Fatal(err)
	}
	if err := layer.BreakHardLinks(within(t), l.at(as), layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	l.layers[as] = append(slices.Clone(l.layers[done.Since]), l.at(as))
	return done
}

func (l *line) at(point dormouse.SnapshotID) string { return filepath.Join(l.dir, string(point)) }

func (l *line) request(t *testing.T, s sandbox.Sandbox, generation uint64, since, as dormouse.SnapshotID) sandbox.Capture {
	t.Helper()
	if err := errors.Join(os.RemoveAll(l.at(as)), os.Mkdir(l.at(as), 0o700)); err != nil {
		t.Fatal(err)
	}
	c := sandbox.Capture{
		Fence: l.fence(generation, generation), Workspace: l.now, Since: since, As: as, Needed: true, To: l.at(as),
		Limits: layer.Limits{Entries: 1 << 20, Bytes: 1 << 30},
	}
	if s != nil {
		c.Handle = s.Handle()
	}
	return c
}

// tree is what a sandbox sees of its workspace.
func (l *line) tree(t *testing.T, s sandbox.Sandbox) string {
	t.Helper()
	return l.sh(t, s, `find . -exec stat -c '%n %F %a %u:%g' {} + | sort
find . -type f -exec stat -c '%n %h' {} + | sort; find . -type f -exec sha256sum {} + | sort; find . -type l -exec readlink {} + | sort`)
}

// names are what lies in a captured layer.
func (l *line) names(t *testing.T, point dormouse.SnapshotID) []string {
	t.Helper()
	var names []string
	err := filepath.Walk(l.at(point), func(path string, _ os.FileInfo, err error) error {
		if path != l.at(point) {
			names = append(names, strings.TrimPrefix(path, l.at(point)+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func captureWritesChanges(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, `mkdir -p keep/deep drop && echo 1 >keep/deep/a && echo 1 >b && echo 1 >drop/c && ln -s keep link && chmod 711 . && chmod 640 b`)
	before := l.tree(t, s)
	if done := l.capture(t, s, 1, "", "snap_1"); done.Since != "" || done.Entries != 8 || done.Bytes != 6 || done.Count != 0 {
		t.Errorf("captured %+v", done)
	}
	l.settle(t, s)
	l.sh(t, s, `echo 2 >keep/deep/a && rm -r drop && mkdir new && echo 2 >new/file`)
	after := l.tree(t, s)
	if done := l.capture(t, s, 1, "snap_2", "snap_3"); done.Since != "snap_2" {
		t.Errorf("captured %+v", done)
	}
	if diff := cmp.Diff([]string{"drop", "keep", "keep/deep", "keep/deep/a", "new", "new/file"}, l.names(t, "snap_3")); diff != "" {
		t.Errorf("captured (-want +got):\n%s", diff)
	}
	l.stop(t, s)
	for n, c := range []struct {
		point dormouse.SnapshotID
		want  string
	}{{"snap_3", after}, {"snap_1", before}} {
		l.over(c.point)
		s := l.start(t, uint64(2+n))
		if diff := cmp.Diff(c.want, l.tree(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.point, diff)
		}
		l.stop(t, s)
	}
}

// settle captures until nothing is new, as snap_2: what was written just before a
// capture may be in the next one too.
func (l *line) settle(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	last := dormouse.SnapshotID("snap_1")
	eventually(t, "nothing is new", func() bool {
		done := l.capture(t, s, 1, last, "snap_2")
		if done.Since != last {
			t.Fatalf("captured %+v", done)
		}
		l.layers["snap_2"] = l.layers["snap_1"] // the same files
		last = "snap_2"
		return done.Entries == 0 && done.Bytes == 0
	})
}

func captureKnowsTheLastTwo(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	for n := range 3 {
		l.sh(t, s, fmt.Sprintf("echo %d >file%d", n, n))
		point := dormouse.SnapshotID(fmt.Sprintf("snap_%d", n))
		for range 2 { // the same point twice
			l.capture(t, s, 1, "", point)
		}
	}
	for point, want := range map[dormouse.SnapshotID]dormouse.SnapshotID{"snap_2": "snap_2", "snap_never": "", "": ""} {
		if done := l.capture(t, s, 1, point, "snap_2"); done.Since != want {
			t.Errorf("since %q: captured %+v", point, done)
		}
	}
	if done := l.capture(t, s, 1, "snap_0", "snap_3"); done.Since != "" || !slices.Contains(l.names(t, "snap_3"), "file0") {
		t.Errorf("since one long ago: captured %+v", done)
	}
	// The next server knows as much.
	next, ok := l.Restart(t).(sandbox.Snapshotter)
	if !ok {
		t.Fatal("the next server cannot capture")
	}
	l.driver = next
	if done := l.capture(t, s, 1, "snap_2", "snap_4"); done.Since != "snap_2" {
		t.Errorf("since the one before: captured %+v", done)
	}
}

func workspaceOverLayers(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, "mkdir dir gone && echo base >dir/a && echo other >dir/b && echo gone >gone/c && echo same >same && echo home >~/file")
	l.capture(t, s, 1, "", "snap_1")
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
	if done := l.capture(t, s, 3, "snap_1", "snap_2"); done.Since != "snap_1" {
		t.Errorf("captured %+v", done)
	}
	l.stop(t, s)
	l.over("snap_2")
	s = l.start(t, 4)
	if diff := cmp.Diff(want, l.tree(t, s)); diff != "" {
		t.Errorf("over what was captured (-want +got):\n%s", diff)
	}
	// Nobody wrote to the layers.
	l.stop(t, s)
	l.over("snap_1")
	s = l.start(t, 5)
	if got := l.sh(t, s, "cat dir/* gone/* same"); got != "base\nother\ngone\nsame" {
		t.Errorf("the first point is %q", got)
	}
}

func workspaceStaysUntilStarted(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo mine >file")
	l.capture(t, s, 1, "", "snap_1")
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
		if _, err := l.driver.Capture(within(t), c); !errors.Is(err, runner.ErrStale) {
			t.Errorf("capture of workspace %d: %v", number, err)
		}
	}
}

func captureRunsOn(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	// Two files that are written over, one after the other: at no instant is one
	// further than one step ahead.
	l.sh(t, s, "mkdir between; for n in $(seq 300); do echo $n >between/$n; done")
	writer := l.exec(`n=0; while :; do n=$((n+1)); printf %08d $n 1<>a; printf %08d $n 1<>z; echo x >>beats; done`)
	start(t, s, writer)
	eventually(t, "the writer writes", func() bool { return l.count(t, s, "beats") > 3 })
	since := dormouse.SnapshotID("")
	for n := range 10 {
		point := dormouse.SnapshotID(fmt.Sprintf("snap_%d", n))
		before := l.count(t, s, "beats")
		l.capture(t, s, 1, since, point)
		since = point
		eventually(t, "the writer writes on", func() bool { return l.count(t, s, "beats") > before })
		if !l.Pauses {
			continue
		}
		if a, z := l.number(t, point, "a"), l.number(t, point, "z"); a != z && a != z+1 {
			t.Fatalf("capture %d is of several instants: %d and %d", n, a, z)
		}
	}
	if rep, err := s.Ask(within(t), writer.Op); err != nil || rep.State != runner.Running {
		t.Errorf("the writer: %+v, %v", rep, err)
	}
}

// number is what a captured file holds.
func (l *line) number(t *testing.T, point dormouse.SnapshotID, name string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.at(point), name))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func captureIsFenced(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo mine >file")
	newer := l.attach(t, l.Restart(t), s.Handle(), 1, 5)
	l.sh(t, newer, "true")
	if _, err := l.driver.Capture(within(t), l.request(t, s, 1, "", "snap_1")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("capture under an older epoch: %v", err)
	}
	c := l.request(t, s, 2, "", "snap_1")
	if _, err := l.driver.Capture(within(t), c); !errors.Is(err, runner.ErrForeign) {
		t.Errorf("capture as another generation: %v", err)
	}
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	c = l.request(t, s, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if _, err := l.driver.Capture(ctx, c); !errors.Is(err, why) {
		t.Errorf("capture that nobody wants: %v", err)
	}
	l.sh(t, newer, "true")
	l.Kill(t, s.Handle())
	isGone(t, newer)
	c = l.request(t, s, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if _, err := l.driver.Capture(within(t), c); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("capture of a dead sandbox: %v", err)
	}
	c = l.request(t, nil, 1, "", "snap_1")
	c.Fence.Epoch = 5
	if done, err := l.driver.Capture(within(t), c); err != nil || done.Since != "" {
		t.Errorf("capture of what it left: %+v, %v", done, err)
	}
	if diff := cmp.Diff([]string{"file"}, l.names(t, "snap_1")); diff != "" {
		t.Errorf("captured (-want +got):\n%s", diff)
	}
}

func captureOfNothing(t *testing.T, w *world) {
	l := w.line(t)
	if done := l.capture(t, nil, 1, "", "snap_1"); done.Since != "" || done.Entries != 0 {
		t.Errorf("captured %+v of no workspace", done)
	}
	s := l.start(t, 1)
	l.sh(t, s, "chmod 711 . && echo mine >file")
	want := l.tree(t, s)
	l.stop(t, s)
	l.capture(t, nil, 1, "", "snap_2")
	l.over("snap_2")
	if done := l.capture(t, nil, 1, "snap_2", "snap_3"); done.Since != "snap_2" || done.Entries != 0 {
		t.Errorf("captured %+v of a workspace that nobody had", done)
	}
	l.over("snap_3")
	s = l.start(t, 2)
	if diff := cmp.Diff(want, l.tree(t, s)); diff != "" {
		t.Errorf("over it (-want +got):\n%s", diff)
	}
}

func captureHasLimits(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, "truncate -s 100M big; touch a b c")
	for want, limits := range map[error]layer.Limits{
		layer.ErrTooBig:  {Entries: 100, Bytes: 1 << 20},
		layer.ErrTooMany: {Entries: 3, Bytes: 1 << 30},
	} {
		c := l.request(t, s, 1, "", "snap_1")
		c.Limits = limits
		if _, err := l.driver.Capture(within(t), c); !errors.Is(err, want) {
			t.Errorf("captured with %+v: %v", limits, err)
		}
	}
	l.sh(t, s, "true") // it runs on
	l.capture(t, s, 1, "", "snap_1")
}

func linksOverABase(t *testing.T, w *world) {
	l := w.line(t)
	s := l.start(t, 1)
	l.sh(t, s, "echo 1 >a && ln a b && mkdir d && ln a d/c")
	l.capture(t, s, 1, "", "snap_1")
	l.stop(t, s)
	l.over("snap_1")
	s = l.start(t, 2)
	// Each name is a file of its own now, whoever looks, and looked before.
	if got := l.sh(t, s, "cat a b d/c >/dev/null; echo 2 >>a; echo 3 >>b; cat a; echo; cat b; echo; cat d/c"); got != "1\n2\n\n1\n3\n\n1" {
		t.Errorf("what is written to one name of several: %q", got)
	}
	l.sh(t, s, "ln b e; rm d/c")
	contents := l.sh(t, s, "cat a b e; ls d")
	l.capture(t, s, 2, "snap_1", "snap_2")
	l.stop(t, s)
	l.over("snap_2")
	s = l.start(t, 3)
	if got := l.sh(t, s, "cat a b e; ls d"); got != contents {
		t.Errorf("found %q, want %q", got, contents)
	}
}

func sealKeepsProcesses(t *testing.T, w *world) {
	l := w.line(t)
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
			point := dormouse.SnapshotID(fmt.Sprintf("snap_%d", generation))
			l.capture(t, nil, at, l.now.Base, point)
			l.over(point)
			l.now.Sealed = c.sealed
		}
		spec := l.spec(at + 1)
		spec.Fresh = c.fresh
		next, err := l.Driver.Create(within(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		l.cleanUp(t, next)
		woken, ok := next.(sandbox.Woken)
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
			l.still(t, next, "beats")
			do(t, next, runner.Call{Op: l.op(), Kind: dormouse.OpTask, Exec: task.Exec})
			time.Sleep(50 * time.Millisecond)
		}
		s = next
	}
}
