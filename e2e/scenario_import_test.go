package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

// everything lists what files are like, to the nanosecond.
const everything = `find . -printf '%p %y %m %U:%G %s %T@ %l\n' | grep -v '^\. ' | sort; find . -type f | sort | xargs md5sum`

// A workspace is carried from one server to another, as a session and as a snapshot
// of one that is there.
func TestAWorkspaceIsCarriedToAnotherServer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	from, to := newWorld(t), newWorld(t)
	id := strings.TrimSpace(from.cli("session", "create", "--model", "offline"))
	from.turns(id, "mkdir -p d/e; echo one >d/a; ln -s d/a l; ln d/a hard; mkfifo p; head -c 2000000 /dev/urandom >big; echo gone >gone",
		"rm gone; chmod 4711 d/a; chown 1:2 d/e; touch -d @12345.678901234 d/e; echo .wh. >.wh.odd")
	snapshot := from.snapshots(id)[0].ID
	file := filepath.Join(t.TempDir(), "image.tar")
	from.cli("snapshot", "export", id, snapshot, file)
	want := from.cli("exec", id, everything)

	made := strings.TrimSpace(to.cli("snapshot", "import", file, "--model", "offline", "--title", "carried over", "--id", "mine"))
	if got := to.cli("exec", made, everything); got != want {
		t.Errorf("it was\n%s\nand is\n%s", want, got)
	}
	if again := strings.TrimSpace(to.cli("snapshot", "import", file, "--id", "mine")); again != made {
		t.Errorf("imported again it is %s, not %s", again, made)
	}
	if all := to.snapshots(made); len(all) != 1 || all[0].Reason != "import" || !all[0].Newest {
		t.Errorf("it begins with %+v", all)
	}
	to.turns(made, "rm -rf * .wh.odd")
	to.cli("revert", made)
	if got := to.cli("exec", made, everything); got != want {
		t.Errorf("reverted it is\n%s", got)
	}

	// Into a session that has files of its own, which stay until they are given up.
	other := strings.TrimSpace(to.cli("session", "create", "--model", "offline"))
	to.turns(other, "echo mine >mine")
	came := strings.TrimSpace(to.cli("snapshot", "import", file, "--session", other, "--label", "from elsewhere"))
	if got := to.cli("exec", other, "ls"); got != "mine\n" {
		t.Errorf("it has %q", got)
	}
	to.kill(nil)
	to.cli("snapshot", "restore", other, came)
	if got := to.cli("exec", other, everything); got != want {
		t.Errorf("restored it is\n%s", got)
	}
}

// What is refused says why, and leaves nothing.
func TestAHostileImageIsNotBroughtIn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	w := newWorld(t)
	id := strings.TrimSpace(w.cli("session", "create", "--model", "offline", "--cold"))
	good := snapshottest.Tar("a", "1")
	whole := new(snapshottest.Image).Add(good, snapshottest.Plain).Tar()
	for says, image := range map[string][]byte{
		"layer 2": new(snapshottest.Image).Add(good, snapshottest.Plain).Add(snapshottest.Tar("../../b", "1"), snapshottest.Gzip).Tar(),
		"no tar":  whole[:len(whole)-3000],
		"damaged": []byte(strings.Replace(string(whole), "\x001\x00", "\x002\x00", 1)),
	} {
		file := filepath.Join(t.TempDir(), "image.tar")
		must(t, os.WriteFile(file, image, 0o600))
		for _, args := range [][]string{{"snapshot", "import", file}, {"snapshot", "import", file, "--session", id}} {
			out, err := w.command(args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), says) || strings.Contains(string(out), w.Data) {
				t.Errorf("%v: %v: %s, want %q", args, err, out, says)
			}
		}
	}
	if n := strings.Count(w.cli("session", "list"), "sesn_"); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
	for _, where := range []string{"layers/*", "uses/*", "tmp/*/*"} {
		if left, err := filepath.Glob(filepath.Join(w.Data, "snapshots", where)); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
}
