package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// secret runs what would print the secret of the machine if it got out. Words in
// braces are where that is.
func secret(command string) func(context.Context, *World) (string, error) {
	return func(ctx context.Context, w *World) (string, error) {
		d, err := w.Me.Do(ctx, w.fill(command))
		if err != nil {
			return "", err
		}
		switch {
		case strings.Contains(d.Output, w.Secret):
			return "", fmt.Errorf("it read the secret of the machine: %s", oneLine(d.Output))
		case strings.Contains(d.Output, "Traceback") || d.Error != "" || d.TimedOut || d.Unknown:
			return "", fmt.Errorf("the attack itself failed: %s %s", oneLine(d.Output), d.Error)
		}
		return d.Output, nil
	}
}

// refused runs what would print BROKE if it were allowed.
func refused(command string) func(context.Context, *World) (string, error) {
	return func(ctx context.Context, w *World) (string, error) {
		seen, err := secret(command)(ctx, w)
		if err == nil && strings.Contains(seen, "BROKE") {
			err = fmt.Errorf("it was allowed: %s", oneLine(seen))
		}
		return seen, err
	}
}

func (w *World) fill(command string) string {
	host, port, _ := strings.Cut(w.TCP, ":")
	return strings.NewReplacer("{FLAG}", w.Flag, "{UNIX}", w.Unix, "{HOST}", host, "{PORT}", port, "{DATA}", w.server.Data).Replace(command)
}

// python runs a program.
func python(program string) string {
	return "/usr/bin/python3 - 2>&1 <<'END'\n" + program + "\nEND"
}

// syscalls tries calls by number and prints BROKE for those that succeed.
func syscalls(calls string) string {
	return python(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, args in {` + calls + `}.items():
    r = libc.syscall(*args)
    print(name, "BROKE" if r >= 0 else os.strerror(ctypes.get_errno()))`)
}

func escapes() []Case {
	return []Case{
		{"host-files", "reading files of the machine", secret(
			`for p in {FLAG} /proc/1/root/{FLAG} /proc/self/root/{FLAG} /proc/1/cwd/{FLAG} ../../../../../../{FLAG} /.dormouse/slot/../../{FLAG} /.dormouse/run/../../../../{FLAG}; do cat $p 2>&1; done
ls {DATA} /etc/shadow /root/.ssh 2>&1; for f in /proc/1/fd/*; do timeout 1 cat $f 2>/dev/null | grep -a flag-; done; true`)},
		{"workspace-symlink", "links of the workspace that lead out", secret(
			`ln -s {FLAG} a; ln -s / b; ln -s /proc/1/root c; cat a b/{FLAG} c/{FLAG} 2>&1; ln {FLAG} d 2>&1; ln /usr/bin/env e 2>&1; true`)},
		{"device-nodes", "making device nodes and reading them", refused(
			`mknod disk b 8 0; mknod loop b 7 0; mknod mem c 1 1; mknod kmsg c 1 11; mknod kvm c 10 232; mknod fuse c 10 229
for d in disk loop mem kmsg kvm fuse /dev/sda /dev/vda /dev/mem /dev/kmsg /dev/loop0 /dev/kvm /dev/fuse; do timeout 2 head -c 16 $d >/dev/null 2>&1 && echo $d BROKE; done; echo none can be read`)},
		{"host-sockets", "sockets of the machine", secret(python(`
import socket, os, glob
for p in ["{UNIX}", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "\0dormouse", *glob.glob("/run/dormouse/*/*")]:
    s = socket.socket(socket.AF_UNIX); s.settimeout(2)
    try:
        s.connect(p); print(p, "connected", s.recv(100))
    except OSError as e: print(p, e.strerror)`))},
		{"host-loopback", "services on the machine's loopback", secret(python(`
import socket
for a in [("{HOST}", {PORT}), ("localhost", {PORT}), ("0.0.0.0", {PORT}), ("10.0.2.2", {PORT}), ("172.17.0.1", {PORT})]:
    try:
        s = socket.create_connection(a, 2); print(a, s.recv(100))
    except OSError as e: print(a, e)`))},
		{"metadata", "the address where clouds give credentials away", refused(python(`
import socket
for a in [("169.254.169.254", 80), ("100.100.100.200", 80), ("168.63.129.16", 80)]:
    try:
        socket.create_connection(a, 2); print(a, "BROKE")
    except OSError as e: print(a, e)`))},
		{"ptrace-init", "tracing and writing the runner", refused(python(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("attach", "BROKE" if libc.ptrace(16, 1, 0, 0) == 0 else os.strerror(ctypes.get_errno()))
print("seize", "BROKE" if libc.ptrace(0x4206, 1, 0, 0) == 0 else os.strerror(ctypes.get_errno()))
try:
    open("/proc/1/mem", "r+b"); print("mem BROKE")
except OSError as e: print("mem", e.strerror)`))},
		{"mounts", "mounting the machine's file systems", secret(
			`mkdir -p m; for t in "-t proc proc" "-t sysfs sysfs" "-t tmpfs t" "--bind /" "-t overlay -o lowerdir=/,upperdir=/tmp,workdir=/tmp o" "-t ext4 /dev/loop0" "-t 9p none" "-t cgroup2 c"; do
mount $t m 2>/dev/null && echo "$t mounted" && cat m/{FLAG} m/1/root/{FLAG} 2>/dev/null; umount m 2>/dev/null; done
unshare -Urmpf --mount-proc sh -c 'cat /proc/1/root/{FLAG} {FLAG}; mount --bind / m && cat m/{FLAG}; nsenter -t 1 -m cat {FLAG}; chroot . cat {FLAG}' 2>&1; true`)},
		{"kernel-calls", "modules, kexec, bpf, perf, handles and the like", refused(syscalls(
			`"init_module": (175, 0, 0, 0), "finit_module": (313, 0, 0, 0), "delete_module": (176, b"m", 0), "kexec_load": (246, 0, 0, 0, 0), "reboot": (169, 0xfee1dead, 672274793, 0x4321fedc, 0),
"bpf": (321, 0, 0, 0), "perf_event_open": (298, 0, 0, -1, -1, 0), "iopl": (172, 3), "ioperm": (173, 0, 8, 1), "open_by_handle_at": (304, -100, 0, 0), "userfaultfd": (323, 0), "io_uring_setup": (425, 8, 0),
"add_key": (248, b"user", b"k", b"v", 1, -3), "swapon": (167, b"/dev/zero", 0), "acct": (163, b"/tmp/x"), "pivot_root": (155, b"/", b"/"), "fanotify_init": (300, 0, 0)`))},
		{"clock", "setting the clock", clock},
		{"hostname", "changing the name of the machine", hostname},
		{"proc-sys-writes", "writing to /proc and /sys", kernelFiles},
		{"own-program", "overwriting the runner and what it is made of", refused(
			`for f in /.dormouse/bin/* /usr/bin/env /proc/1/exe; do (echo x >>$f) 2>/dev/null && echo $f BROKE; rm -f $f 2>/dev/null && echo $f BROKE; done; echo none can be written`)},
	}
}

// clock sets the clock inside; that of the machine must go on as it does.
func clock(ctx context.Context, w *World) (string, error) {
	began, now := time.Now(), time.Now().Round(0) // the first goes by how long it takes, the second by the clock
	d, err := w.Me.Do(ctx, "date -s '2001-01-01' 2>&1; "+syscalls(`"clock_settime": (227, 0, 0), "settimeofday": (164, 0, 0), "adjtimex": (159, 0)`))
	if err != nil {
		return "", err
	}
	if off := time.Now().Round(0).Sub(now) - time.Since(began); off.Abs() > time.Minute {
		return "", fmt.Errorf("the clock of the machine is off by %s", off)
	}
	return d.Output, nil
}

func hostname(ctx context.Context, w *World) (string, error) {
	before, err := os.Hostname()
	if err != nil {
		return "", err
	}
	d, err := w.Me.Do(ctx, "hostname; hostname attacked 2>&1; unshare -Uru hostname attacked 2>&1; hostname")
	if err != nil {
		return "", err
	}
	if after, err := os.Hostname(); err != nil || after != before {
		return "", errors.Join(fmt.Errorf("the machine is called %q now", after), err)
	}
	if strings.Contains(d.Output, before) {
		return "", fmt.Errorf("it knows what the machine is called: %q", before)
	}
	return d.Output, nil
}

// kernelFiles writes to files by which a machine is governed.
func kernelFiles(ctx context.Context, w *World) (string, error) {
	files := []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward"}
	read := func() (all string) {
		for _, f := range files {
			b, _ := os.ReadFile(f) // what is not there does not change
			all += string(b)
		}
		return all
	}
	before := read()
	d, err := w.Me.Do(ctx, "for f in "+strings.Join(files, " ")+
		" /proc/sysrq-trigger /proc/sys/kernel/modprobe /sys/kernel/uevent_helper /sys/power/state /proc/1/oom_score_adj; do (echo 1 >$f) 2>&1; done; echo tried")
	if err != nil {
		return "", err
	}
	if read() != before {
		return "", errors.New("settings of the machine have changed")
	}
	return d.Output, nil
}
