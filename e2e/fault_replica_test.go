//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/dormouse-run/dormouse/internal/pgserver"
)

// backUp makes a replica of the database as it is now.
func (f *fleet) backUp() {
	f.t.Helper()
	dir := filepath.Dir(f.pg.Socket())
	program, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_basebackup")
	must(f.t, err)
	if len(program) == 0 {
		f.t.Fatal("pg_basebackup is not installed")
	}
	cmd := exec.CommandContext(f.ctx, program[len(program)-1], "-h", dir, "-U", "postgres", "-D", filepath.Join(dir, "replica"), "-X", "fetch", "-c", "fast")
	cmd.Dir = dir
	at, err := os.Stat(dir)
	must(f.t, err)
	if owner, ok := at.Sys().(*syscall.Stat_t); ok { // the database does not like root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("back up: %v\n%s", err, out)
	}
}

// failOver has the replica take the place of the database.
func (f *fleet) failOver() {
	f.t.Helper()
	dir := filepath.Dir(f.pg.Socket())
	must(f.t, os.Rename(filepath.Join(dir, "data"), filepath.Join(dir, "dead")))
	must(f.t, os.Rename(filepath.Join(dir, "replica"), filepath.Join(dir, "data")))
	must(f.t, f.pg.Restart(f.ctx, pgserver.Immediate))
}
