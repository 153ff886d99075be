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
	linesSeed = flag.Uint64("lines.seed", 1, "of the files that are written to at random")
	linesFor  = flag.Duration("lines.for", random, "for how long that goes on")
	linesIn   = flag.String("lines.in", insides, "in which sandboxes")
)

// Whatever is done in workspaces, whenever servers are killed: every snapshot that
// was acknowledged brings back what was there, also in a branch, and also when the
// session it was of is gone.
func TestRandomFilesAreBroughtBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
	t.Parallel()
	for kind := range strings.FieldsSeq(*linesIn) {
		for name, kills := range map[string]bool{"": false, " while servers are killed": true} {
			t.Run("in "+kind+name, func(t *testing.T) {
				t.Parallel()
				newLines(t, kind, kills).play()
			})
		}
	}
}

// lines are sessions whose files are written to at random.
type lines struct {
	*world
	r     *rand.Rand
	hand  string // the program that writes, on this machine
	kills bool
	all   []*randomLine

	steps, taken, back, branched, killed, made, deepest int
}

// randomLine is one session of them, and what its files were like.
type randomLine struct {
	*rig.Session
	began  string // if it is a branch
	now    string // empty if nobody knows
	points map[dormouse.SnapshotID]string
	gone   map[dormouse.SnapshotID]bool
	slept  map[uint64]string // by the generation of the sandbox
	execs  int
}

func newLines(t *testing.T, kind string, kills bool) *lines {
	t.Helper()
	hand := filepath.Join(t.TempDir(), "hand")
	must(t, rig.Compile(t.Context(), hand, "./e2e/cmd/hand"))
	seed := uint64(1)
	if kills {
		seed = 2
	}
	l := &lines{r: rand.New(rand.NewPCG(*linesSeed, seed)), hand: hand, kills: kills}
	l.world = newWorld(t, func(s *rig.Server) {
		s.Sandbox, s.Store = kind, rig.Store{}
		s.Flags = append(s.Flags, "--snapshots-keep", "0", "--sandbox-disk", "256M", "--sleep-after", "0")
	})
	if kind == rig.GVisor {
		t.Cleanup(func() { must(t, l.Clear()) })
	}
	return l
}

func (l *lines) play() {
	s, err := l.Create(l.ctx, "random", map[string]any{"warm": true}, "")
	must(l.t, err)
	l.deepen(l.add(s, ""))
	begun := time.Now()
	tried := func() bool { return l.taken > 0 && l.back > 0 && l.branched > 0 && l.kills == (l.killed > 0) }
	for !l.t.Failed() && (time.Since(begun) < *linesFor || !tried() && time.Since(begun) < 10**linesFor) {
		line := l.all[l.r.IntN(len(l.all))]
		act := l.act()
		l.maybeKilled(func() { act(line) })
	}
	for n, line := range l.all {
		l.listed(line)
		l.sample(line, time.Now().Add(*linesFor/4/time.Duration(len(l.all)-n)))
		must(l.t, line.Delete(l.ctx))
	}
	l.t.Logf("seed %d: %d steps, %d points, %d times back, %d branches, %d kills; at most %d layers",
		*linesSeed, l.steps, l.taken, l.back, l.branched, l.killed, l.deepest)
	if l.deepest < deep || l.steps == 0 || !tried() {
		l.t.Error("not everything was tried")
	}
}

// deep is how long a line is that is worth being made shorter.
const deep = 13

// deepen makes a line so long.
func (l *lines) deepen(line *randomLine) {
	for range deep + 2 {
		l.write(line)
		l.take(line)
	}
}

// act picks what is done next.
func (l *lines) act() func(*randomLine) {
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
func (l *lines) maybeKilled(do func()) {
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
func (l *lines) add(s *rig.Session, now string) *randomLine {
	line := &randomLine{
		Session: s, began: now, now: now, points: make(map[dormouse.SnapshotID]string), gone: make(map[dormouse.SnapshotID]bool),
		slept: make(map[uint64]string),
	}
	l.all = append(l.all, line)
	return line
}

// write does random things to the files.
func (l *lines) write(line *randomLine) {
	steps := 1 + l.r.IntN(60)
	l.steps += steps
	line.now = "" // if the command is lost
	line.now = l.seen(line, fmt.Sprintf("-seed %d -steps %d", l.r.Uint64(), steps))
}

// look compares the files with what they were when somebody last looked.
func (l *lines) look(line *randomLine) {
	l.t.Helper()
	now := l.seen(line, "")
	if line.now != "" && now != line.now {
		l.t.Fatalf("the files of %s are not what they were (workspace %s):\n%s", line.ID, l.workspaceOf(line), layertest.Difference(line.now, now))
	}
	line.now = now
}

// workspaceOf says what the session says of its files.
func (l *lines) workspaceOf(line *randomLine) string {
	var raw string
	_ = l.Get(l.ctx, line.Path(""), &raw) // for people
	return raw
}

// seen runs the program, and returns what the files are like then. A command that
// was lost is followed by one that only looks.
func (l *lines) seen(line *randomLine, args string) string {
	l.t.Helper()
	for range 10 {
		line.execs++
		told, err := line.Ask(l.ctx, rig.Asked{ClientID: fmt.Sprint("exec", line.execs), Command: l.inside() + " " + args})
		must(l.t, err)
		if told.Ran() && told.Exit == notFound {
			l.bring(line)
			continue
		}
		args = ""
		if !told.Ran() {
			continue
		}
		if told.Exit != 0 {
			l.t.Fatalf("the command of %s ended with %d: %s", line.ID, told.Exit, told.Output)
		}
		return unpacked(l.t, told.Output)
	}
	l.t.Fatal("no command was run to its end")
	return ""
}

// notFound is what a shell says of a program that is not there.
const notFound = 127

// inside is where a sandbox has the program.
func (l *lines) inside() string {
	if l.Sandbox == rig.GVisor {
		return "/tmp/hand"
	}
	return l.hand
}

// bring copies the program to where no snapshot sees it.
func (l *lines) bring(line *randomLine) {
	l.until("the program is in the sandbox", func() bool {
		return l.command("cp", l.hand, string(line.ID)+":"+l.inside()).Run() == nil
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
func (l *lines) take(line *randomLine) {
	if line.now == "" {
		l.look(line)
	}
	l.made++
	var taken listedSnapshot
	must(l.t, line.Repeat(l.ctx, http.MethodPost, line.Path("/snapshots"), map[string]any{"id": fmt.Sprint("point", l.made)}, &taken))
	l.deepest = max(l.deepest, taken.Depth)
	line.points[dormouse.SnapshotID(taken.ID)] = line.now
	l.taken++
}

// restore goes back to one of the snapshots, and looks.
func (l *lines) restore(line *randomLine) {
	if id := l.some(line); id != "" {
		l.restoreTo(line, id)
	}
}

func (l *lines) restoreTo(line *randomLine, id dormouse.SnapshotID) {
	l.t.Helper()
	l.insist(line, "restore", map[string]any{"snapshot": id}, nil)
	line.now = line.points[id]
	l.back++
	l.look(line)
}

// some is one of the snapshots, empty if there is none.
func (l *lines) some(line *randomLine) dormouse.SnapshotID {
	l.learn(line)
	ids := slices.Sorted(maps.Keys(line.points))
	if len(ids) == 0 {
		return ""
	}
	return ids[l.r.IntN(len(ids))]
}

// insist asks for something until it is done. What a crash has left to be done
// first is waited for.
func (l *lines) insist(line *randomLine, what string, body, into any) {
	l.t.Helper()
	for {
		_, err := line.Once(l.ctx, http.MethodPost, line.Path("/"+what), body, into)
		if r := rig.Refused(err); !rig.Again(err) && (r == nil || r.Status != http.StatusConflict) {
			must(l.t, err)
			return
		}
		if wait := sleep.For(l.ctx, 20*time.Millisecond); wait != nil {
			l.t.Fatalf("%s of %s: %v: %v", what, line.ID, err, wait)
		}
	}
}

// branch goes on from a snapshot, or from the present, in another session. When
// there are several, one goes.
func (l *lines) branch(line *randomLine) {
	const most = 3
	body := map[string]any{"title": fmt.Sprint("branch ", l.branched)}
	was := line.now
	if id := l.some(line); id != "" && l.r.IntN(3) > 0 {
		body["snapshot"], was = id, line.points[id]
	} else if line.now == "" {
		l.look(line)
		was = line.now
	}
	var made struct {
		Session dormouse.SessionID `json:"session"`
	}
	l.insist(line, "branch", body, &made)
	l.branched++
	l.look(l.add(&rig.Session{Client: l.Client, ID: made.Session}, was))
	if len(l.all) > most {
		n := l.r.IntN(most)
		must(l.t, l.all[n].Delete(l.ctx))
		l.all = slices.Delete(l.all, n, n+1)
	}
}

// forget deletes a snapshot.
func (l *lines) forget(line *randomLine) {
	id := l.some(line)
	if id == "" {
		return
	}
	delete(line.points, id)
	line.gone[id] = true
	must(l.t, line.Repeat(l.ctx, http.MethodDelete, line.Path("/snapshots/"+string(id)), nil, nil))
	if err := l.Get(l.ctx, line.Path("/snapshots/"+string(id)), nil); !rig.Missing(err) {
		l.t.Fatalf("%s was deleted, and is there: %v", id, err)
	}
}

// sleep sends the sandbox to sleep, of which a snapshot may be taken.
func (l *lines) sleep(line *randomLine) {
	if line.now == "" {
		l.look(line)
	}
	asleep := func(s rig.Shown) bool { return s.Sandbox.Phase == "cold" }
	err := line.Insist(l.ctx, "hibernate", nil, asleep)
	if r := rig.Refused(err); r == nil || r.Status != http.StatusConflict { // it sleeps already
		must(l.t, err)
	}
	shown, err := line.Until(l.ctx, asleep)
	must(l.t, err)
	line.slept[shown.Sandbox.Generation] = line.now
}

// learn notes the snapshots that nobody asked for: of a branch as it began, and of
// sandboxes when they went to sleep.
func (l *lines) learn(line *randomLine) {
	l.t.Helper()
	log, err := line.Events(l.ctx)
	must(l.t, err)
	for _, e := range log {
		if e.Type != dormouse.SnapshotTaken {
			continue
		}
		p := rig.Decode[dormouse.Snapshot](e)
		was := line.began
		if p.Reason == dormouse.SnapshotSealing {
			was = line.slept[p.Generation]
		}
		if p.Reason == dormouse.SnapshotAsked || was == "" || line.gone[p.ID] {
			continue
		}
		line.points[p.ID] = was
	}
}

// snapshotsOf lists them all.
func (l *lines) snapshotsOf(line *randomLine) (all []listedSnapshot) {
	l.t.Helper()
	for after := ""; ; {
		var page struct {
			Snapshots []listedSnapshot `json:"snapshots"`
			Next      string           `json:"next"`
		}
		path := line.Path("/snapshots?limit=100")
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
func (l *lines) listed(line *randomLine) {
	l.t.Helper()
	l.learn(line)
	there := make(map[dormouse.SnapshotID]bool)
	for _, p := range l.snapshotsOf(line) {
		there[dormouse.SnapshotID(p.ID)] = true
	}
	for id := range line.points {
		if !there[id] {
			l.t.Errorf("%s of %s is not listed", id, line.ID)
		}
	}
}

// sample goes back to snapshots of all ages.
func (l *lines) sample(line *randomLine, end time.Time) {
	ids := slices.Sorted(maps.Keys(line.points))
	l.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for ; len(ids) > 0 && time.Now().Before(end); ids = ids[1:] {
		l.restoreTo(line, ids[0])
	}
}
