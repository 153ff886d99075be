package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// floors are what this machine takes for operations that every solution needs.
type floors struct {
	sync time.Duration // of a page added to a file
	fork time.Duration // of a program that does nothing
}

// measureFloors looks at the disk and the kernel, on the file system that
// everything else is measured on.
func (b *bench) measureFloors(ctx context.Context) error {
	var syncs, forks, shells sample
	f, err := os.Create(filepath.Join(b.dir, "floor"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	page := make([]byte, 4096)
	for range b.times(300) {
		if _, err := f.Write(page); err != nil {
			return err
		}
		if err := syncs.timed(func() error { return syscall.Fdatasync(int(f.Fd())) }); err != nil {
			return err
		}
	}
	for range b.times(100) {
		if err := forks.timed(func() error { return exec.CommandContext(ctx, "/bin/true").Run() }); err != nil {
			return err
		}
		if err := shells.timed(func() error { return bareExec(ctx) }); err != nil {
			return err
		}
	}
	b.floors = floors{sync: syncs.median(), fork: forks.median()}
	b.report("floor", line{Name: "fsync", Numbers: []number{took("p50", syncs.median()), took("p99", syncs.quantile(0.99))}})
	b.report("floor", line{Name: "fork", Numbers: []number{took("true", forks.median()), took("bash", shells.median())}})
	return nil
}

// bareExec is what a tool call comes down to.
func bareExec(ctx context.Context) error {
	return exec.CommandContext(ctx, "/bin/bash", "-c", "true").Run()
}
