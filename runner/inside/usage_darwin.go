package inside

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/runner/proctree"
)

// psWithin bounds the reading of all processes.
const psWithin = 5 * time.Second

// statsOf reads the processes that are still there, as ps shows them.
func statsOf(all []proctree.Process) (map[int]stat, error) {
	if len(all) == 0 {
		return map[int]stat{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), psWithin) //nolint:forbidigo // requests for usage carry none
	defer cancel()
	out, err := exec.CommandContext(ctx, "/bin/ps", "-axo", "pid=,rss=,time=").Output()
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return parsePS(out), nil
}

// parsePS reads lines of a process, its memory in KiB and its time. Lines that make no
// sense are passed over.
func parsePS(out []byte) map[int]stat {
	stats := make(map[int]stat)
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 {
			continue
		}
		pid, bad := strconv.Atoi(fields[0])
		kib, err := strconv.ParseInt(fields[1], 10, 50)
		cpu, ok := parseTime(fields[2])
		if bad == nil && err == nil && kib >= 0 && ok {
			stats[pid] = stat{cpu: cpu, rss: kib << 10}
		}
	}
	return stats
}

// parseTime reads minutes:seconds.hundredths.
func parseTime(s string) (time.Duration, bool) {
	minutes, seconds, ok := strings.Cut(s, ":")
	m, bad := strconv.ParseUint(minutes, 10, 24)
	n, err := strconv.ParseFloat(seconds, 64)
	if !ok || bad != nil || err != nil || n < 0 || n >= 60 {
		return 0, false
	}
	return time.Duration(m)*time.Minute + time.Duration(n*float64(time.Second)), true //nolint:gosec // at most 24 bits
}
