package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// stores makes empty databases of a kind.
func stores(t *testing.T, kind string) func() rig.Store {
	t.Helper()
	all, err := rig.NewStores(t.Context(), kind, 3*time.Second)
	must(t, err)
	t.Cleanup(func() { must(t, all.Close()) })
	return func() rig.Store {
		t.Helper()
		s, _, err := all.Make(t.Context())
		must(t, err)
		return s
	}
}

// keep is a store and the data directory beside it, without a running server.
type keep struct {
	data  string
	store rig.Store
}

// command is one of the store commands.
func (k keep) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"store", "--json", "--data", k.data}, args...)
	if k.store.Shared() {
		args = append(args, "--store", k.store.URL)
	}
	return exec.CommandContext(ctx, built.Server, args...)
}

// carried is what an export or an import says it did.
type carried struct {
	Sessions, Events, Chunks, Blobs int
	Added, Verified                 int
	Digest                          dormouse.Digest
}

// tend runs a store command that has to work.
func (w *world) tend(k keep, args ...string) (c carried) {
	w.t.Helper()
	cmd := k.command(w.ctx, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("store %v: %v\n%s", args, err, errs.String())
	}
	must(w.t, json.Unmarshal(out, &c))
	return c
}

// move carries everything from one store to another through an archive.
func (w *world) move(from, to keep) carried {
	w.t.Helper()
	file := filepath.Join(w.witness.Dir, fmt.Sprintf("archive%d", time.Now().UnixNano()))
	out := w.tend(from, "export", file)
	in := w.tend(to, "import", file)
	if in.Digest != out.Digest || in.Events != out.Events || in.Added != out.Events || in.Verified != out.Sessions {
		w.t.Errorf("exported %+v, imported %+v", out, in)
	}
	must(w.t, os.Remove(file))
	return out
}

// Sessions move to another database in the middle of what they do, twice;
// clients see a server that was killed.
func TestTurnsGoOnInAnotherDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pg := keep{w.Data, stores(t, "postgres")()}
	lite := keep{data: w.Data}

	acting, talking, resting, over := w.create(nil), w.create(cold), w.create(cold), w.create(cold)
	resting.send("large", resting.script(rig.Say("read it"))+strings.Repeat(" large", 30_000))
	resting.rests()
	over.send("one", over.script(rig.Say("farewell")))
	over.rests()
	must(t, over.Command(w.ctx, "terminate", nil))
	wait, open := w.gate()
	acting.send("one", acting.script(rig.Bash(acting.marked(wait)), rig.Say("it went on")))
	acting.send("two", acting.script(rig.Say("and took the next")))
	acting.begun(1)
	const text = "a slow and stately sentence, of which somebody has already seen the beginning"
	talking.send("one", talking.script(rig.Step{"text": text, "chunks": 40, "chunk_delay_ms": 50}))
	w.until("somebody has seen a fragment", func() bool { return len(talking.Follower.Texts()) > 0 })

	w.kill(func() {
		if c := w.move(lite, pg); c.Sessions != 4 || c.Chunks == 0 || c.Blobs == 0 {
			t.Errorf("moved %+v", c)
		}
		w.Store = pg.store
	})
	talking.rests()
	said := only(talking.log(), dormouse.AgentMessage)
	if len(said) != 2 || words(said[0]) == "" || !strings.HasPrefix(text, words(said[0])) || words(said[1]) != text {
		t.Errorf("said were %s, want the seen beginning once and then all of it", types(said))
	}
	resting.send("again", resting.script(rig.Say("still here")))
	resting.rests()

	w.kill(func() {
		for _, f := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(filepath.Join(w.Data, "dormouse.db"+f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
		time.Sleep(pg.store.Lease) // of the server that was killed
		w.move(pg, lite)
		w.Store = rig.Store{}
	})
	open()
	acting.rests()
	if n := acting.effects("begin"); n != 1 {
		t.Errorf("the command began %d times, want once", n)
	}
	if said := only(acting.log(), dormouse.AgentMessage); len(said) != 2 || words(said[1]) != "and took the next" {
		t.Errorf("the agent said %s", types(said))
	}
	if shown := over.show(); shown.Phase != dormouse.PhaseTerminated {
		t.Errorf("what was terminated is %s", shown.Phase)
	}
}

// On another machine there are the sessions of the archive and the files that
// were copied, and no sandbox.
func TestSessionsFindTheirCopiedFilesElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.send("one", a.script(rig.Bash("echo kept > file; echo kept > ~/file"), rig.Say("written")))
	a.rests()
	old, other := keep{data: w.Data}, keep{data: filepath.Join(filepath.Dir(w.Data), "other")}
	w.kill(func() {
		w.KillSandboxes()
		w.move(old, other)
		for _, what := range []string{"token", "sandbox/workspaces", "sandbox/homes"} {
			to := filepath.Join(other.data, what)
			must(t, os.MkdirAll(filepath.Dir(to), 0o700))
			out, err := exec.CommandContext(w.ctx, "cp", "-a", filepath.Join(old.data, what), to).CombinedOutput()
			if err != nil {
				t.Errorf("copy %s: %v\n%s", what, err, out)
			}
		}
		w.Data = other.data
	})
	a.send("two", a.script(rig.Bash("cat file ~/file"), rig.Say("read")))
	a.rests()
	if results := only(a.log(), dormouse.AgentToolResult); len(results) != 2 || strings.Count(words(results[1]), "kept") != 2 {
		t.Errorf("the files hold %s", types(results))
	}
}

// Killed at any instant and run again, an export is whole or not there, and an
// import loses nothing and doubles nothing.
func TestKilledExportsAndImportsComplete(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, store := newWorld(t), stores(t, kind)
			dir := filepath.Dir(w.Data)
			source, file := keep{data: filepath.Join(dir, "source")}, filepath.Join(dir, "archive")
			w.leave(source)
			out, whole := w.killExports(source, file)
			w.killImports(func(name string) keep { return keep{filepath.Join(dir, name), store()} }, file, out, whole)
		})
	}
}

const (
	manySessions = 40
	manyKills    = 3
)

// leave makes sessions, kills the server in the middle of them and copies what
// it left.
func (w *world) leave(to keep) {
	w.t.Helper()
	for n := range manySessions {
		tag := fmt.Sprintf("killed-%d", n)
		s, err := w.Create(w.ctx, tag, cold, rig.Script(tag, rig.Say("one"), rig.Say(strings.Repeat("two ", 1000*(n%20)))))
		must(w.t, err)
		if n%4 > 0 {
			must(w.t, s.Prompt(w.ctx, "two", rig.Script(tag, rig.Say("more"))+strings.Repeat(" more", 20_000)))
		}
	}
	w.kill(func() {
		if out, err := exec.CommandContext(w.ctx, "cp", "-a", w.Data, to.data).CombinedOutput(); err != nil {
			w.t.Errorf("copy: %v\n%s", err, out)
		}
	})
}

// killAfter kills a store command at some instant of the time it takes.
func (w *world) killAfter(full time.Duration, k keep, args ...string) {
	w.t.Helper()
	cmd := k.command(w.ctx, args...)
	must(w.t, cmd.Start())
	must(w.t, sleep.For(w.ctx, time.Duration(rand.Int64N(int64(full)))))
	_ = cmd.Process.Kill() // it may be done
	_ = cmd.Wait()
}

func (w *world) killExports(source keep, file string) (out carried, whole []byte) {
	w.t.Helper()
	start := time.Now()
	out = w.tend(source, "export", file)
	full := time.Since(start)
	whole, err := os.ReadFile(file)
	must(w.t, err)
	if out.Sessions != manySessions || out.Blobs == 0 {
		w.t.Errorf("exported %+v", out)
	}
	for range manyKills {
		must(w.t, os.Remove(file))
		w.killAfter(full, source, "export", file)
		if b, err := os.ReadFile(file); err == nil && !bytes.Equal(b, whole) {
			w.t.Errorf("a killed export left %d of %d bytes under its name", len(b), len(whole))
		}
		if again := w.tend(source, "export", file); again != out {
			w.t.Errorf("exported %+v, and before that %+v", again, out)
		}
	}
	return out, whole
}

func (w *world) killImports(open func(name string) keep, file string, out carried, whole []byte) {
	w.t.Helper()
	start := time.Now()
	w.tend(open("scratch"), "import", file)
	full := time.Since(start)
	target := open("target")
	for range manyKills {
		w.killAfter(full, target, "import", file)
		if target.store.Shared() {
			must(w.t, sleep.For(w.ctx, target.store.Lease)) // it is held until then
		}
		w.tend(target, "import", file, "--check")
	}
	if in := w.tend(target, "import", file); in.Verified != manySessions || in.Digest != out.Digest {
		w.t.Errorf("imported %+v of %+v", in, out)
	}
	w.tend(target, "rebuild", "--check")
	w.tend(target, "export", file)
	if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, whole) {
		w.t.Errorf("what was imported exports to another archive, %v", err)
	}
}
