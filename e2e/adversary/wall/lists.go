//go:build linux

package wall

import (
	"slices"
	"strings"
)

// kind is what is put in the place of a file that the server may open.
type kind string

// The kinds of file.
const (
	toZero      kind = "zero"      // a link to /dev/zero: it never ends
	toCanary    kind = "canary"    // a link to a file of the host that no sandbox may read
	toKmsg      kind = "kmsg"      // a link to /dev/kmsg: reading it waits for ever
	toSocket    kind = "socket"    // a link to a socket of the host
	toDirectory kind = "directory" // a link to a directory of the host
	sparse      kind = "sparse"    // a file that is long and takes no room
	fifo        kind = "fifo"      // opening it waits for ever
	device      kind = "device"    // a node of /dev/zero, or of a disk
	swapped     kind = "swapped"   // now a file, now a link, all the time
)

// kinds are all there are.
func kinds() []kind {
	return []kind{toZero, toCanary, toKmsg, toSocket, toDirectory, sparse, fifo, device, swapped}
}

// occasion is when the server has to do with what a sandbox left.
type occasion string

// The occasions.
const (
	turnEnd   occasion = "turn-end"
	hibernate occasion = "hibernate"
	wake      occasion = "wake"
	attach    occasion = "attach"
	snapshot  occasion = "snapshot"
	branch    occasion = "branch"
	remove    occasion = "delete"
	restart   occasion = "restart"
)

// occasions are all there are.
func occasions() []occasion {
	return []occasion{turnEnd, hibernate, wake, attach, snapshot, branch, remove, restart}
}

// known are the paths that a sandbox can write, or could once: what cannot be
// written any more holds. What else there is below /.dormouse is found from inside.
func known() []string {
	return []string{
		"/.dormouse/run/state/fence.json", "/.dormouse/run/state/fence.json.new", "/.dormouse/run/state/log", "/.dormouse/run/state/ops",
		"/.dormouse/run/state/alive", "/.dormouse/run/state/output", "/.dormouse/run/state/tasks", "/.dormouse/run/state",
		"/.dormouse/run/socket", "/.dormouse/run/secret", "/.dormouse/run/outlet", "/.dormouse/run/bell", "/.dormouse/run/x",
		"/.dormouse/slot/x", "/.dormouse/slot/ws", "/.dormouse/shells/ahead/commands", "/workspace/x", "/root/x", "/tmp/x", "/tmp/dormouse",
	}
}

// paths are the known ones and those of what was found that are not like one of them:
// names made of an id stand for one another.
func paths(found []string) []string {
	all := known()
	for _, p := range found {
		if p = like(p); !slices.Contains(all, p) && strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "/.dormouse/bin/") { // those are programs
			all = append(all, p)
		}
	}
	return all
}

// like is the path with names that are random, or numbers, cut to what they begin with.
func like(path string) string {
	parts := strings.Split(path, "/")
	for i, name := range parts {
		if at := strings.IndexAny(name, "0123456789"); at >= 0 {
			parts[i] = name[:at] + "0"
		}
	}
	return strings.Join(parts, "/")
}
