//go:build linux

package wall

import (
	"context"
	"slices"
	"strings"
)

// Case is one attack in a session of its own.
type Case struct {
	Name, Tries string

	// Of those that are made of the lists.
	path     string
	kind     kind
	occasion occasion

	// play carries out any other. An error says that the attack itself did not come
	// about.
	play      func(ctx context.Context, t *trial) error
	mostLines int
}

// Cases are all there are, if nothing else is found below /.dormouse than is known.
func Cases() []Case { return cases(nil) }

func cases(found []string) []Case {
	return slices.Concat(chosen(paths(found)), sneaks(), holes(), lying(), frames())
}

// chosen are the cases of the lists: any two of a path, a kind and an occasion are
// together in one. Those that were holes once are in it in any case.
func chosen(paths []string) (all []Case) {
	ks, os := kinds(), occasions()
	at := func(path string, k kind, o occasion) triple {
		return triple{slices.Index(paths, path), slices.Index(ks, k), slices.Index(os, o)}
	}
	const state = "/.dormouse/run/state/"
	for _, t := range cover([3]int{len(paths), len(ks), len(os)}, []triple{
		at(state+"fence.json", toZero, turnEnd), at(state+"fence.json", sparse, snapshot), at(state+"fence.json", toKmsg, snapshot),
		at(state+"fence.json", toCanary, turnEnd), at(state+"fence.json", fifo, turnEnd), at(state+"fence.json", swapped, branch),
		at(state+"log", toCanary, hibernate), at("/.dormouse/run/socket", toSocket, attach), at("/.dormouse/run/socket", swapped, restart),
	}) {
		c := Case{path: paths[t[0]], kind: ks[t[1]], occasion: os[t[2]]}
		c.Name = strings.Join([]string{string(c.kind), c.path, string(c.occasion)}, ":")
		c.Tries = c.kind.words() + " at " + c.path + ", then " + string(c.occasion)
		all = append(all, c)
	}
	return all
}

// words says what a kind is.
func (k kind) words() string {
	return map[kind]string{
		toZero: "a link to /dev/zero", toCanary: "a link to a file of the host", toKmsg: "a link to /dev/kmsg", toSocket: "a link to a socket of the host",
		toDirectory: "a link to a directory of the host", sparse: "a sparse file", fifo: "a fifo", device: "a device", swapped: "files and links in turn",
	}[k]
}

// carry plays the case in the session of a trial.
func (c Case) carry(ctx context.Context, t *trial) error {
	if c.play != nil {
		return c.play(ctx, t)
	}
	if err := t.plant(ctx, c.kind, c.path); err != nil {
		return err
	}
	t.meet(ctx, c.occasion, c.path)
	return nil
}
