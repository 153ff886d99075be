//go:build linux

package fencing_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/fencing"
)

const (
	ours = "5c0ffee"
	dirs = "FENCING_TEST_DIR"
)

// TestMain is also another server, which signs and then waits to be told what to sign
// next.
func TestMain(m *testing.M) {
	dir := os.Getenv(dirs)
	if dir == "" {
		os.Exit(m.Run())
	}
	r, err := fencing.Open(dir, os.Getenv("FENCING_TEST_STORE"))
	if err != nil {
		panic(err)
	}
	fmt.Println("open")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, _ := strconv.ParseUint(in.Text(), 10, 64)
		if err := r.Sign(n); err != nil {
			panic(err)
		}
		fmt.Println("signed")
	}
	os.Exit(0)
}

// other is a server in a process of its own.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func start(t *testing.T, dir, store string) *other {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), dirs+"="+dir, "FENCING_TEST_STORE="+store)
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	o := &other{t: t, cmd: cmd, in: write, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = write.Close()
	})
	o.answer()
	return o
}

func (o *other) answer() {
	o.t.Helper()
	if !o.out.Scan() {
		o.t.Fatal("the other server ended")
	}
}

func (o *other) sign(incarnation uint64) {
	o.t.Helper()
	fmt.Fprintln(o.in, incarnation)
	o.answer()
}

func (o *other) freeze() { _ = o.cmd.Process.Signal(unix.SIGSTOP) }

// lives reports whether the process is there and no zombie.
func (o *other) lives() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

func open(t *testing.T, dir string) *fencing.Register {
	t.Helper()
	r, err := fencing.Open(dir, ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func others(t *testing.T, r *fencing.Register) []fencing.Holder {
	t.Helper()
	all, err := r.Others()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func yes(context.Context) (bool, error) { return true, nil }

func TestAServerThatHoldsOnIsEnded(t *testing.T) {
	dir := t.TempDir()
	r, o := open(t, dir), start(t, dir, ours)
	if all := others(t, r); len(all) != 0 {
		t.Fatalf("%v hold a lease, and nobody has one", all)
	}
	o.sign(7)
	o.freeze()
	all := others(t, r)
	if len(all) != 1 || all[0].Incarnation != 7 || all[0].PID != o.cmd.Process.Pid {
		t.Fatalf("%+v hold a lease, want process %d as 7", all, o.cmd.Process.Pid)
	}
	for end := time.Now().Add(10 * time.Second); !all[0].Stopped(); {
		if time.Now().After(end) {
			t.Fatal("a stopped process is not seen to be")
		}
	}
	asked := 0
	ended, err := r.End(t.Context(), all[0], func(context.Context) (bool, error) { asked++; return true, nil })
	if !ended || err != nil || asked != 1 {
		t.Fatalf("ended %v, %v, after %d questions", ended, err, asked)
	}
	if o.lives() {
		t.Error("it lives")
	}
	if all := others(t, r); len(all) != 0 {
		t.Errorf("%v still hold a lease", all)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v are left, %v, want our own signature", left, err)
	}
}

func TestOnlyTheServerThatSignedIsEnded(t *testing.T) {
	t.Run("one whose lease is good", func(t *testing.T) {
		dir := t.TempDir()
		r, o := open(t, dir), start(t, dir, ours)
		o.sign(7)
		ended, err := r.End(t.Context(), others(t, r)[0], func(context.Context) (bool, error) { return false, nil })
		if ended || err != nil || !o.lives() {
			t.Errorf("ended %v, %v, lives %v", ended, err, o.lives())
		}
	})
	t.Run("a database that does not answer", func(t *testing.T) {
		dir := t.TempDir()
		r, o := open(t, dir), start(t, dir, ours)
		o.sign(7)
		away := errors.New("away")
		ended, err := r.End(t.Context(), others(t, r)[0], func(context.Context) (bool, error) { return true, away })
		if ended || !errors.Is(err, away) || !o.lives() {
			t.Errorf("ended %v, %v, lives %v", ended, err, o.lives())
		}
	})
	t.Run("one that let go while it was judged", func(t *testing.T) {
		dir := t.TempDir()
		r, o := open(t, dir), start(t, dir, ours)
		o.sign(7)
		for _, next := range []uint64{0, 8} {
			o.sign(7)
			ended, err := r.End(t.Context(), others(t, r)[0], func(context.Context) (bool, error) { o.sign(next); return true, nil })
			if ended || err != nil || !o.lives() {
				t.Errorf("signed %d: ended %v, %v, lives %v", next, ended, err, o.lives())
			}
		}
	})
	t.Run("one of another store", func(t *testing.T) {
		dir := t.TempDir()
		r, o := open(t, dir), start(t, dir, "0ther")
		o.sign(7)
		if all := others(t, r); len(all) != 0 {
			t.Errorf("%v are ours to judge", all)
		}
	})
	t.Run("one in this process", func(t *testing.T) {
		dir := t.TempDir()
		r, second := open(t, dir), open(t, dir)
		if err := second.Sign(7); err != nil {
			t.Fatal(err)
		}
		if all := others(t, r); len(all) != 0 {
			t.Errorf("%v are others", all)
		}
	})
	// A process that has the file locked is not trusted to be the one that its name
	// says.
	lies := map[string]func(parts []string, pid string){
		"another process got its number": func(parts []string, _ string) { parts[3] = "1" + parts[3] },
		"another process is named":       func(parts []string, pid string) { parts[2] = pid },
		"another boot":                   func(parts []string, _ string) { parts[4] = "0" + parts[4][1:] },
		"another PID namespace":          func(parts []string, _ string) { parts[4] += "1" },
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, o := open(t, dir), start(t, dir, ours)
			o.sign(7)
			bystander := exec.CommandContext(t.Context(), "sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
			found, err := filepath.Glob(filepath.Join(dir, ours+".7.*"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			parts := strings.Split(filepath.Base(found[0]), ".")
			lie(parts, strconv.Itoa(bystander.Process.Pid))
			if err := os.Rename(found[0], filepath.Join(dir, strings.Join(parts, "."))); err != nil {
				t.Fatal(err)
			}
			asked := false
			ended, err := r.End(t.Context(), others(t, r)[0], func(context.Context) (bool, error) { asked = true; return true, nil })
			if ended || asked || !errors.Is(err, fencing.ErrUnproven) {
				t.Errorf("ended %v, asked %v, %v", ended, asked, err)
			}
			if !o.lives() || bystander.Process.Signal(unix.Signal(0)) != nil {
				t.Error("somebody was ended")
			}
		})
	}
	t.Run("the number and the start of a process that has the file not open", func(t *testing.T) {
		dir := t.TempDir()
		r, o := open(t, dir), start(t, dir, ours)
		o.sign(7)
		found, _ := filepath.Glob(filepath.Join(dir, ours+".7.*"))
		if err := os.Rename(found[0], filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		mine, err := os.Create(found[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mine.Close() }()
		if err := unix.Flock(int(mine.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		ended, err := r.End(t.Context(), others(t, r)[0], yes)
		if ended || !errors.Is(err, fencing.ErrUnproven) || !o.lives() {
			t.Errorf("ended %v, %v, lives %v", ended, err, o.lives())
		}
	})
}

func TestWhatTheDeadSignedIsCleared(t *testing.T) {
	dir := t.TempDir()
	r, o := open(t, dir), start(t, dir, ours)
	o.sign(7)
	held := others(t, r)
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
	if ended, err := r.End(t.Context(), held[0], yes); ended || err != nil {
		t.Errorf("ended %v, %v", ended, err)
	}
	if all := others(t, r); len(all) != 0 {
		t.Errorf("%v hold a lease", all)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestASignatureOutlivesItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "servers")
	r := open(t, dir)
	o := start(t, dir, ours)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	o.sign(7)
	if all := others(t, r); len(all) != 1 {
		t.Errorf("%v hold a lease, want one", all)
	}
	if err := r.Sign(8); err != nil {
		t.Error(err)
	}
}

type term struct {
	context.Context
	entered int
}

func (l *term) Enter() func()         { l.entered++; return func() { l.entered-- } }
func (l *term) Over() context.Context { return l }

func TestWhatOutlivesItsCallerEndsWithTheLease(t *testing.T) {
	life, over := context.WithCancelCause(t.Context())
	lease := &term{Context: life}
	call, returned := context.WithCancel(fencing.Under(t.Context(), lease))
	ctx, done := fencing.Outlive(call)
	returned()
	if ctx.Err() != nil || lease.entered != 1 {
		t.Errorf("%v, %d entered", ctx.Err(), lease.entered)
	}
	why := errors.New("over")
	over(why)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), why) {
		t.Errorf("ended for %v", context.Cause(ctx))
	}
	done()
	if lease.entered != 0 {
		t.Error("the lease is still held")
	}
	plain, done := fencing.Outlive(call)
	done()
	if plain.Err() == nil {
		t.Error("what is over is not over")
	}
}
