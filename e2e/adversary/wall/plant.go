//go:build linux

package wall

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// quote makes one word of text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// plant puts a file of a kind where something else is, or nothing. It says what came
// of it: what a sandbox is not allowed to write cannot hurt anybody.
func (t *trial) plant(ctx context.Context, k kind, path string) error {
	const within = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, t.of(within))
	defer cancel()
	link := func(to string) string { return "ln -sfn " + quote(to) + " " + quote(path) }
	var put string
	switch k {
	case toZero:
		put = link("/dev/zero")
	case toCanary:
		put = link(t.bait.file)
	case toKmsg:
		put = link("/dev/kmsg")
	case toSocket:
		put = link(t.bait.socket)
	case toDirectory:
		put = link(t.bait.dir)
	case sparse:
		put = "truncate -s 64G " + quote(path)
	case fifo:
		put = "mkfifo " + quote(path)
	case device:
		put = "mknod " + quote(path) + " c 1 5 || mknod " + quote(path) + " b 7 0 || mknod " + quote(path) + " c 1 11"
	case swapped:
		return t.swap(ctx, path)
	}
	d, err := t.run(ctx, t.session, fmt.Sprintf(
		`p=%s; mkdir -p "$(dirname "$p")"; rm -rf "$p" 2>/dev/null || mv "$p" "$p.old"; if %s; then echo planted; else echo refused; fi 2>&1; ls -ld "$p" 2>&1`, quote(path), put))
	t.note("%s", oneLine(d.Output+d.Error))
	if err != nil {
		t.note("%v", err) // what it took away may be what it needed to tell
	}
	return nil
}

// swap keeps swapping what is at path, in the background.
func (t *trial) swap(ctx context.Context, path string) error {
	if err := t.arm(ctx); err != nil {
		return err
	}
	d, err := t.run(ctx, t.session, fmt.Sprintf(
		`p=%s; cp %s /swapper; mkdir -p "$(dirname "$p")"; rm -rf "$p" 2>/dev/null; setsid /swapper -do swap -for %s "$p" %s %s /dev/zero >/swaps 2>&1 & sleep 0.2; ls -ld %s; cat /swaps`,
		quote(path), put, t.of(15*time.Second), quote(t.bait.file), quote(t.bait.dir), quote(path)))
	t.note("%s", oneLine(d.Output+d.Error))
	if err != nil {
		t.note("%v", err)
	}
	return nil
}

// oneLine makes one short line of text.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 240
	if len(text) > most {
		text = text[:most/2] + " … " + text[len(text)-most/2:]
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, text)
	return strings.ToValidUTF8(text, "?")
}
