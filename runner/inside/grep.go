package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

const (
	// maxLines bounds the lines that a grep shows, maxLine the bytes of each.
	maxLines = 1000
	maxLine  = 500
	// grepBuffer is how much of a file is in memory at once. A longer line is looked
	// at in pieces.
	grepBuffer = 256 << 10
	// shortFile is the size up to which a read of a regular file is never short.
	shortFile = 4096
)

// grep returns the lines that match a pattern.
func (r *Runner) grep(ctx context.Context, g runner.Grep) (runner.Result, error) {
	pattern, err := parseGrep(g.Pattern)
	if err != nil {
		return runner.Result{}, err
	}
	from, err := r.searchRootOf(g.Path)
	if err != nil {
		return runner.Result{}, err
	}
	s := &search{ctx: ctx, pattern: pattern, buf: make([]byte, grepBuffer)}
	if from.file {
		f, _, err := openRegular(from.path)
		if err != nil {
			return runner.Result{}, err
		}
		defer func() { _ = f.Close() }()
		err = s.file(from.shown, f)
		return s.result(err)
	}
	err = from.walk(ctx, -1, func(e walkEntry) error {
		if !e.Type().IsRegular() {
			return nil
		}
		fd, err := unix.Openat(e.dir, e.Name(), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil // others may be readable
		}
		defer func() { _ = unix.Close(fd) }()
		return s.file(from.displayPath(e.rel), plainFile(fd))
	})
	return s.result(err)
}

// plainFile reads a descriptor without package os, whose overhead is larger than the cost
// of reading a small file.
type plainFile int

func (f plainFile) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n < min(len(b), shortFile): // a regular file gives less only at its end
			return n, io.EOF
		default:
			return n, nil
		}
	}
}

// search is the state of a running grep.
type search struct {
	ctx     context.Context //nolint:containedctx // it lives as long as one call
	pattern grepPattern
	buf     []byte
	out     []byte
	count   int
	full    bool
}

func (s *search) result(err error) (runner.Result, error) {
	note, err := stopNote(err)
	if s.full {
		note = fmt.Sprintf("stopped at %d lines; narrow the pattern or the path to see others", s.count)
	}
	return runner.Result{Output: s.out, Count: s.count, Note: note}, err
}

// file searches one file, if it is text.
func (s *search) file(name string, f io.Reader) error {
	have, line := 0, int64(1)
	for first := true; ; first = false {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		n, err := f.Read(s.buf[have:])
		all := s.buf[:have+n]
		if first && isBinary(all) {
			return nil
		}
		over := err != nil || n == 0
		if err != nil && !errors.Is(err, io.EOF) {
			return nil // others may be readable
		}
		whole := bytes.LastIndexByte(all, '\n') + 1
		if over || whole == 0 && len(all) == len(s.buf) {
			whole = len(all)
		}
		if !s.lines(name, line, all[:whole]) {
			return errEnough
		}
		if over {
			return nil
		}
		line += int64(bytes.Count(all[:whole], []byte("\n")))
		have = copy(s.buf, all[whole:])
	}
}

// lines searches whole lines, of which the first has the given number. It returns false
// once the result is full.
func (s *search) lines(name string, number int64, text []byte) bool {
	for len(text) > 0 {
		begin := 0
		if len(s.pattern.needs) > 0 {
			i := bytes.Index(text, s.pattern.needs)
			if i < 0 {
				return true
			}
			begin = bytes.LastIndexByte(text[:i], '\n') + 1
			number += int64(bytes.Count(text[:begin], []byte("\n")))
		}
		line, rest, _ := bytes.Cut(text[begin:], []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if s.pattern.fits.Match(line) && !s.show(name, number, line) {
			return false
		}
		text = rest
		number++
	}
	return true
}

// show appends a line to the result, or returns false if that is full.
func (s *search) show(name string, number int64, line []byte) bool {
	if len(line) > maxLine {
		end := maxLine
		for end > 0 && !utf8.RuneStart(line[end]) {
			end--
		}
		line = append(bytes.Clone(line[:end]), " […]"...)
	}
	where := name + ":" + strconv.FormatInt(number, 10) + ":"
	if s.count == maxLines || len(s.out)+len(where)+len(line)+1 > runner.MaxText {
		s.full = true
		return false
	}
	s.count++
	s.out = append(append(append(s.out, where...), line...), '\n')
	return true
}
