//go:build linux

package impostor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// Forged is in every hostile text. Where a line begins with it, or the character before
// it is unescaped, the text was not sanitized.
const Forged = "level=ERROR msg=FORGED"

// Escaped is the file that a tar of the impostor's writes if its unpacker lets names
// climb out of the target.
const Escaped = "/tmp/dormouse-escaped"

// hostile is a text that colours terminals, begins lines and does not end.
func hostile(size int) string {
	const one = "\x1b[2J\x1b[31m\r\n" + Forged + "\n\x00\u202e"
	return strings.Repeat(one, size/len(one)+1)
}

// size is how long a text is in the answer to a request: now more than any frame of a
// runner's may have, now as much as goes into one.
func size(f runner.Frame) int {
	const tooMuch, much = 1 << 20, 4 << 10
	if f.ID%3 == 0 {
		return tooMuch
	}
	return much
}

// lie answers a request.
type lie func(r Runner, c *Conn, f runner.Frame) error

// lies are the ways to answer, by name.
func lies() map[string]lie {
	return map[string]lie{
		"stale": func(_ Runner, c *Conn, f runner.Frame) error {
			return c.reply(f, runner.Frame{Refusal: runner.RefusedStale})
		},
		"foreign": func(_ Runner, c *Conn, f runner.Frame) error {
			return c.reply(f, runner.Frame{Refusal: runner.RefusedForeign})
		},
		"never": func(_ Runner, c *Conn, f runner.Frame) error {
			return c.reply(f, runner.Frame{Refusal: runner.RefusedNever})
		},
		"mute":    func(Runner, *Conn, runner.Frame) error { return nil },
		"text":    text,
		"result":  result,
		"numbers": numbers,
		"streams": streams,
	}
}

// Lies names the ways to answer.
func Lies() []string { return slices.Sorted(maps.Keys(lies())) }

// Lie takes the runner's place again and again until the time is over, and answers every
// request in the same way. It returns how many requests there were.
func (r Runner) Lie(how string, long time.Duration) (asked int, err error) {
	write, ok := lies()[how]
	if !ok {
		return 0, fmt.Errorf("there is no lie %q", how)
	}
	r, give := r.Alone()
	defer give()
	bound := 0
	for until := time.Now().Add(long); time.Now().Before(until); {
		var c *Conn
		if c, err = r.Bind(runner.Hello{Fence: runner.Fence{Epoch: math.MaxInt64}}); err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		bound++
		for time.Now().Before(until) {
			f, err := c.Hear()
			if err != nil || f.Kind != runner.KindHeartbeat && f.Kind != runner.KindDetach && f.Kind != runner.KindForget && write(r, c, f) != nil {
				break
			}
			if f.Kind != runner.KindHeartbeat {
				asked++
			}
		}
		_ = c.Close()
	}
	if bound > 0 {
		err = nil
	}
	return asked, err
}

// reply answers f with a.
func (c *Conn) reply(f, a runner.Frame) error {
	a.Kind, a.ID = runner.KindReply, f.ID
	return c.Say(a)
}

// text refuses with a hostile text, or answers what is asked for with one in each
// place there is.
func text(_ Runner, c *Conn, f runner.Frame) error {
	t := hostile(size(f))
	switch f.Kind { //nolint:exhaustive // the others are refused
	case runner.KindTerminals:
		return c.reply(f, runner.Frame{Terminals: []runner.TerminalReport{{ID: t, Command: []string{t}}}})
	case runner.KindPorts:
		return c.reply(f, runner.Frame{Ports: []runner.Port{{Port: 1, Address: t, Command: t}}})
	case runner.KindRelieve:
		return c.reply(f, runner.Frame{Victims: []runner.Victim{{PID: 1, Command: t}}})
	}
	return c.reply(f, runner.Frame{Refusal: runner.RefusedInvalid, Detail: t})
}

// result says that everything is done, with a hostile text in whatever a result says.
func result(_ Runner, c *Conn, f runner.Frame) error {
	switch f.Kind { //nolint:exhaustive // the others are done
	case runner.KindWait, runner.KindAsk:
		t := hostile(size(f))
		r := runner.Result{Output: []byte(t), Error: t, Note: t, File: t, Log: t, Media: t, Exit: -1, Omitted: math.MinInt64}
		return c.reply(f, runner.Frame{Report: &runner.Report{Op: f.Op, State: runner.Finished, Result: &r}})
	case runner.KindUsage:
		return c.reply(f, runner.Frame{Usage: &runner.Usage{}})
	}
	return c.reply(f, runner.Frame{})
}

// numbers answers with what no count, size or time can be.
func numbers(_ Runner, c *Conn, f runner.Frame) error {
	for _, n := range []int64{math.MaxInt64, math.MinInt64, -1} {
		r := runner.Result{Exit: int(n), Omitted: n, Size: n, Line: n, Count: int(n), PID: int(n)}
		err := c.reply(f, runner.Frame{
			Report: &runner.Report{Op: f.Op, State: runner.Finished, Result: &r},
			Usage:  &runner.Usage{Processes: int(n), RSS: n, CPU: time.Duration(n), Ops: int(n), Tasks: int(n), Terminals: int(n)},
			Ports:  []runner.Port{{PID: int(n)}}, Victims: []runner.Victim{{PID: int(n), RSS: n}},
			Terminals: []runner.TerminalReport{{PID: int(n), Attached: int(n)}}, Bytes: n,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// streams opens what is asked for and sends noise there, as fast as it is read.
func streams(r Runner, c *Conn, f runner.Frame) error {
	if f.Kind != runner.KindOpen {
		return result(r, c, f)
	}
	secret, err := r.secret()
	if err != nil {
		return err
	}
	raw, err := r.dial()
	if err != nil {
		return err
	}
	s := &Conn{Conn: raw}
	err = s.Say(runner.Frame{Kind: runner.KindStream, StreamID: f.StreamID, Hello: &runner.Hello{Protocol: runner.Protocol, Secret: secret}})
	if err == nil {
		_, err = s.Hear()
	}
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	go func() {
		defer func() { _ = raw.Close() }()
		noise := []byte(hostile(1 << 16))
		if f.Stream != nil && f.Stream.Tree != nil { // the first block of a tar that is very long
			noise = append(tarHead(), noise...)
		}
		for range 256 {
			if s.Raw(noise) != nil {
				return
			}
		}
	}()
	return c.reply(f, runner.Frame{})
}

// tarHead is the head of an entry whose name leads out and whose size is huge.
func tarHead() []byte {
	const block, size, sum = 512, 124, 148
	b := make([]byte, block)
	copy(b, "../../../../../../../.."+Escaped)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[size:], "77777777777\x0000000000000\x00")
	copy(b[sum:], "        0")
	copy(b[257:], "ustar\x0000")
	total := 0
	for _, v := range b {
		total += int(v)
	}
	copy(b[sum:], fmt.Sprintf("%06o\x00 ", total))
	return b
}

// Forge writes a fence that no server will ever reach into the runner's own files.
func (r Runner) Forge(session dormouse.SessionID, generation uint64) error {
	b, err := json.Marshal(runner.Fence{Session: session, Generation: generation, Epoch: math.MaxInt64})
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"fence.json", "fence.json.new"} {
		errs = append(errs, os.WriteFile(filepath.Join(r.State, name), b, 0o600))
	}
	return errors.Join(errs...)
}

// Swap puts a file and links at path in turn until the time is over. It returns how
// often.
func Swap(path string, targets []string, long time.Duration) (n int, err error) {
	draft := filepath.Join(filepath.Dir(path), ".swap")
	for until := time.Now().Add(long); time.Now().Before(until); n++ {
		_ = os.Remove(draft)
		if i := n % (len(targets) + 1); i < len(targets) {
			err = os.Symlink(targets[i], draft)
		} else {
			err = os.WriteFile(draft, []byte("{}"), 0o600)
		}
		if err == nil {
			err = os.Rename(draft, path)
		}
		if err != nil && n == 0 {
			return 0, err
		}
		if n%16 == 0 {
			time.Sleep(time.Millisecond) // others are to get a turn too
		}
	}
	return n, nil
}

// Snipe puts a link to target in the place of every file with a hidden name that
// appears in a directory, and takes away what else is there, for so long. It returns how
// often it was quick enough.
func Snipe(dir, name, target string, long time.Duration) (n int, err error) {
	var again time.Time
	for until := time.Now().Add(long); time.Now().Before(until); {
		var found []os.DirEntry
		if found, err = os.ReadDir(dir); err != nil {
			return n, err
		}
		for _, e := range found {
			if !strings.HasPrefix(e.Name(), ".") || e.Type() == os.ModeSymlink {
				continue
			}
			draft := filepath.Join(dir, "aim"+e.Name())
			if os.Symlink(target, draft) == nil && os.Rename(draft, filepath.Join(dir, e.Name())) == nil {
				n++
			}
		}
		if time.Now().After(again) { // the server writes the file again if it is missing
			if err = os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return n, err
			}
			again = time.Now().Add(100 * time.Millisecond)
		}
	}
	return n, nil
}
