package main

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/snapshot"
)

func TestCommandsOfSnapshotsSayWhatIsNotThere(t *testing.T) {
	o := newOffice(t)
	id := o.create()
	if out := o.must("snapshot", "list", id); out != "SNAPSHOT  TAKEN  REASON  SIZE  LABEL\n" {
		t.Errorf("listed %q", out)
	}
	if out := o.must("snapshot", "list", id, "--json"); out != `{"snapshots":[],"total":0}`+"\n" {
		t.Errorf("listed %q", out)
	}
	if out := o.must("log", id); out != "" {
		t.Errorf("the log is %q", out)
	}
	if out := o.must("log", id, "--json"); out != `{"line":[]}`+"\n" {
		t.Errorf("the log is %q", out)
	}
	for range 2 {
		o.must("snapshot", "delete", id, "snap_a")
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"snapshot create " + id, exitError, "no sandbox yet"},
		{"snapshot show " + id + " snap_a", exitError, "snapshot snap_a: not found"},
		{"snapshot diff " + id + " snap_a", exitError, "snapshot snap_a: not found"},
		{"snapshot restore " + id + " snap_a", exitError, "snapshot snap_a: not found"},
		{"snapshot export " + id + " snap_a " + t.TempDir() + "/x.tar", exitError, "snapshot snap_a: not found"},
		{"snapshot export " + id + " snap_a", exitUsage, "arg"},
		{"snapshot prune " + id, exitUsage, "--keep"},
		{"snapshot prune " + id + " --keep -1", exitUsage, "--keep"},
		{"snapshot list sesn_nobody", exitError, "not found"},
		{"revert " + id, exitError, "no prompt that could be reverted"},
		{"revert " + id + " sevt_a", exitError, "sevt_a has not been taken up"},
		{"log sesn_nobody", exitError, "not found"},
	} {
		if out, errs, code := o.run(strings.Fields(c.args)...); code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%s: exit %d: %s%s", c.args, code, out, errs)
		}
	}
}

func TestWhetherSnapshotsAreTakenIsAskedFor(t *testing.T) {
	asked, err := (&environmentFlags{snapshots: "off"}).request()
	if err != nil || !asked.Equal(dormouse.Environment{Snapshots: dormouse.SnapshotsOff}) {
		t.Errorf("%+v, %v", asked, err)
	}
	o := newOffice(t)
	if _, errs, code := o.run("session", "create", "--snapshots", "never"); code != exitError || !strings.Contains(errs, "turn, call or off") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestADiffIsALineForEachName(t *testing.T) {
	var b strings.Builder
	d := client.Diff{Difference: dormouse.Difference{Added: 2, Changed: 3, Removed: 2, Omitted: 1, Changes: []dormouse.Change{
		{Path: "new\x1b[31m", What: snapshot.Added, Kind: "file", Size: 2048},
		{Path: "dir", What: snapshot.Added, Kind: "directory"},
		{Path: "grown", What: snapshot.Changed, Kind: "file", Was: 1, Size: 2},
		{Path: "mode", What: snapshot.Changed, Kind: "file", Was: 1, Size: 1},
		{Path: "link", What: snapshot.Changed, Kind: "symlink"},
		{Path: "gone", What: snapshot.Removed, Kind: "file", Was: 9},
	}}}
	const want = "+ new\uFFFD[31m  2.0 KiB\n+ dir/\n~ grown  2 B, was 1 B\n~ mode\n~ link\n- gone\n… and 1 more\n2 added, 3 changed, 2 removed\n"
	if err := showDiff(&b, d); err != nil || b.String() != want {
		t.Errorf("shown\n%s\nwant\n%s", b.String(), want)
	}
}

func TestASnapshotIsShownWhole(t *testing.T) {
	var b strings.Builder
	s := client.Snapshot{
		ID: "snap_b", Session: "sesn_a", Parent: "snap_a", Label: "two\nlines", Reason: "asked", At: 7, Midway: true, Newest: true, Workspace: 1,
		Bytes: 3000, Entries: 4, Size: 100, Depth: 1, Layers: []dormouse.Layer{{Digest: "sha256:ab", Bytes: 3000, Entries: 4}},
		Left: []string{"sock"}, LeftOut: 3, Ref: snapshot.Mint(snapshot.Key{}, "sesn_a", "snap_b").Bytes(),
	}
	if err := showSnapshot(&b, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"snapshot  snap_b *\n", "parent    snap_a\n", "label     two lines\n", "reason    asked, during a turn\n", "at        event 7, workspace 1\n",
		"files     2.9 KiB in 4 entries\n", "stored    100 B in 1 layer\n", "layer     sha256:ab  2.9 KiB in 4 entries\n",
		"left out  sock\n", "left out  and 2 more\n", `ref       {"providerId":"dormouse","ref":{"session":"sesn_a","snapshot":"snap_b","mac":"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("not shown: %q in\n%s", want, b.String())
		}
	}
}
