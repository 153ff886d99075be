//go:build linux

package e2e

import (
	"compress/gzip"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

var (
	filesSeed = flag.Uint64("files.seed", 1, "of the files that are written to at random")
	filesFor  = flag.Duration("files.for", random, "for how long that goes on")
	filesIn   = flag.String("files.in", insides, "in which sandboxes")
)

// Whatever is done in workspaces, whenever servers are killed: every snapshot that
// was acknowledged brings back what was there, also in a branch, and also when the
// session it was of is gone.
func TestRandomFilesAreBroughtBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	for kind := range strings.FieldsSeq(*filesIn) {
		for name, kills := range map[string]bool{"": false, " while servers are killed": true} {
			t.Run("in "+kind+name, func(t *testing.T) {
				t.Parallel()
				newRandomFiles(t, kind, kills).play()
			})
		}
	}
}

// randomFiles is sessions whose files are written to at random.
type randomFiles struct {
	*world
	r     *rand.Rand
	hand  string // the program that writes, on this machine
	kills bool
	all   []*randomSession

	steps, taken, back, branched, killed, made, deepest int
}

// randomSession is one of them, and what its files were like.
type randomSession struct {
	*rig.Session
	began     string // if it is a branch
	now       string // empty if it is unknown
	snapshots map[dormouse.SnapshotID]string
	gone      map[dormouse.SnapshotID]bool
	slept     map[uint64]string // by the generation of the sandbox
	execs     int
}

func newRandomFiles(t *testing.T, kind string, kills bool) *randomFiles {
	t.Helper()
	hand := filepath.Join(t.TempDir(), "hand")
	must(t, rig.Compile(t.Context(), hand, "./e2e/cmd/hand"))
	seed := uint64(1)
	if kills {
		seed = 2
	}
	l := &randomFiles{r: rand.New(rand.NewPCG(*filesSeed, seed)), hand: hand, kills: kills}
	l.world = newWorld(t, func(s *rig.Server) {
		s.Sandbox, s.Store = kind, rig.Store{}
		s.Flags = append(s.Flags, "--snapshots-keep", "0", "--sandbox-disk", "256M", "--sleep-after", "0")
	})
	if kind == rig.GVisor {
		t.Cleanup(func() { must(t, l.Clear()) })
	}
	return l
}

func (l *randomFiles) play() {
	s, err := l.Create(l.ctx, "random", map[string]any{"warm": true}, "")
	must(l.t, err)
	l.deepen(l.add(s, ""))
	begun := time.Now()
	tried := func() bool { return l.taken > 0 && l.back > 0 && l.branched > 0 && l.kills == (l.killed > 0) }
	for !l.t.Failed() && (time.Since(begun) < *filesFor || !tried() && time.Since(begun) < 10**filesFor) {
		rs := l.all[l.r.IntN(len(l.all))]
		act := l.act()
		l.maybeKilled(func() { act(rs) })
	}
	for n, rs := range l.all {
		l.listed(rs)
		l.sample(rs, time.Now().Add(*filesFor/4/time.Duration(len(l.all)-n)))
		must(l.t, rs.Delete(l.ctx))
	}
	l.t.Logf("seed %d: %d steps, %d snapshots, %d restores, %d branches, %d kills; at most %d layers",
		*filesSeed, l.steps, l.taken, l.back, l.branched, l.killed, l.deepest)
	if l.deepest < deep || l.steps == 0 || !tried() {
		l.t.Error("not everything was tried")
	}
}

// deep is how long a chain is that is worth compaction.
const deep = 13

// deepen makes a chain that long.
func (l *randomFiles) deepen(rs *randomSession) {
	for range deep + 2 {
		l.write(rs)
		l.take(rs)
	}
}

// act picks what is done next.
func (l *randomFiles) act() func(*randomSession) {
	switch l.r.IntN(40) {
	case 0:
		return l.branch
	case 1, 2, 3:
		return l.restore
	case 4, 5:
		return l.forget
	case 6, 7, 8:
		return l.sleep
	case 9, 10:
		return l.look
	case 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22:
		return l.take
	default:
		return l.write
	}
}

// maybeKilled does something, under which the server may be killed.
func (l *randomFiles) maybeKilled(do func()) {
	if !l.kills || l.r.IntN(4) > 0 {
		do()
		return
	}
	l.killed++
	after := time.Duration(l.r.IntN(200)) * time.Millisecond
	life := l.live()
	var killing sync.WaitGroup
	killing.Go(func() {
		_ = sleep.For(l.ctx, after) // killed early is as well
		life.Kill()
	})
	do()
	killing.Wait()
}

// add notes a session whose files are as they are said to be.
func (l *randomFiles) add(s *rig.Session, now string) *randomSession {
	rs := &randomSession{
		Session: s, began: now, now: now, snapshots: make(map[dormouse.SnapshotID]string), gone: make(map[dormouse.SnapshotID]bool),
		slept: make(map[uint64]string),
	}
	l.all = append(l.all, rs)
	return rs
}

// write does random things to the files.
func (l *randomFiles) write(rs *randomSession) {
	steps := 1 + l.r.IntN(60)
	l.steps += steps
	rs.now = "" // if the command is lost
	rs.now = l.seen(rs, fmt.Sprintf("-seed %d -steps %d", l.r.Uint64(), steps))
}

// look compares the files with what they were at the last look.
func (l *randomFiles) look(rs *randomSession) {
	l.t.Helper()
	now := l.seen(rs, "")
	if rs.now != "" && now != rs.now {
		l.t.Fatalf("the files of %s are not what they were (workspace %s):\n%s", rs.ID, l.workspaceOf(rs), layertest.Difference(rs.now, now))
	}
	rs.now = now
}

// workspaceOf says what the session says of its files.
func (l *randomFiles) workspaceOf(rs *randomSession) string {
	var raw string
	_ = l.Get(l.ctx, rs.Path(""), &raw) // for people
	return raw
}

// seen runs the program, and returns what the files are like then. A command that
// was lost is followed by one that only looks.
func (l *randomFiles) seen(rs *randomSession, args string) string {
	l.t.Helper()
	for range 10 {
		rs.execs++
		result, err := rs.Ask(l.ctx, rig.Asked{ClientID: fmt.Sprint("exec", rs.execs), Command: l.inside() + " " + args})
		must(l.t, err)
		if result.Ran() && result.Exit == notFound {
			l.bring(rs)
			continue
		}
		args = ""
		if !result.Ran() {
			continue
		}
		if result.Exit != 0 {
			l.t.Fatalf("the command of %s ended with %d: %s", rs.ID, result.Exit, result.Output)
		}
		return unpacked(l.t, result.Output)
	}
	l.t.Fatal("no command was run to its end")
	return ""
}

// notFound is what a shell says of a program that is not there.
const notFound = 127

// inside is where a sandbox has the program.
func (l *randomFiles) inside() string {
	if l.Sandbox == rig.GVisor {
		return "/tmp/hand"
	}
	return l.hand
}

// bring copies the program to where no snapshot sees it.
func (l *randomFiles) bring(rs *randomSession) {
	l.until("the program is in the sandbox", func() bool {
		return l.command("cp", l.hand, string(rs.ID)+":"+l.inside()).Run() == nil
	})
}

// unpacked is what the program printed.
func unpacked(t *testing.T, coded string) string {
	t.Helper()
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(coded)))
	must(t, err)
	text, err := io.ReadAll(packed)
	must(t, err)
	return string(text)
}

// take takes a snapshot of what is there.
func (l *randomFiles) take(rs *randomSession) {
	if rs.now == "" {
		l.look(rs)
	}
	l.made++
	var taken listedSnapshot
	must(l.t, rs.Repeat(l.ctx, http.MethodPost, rs.Path("/snapshots"), map[string]any{"id": fmt.Sprint("snapshot", l.made)}, &taken))
	l.deepest = max(l.deepest, taken.Depth)
	rs.snapshots[dormouse.SnapshotID(taken.ID)] = rs.now
	l.taken++
}

// restore goes back to one of the snapshots, and looks.
func (l *randomFiles) restore(rs *randomSession) {
	if id := l.some(rs); id != "" {
		l.restoreTo(rs, id)
	}
}

func (l *randomFiles) restoreTo(rs *randomSession, id dormouse.SnapshotID) {
	l.t.Helper()
	l.insist(rs, "restore", map[string]any{"snapshot": id}, nil)
	rs.now = rs.snapshots[id]
	l.back++
	l.look(rs)
}

// some is one of the snapshots, empty if there is none.
func (l *randomFiles) some(rs *randomSession) dormouse.SnapshotID {
	l.learn(rs)
	ids := slices.Sorted(maps.Keys(rs.snapshots))
	if len(ids) == 0 {
		return ""
	}
	return ids[l.r.IntN(len(ids))]
}

// insist asks for something until it is done. What a crash has left to be done
// first is waited for.
func (l *randomFiles) insist(rs *randomSession, what string, body, into any) {
	l.t.Helper()
	for {
		_, err := rs.Once(l.ctx, http.MethodPost, rs.Path("/"+what), body, into)
		if r := rig.Refused(err); !rig.Again(err) && (r == nil || r.Status != http.StatusConflict) {
			must(l.t, err)
			return
		}
		if wait := sleep.For(l.ctx, 20*time.Millisecond); wait != nil {
			l.t.Fatalf("%s of %s: %v: %v", what, rs.ID, err, wait)
		}
	}
}

// branch goes on from a snapshot, or from the present, in another session. When
// there are several, one goes.
func (l *randomFiles) branch(rs *randomSession) {
	const most = 3
	body := map[string]any{"title": fmt.Sprint("branch ", l.branched)}
	was := rs.now
	if id := l.some(rs); id != "" && l.r.IntN(3) > 0 {
		body["snapshot"], was = id, rs.snapshots[id]
	} else if rs.now == "" {
		l.look(rs)
		was = rs.now
	}
	var made struct {
		Session dormouse.SessionID `json:"session"`
	}
	l.insist(rs, "branch", body, &made)
	l.branched++
	l.look(l.add(&rig.Session{Client: l.Client, ID: made.Session}, was))
	if len(l.all) > most {
		n := l.r.IntN(most)
		must(l.t, l.all[n].Delete(l.ctx))
		l.all = slices.Delete(l.all, n, n+1)
	}
}

// forget deletes a snapshot.
func (l *randomFiles) forget(rs *randomSession) {
	id := l.some(rs)
	if id == "" {
		return
	}
	delete(rs.snapshots, id)
	rs.gone[id] = true
	must(l.t, rs.Repeat(l.ctx, http.MethodDelete, rs.Path("/snapshots/"+string(id)), nil, nil))
	if err := l.Get(l.ctx, rs.Path("/snapshots/"+string(id)), nil); !rig.Missing(err) {
		l.t.Fatalf("%s was deleted, and is there: %v", id, err)
	}
}

// sleep sends the sandbox to sleep, of which a snapshot may be taken.
func (l *randomFiles) sleep(rs *randomSession) {
	if rs.now == "" {
		l.look(rs)
	}
	asleep := func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" }
	err := rs.Insist(l.ctx, "hibernate", nil, asleep)
	if r := rig.Refused(err); r == nil || r.Status != http.StatusConflict { // it sleeps already
		must(l.t, err)
	}
	shown, err := rs.Until(l.ctx, asleep)
	must(l.t, err)
	rs.slept[shown.Sandbox.Generation] = rs.now
}

// learn notes the snapshots that were not asked for: of a branch as it began, and
// of sandboxes when they hibernated.
func (l *randomFiles) learn(rs *randomSession) {
	l.t.Helper()
	log, err := rs.Events(l.ctx)
	must(l.t, err)
	for _, e := range log {
		if e.Type != dormouse.SnapshotTaken {
			continue
		}
		p := rig.Decode[dormouse.Snapshot](e)
		was := rs.began
		if p.Reason == dormouse.SnapshotSealing {
			was = rs.slept[p.Generation]
		}
		if p.Reason == dormouse.SnapshotAsked || was == "" || rs.gone[p.ID] {
			continue
		}
		rs.snapshots[p.ID] = was
	}
}

// snapshotsOf lists them all.
func (l *randomFiles) snapshotsOf(rs *randomSession) (all []listedSnapshot) {
	l.t.Helper()
	for after := ""; ; {
		var page struct {
			Snapshots []listedSnapshot `json:"snapshots"`
			Next      string           `json:"next"`
		}
		path := rs.Path("/snapshots?limit=100")
		if after != "" {
			path += "&after=" + after
		}
		must(l.t, l.Get(l.ctx, path, &page))
		all = append(all, page.Snapshots...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

// listed looks whether all snapshots are there that should be.
func (l *randomFiles) listed(rs *randomSession) {
	l.t.Helper()
	l.learn(rs)
	there := make(map[dormouse.SnapshotID]bool)
	for _, p := range l.snapshotsOf(rs) {
		there[dormouse.SnapshotID(p.ID)] = true
	}
	for id := range rs.snapshots {
		if !there[id] {
			l.t.Errorf("%s of %s is not listed", id, rs.ID)
		}
	}
}

// sample goes back to snapshots of all ages.
func (l *randomFiles) sample(rs *randomSession, end time.Time) {
	ids := slices.Sorted(maps.Keys(rs.snapshots))
	l.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for ; len(ids) > 0 && time.Now().Before(end); ids = ids[1:] {
		l.restoreTo(rs, ids[0])
	}
}
