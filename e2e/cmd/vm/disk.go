package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packages are what the machine has beside Debian's essential ones. Programs in
// sandboxes are those of the machine.
var packages = []string{
	"linux-image-cloud-amd64", "systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps",
	"bash", "ca-certificates", "e2fsprogs", "git", "perl-base", "python3",
}

// unit runs what is on the second disk, says on the second serial line what it
// says, and ends the machine.
//
//go:embed machine.service
var unit string

// inside is what is run in the machine.
//
//go:embed inside.sh
var inside string

// root returns a directory with the machine's disk, kernel and initial ramdisk. It
// takes minutes to make and is kept for as long as it would be made the same way.
func (m machine) root(ctx context.Context) (string, error) {
	key := fnv.New64a()
	fmt.Fprint(key, m.suite, packages, unit)
	dir := filepath.Join(m.cache, fmt.Sprintf("%s-%x", m.suite, key.Sum64()))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Fprintln(os.Stdout, "vm: making the machine's disk, once; minutes")
	tmp, err := os.MkdirTemp(m.cache, "root-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	files := filepath.Join(tmp, "files")
	args := []string{"--variant=apt", "--include=" + strings.Join(packages, ","), `--aptopt=Acquire::Languages "none"`, m.suite, files}
	if err := command(ctx, []string{"TMPDIR=" + tmp}, "mmdebstrap", append(args, sources()...)...); err != nil {
		return "", err
	}
	if err := furnish(files); err != nil {
		return "", err
	}
	made := filepath.Join(tmp, "made")
	if err := os.Mkdir(made, 0o700); err != nil {
		return "", err
	}
	for name, pattern := range map[string]string{"vmlinuz": "vmlinuz-*", "initrd": "initrd.img-*"} {
		found, err := filepath.Glob(filepath.Join(files, "boot", pattern))
		if err != nil || len(found) == 0 {
			return "", errors.Join(fmt.Errorf("there is no /boot/%s", pattern), err)
		}
		if err := os.Rename(slices.Max(found), filepath.Join(made, name)); err != nil {
			return "", err
		}
	}
	if err := format(ctx, filepath.Join(made, "disk"), files, 6<<30); err != nil {
		return "", err
	}
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// sources are where this machine has its packages from, if that is known.
func sources() []string {
	for _, file := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		if at, err := os.Stat(file); err == nil && at.Size() > 0 {
			return []string{file}
		}
	}
	return nil
}

// furnish has the machine run what it is for, and nothing that would slow it down.
func furnish(root string) error {
	const units = "etc/systemd/system"
	for name, text := range map[string]string{
		"etc/fstab":                "/dev/vda / ext4 rw,noatime 0 1\n",
		"etc/hostname":             "machine\n",
		units + "/machine.service": unit,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	wants := filepath.Join(root, units, "multi-user.target.wants")
	if err := errors.Join(os.MkdirAll(wants, 0o755), os.MkdirAll(filepath.Join(root, "programs"), 0o755)); err != nil {
		return err
	}
	if err := os.Symlink("../machine.service", filepath.Join(wants, "machine.service")); err != nil {
		return err
	}
	for _, name := range []string{"apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer"} {
		if err := os.Symlink("/dev/null", filepath.Join(root, units, name)); err != nil {
			return err
		}
	}
	return nil
}

// programs builds what is run in the machine and returns a disk with it.
func (m machine) programs(ctx context.Context, dir string) (string, error) {
	const module = "github.com/dormouse-run/dormouse/"
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return "", err
	}
	static := []string{"CGO_ENABLED=0"}
	build := make(map[string]string) // packages by the names of their programs
	if slices.Contains(m.steps, "limits") {
		build["dormouse-runner"], build["kernel"] = "cmd/dormouse-runner", "sandbox/gvisor/testdata/kernel"
	}
	if slices.Contains(m.steps, "wall") {
		build["attacks"], build["impostor"] = "e2e/cmd/attacks", "e2e/cmd/impostor"
	}
	for name, pkg := range build {
		if err := command(ctx, static, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(files, name), module+pkg); err != nil {
			return "", err
		}
	}
	if err := command(ctx, static, "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(files, "limits.test"), module+"sandbox/gvisor"); err != nil {
		return "", err
	}
	if err := command(ctx, nil, "cp", m.binary, filepath.Join(files, "dormouse")); err != nil {
		return "", err
	}
	tests, err := m.limits()
	if err != nil {
		return "", err
	}
	settings := fmt.Sprintf("STEPS='%s'\nSLOW=%d\nTESTS='%s'\n", strings.Join(m.steps, " "), m.slow, tests)
	err = errors.Join(
		os.WriteFile(filepath.Join(files, "settings"), []byte(settings), 0o644),
		os.WriteFile(filepath.Join(files, "inside"), []byte(inside), 0o755),
	)
	if err != nil {
		return "", err
	}
	disk := filepath.Join(dir, "disk")
	return disk, format(ctx, disk, files, 1<<30)
}

// limits is a pattern of the tests of a sandbox's limits: those of these files.
func (m machine) limits() (string, error) {
	only, err := regexp.Compile(m.tests)
	if err != nil {
		return "", fmt.Errorf("-tests: %w", err)
	}
	var names []string
	for _, file := range []string{"limits_test.go", "cpus_test.go", "weight_test.go"} {
		raw, err := os.ReadFile(filepath.Join("sandbox", "gvisor", file))
		if err != nil {
			return "", err
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(raw, -1) {
			if name := string(found[1]); only.MatchString(name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "", errors.New("-tests: no test has such a name")
	}
	return "^(" + strings.Join(names, "|") + ")$", nil
}

// format makes a disk of some files.
func format(ctx context.Context, disk, files string, size int64) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	return command(ctx, nil, "mkfs.ext4", "-q", "-F", "-d", files, disk)
}
