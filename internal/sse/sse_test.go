package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/internal/sse"
)

const most = 100 << 10

// all reads a stream to its end.
func all(r io.Reader, most int) (frames []sse.Frame, err error) {
	in := sse.NewReader(r, most)
	for {
		f, err := in.Next()
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for name, c := range map[string]struct {
		stream string
		want   []sse.Frame
		err    error
	}{
		"nothing":                 {"", nil, io.EOF},
		"empty lines":             {"\n\r\n\n", nil, io.EOF},
		"an event":                {"id: 7\nevent: a.b\ndata: {}\n\n", []sse.Frame{{"7", "a.b", []byte("{}")}}, io.EOF},
		"carriage returns":        {"id: 7\r\ndata: {}\r\n\r\n", []sse.Frame{{"7", "", []byte("{}")}}, io.EOF},
		"no space":                {"event:a\ndata:b\n\n", []sse.Frame{{"", "a", []byte("b")}}, io.EOF},
		"two spaces":              {"data:  b\n\n", []sse.Frame{{"", "", []byte(" b")}}, io.EOF},
		"data in several lines":   {"data: a\ndata\ndata: b\n\n", []sse.Frame{{"", "", []byte("a\n\nb")}}, io.EOF},
		"a comment":               {": alive\n\n", []sse.Frame{{}}, io.EOF},
		"a comment in an event":   {"data: a\n: alive\n\n", []sse.Frame{{"", "", []byte("a")}}, io.EOF},
		"fields nobody knows":     {"retry: 5\nx\n\ndata: a\n\n", []sse.Frame{{}, {"", "", []byte("a")}}, io.EOF},
		"nothing is carried over": {"id: 1\nevent: a\n\ndata: b\n\n", []sse.Frame{{"1", "a", nil}, {"", "", []byte("b")}}, io.EOF},
		"beyond the buffer":       {"data: " + long + "\n\ndata: b\n\n", []sse.Frame{{"", "", []byte(long)}, {"", "", []byte("b")}}, io.EOF},
		"a byte order mark":       {"\ufeffid: 1\n\ndata: b\n\n", []sse.Frame{{"1", "", nil}, {"", "", []byte("b")}}, io.EOF},
		"a mark and nothing":      {"\ufeff", nil, io.EOF},
		"a mark before a line":    {"\ufeff\r\nid: 1\n\n", []sse.Frame{{"1", "", nil}}, io.EOF},
		"two marks":               {"\ufeff\ufeffid: 1\n\n", []sse.Frame{{}}, io.EOF},
		"a mark later on":         {"\n\ufeffid: 1\n\n", []sse.Frame{{}}, io.EOF},
		"half a mark":             {"\xef\xbb", nil, io.ErrUnexpectedEOF},
		"cut in a line":           {"data: a\n\nid: 2\nda", []sse.Frame{{"", "", []byte("a")}}, io.ErrUnexpectedEOF},
		"cut between lines":       {"id: 2\ndata: a\n", nil, io.ErrUnexpectedEOF},
		"a line too long":         {"data: a\n\ndata: " + long + long + "\n\n", []sse.Frame{{"", "", []byte("a")}}, sse.ErrTooLong},
		"lines too long together": {"data: " + long + "\ndata: " + long + "\n\n", nil, sse.ErrTooLong},
		"a line without an end":   {long + long, nil, sse.ErrTooLong},
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(c.stream), "in bytes": iotest.OneByteReader(strings.NewReader(c.stream))} {
			frames, err := all(r, most)
			if diff := cmp.Diff(c.want, frames); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("%s, %s: %v\n%.500s", name, how, err, diff)
			}
		}
	}
}

func TestAStreamThatBreaksSaysWhy(t *testing.T) {
	why := errors.New("pulled")
	frames, err := all(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(why)), most)
	if len(frames) != 1 || !errors.Is(err, why) {
		t.Errorf("%v, %v", frames, err)
	}
}

func TestADataSliceIsTheCallersToKeep(t *testing.T) {
	var stream strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&stream, "data: %d\n\n", i)
	}
	frames, _ := all(strings.NewReader(stream.String()), most)
	for i, f := range frames {
		if string(f.Data) != fmt.Sprint(i) {
			t.Fatalf("frame %d became %q", i, f.Data)
		}
	}
}

// However a stream is cut into reads, it is the same frames; what they say written down
// again reads the same; and none is longer than was allowed.
func FuzzReader(f *testing.F) {
	f.Add([]byte("id: 1\nevent: a\ndata: {}\n\n: x\r\n\r\ndata:a\ndata: b\n\n"))
	f.Add([]byte("data: " + strings.Repeat("y", 300) + "\n\ndata"))
	f.Add([]byte("id\n\n\r\rdata: \r\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 200
		frames, err := all(bytes.NewReader(stream), most)
		slowly, alike := all(iotest.OneByteReader(bytes.NewReader(stream)), most)
		if diff := cmp.Diff(frames, slowly); diff != "" || !errors.Is(alike, err) {
			t.Fatalf("%v, and byte by byte %v\n%s", err, alike, diff)
		}
		var again strings.Builder
		for _, f := range frames {
			if len(f.ID)+len(f.Event)+len(f.Data) > most {
				t.Fatalf("a frame of %d bytes", len(f.Data))
			}
			fmt.Fprintf(&again, ":\nid: %s\nevent: %s\n", f.ID, f.Event)
			if f.Data != nil {
				fmt.Fprintf(&again, "data: %s\n", strings.ReplaceAll(string(f.Data), "\n", "\ndata: "))
			}
			again.WriteString("\n")
		}
		if reread, err := all(strings.NewReader(again.String()), 10*most); !errors.Is(err, io.EOF) || cmp.Diff(frames, reread) != "" {
			t.Fatalf("%v\n%s", err, cmp.Diff(frames, reread))
		}
	})
}
