package inside

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse/runner/proctree"
)

// statsOf reads the processes that are still there.
func statsOf(all []proctree.Process) (map[int]stat, error) {
	stats := make(map[int]stat, len(all))
	for _, p := range all {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
		if err != nil {
			continue
		}
		if s, ok := parseStat(b); ok {
			stats[p.PID] = s
		}
	}
	return stats, nil
}

// clockTick is the unit of times in /proc, the same on every machine.
const clockTick = 10 * time.Millisecond

// The fields of /proc/<pid>/stat that are read, counted from the one behind the
// name.
const (
	statTimes = 11 // user, system, and both of reaped children
	statRSS   = 21
)

// parseStat reads /proc/<pid>/stat.
func parseStat(b []byte) (stat, bool) {
	// The name is in brackets and may contain anything, brackets included.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, false
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= statRSS {
		return stat{}, false
	}
	var s stat
	for _, f := range fields[statTimes : statTimes+4] {
		n, err := strconv.ParseInt(string(f), 10, 37) // so that neither product nor sum wraps
		if err != nil || n < 0 {
			return stat{}, false
		}
		s.cpu += time.Duration(n) * clockTick
	}
	pages, err := strconv.ParseInt(string(fields[statRSS]), 10, 40)
	if err != nil || pages < 0 {
		return stat{}, false
	}
	s.rss = pages * int64(os.Getpagesize())
	return s, true
}
