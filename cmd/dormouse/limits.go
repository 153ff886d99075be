package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox/gvisor"
)

// limits is what one sandbox may use, as given by flags.
type limits struct {
	memory, disk string
	parsed       dormouse.Limits
}

func (l *limits) flags(f *pflag.FlagSet) {
	l.parsed = gvisor.DefaultLimits()
	f.Float64Var(&l.parsed.CPUs, "sandbox-cpus", l.parsed.CPUs, "processors that one sandbox may use, and the most that a session can ask for; 0 for all")
	f.StringVar(&l.memory, "sandbox-memory", "4G", "memory that one sandbox may use, such as 512M, and the most that a session can ask for; 0 for no limit")
	f.StringVar(&l.disk, "sandbox-disk", "10G", "room that the files of one session may take; 0 for no limit")
	f.Int64Var(&l.parsed.Inodes, "sandbox-inodes", l.parsed.Inodes, "files that one session may have; 0 for no limit but the room")
	f.Int64Var(&l.parsed.Pids, "sandbox-pids", l.parsed.Pids, "processes that one sandbox may have; 0 for no limit")
	f.Int64Var(&l.parsed.Files, "sandbox-files", l.parsed.Files, "files that one process may have open; 0 for no limit")
}

// check parses the sizes, and refuses limits that are too small for any sandbox.
func (l *limits) check() (err error) {
	const (
		leastMemory = 128 << 20
		leastDisk   = 64 << 20
	)
	if l.parsed.Memory, err = parseSize(l.memory); err != nil {
		return usage("--sandbox-memory: %w", err)
	}
	if l.parsed.Disk, err = parseSize(l.disk); err != nil {
		return usage("--sandbox-disk: %w", err)
	}
	switch {
	case l.parsed.Memory != 0 && l.parsed.Memory < leastMemory:
		return usage("--sandbox-memory must be at least 128M, or 0")
	case l.parsed.Disk != 0 && l.parsed.Disk < leastDisk:
		return usage("--sandbox-disk must be at least 64M, or 0")
	case l.parsed.CPUs < 0 || l.parsed.Pids < 0 || l.parsed.Inodes < 0 || l.parsed.Files < 0:
		return usage("a limit of sandboxes cannot be negative")
	case l.parsed.Pids != 0 && l.parsed.Pids < 16:
		return usage("--sandbox-pids must be at least 16, or 0")
	}
	if err := l.parsed.Validate(); err != nil {
		return usage("--sandbox-…: %w", err)
	}
	return nil
}

// parseSize reads a number of bytes, such as 512M.
func parseSize(text string) (int64, error) {
	number, unit := strings.TrimRight(text, "KMGTiB"), ""
	if number != text {
		unit = text[len(number) : len(number)+1]
	}
	n, err := strconv.ParseFloat(number, 64)
	exponent := strings.Index("BKMGT", unit)
	if unit == "" {
		exponent = 0
	}
	if err != nil || n < 0 || exponent < 0 {
		return 0, fmt.Errorf("%q is no size such as 512M or 10G", text)
	}
	bytes := n * float64(int64(1)<<(10*exponent))
	if bytes >= 1<<62 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int64(bytes), nil
}
