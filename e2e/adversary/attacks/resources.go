package attacks

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// refusing runs a command into a limit, and looks for the error message in its output or
// its result.
func refusing(command string, words ...string) func(context.Context, *World) (string, error) {
	return func(ctx context.Context, w *World) (string, error) {
		d, err := w.Me.Do(ctx, command)
		if err != nil {
			return "", err
		}
		seen := strings.TrimSpace(d.Output + " " + d.Error)
		for _, word := range words {
			if !strings.Contains(seen, word) {
				return "", fmt.Errorf("nothing said %q: exit %d, %s", word, d.Exit, oneLine(seen))
			}
		}
		return seen, nil
	}
}

func resources() []Case {
	const full = "No space left on device"
	return []Case{
		{"fork-bomb", "processes that start processes for ever", refusing(
			`perl -e 'while (defined($p = fork)) { unless ($p) { sleep 60; exit } push @all, $p } print "$!\n"; kill 9, @all; 1 while wait > 0'`,
			"Resource temporarily unavailable")},
		{"fork-bomb-left", "a bomb that outlives its command", bombLeft},
		{"thread-bomb", "threads for ever", refusing(
			`/usr/bin/python3 -c 'import threading,time
try:
  for i in range(100000): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
except RuntimeError as e: print(i < 1000, e, flush=True)
import os; os._exit(0)'`, "True can't start new thread")},
		{"memory-hog", "one process of 3 GiB", refusing(`perl -e '$x = "a" x (3 << 30)'; echo then $?`, "out of memory", "then 137")},
		{"memory-hogs", "60 processes of 30 MiB", refusing(
			`perl -e 'for (1..60) { unless (fork) { $x = "a" x (30 << 20); sleep 3; exit } } 1 while wait > 0'; echo over`, "out of memory", "over")},
		{"memory-shm", "filling /dev/shm", refusing(`dd if=/dev/zero of=/dev/shm/fill bs=1M 2>&1; rm /dev/shm/fill`, full)},
		{"memory-root", "filling the root file system", refusing(`dd if=/dev/zero of=/var/fill bs=1M 2>&1; rm /var/fill`, full)},
		{"memory-mmap", "writing to a mapped file of 64 GiB", refusing(
			`truncate -s 64G big; /usr/bin/python3 -c 'import mmap,os
f=os.open("big",os.O_RDWR); m=mmap.mmap(f,0)
for i in range(0,1<<32,4096): m[i]=1' 2>&1; echo then $?; rm -f big`, "then")},
		{"memory-memfd", "a memfd that no process maps", refusing(
			`/usr/bin/python3 -c 'import os
f=os.memfd_create("x")
while True: os.write(f,b"a"*(1<<20))' 2>&1; echo then $?`, "then")},
		{"disk-fill", "more than the disk of the session", refusing(`dd if=/dev/zero of=fill bs=1M 2>&1; rm fill; dd if=/dev/zero of=again bs=1M count=16 2>&1`, full, "16777216 bytes")},
		{"disk-beside", "more than the disk, beside the workspace", diskBeside},
		{"inode-fill", "files for ever", refusing(`mkdir d; perl -e 'for (1..100000) { open(F, ">d/$_") or die "$_ $!\n" }' 2>&1; rm -rf d; echo x >x && cat x`, full)},
		{"fd-exhaustion", "descriptors for ever", refusing(`perl -e 'while (1) { open($f[$i++], "<", "/dev/null") or die "$i $!\n" }' 2>&1; ulimit -Hn 1000000 2>&1`, "Too many open files", "cannot modify limit")},
		{"output-flood", "5 GiB of output", outputFlood},
		{"cpu-loop", "busy loops beside a neighbour", cpuLoop},
	}
}

// bombLeft leaves a bomb behind and must still be of use.
func bombLeft(ctx context.Context, w *World) (string, error) {
	if _, err := w.Me.Do(ctx, `perl -e 'fork; while (1) { unless (fork) { sleep 5; exit } }' >/dev/null 2>&1 & sleep 1`); err != nil {
		return "", err
	}
	began := time.Now()
	for end := began.Add(answersWithin); ; {
		d, err := w.Me.Do(ctx, `kill -9 -1; echo killed`)
		if err == nil && strings.Contains(d.Output, "killed") {
			return fmt.Sprintf("ended by hand after %s", time.Since(began).Round(time.Millisecond)), nil
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("nothing can be run: %+v, %w", d, err)
		}
	}
}

// diskBeside fills what of the machine's own disk can be written to.
func diskBeside(ctx context.Context, w *World) (string, error) {
	if err := w.Me.answers(ctx); err != nil {
		return "", err
	}
	before, err := w.settled(ctx)
	if err != nil {
		return "", err
	}
	d, err := w.Me.Do(ctx, `for d in /.dormouse/run /.dormouse/state /.dormouse/slot /.dormouse/bin /usr /home /mnt /opt /srv /run; do
timeout 20 dd if=/dev/zero of=$d/fill bs=1M count=1000 2>&1 | tail -1; done`)
	if err != nil {
		return "", err
	}
	grown := w.Stored() - before
	if grown > disk {
		return "", fmt.Errorf("%d MiB of the machine's disk were taken: %s", grown>>20, oneLine(d.Output))
	}
	_, err = w.Me.Do(ctx, "rm -f /.dormouse/run/fill /.dormouse/state/fill /.dormouse/slot/fill /home/fill /mnt/fill /opt/fill /srv/fill /run/fill")
	return fmt.Sprintf("%d MiB of the machine's disk", grown>>20), err
}

// outputFlood prints far more than is kept. The server's peak memory may grow a little
// for that.
func outputFlood(ctx context.Context, w *World) (string, error) {
	if err := w.Me.answers(ctx); err != nil {
		return "", err
	}
	before, err := w.RSS(ctx)
	if err != nil {
		return "", err
	}
	stored, err := w.settled(ctx)
	if err != nil {
		return "", err
	}
	d, err := w.Me.Do(ctx, "dd if=/dev/zero bs=64k count=81920 2>/dev/null")
	if err != nil {
		return "", err
	}
	peak, err := w.Peak(ctx)
	if err != nil {
		return "", err
	}
	output, grown, space := len(d.Output), peak-before, w.Stored()-stored
	const most, mostOutput = 32 << 20, 4 << 20
	switch {
	case d.Omitted < 4<<30:
		return "", fmt.Errorf("%d bytes were left out: %+.200v", d.Omitted, d)
	case grown > most || output > mostOutput || space > most:
		return "", fmt.Errorf("the server grew by %d MiB, %d bytes were kept, %d MiB were stored", grown>>20, output, space>>20)
	}
	return fmt.Sprintf("server grew by %d KiB at most, %d KiB kept, %d KiB stored", grown>>10, output>>10, space>>10), nil
}
