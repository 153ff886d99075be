package inside

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

const (
	// searchTime is how long one read, glob or grep may take.
	searchTime = time.Minute
	// sniffed is how many bytes of a file decide its type.
	sniffed = 8 << 10
	// maxNames bounds what is listed of a directory.
	maxNames = 1000
)

// performRead executes a read, a glob or a grep.
func (r *Runner) performRead(ctx context.Context, c runner.Call) runner.Result {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	var res runner.Result
	var err error
	switch {
	case c.Read != nil:
		res, err = r.read(ctx, *c.Read)
	case c.Glob != nil:
		res, err = r.glob(ctx, *c.Glob)
	case c.Grep != nil:
		res, err = r.grep(ctx, *c.Grep)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return runner.Result{Error: fmt.Sprintf("it takes longer than %s", searchTime)}
	case err != nil:
		return runner.Result{Error: err.Error()}
	}
	return res
}

func (r *Runner) read(ctx context.Context, rd runner.Read) (runner.Result, error) {
	path, err := r.resolve(rd.Path)
	if err != nil {
		return runner.Result{}, err
	}
	if rd.From == 0 {
		rd.From = 1
	}
	if rd.To == 0 {
		rd.To = -1
	}
	if rd.From < 1 || rd.To < -1 || rd.To > 0 && rd.To < rd.From {
		return runner.Result{}, fmt.Errorf("there are no lines %d to %d", rd.From, rd.To)
	}
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		return list(path)
	}
	f, at, err := openRegular(path)
	if err != nil {
		return runner.Result{}, err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, sniffed)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return runner.Result{}, err
	}
	head = head[:n]
	media := imageType(head)
	switch {
	case media != "" && at.Size() > runner.MaxImage:
		return runner.Result{}, fmt.Errorf("%s is an image of %d bytes, at most %d are shown", path, at.Size(), runner.MaxImage)
	case media != "":
		out, err := io.ReadAll(io.LimitReader(f, runner.MaxImage))
		return runner.Result{Output: out, Size: at.Size(), Media: media}, err
	case isBinary(head):
		return runner.Result{}, fmt.Errorf("%s is a binary file of %d bytes", path, at.Size())
	}
	res, err := readLines(ctxReader{ctx, f}, rd.From, rd.To)
	if err != nil {
		return runner.Result{}, fmt.Errorf("%s: %w", path, err)
	}
	res.Size = at.Size()
	return res, nil
}

// readLines reads lines first to last, up to runner.MaxText bytes.
func readLines(from io.Reader, first, last int64) (runner.Result, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	for line := int64(1); line < first; {
		part, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			line++
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if len(part) == 0 {
				line--
			}
			return runner.Result{}, fmt.Errorf("it has %d lines", line)
		default:
			return runner.Result{}, err
		}
	}
	res := runner.Result{Line: first}
	for line := first; last < 0 || line <= last; {
		part, err := in.ReadSlice('\n')
		if room := runner.MaxText - len(res.Output); len(part) > room {
			res.Output, res.More = append(res.Output, part[:room]...), true
			return res, nil
		}
		res.Output = append(res.Output, part...)
		switch {
		case err == nil:
			line++
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if first > 1 && len(res.Output) == 0 {
				return runner.Result{}, fmt.Errorf("it has %d lines", first-1)
			}
			return res, nil
		default:
			return runner.Result{}, err
		}
	}
	return res, nil
}

// list lists a directory.
func list(path string) (runner.Result, error) {
	d, err := os.Open(path)
	if err != nil {
		return runner.Result{}, err
	}
	defer func() { _ = d.Close() }()
	entries, err := d.ReadDir(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return runner.Result{}, err
	}
	res := runner.Result{Media: runner.MediaDirectory}
	if len(entries) > maxNames {
		entries, res.Note = entries[:maxNames], fmt.Sprintf("more than %d names; the others are left out", maxNames)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
		if e.IsDir() {
			names[i] += "/"
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if len(res.Output)+len(name)+1 > runner.MaxText {
			res.Note = "the other names are left out"
			break
		}
		res.Output = append(append(res.Output, name...), '\n')
		res.Count++
	}
	return res, nil
}

// imageType is the media type of an image with this head, empty if it is none.
func imageType(head []byte) string {
	begins := func(s string) bool { return bytes.HasPrefix(head, []byte(s)) }
	switch {
	case begins("\x89PNG\r\n\x1a\n"):
		return runner.MediaPNG
	case begins("\xff\xd8\xff"):
		return runner.MediaJPEG
	case begins("GIF87a"), begins("GIF89a"):
		return runner.MediaGIF
	case begins("RIFF") && len(head) >= 12 && string(head[8:12]) == "WEBP":
		return runner.MediaWebP
	}
	return ""
}

// isBinary reports whether a file with this head is not text.
func isBinary(head []byte) bool { return bytes.IndexByte(head, 0) >= 0 }

// ctxReader fails once its context has ended.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	r   io.Reader
}

func (s ctxReader) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}
